from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assay.ledger import Entry, Ledger
from assay.study import Result, Scale, Status, Trial

ENVIRONMENT = {
    "assay": "1.2.3",
    "os": "Linux",
    "cpu": {"model": "Some CPU", "cores": 2},
    "memory_gb": 8.0,
    "gpus": [],
}
Record = Callable[..., Entry]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open() as ledger:
        yield ledger


def make_entry(
    params: dict[str, Any] | None = None,
    seed: int = 0,
    status: Status = Status.OK,
    slug: str = "fake",
    version: int = 1,
    scale: Scale = Scale.LAPTOP,
    minute: int = 0,
    **result: Any,
) -> Entry:
    trial = Trial(params or {}, seed)
    key = trial.key(slug, version, scale)
    start = datetime(2025, 3, 4, 5, tzinfo=UTC) + timedelta(minutes=minute)
    return Entry(
        slug,
        version,
        scale,
        Result(key, trial.params, seed, status, **result),
        started=start,
        finished=start + timedelta(seconds=30),
    )


@pytest.fixture
def record(ledger: Ledger) -> Record:
    """Records an entry of the given fields in a run of its own and returns it."""

    def record(*args: Any, environment: dict[str, Any] = ENVIRONMENT, **fields: Any) -> Entry:
        entry = make_entry(*args, **fields)
        run = ledger.start_run(["assay", "run"], environment)
        ledger.record(run, entry)
        ledger.finish_run(run, "finished")
        return entry

    return record
