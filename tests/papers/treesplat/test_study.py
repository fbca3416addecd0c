"""Claims, trials, figures and tables of the study, with made-up measurements."""

from __future__ import annotations

import math

import pytest
from tests.papers.drawing import check_drawn

from assay.papers.treesplat.claims import CLAIMS, SCENES
from assay.papers.treesplat.study import claims_of, needs_of, study
from assay.papers.treesplat.tuning import (
    BASIS,
    BASIS_RATES,
    CHOSEN,
    FINAL_SHARES,
    RATES,
    TUNING_SEED,
    setting,
)
from assay.report import shipped_exports
from assay.study import Compare, NeedKind, Outcome, Result, Results, Scale, Status
from assay.study.judge import judge

LAPTOP = list(study.trials(Scale.LAPTOP))
AT_LAPTOP = [claim for claim in CLAIMS if Scale.LAPTOP in claim.protocol]
QUALITY = {"none": 18.0, "flat": 23.0, "tree": 24.0, "polynomial": 22.0, "mlp": 24.0}


def made_up(trial, quality=QUALITY):
    """What the paper, and our own questions, would expect."""
    p, noise = trial.params, 0.05 * math.sin(3 * trial.seed + len(str(trial.params)))
    match p["part"]:
        case "compare" | "mlp" | "n3v":
            found = {}
            for i, arm in enumerate(str(p.get("arms", "mlp")).split()):
                level = quality[arm] + noise * (1 + i / 10)
                found |= {f"psnr_{arm}": level, f"foreground_{arm}": level - 3}
            if "psnr_flat" in found:
                gap = found["psnr_tree"] - found["psnr_flat"]
                found["gap"] = gap + (0.5 if p.get("views") == "few" else 0.0)
                found["count_ratio"] = 0.99
            return found
        case "tuning":
            return {"score": 20 - abs(math.log(p.get("rate", 1e-3) / 3e-3))}
        case "depth":
            return {
                "psnr": 22 + 0.1 * p["depth"] + noise + (0.3 + noise / 5 if p["decay"] else 0.0),
                "root_over_leaf": (4.0 if p["decay"] else 9.0) + noise,
                "siblings_apart": 0.2 + noise / 10,
                "merge_pixel_32": 1e-6,
                "merge_psnr_32": 1e-7,
                "merge_pixel_64": 1e-15,
                "gaussians": 2500.0,
                "nodes": 4000.0,
                "reached": float(p["depth"]),
                "static_bytes": 6e5,
                "merged_bytes": 8e5,
                "tree_bytes": 1.2e6 + noise,
            }
        case "growth":
            return {"largest_jump": 1e-5}
        case "gradients":
            return {"gradient_error": 1e-12}
        case "motion-time":
            times = {"merged": 1e-4, "tree": 6e-4, "mlp": 9e-2}
            frames = {f"frame_{name}_s": 5e-3 + s for name, s in times.items()}
            return {f"{name}_s": s * (1 + noise) for name, s in times.items()} | frames
        case "rasterizer":
            return {"ours_s": 0.01, "torch_projection_s": 0.02 + noise / 100, "dense_s": 0.9}
    raise AssertionError(p["part"])


def series(trial):
    p = trial.params
    match p["part"]:
        case "compare" | "mlp":
            arms = str(p.get("arms", "mlp")).split()
            return {f"psnr/{arm}": [(100, 15.0), (200, QUALITY[arm])] for arm in arms}
        case "depth":
            path = [(10.0, 10.0), (20.0, 30.0)]
            return {
                "leaves_at": [(0, 900.0), (1, 100.0)],
                "norm_at": [(0, 1.0), (1, 0.2)],
                "path/4/0": path,
                "path/4/1": path,
                "path/9/7": path,
            }
    return {}


def finished(trials, change=lambda trial, metrics: metrics, files=lambda trial: {}):
    return Results(
        [
            Result("k", t.params, t.seed, Status.OK, change(t, made_up(t)), series(t), files(t))
            for t in trials
        ]
    )


def verdict(claim, results):
    planned = [t for t in LAPTOP if claim.id in t.claims]
    return judge(claim, Scale.LAPTOP, planned, results).outcome


@pytest.fixture(scope="module")
def results():
    return finished(LAPTOP)


@pytest.mark.parametrize("claim", AT_LAPTOP, ids=lambda claim: claim.id)
def test_a_claim_is_supported_where_it_is_right(claim, results):
    assert verdict(claim, results) is Outcome.SUPPORTED


@pytest.mark.parametrize("claim", AT_LAPTOP, ids=lambda claim: claim.id)
def test_a_claim_fails_where_it_is_wrong(claim):
    worse = {"none": 24.0, "flat": 24.0, "tree": 23.0, "polynomial": 24.5, "mlp": 25.0}

    def turned(trial, m):
        p = trial.params
        match p["part"]:
            case "compare":
                wrong = {**m, **made_up(trial, worse), "count_ratio": 0.9}
                return wrong | {"gap": wrong["gap"] - (1.0 if p["views"] == "few" else 0.0)}
            case "mlp":
                return made_up(trial, worse)
            case "depth":
                more = 1.0 if p["decay"] else -1.0
                return m | {
                    "psnr": m["psnr"] - 0.3 * p["depth"] - more,
                    "root_over_leaf": m["root_over_leaf"] * (9 if p["decay"] else 1),
                    "siblings_apart": m["siblings_apart"] + 0.5,
                    "merge_pixel_32": 1e-3,
                    "merge_psnr_32": 1e-2,
                    "merge_pixel_64": 1e-9,
                    "tree_bytes": 0.9 * m["merged_bytes"],
                    "static_bytes": 0.5 * m["merged_bytes"],
                }
            case "growth":
                return {"largest_jump": 1.0}
            case "gradients":
                return {"gradient_error": 0.1}
            case "motion-time":
                return m | {"merged_s": 0.4 * m["tree_s"], "mlp_s": m["tree_s"]}
            case "rasterizer":
                return m | {"dense_s": 0.02, "torch_projection_s": 0.009}
        return m

    refuted = (Outcome.CONTRADICTED, Outcome.NOT_REPRODUCED)
    assert verdict(claim, finished(LAPTOP, turned)) in refuted


def test_a_tree_as_good_as_the_flat_basis_is_on_par_and_not_better():
    def equal(trial, m):
        if "psnr_flat" not in m:
            return m
        same = {"psnr_tree": m["psnr_flat"] + 0.01 * (-1) ** trial.seed}
        return m | same | {"gap": same["psnr_tree"] - m["psnr_flat"]}

    found = finished(LAPTOP, equal)
    assert verdict(study.claim("C1-par"), found) is Outcome.SUPPORTED
    assert verdict(study.claim("C1-better"), found) is Outcome.INCONCLUSIVE


def test_every_scene_and_seed_counts_in_the_comparison_with_the_flat_basis():
    for id in ("C1-par", "C1-better"):
        trials = [t for t in LAPTOP if id in t.claims]
        assert {(t.params["scene"], t.seed) for t in trials} == {
            (scene, seed) for scene in SCENES for seed in range(3)
        }
        test = study.claim(id).test_at(Scale.LAPTOP)
        assert isinstance(test, Compare)
        assert test.min_trials == len(trials)


def test_arms_that_are_compared_share_cameras_and_points():
    """One trial trains them all; where the MLP has its own, the tree of the same seed is there."""
    compared = {(t.params["scene"], t.seed) for t in LAPTOP if t.params["part"] == "compare"}
    for trial in LAPTOP:
        if trial.params["part"] == "mlp":
            assert (trial.params["scene"], trial.seed) in compared


def test_every_arm_that_is_judged_has_the_rates_of_the_search():
    for trial in LAPTOP:
        p, scene = trial.params, str(trial.params.get("scene"))
        arms = {f"{arm}_": arm for arm in str(p.get("arms", "")).split()}
        arms |= {"": {"depth": "tree", "growth": "tree", "mlp": "mlp"}.get(p["part"], "none")}
        for before, arm in arms.items():
            for name, value in setting(scene, arm).items():
                assert p[before + name] == value
            if arm in RATES:
                assert p[f"{before}rate"] == CHOSEN[scene][arm]


def test_the_search_has_a_seed_of_its_own_and_decides_nothing():
    search = [t for t in LAPTOP if t.params["part"] == "tuning"]
    assert all(t.seed == TUNING_SEED and not t.claims for t in search)
    assert all(t.seed < TUNING_SEED for t in LAPTOP if t.params["part"] != "tuning")


def test_tree_and_flat_basis_are_searched_alike():
    search = [t.params for t in LAPTOP if t.params["part"] == "tuning"]
    for scene in SCENES:
        tried = {
            arm: [
                {k: v for k, v in p.items() if k != "arm"}
                for p in search
                if p["scene"] == scene and p["arm"] == arm and p["search"] == "rate"
            ]
            for arm in ("flat", "tree")
        }
        assert [p["rate"] for p in tried["flat"]] == [p["rate"] for p in tried["tree"]]
    assert BASIS_RATES["flat"] == BASIS_RATES["tree"]


def shipped_search():
    shipped = [e for e in shipped_exports("treesplat") if e.scale is Scale.LAPTOP]
    assert shipped
    return shipped[0].results.where(part="tuning")


@pytest.mark.parametrize("arm", BASIS)
def test_networks_have_the_rate_that_the_shipped_search_found(arm):
    found = shipped_search().where(search="basis", arm=arm)
    tried = {(r.params["basis"], r.params["final"]) for r in found}
    assert tried == {(basis, final) for basis in BASIS_RATES[arm] for final in FINAL_SHARES[arm]}
    best = max(found, key=lambda r: r.metrics["score"])
    assert (best.params["basis"], best.params["final"]) == BASIS[arm]


@pytest.mark.parametrize(("scene", "arm"), [(s, arm) for s in CHOSEN for arm in CHOSEN[s]])
def test_coefficients_have_the_rate_that_the_shipped_search_found(scene, arm):
    found = shipped_search().where(search="rate", scene=scene, arm=arm, **setting_of_basis(arm))
    assert sorted(found.distinct("rate")) == sorted(RATES[arm])
    best = max(found, key=lambda r: r.metrics["score"])
    assert best.params["rate"] == CHOSEN[scene][arm]


def setting_of_basis(arm):
    return dict(zip(("basis", "final"), BASIS.get(arm, ()), strict=False))


def test_timings_run_alone():
    timed = [t for t in LAPTOP if t.params["part"] in ("motion-time", "rasterizer")]
    assert timed
    assert all(t.exclusive for t in timed)


def test_data_that_are_not_there_are_named():
    assert needs_of("pendulum") == ()
    for scene in (*SCENES, "dnerf/lego", "n3v/coffee_martini"):
        (need,) = needs_of(scene)
        assert need.kind is NeedKind.DATA
        assert need.hint


def test_trials_decide_the_claims_whose_samples_they_match():
    params = {"part": "compare", "scene": "engine", "views": "many"}
    judged = ("C1-motion", "C1-par", "C1-better", "C1-foreground", "C1-rigid", "C1-few")
    assert claims_of(params, Scale.LAPTOP) == (*judged, "C1-polynomial", "X4")
    assert "C1-rigid" not in claims_of({**params, "scene": "jumper"}, Scale.LAPTOP)
    assert claims_of({"part": "tuning"}, Scale.LAPTOP) == ()


def test_figures_and_tables_are_drawn(tmp_path):
    import numpy as np
    from PIL import Image

    picture = tmp_path / "strip.png"
    Image.fromarray(np.full((4 * 8, 5 * 8, 3), 200, np.uint8)).save(picture)

    def files(trial):
        first = trial.params["part"] == "compare" and trial.seed == 0
        return {"strip.png": picture} if first and trial.params["views"] == "many" else {}

    check_drawn(
        study,
        finished(LAPTOP, files=files),
        figures=[
            *(f"strip-{scene}" for scene in SCENES),
            "psnr-curves",
            "gaps",
            "depths",
            "tree-shape",
            "trajectories",
            "motion-times",
            "tuning",
        ],
        tables=[
            "quality",
            "foreground",
            "depths",
            "sizes",
            "motion-times",
            "frames",
            "rasterizer",
            "tuning",
        ],
    )
