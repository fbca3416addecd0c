"""Claims, trials, figures and tables of the study, and that its settings are those tuned."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from tests.papers.drawing import check_drawn

from assay.ledger.exports import read_export
from assay.papers.adasig.arms import ARMS, BASELINES, RATES, TUNING_SEEDS
from assay.papers.adasig.figures import best, validation_curves
from assay.papers.adasig.study import CHOSEN, FIXED_RATES, TEST_SEEDS, study, tuning_seed
from assay.study import Outcome, Result, Results, Scale, Status
from assay.study.judge import judge

LAPTOP = list(study.trials(Scale.LAPTOP))
SMALL = ("rt", "mnist5k")


def result(trial, metrics, series=None):
    return Result("k", trial.params, trial.seed, Status.OK, metrics, series or {})


def arm_accuracy(arm):
    return 75 + (0.5 if arm in ("adasig", "joint") else 0.0)


def made_up(trial):
    """Plausible measurements: AdaSig half a point better, constant clipping the best direction."""
    p, noise = trial.params, 0.05 * math.sin(trial.seed)
    match p["what"]:
        case "bounds":
            return {
                "slope_sensitivity": 0.44774,
                "paper_over_gaussian": 1.0,
                "joint_over_gaussian": 1.0,
            }
        case "tune":
            return {"best_validation": 75.0, "best_rate": 0.4}
        case "duel":
            found = {"ours_agreement": 0.7 + noise, "against_agreement": 0.5}
            for side, sign in (("ours", 1), ("against", -1)):
                found[f"{side}_accuracy"] = arm_accuracy(p[side]) + sign * noise
                found[f"{side}_cosine"] = 0.8 if side == "ours" else 0.6 + noise
                found[f"{side}_snr"] = 10.0 if side == "ours" else 12.0 + noise
            return found
        case "sweep":
            return {"cosine_rank": -0.95, "norm_rank": 0.9}
        case "matched":
            better = p["against"] == "flat"
            return {"ours_cosine": 0.5, "against_cosine": 0.5 + (0.1 if better else -0.1) + noise}
        case "rate":
            return {"exponent": -1.0 + 0.1 * noise}
        case "audit":
            lower = 5.0 if p["noise_factor"] < 1 else 0.4
            names = ("epsilon_lower", "epsilon_lower_fdp", "auroc", "excess", "excess_fdp")
            return dict(zip(names, (lower, lower, 0.7, lower - 3, lower - 3), strict=True))
        case "cost":
            return {
                f"{arm}_{unit}": value * (1 + 0.001 * trial.seed)
                for arm, value in {"flat": 1.0, "sigmoid": 0.99, "adasig": 1.02}.items()
                for unit in ("seconds", "megabytes")
            }


SERIES = {
    "tune": {"validation": [(rate, 75 - abs(math.log(rate / 0.4))) for rate in RATES]},
    "duel": {
        f"{side}_slope": [(step, 1.01**step) for step in range(0, 40, 4)]
        for side in ("ours", "against")
    },
    "sweep": {
        f"{rule}/{stage}": [(0.1 * i, 1 - 0.05 * i) for i in range(5)]
        for rule in ("adasig", "flat", "auto_s", "psac")
        for stage in range(5)
    },
    "rate": {"mean_squared_gradient": [(n, 10 / n) for n in (200, 400, 800)]},
}


@pytest.fixture(scope="module")
def results():
    return Results([result(t, made_up(t), SERIES.get(t.params["what"])) for t in LAPTOP])


def verdict(id, results):
    planned = [t for t in LAPTOP if id in t.claims]
    return judge(study.claim(id), Scale.LAPTOP, planned, results)


def test_claims_are_decided_by_the_trials_that_name_them(results):
    for data in SMALL:
        assert verdict(f"A1-{data}", results).outcome is Outcome.SUPPORTED
        assert verdict(f"A3-{data}", results).outcome is Outcome.SUPPORTED
        assert verdict(f"A4-cosine-{data}", results).outcome is Outcome.SUPPORTED
        assert verdict(f"A4-snr-{data}", results).outcome is Outcome.NOT_REPRODUCED
        assert verdict(f"A4-matched-{data}", results).outcome is Outcome.NOT_REPRODUCED
        assert verdict(f"A5-cosine-{data}", results).outcome is Outcome.SUPPORTED
        assert verdict(f"A5-snr-{data}", results).outcome is Outcome.NOT_REPRODUCED
        assert verdict(f"J1-{data}", results).outcome is Outcome.SUPPORTED
        assert verdict(f"J2-{data}", results).outcome is Outcome.INCONCLUSIVE
    for id in ("A6-sensitivity", "A6-mechanism", "J3", "A7-convex", "A7-nonconvex-flat"):
        assert verdict(id, results).outcome is Outcome.SUPPORTED, id
    for id in ("A8-seconds", "A8-megabytes", "M1-adasig", "M1-joint", "M1-broken"):
        assert verdict(id, results).outcome is Outcome.SUPPORTED, id


def changed(results, what, **values):
    return Results(
        [
            result(r, {**r.metrics, **values}, r.series) if r.params["what"] == what else r
            for r in results
        ]
    )


@pytest.mark.parametrize(
    ("id", "what", "values"),
    [
        ("A1-rt", "duel", {"ours_accuracy": 70.0}),
        ("A3-mnist5k", "duel", {"ours_accuracy": 70.0}),
        ("A5-cosine-rt", "sweep", {"cosine_rank": -0.5}),
        ("A6-sensitivity", "bounds", {"slope_sensitivity": 0.46}),
        ("A6-mechanism", "bounds", {"paper_over_gaussian": 1.02}),
        ("J1-rt", "duel", {"ours_agreement": 0.4}),
        ("J3", "bounds", {"joint_over_gaussian": 1.01}),
        ("A7-convex", "rate", {"exponent": -0.5}),
        ("A8-seconds", "cost", {"adasig_seconds": 1.5}),
        ("M1-adasig", "audit", {"excess_fdp": 0.2}),
        ("M1-broken", "audit", {"excess": -1.0}),
    ],
)
def test_every_kind_of_claim_can_fail(id, what, values, results):
    found = verdict(id, changed(results, what, **values)).outcome
    assert found in (Outcome.CONTRADICTED, Outcome.NOT_REPRODUCED)


def test_one_baseline_that_is_as_good_is_enough_for_no_support(results):
    level = [
        result(r, {**r.metrics, "against_accuracy": r.metrics["ours_accuracy"] + math.cos(r.seed)})
        if r.params["what"] == "duel" and r.params["against"] == "psac"
        else r
        for r in results
    ]
    assert verdict("A1-rt", Results(level)).outcome is Outcome.INCONCLUSIVE


def test_every_arm_is_tuned_on_the_same_grid():
    for data in SMALL:
        for arm, found in ARMS.items():
            trials = [
                t
                for t in LAPTOP
                if t.params["what"] == "tune" and (t.params["data"], t.params["arm"]) == (data, arm)
            ]
            assert {(t.params["value"], t.params.get("round", 1), t.seed) for t in trials} == {
                (value, n, seed)
                for value in found.values
                for n in (1, 2)
                for seed in range(TUNING_SEEDS)
            }
    assert all(b / a == pytest.approx(2) for a, b in pairwise(RATES))


def test_arms_are_compared_on_equal_seeds():
    for data in SMALL:
        for against in BASELINES:
            seeds = [t.seed for t in LAPTOP if f"A1-{data}" in t.claims and against in _arms(t)]
            assert seeds == list(range(TEST_SEEDS))


def _arms(trial):
    return trial.params["ours"], trial.params["against"]


def test_tuning_and_test_runs_draw_from_different_streams():
    seeds = [0, 7, 123456]
    assert not {tuning_seed(s) for s in seeds} & set(seeds)
    assert len({tuning_seed(s) for s in seeds}) == 3


@pytest.fixture(scope="module")
def tuning():
    path = Path(__file__).parents[3] / "results" / "adasig" / "laptop.json"
    return Results(read_export(path).results).ok.where(what="tune")


@pytest.mark.parametrize("data", SMALL)
def test_settings_are_those_that_did_best_on_validation_data(data, tuning):
    curves = validation_curves(tuning.where(data=data))
    assert all(len(found) == TUNING_SEEDS for line in curves.values() for found in line.values())
    for arm in ARMS:
        _, value, rate = best(curves, arm)
        assert rate in RATES[1:-1], f"{arm}: the best rate lies at the end of the grid"
        if arm in CHOSEN[data]:
            assert CHOSEN[data][arm] == (value, rate), arm
    assert CHOSEN[data].keys() == ARMS.keys() - {"sigmoid"}
    for slope, rate in FIXED_RATES[data].items():
        line = {("sigmoid", slope): curves["sigmoid", slope]}
        assert best(line, "sigmoid")[1:] == (slope, rate)
    assert tuple(FIXED_RATES[data]) == ARMS["sigmoid"].values


def test_timings_run_alone_in_a_fresh_process():
    for trial in LAPTOP:
        if trial.params["what"] == "cost":
            assert trial.exclusive
            assert trial.fresh_process


def test_figures_and_tables_are_drawn(results):
    check_drawn(
        study,
        results,
        figures=["tuning", "differences", "mismatch", "trade-off", "slopes", "convergence"],
        tables=["tuning", "accuracy", "audits", "cost"],
    )
