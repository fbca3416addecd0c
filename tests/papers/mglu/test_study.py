"""Claims, trials, figures and tables of the study."""

from __future__ import annotations

import math

import pytest
from tests.papers.drawing import check_drawn

from assay.papers.mglu.study import (
    FIRST_ROUND,
    SECOND_ROUND,
    best_rate,
    every_arm,
    finalists,
    kind_of,
    study,
)
from assay.study import Outcome, Result, Results, Scale, Status
from assay.study.judge import judge

LAPTOP = list(study.trials(Scale.LAPTOP))


def result(trial, metrics, series=None):
    return Result("k", trial.params, trial.seed, Status.OK, metrics, series or {})


def made_up(trial):
    """Plausible measurements: MGLU 1.2 times as fast, four masks a little better than SwiGLU."""
    what = trial.params["what"]
    if what == "bytes":
        return {"saving": 1 - (16 + trial.params["n_masks"]) / 32, "counted": 1}
    if what == "decode":
        arms = {"torch": 90, "glu": 100, "mglu1": 120, "mglu2": 115, "mglu4": 110, "mglu8": 80}
        arms |= {"mglu4_bytes": 105, "mglu8_bytes": 81, "best_glu": 100}
        rates = {f"{k}_per_s": v * (1 + 0.001 * trial.seed) for k, v in arms.items()}
        return {**rates, **{f"{k}_gb_s": v / 5 for k, v in arms.items()}, "copy_gb_s": 30, "isa": 3}
    if what == "naive":
        return {"mglu_per_s": 1000, "naive_per_s": 20, "premasked_per_s": 200}
    if what == "step":
        return {
            f"{k}_s": s for k, s in {"swiglu": 1, "mglu1": 1.2, "mglu2": 1.4, "mglu4": 2}.items()
        }
    if what == "spike":
        return {"rise": 0.1 + 0.3 * (trial.params["kind"] == "mglu") + 0.001 * trial.seed}
    masks = trial.params["n_masks"] * (0.9 if trial.params["masks"] == "learned" else 0.5)
    return {"held_out_nll": 1.6 - 0.02 * masks + 0.01 * trial.seed}


@pytest.fixture(scope="module")
def results():
    curves = {name: [(1, 0.5), (2, 0.4)] for name in ("held_out_nll", "mask_density/layer0")}
    curves["flip_rate/layer0"] = [(1, 1e-3), (2, 1e-4)]
    return Results([result(t, made_up(t), curves) for t in LAPTOP])


def verdict(id, results):
    planned = [t for t in LAPTOP if id in t.claims]
    return judge(study.claim(id), Scale.LAPTOP, planned, results)


def test_claims_are_decided_by_the_trials_that_name_them(results):
    assert verdict("C1-n1", results).outcome is Outcome.SUPPORTED
    assert verdict("C2-16bit-n4", results).outcome is Outcome.SUPPORTED
    assert verdict("C2-16bit-n8", results).outcome is Outcome.NOT_REPRODUCED
    assert verdict("C3-n8", results).outcome is Outcome.SUPPORTED
    assert verdict("C4", results).outcome is Outcome.SUPPORTED
    assert verdict("C5", results).outcome is Outcome.SUPPORTED
    assert verdict("C6-shared-gelu", results).outcome is Outcome.INCONCLUSIVE
    assert verdict("C7-n2", results).outcome is Outcome.SUPPORTED
    assert verdict("C8", results).outcome is Outcome.SUPPORTED
    assert verdict("C9", results).outcome is Outcome.NOT_REPRODUCED


def test_a_busy_machine_leaves_speed_undecided(results):
    noisy = Results(
        [
            result(r, {**r.metrics, "mglu4_per_s": math.nan, "best_glu_per_s": math.nan})
            if r.params["what"] == "decode" and r.seed == 0
            else r
            for r in results
        ]
    )
    assert verdict("C2-16bit-n4", noisy).outcome is Outcome.INCONCLUSIVE
    assert "undefined" in verdict("C2-16bit-n4", noisy).reason
    names = {table.name for table in study.tables(noisy)}
    assert "kernels" in names


def test_every_timing_runs_alone_in_a_fresh_process():
    for trial in LAPTOP:
        if trial.params["what"] in ("decode", "naive"):
            assert trial.exclusive
            assert trial.fresh_process
            assert trial.cpus == 2


def test_arms_that_decide_a_claim_share_seeds():
    for claim in study.claims:
        arms: dict[str, set[int]] = {}
        for trial in LAPTOP:
            if claim.id in trial.claims and trial.params["what"] == "lm":
                arms.setdefault(kind_of(trial.params), set()).add(trial.seed)
        assert all(seeds == {0, 1, 2, 3, 4} for seeds in arms.values()), claim.id


def test_the_second_round_holds_the_finalists_of_the_first_and_decides():
    assert finalists([1.0, 1.1, 1.2, 1.3]) == [1e-3, 2e-3]
    assert finalists([1.2, 1.1, 1.105, 1.115]) == [2e-3, 3e-3, 6e-3]
    assert {kind_of(t.params) for t in LAPTOP if t.params["what"] == "lm"} == {
        kind_of(arm) for arm in every_arm()
    }
    for arm in every_arm():
        key = (arm["kind"], arm["n_masks"], arm["masks"])
        assert sorted(SECOND_ROUND[key]) == finalists(FIRST_ROUND[key])
        assert SECOND_ROUND[key][best_rate(arm)] == min(SECOND_ROUND[key].values())


def test_figures_and_tables_are_drawn(results):
    check_drawn(
        study,
        results,
        figures=["decode-speed", "decode-bandwidth", "held-out-loss", "training-curves", "masks"],
        tables=["kernels", "naive", "steps", "tuning"],
    )
