from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.ledger import Ledger
from assay.runner import Event, Plan, Planned, Summary, execute
from assay.study import Result, Results, Scale, Study, Trial

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    monkeypatch.syspath_prepend(str(HERE))  # workers inherit it
    return tmp_path / "home"


@pytest.fixture
def study() -> Study:
    import fake_room

    return fake_room.study


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open() as ledger:
        yield ledger


class Runner:
    """Runs trials of the fake room and keeps what happened."""

    summary: Summary

    def __init__(self, ledger: Ledger, study: Study) -> None:
        self.ledger = ledger
        self.study = study
        self.events: list[Event] = []

    def __call__(self, *trials: Trial, jobs: int | None = None) -> list[Result]:
        """Runs the trials and returns their results as the ledger holds them."""
        plan = self.plan(*trials)
        self.summary = execute([plan], self.ledger, jobs=jobs, on_event=self.events.append)
        results = {r.key: r for r in self.results}
        return [results[p.key] for p in plan.todo]

    def plan(self, *trials: Trial) -> Plan:
        return Plan("fake", self.study, Scale.SMOKE, todo=tuple(map(self.planned, trials)))

    def planned(self, trial: Trial) -> Planned:
        key = trial.key("fake", 3, Scale.SMOKE)
        return Planned("fake", 3, Scale.SMOKE, trial, key, "fake_room:study")

    @property
    def results(self) -> Results:
        return self.ledger.results("fake", Scale.SMOKE, 3)


@pytest.fixture
def run(ledger: Ledger, study: Study) -> Runner:
    return Runner(ledger, study)
