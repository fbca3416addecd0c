"""Narrowing results."""

from __future__ import annotations

from assay.study import Result, Results, Status, Trial

RESULTS = Results(
    [
        Result("a", {"lr": 0.1, "n": 1}, 0, Status.OK, {"loss": 1.0}),
        Result("b", {"lr": 0.1, "n": 1}, 1, Status.OK, {"loss": 2.0}),
        Result("c", {"lr": 0.2, "n": 1}, 0, Status.RAISED, error="boom\n\ntrace"),
        Result("d", {"lr": 0.1, "n": True}, 0, Status.OK, {"loss": 4.0}),
    ]
)


def keys(results):
    return [r.key for r in results]


def test_where_compares_params_and_seed():
    assert keys(RESULTS.where(lr=0.1, seed=0)) == ["a", "d"]


def test_of_trials_takes_equal_params_of_equal_type_and_equal_seed():
    trials = [Trial({"n": 1, "lr": 0.1}, 0), Trial({"n": 1, "lr": 0.2}, 0), Trial({"n": 2}, 0)]
    assert keys(RESULTS.of(trials)) == ["a", "c"]
    assert keys(RESULTS.of([])) == []


def test_ok_metric_distinct_and_what_happened():
    assert keys(RESULTS.ok) == ["a", "b", "d"]
    assert RESULTS.metric("loss") == [1.0, 2.0, 4.0]
    assert RESULTS.distinct("lr") == [0.1, 0.2]
    assert RESULTS[2].what_happened == "boom"
    assert isinstance(RESULTS[:2], Results)
