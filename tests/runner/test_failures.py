"""Whatever a trial does to itself is recorded, and the others go on."""

from __future__ import annotations

import pytest

from assay.runner import local
from assay.study import Status, Trial

FINE = Trial({"do": "draw"})


def test_a_trial_that_dies_spoils_only_itself(run):
    trials = [Trial({"do": do}) for do in ("abort", "segfault", "exit")]
    abort, segfault, exit_, fine = run(*trials, FINE)
    assert [r.status for r in (abort, segfault, exit_)] == [Status.CRASHED] * 3
    assert "ended by SIGABRT" in abort.error
    assert "about to abort" in abort.error
    assert "ended by SIGSEGV" in segfault.error
    assert "in do_segfault" in segfault.error, "the fault handler says where"
    assert "exited with code 3" in exit_.error
    assert fine.ok
    assert (run.summary.ran, run.summary.failed) == (4, 3)


def test_an_exception_is_kept_with_its_traceback(run):
    raised, fine = run(Trial({"do": "raise"}), FINE)
    assert raised.status is Status.RAISED
    assert raised.error.startswith("RuntimeError: no luck\n")
    assert "in do_raise" in raised.error
    assert "worker.py" not in raised.error, "the traceback begins with the study"
    assert raised.error.endswith("It printed last:\nbefore the error")
    assert fine.ok


def test_sys_exit_does_not_end_the_worker(run):
    gone, first, second = run(
        Trial({"do": "sys_exit"}), *(Trial({"do": "process", "i": i}) for i in range(2)), jobs=1
    )
    assert gone.status is Status.RAISED
    assert first.metrics["pid"] == second.metrics["pid"]


def test_a_trial_that_hangs_is_stopped_where_it_hangs(run):
    hang, below, fine = run(
        Trial({"do": "hang"}, timeout=1), Trial({"do": "hang_below_python"}, timeout=1), FINE
    )
    assert hang.status is below.status is Status.TIMEOUT
    assert hang.error.startswith("stopped at its time limit of 1 s")
    assert "in do_hang" in hang.error
    assert "in do_hang_below_python" in below.error
    assert 1 <= hang.seconds < 5
    assert fine.ok


def test_a_trial_that_disarms_the_alarm_is_stopped_by_the_driver(run, monkeypatch):
    monkeypatch.setattr(local, "_GRACE_SECONDS", 0.5)
    (hang,) = run(Trial({"do": "hang_without_alarm"}, timeout=1))
    assert hang.status is Status.TIMEOUT


def test_a_trial_that_holds_too_much_memory_is_stopped(run):
    hog, fine = run(Trial({"do": "hog"}, memory_gb=0.25, timeout=30), FINE)
    assert hog.status is Status.MEMORY
    assert "its limit is 0.25 GiB" in hog.error
    assert fine.ok


def test_memory_of_earlier_trials_does_not_count(run):
    first, second = run(
        Trial({"do": "keep_memory"}), Trial({"do": "process"}, memory_gb=0.2), jobs=1
    )
    assert second.ok
    assert first.metrics["pid"] != second.metrics["pid"]


def test_a_worker_that_dies_between_trials_is_replaced(run, monkeypatch):
    monkeypatch.setattr(local, "cores", lambda: 2)
    dying = Trial({"do": "die_later"})
    slow = Trial({"do": "sleep", "for": 0.6}, cpus=2)  # another kind of worker
    first, _, second = run(dying, slow, Trial({"do": "process"}), jobs=2)
    assert second.ok
    assert first.metrics["pid"] != second.metrics["pid"]


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("return_list", "FakeStudy.run: returned list, wants a mapping of metrics"),
        ("return_text", "FakeStudy.run: metric 'value': got str, wants a number"),
        ("save_outside", "name: got '../x', wants a file name"),
        ("missing_data", "data fake/absent.csv: not in"),
    ],
)
def test_a_wrong_study_is_told_what_is_wrong(run, do, message):
    (result,) = run(Trial({"do": do}))
    assert result.status is Status.RAISED
    assert message in result.error


def test_a_study_that_cannot_be_imported_fails_its_trials(run, study):
    from dataclasses import replace

    from assay.runner import execute

    plan = run.plan(FINE)
    plan = replace(plan, todo=(replace(plan.todo[0], study="no_such_room:study"),))
    execute([plan], run.ledger)
    (result,) = run.results
    assert result.status is Status.RAISED
    assert "No module named 'no_such_room'" in result.error


def test_a_failed_trial_is_not_done_and_is_run_again(run, ledger):
    trial = Trial({"do": "fail_once"})
    key = run.planned(trial).key
    (first,) = run(trial)
    assert not first.ok
    assert ledger.done([key]) == set()
    (second,) = run(trial)
    assert second.ok
    assert ledger.done([key]) == {key}
    assert [entry.result.ok for entry in ledger.entries("fake")] == [False, True]
