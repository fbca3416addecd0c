"""Claims, trials, figures and tables of the study, with made-up measurements."""

from __future__ import annotations

import math

import pytest
from tests.papers.drawing import check_drawn

from assay.papers.rac.claims import SMAC_MAPS
from assay.papers.rac.study import claims_of, study
from assay.papers.rac.tuning import CHOSEN, TUNING_SEED, chosen, searched
from assay.report import shipped_exports
from assay.study import Outcome, Result, Results, Scale, Status
from assay.study.judge import judge

LAPTOP = list(study.trials(Scale.LAPTOP))
PAPER = list(study.trials(Scale.PAPER))

SOLVES = {"rac", "rac-marginal", "rac-support", "hysteretic"}
"""Learners that find the optimum of the matrix game in these made-up results, if beta is 10."""


def made_up(trial):
    """What the paper would expect, and luck that fools RAC."""
    p, noise = trial.params, 0.01 * math.sin(trial.seed)
    learner = p.get("learner")
    match p["part"]:
        case "tabular":
            rate = 1.0 if learner in ("rac", "hysteretic", "i2q") else 0.1
            if learner in ("rac", "rac-fine") and p["game"] in ("climbing-partial", "penalty-10"):
                rate = {"climbing-partial": 0.0, "penalty-10": 0.5}[p["game"]]
            return {"optimal_rate": rate + noise, "mean_return": 8 * rate}
        case "matrix":
            solved = learner in SOLVES and (learner != "rac" or p["value"] == 10)
            error = 0.05 if learner.startswith("rac") else math.nan
            return {
                "optimal": float(solved),
                "final_return": 8.0 if solved else 6.0,
                "marginal_error": error,
                "marginal_is_right": float(error < 0.15),
            }
        case "pursuit" | "bins":
            rate = 0.0 if learner == "iql" else 1.0
            mean = math.log(p["value"] or 1) + noise
            return {"capture_rate": rate, "mean_return": mean, "final_return": 9 * rate}
        case "foraging":
            best = {"rac": 0.9, "hysteretic": 0.9}.get(learner, 0.1)
            return {"final_return": best + noise, "mean_return": best / 2}
        case "cost":
            ratio = 1.8 * (1 + p["bins"] / 40) * (1 + noise)
            passes = {"passes_ratio": p["bins"] + 2.0}
            return {"iql_s": 0.01, "rac_s": 0.01 * ratio, "ratio": ratio, **passes}
        case "tuning":
            return {"score": 1.0 - p["value"] / 100, "return": 8.0}
        case "smac":
            rate = {"rac": 0.8, "i2q": 0.7, "iql": 0.5, "hysteretic": 0.2}[learner]
            return {"win_rate": rate + noise}
    raise AssertionError(p["part"])


def curves(trial):
    series = {"return": [(1, 0.0), (2, 1.0 + trial.seed)]}
    if trial.params["part"] == "matrix" and trial.params["learner"] == "rac":
        series["phi"] = [(a, v) for a, v in enumerate((8.0, 6.0, 6.0))]
        for kappa, row in enumerate([(-12, -12, -12), (3, 0, 0), (4, 6, 6), (8, 2, 2)]):
            series[f"q_c/{kappa}"] = list(enumerate(map(float, row)))
            series[f"possible/{kappa}"] = [(a, float(kappa != 3 or a == 0)) for a in range(3)]
    return series


def finished(trials, change=lambda trial, metrics: metrics):
    return Results(
        [Result("k", t.params, t.seed, Status.OK, change(t, made_up(t)), curves(t)) for t in trials]
    )


def verdict(id, results, scale=Scale.LAPTOP, trials=LAPTOP):
    return judge(study.claim(id), scale, [t for t in trials if id in t.claims], results).outcome


@pytest.fixture(scope="module")
def results():
    return finished(LAPTOP)


def test_every_claim_of_the_laptop_scale_is_supported_where_the_paper_is_right(results):
    for claim in study.claims:
        if Scale.LAPTOP in claim.protocol and claim.id != "C4-hysteretic":
            assert verdict(claim.id, results) is Outcome.SUPPORTED, claim.id


def test_rac_that_is_only_as_good_as_tuned_hysteretic_does_not_beat_it(results):
    assert verdict("C4-hysteretic", results) is not Outcome.SUPPORTED


def test_every_claim_of_the_laptop_scale_fails_where_the_paper_is_wrong():
    def turned(trial, m):
        p, learner = trial.params, trial.params.get("learner")
        noise = 0.01 * math.sin(trial.seed)
        match p["part"]:
            case "tabular":
                return {"optimal_rate": (1.0 if learner.startswith("rac") else 0.5) + noise}
            case "matrix":
                solved = learner in ("iql", "vdn", "qmix")
                final = -math.log(p["value"] or 1)
                return {"optimal": float(solved), "final_return": final, "marginal_is_right": 0.0}
            case "pursuit" | "bins":
                rate = 0.1 if learner == "rac" else 0.9 + noise
                return {**m, "capture_rate": rate, "mean_return": -m["mean_return"]}
            case "foraging":
                return {"final_return": 0.1 + noise if learner == "rac" else 0.9}
            case "cost":
                ratio = p["bins"] ** 1.5 * (1 + noise)
                return {"rac_s": ratio, "iql_s": 1.0, "ratio": ratio}
        return m

    wrong = finished(LAPTOP, turned)
    exact = {"X1-fine", "X1-hysteretic", "X2", "C8-ratio"}
    for claim in study.claims:
        if Scale.LAPTOP in claim.protocol:
            failed = Outcome.CONTRADICTED if claim.id in exact else Outcome.NOT_REPRODUCED
            assert verdict(claim.id, wrong) is failed, claim.id


@pytest.mark.parametrize(("solved", "outcome"), [(18, "supported"), (17, "inconclusive")])
def test_eighteen_of_twenty_runs_are_asked_for(solved, outcome):
    def some(trial, m):
        if trial.params["part"] != "matrix":
            return m
        found = trial.seed < solved if trial.params["learner"] != "iql" else trial.seed >= solved
        return {**m, "optimal": float(found)}

    results = finished(LAPTOP, some)
    assert verdict("C1-rac", results) == outcome
    assert verdict("C1-iql", results) == outcome


def test_claims_on_smac_are_decided_map_by_map():
    results = finished(PAPER)
    assert verdict("C5-better", results, Scale.PAPER, PAPER) is Outcome.SUPPORTED
    assert verdict("C5-hysteretic", results, Scale.PAPER, PAPER) is Outcome.SUPPORTED
    assert verdict("C5-i2q", results, Scale.PAPER, PAPER) is Outcome.CONTRADICTED
    for id, maps in SMAC_MAPS.items():
        assert {t.params["map"] for t in PAPER if id in t.claims} == set(maps), id


def test_smac_names_what_it_needs_and_where_it_comes_from():
    need = next(t.needs[0] for t in PAPER if t.params["part"] == "smac")
    assert need.name == "smac.env.starcraft2"
    assert "github.com/oxwhirl/smac" in need.hint
    verdict = judge(study.claim("C5-better"), Scale.LAPTOP, [], Results())
    assert verdict.outcome is Outcome.NEEDS
    assert "smaclite" in study.claim("C5-better").note


def test_runs_that_are_compared_share_seeds():
    for claim in study.claims:
        seeds: dict[str, set[int]] = {}
        for trial in LAPTOP:
            if claim.id in trial.claims and "learner" in trial.params:
                seeds.setdefault(trial.params["learner"], set()).add(trial.seed)
        assert len({frozenset(found) for found in seeds.values()}) <= 1, claim.id


def test_the_search_has_seeds_of_its_own_and_decides_nothing():
    search = [t for t in LAPTOP if t.params["part"] == "tuning"]
    assert all(t.seed >= TUNING_SEED and not t.claims for t in search)
    assert all(t.seed < TUNING_SEED for t in LAPTOP if t.params["part"] != "tuning")
    found = {(t.params["where"], t.params["learner"], t.params["value"]) for t in search}
    assert found == set(searched())
    for where, learners in CHOSEN.items():
        for learner, value in learners.items():
            assert (where, learner, value) in found
            assert chosen(where, learner) == value


def test_constants_are_those_that_the_shipped_search_found():
    """The largest score, among equal ones the largest return, then the first of the grid."""
    shipped = [e for e in shipped_exports("rac") if e.scale is Scale.LAPTOP]
    assert shipped
    found = shipped[0].results.where(part="tuning")
    for where, learners in CHOSEN.items():
        for learner, value in learners.items():
            candidates = found.where(where=where, learner=learner)
            assert [r.params["value"] for r in candidates] == [
                v for w, n, v in searched(where) if n == learner
            ]
            best = max(candidates, key=lambda r: (r.metrics["score"], r.metrics["return"]))
            assert best.params["value"] == value, (where, learner)


def test_a_baseline_with_a_constant_is_tuned_wherever_it_is_judged():
    for trial in LAPTOP:
        if trial.claims and trial.params.get("learner") == "hysteretic":
            assert trial.params["value"] in {v for _, n, v in searched() if n == "hysteretic"}


def test_timings_run_alone_and_in_fresh_processes():
    timed = [t for t in LAPTOP if t.params["part"] == "cost"]
    assert timed
    assert all(t.exclusive and t.fresh_process for t in timed)


def test_trials_decide_the_claims_whose_samples_they_match():
    params = {"part": "matrix", "learner": "rac", "value": 10.0}
    judged = ("C1-rac", "C2", "C6-beta", "C7-vdn", "C7-qmix")
    assert claims_of(params, Scale.LAPTOP) == judged
    assert claims_of({**params, "value": 1.0}, Scale.LAPTOP) == ("C6-beta",)
    assert claims_of({**params, "learner": "rac-support"}, Scale.LAPTOP) == ()


def test_figures_and_tables_are_drawn(results):
    check_drawn(
        study,
        results,
        figures=[
            "optimal-rates",
            "matrix-curves",
            "contextual-values",
            "punishment",
            "pursuit-curves",
            "sweep",
            "foraging-curves",
            "cost",
        ],
        tables=["games", "matrix", "pursuit", "foraging", "times", "tuning"],
    )
