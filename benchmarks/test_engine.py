"""The engine's own costs: pytest benchmarks."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.ledger import Entry, Ledger
from assay.runner import Plan, Planned, execute
from assay.study import Result, Scale, Status, Study, Trial

ROOM = Path(__file__).parents[1] / "tests" / "runner"
TRIALS = 100


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    with Ledger.open() as ledger:
        yield ledger


@pytest.fixture
def study(monkeypatch) -> Study:
    monkeypatch.syspath_prepend(str(ROOM))
    import fake_room

    return fake_room.study


def test_hundred_empty_trials(benchmark, ledger, study):
    """All of a run: one worker's start, then 100 trials with a transaction each."""
    numbers = itertools.count()

    def run() -> None:
        trials = [Trial({"do": "nothing", "i": next(numbers)}) for _ in range(TRIALS)]
        keys = [trial.key("fake", 3, Scale.SMOKE) for trial in trials]
        todo = tuple(
            Planned("fake", 3, Scale.SMOKE, trial, key, "fake_room:study")
            for trial, key in zip(trials, keys, strict=True)
        )
        summary = execute([Plan("fake", study, Scale.SMOKE, todo)], ledger, jobs=1)
        assert summary.failed == 0
        assert ledger.done(keys) == set(keys)

    benchmark.pedantic(run, rounds=5)
    per_trial = benchmark.stats.stats.median / TRIALS
    benchmark.extra_info["milliseconds a trial"] = round(1000 * per_trial, 2)
    assert per_trial < 0.05


def test_record_a_trial(benchmark, ledger):
    run = ledger.start_run([], {})
    metrics = {f"metric{i}": i / 7 for i in range(20)}
    now = datetime.now(UTC)

    def record() -> None:
        result = Result("0" * 64, {"lr": 0.1}, 0, Status.OK, metrics)
        ledger.record(run, Entry("fake", 1, Scale.SMOKE, result, now, now))

    benchmark(record)


def test_open_a_ledger(benchmark, ledger):
    benchmark(lambda: Ledger.open().close())


def test_read_a_thousand_trials(benchmark, ledger):
    run = ledger.start_run([], {})
    now = datetime.now(UTC)
    for i in range(1000):
        trial = Trial({"i": i})
        result = Result(trial.key("fake", 1, Scale.SMOKE), trial.params, 0, Status.OK, {"v": 1.0})
        ledger.record(run, Entry("fake", 1, Scale.SMOKE, result, now, now))
    assert len(benchmark(ledger.results, "fake", Scale.SMOKE, 1)) == 1000
