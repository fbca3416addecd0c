"""Worker processes: reuse, threads, room on the machine."""

from __future__ import annotations

import itertools

import pytest

from assay.runner import RunFinished, RunStarted, TrialFinished, TrialStarted, local
from assay.study import Result, Trial


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(local, "cores", lambda: 4)


def test_a_worker_is_reused_but_for_trials_that_want_a_fresh_one(run):
    same = [Trial({"do": "process", "i": i}) for i in range(3)]
    fresh = [Trial({"do": "process", "i": i}, fresh_process=True) for i in range(3, 6)]
    a, b, c, d, e, f = (r.metrics["pid"] for r in run(*same, *fresh, jobs=1))
    assert a == b == c
    assert len({a, d, e, f}) == 4


def test_libraries_get_as_many_threads_as_the_trial_has_cores(run, four_cores):
    one, two, all_ = run(*(Trial({"do": "process", "i": n}, cpus=n) for n in (1, 2, 99)))
    assert [r.metrics["omp"] for r in (one, two, all_)] == [1, 2, 4]


def overlaps(results: list[Result]) -> bool:
    """Whether two of the sleeping trials ran at the same time."""
    times = sorted((r.metrics["began"], r.metrics["ended"]) for r in results)
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(times))


def sleeping(n: int, **arguments) -> list[Trial]:
    return [Trial({"do": "sleep", "for": 0.25, "i": i}, **arguments) for i in range(n)]


def test_trials_run_side_by_side_while_cores_are_free(run, four_cores):
    assert overlaps(run(*sleeping(2, cpus=2)))


def test_trials_wait_where_cores_are_missing(run, four_cores):
    assert not overlaps(run(*sleeping(2, cpus=3)))


def test_jobs_bounds_what_runs_at_a_time(run, four_cores):
    assert not overlaps(run(*sleeping(3), jobs=1))


def test_an_exclusive_trial_runs_alone_and_last(run, four_cores):
    alone, *others = sleeping(3)
    alone = Trial({"do": "sleep", "for": 0.25, "alone": True}, exclusive=True)
    results = run(alone, *others)
    assert overlaps(results[1:])
    assert results[0].metrics["began"] > max(r.metrics["ended"] for r in results[1:])


def test_each_trial_sees_its_own_accelerators_only(run, four_cores, monkeypatch):
    monkeypatch.setattr(local, "gpu_ids", lambda: ("0", "1"))
    trials = [Trial({"do": "gpu", "i": i}, gpus=i > 0) for i in range(4)]
    none, *others = run(*trials)
    assert none.metrics == {"gpu": -1, "cuda": 0}
    assert {r.metrics["gpu"] for r in others} == {0, 1}
    assert all(r.metrics["cuda"] for r in others)


def test_events_tell_the_run_in_order(run):
    run(Trial({"do": "draw"}), Trial({"do": "draw"}, seed=1), jobs=1)
    kinds = [type(event) for event in run.events]
    assert kinds == [RunStarted, *[TrialStarted, TrialFinished] * 2, RunFinished]
    lines = [event.to_json() for event in run.events]
    assert [line["event"] for line in lines][:3] == [
        "run-started",
        "trial-started",
        "trial-finished",
    ]
    assert lines[0]["total"] == 2
    assert lines[2]["metrics"] == dict(run.events[2].result.metrics)
    assert lines[-1]["counts"] == {"ok": 2}


def test_what_a_trial_saves_is_kept(run, home):
    (result,) = run(Trial({"do": "save"}))
    saved = {name: path.read_bytes() for name, path in result.files.items()}
    assert saved == {"text.txt": b"text", "bytes.bin": b"\x00\x01", "copy.bin": b"copied"}
    assert all(path.is_relative_to(home / "artifacts") for path in result.files.values())
    assert not list((home / "scratch").iterdir())
    assert run.events[-2].result.files == result.files, "watchers see the kept files"


def test_hundred_empty_trials_cost_less_than_50_ms_each(run):
    run(*(Trial({"do": "nothing", "i": i}) for i in range(100)), jobs=1)
    assert run.summary.failed == 0
    assert run.summary.seconds / 100 < 0.05
