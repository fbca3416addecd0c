"""What a run tells whoever watches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from assay.ledger.floats import encode_float
from assay.study import Result, Status

if TYPE_CHECKING:
    from assay.runner.plan import Planned


@dataclass(frozen=True)
class Summary:
    """How a run went.

    Args:
        run: its number in the ledger.
        counts: how many trials ended in which way.
        skipped: trials that the ledger held already.
        blocked: trials whose needs are not met here.
        seconds: how long it took.
    """

    run: int
    counts: Mapping[Status, int]
    skipped: int
    blocked: int
    seconds: float

    @property
    def ran(self) -> int:
        return sum(self.counts.values())

    @property
    def failed(self) -> int:
        return self.ran - self.counts.get(Status.OK, 0)


@dataclass(frozen=True)
class RunStarted:
    """`total` trials are about to run; the ledger holds `skipped` others already."""

    run: int
    total: int
    skipped: int
    blocked: int

    def to_json(self) -> dict[str, Any]:
        return {"event": "run-started", **vars(self)}


@dataclass(frozen=True)
class TrialStarted:
    """A trial was given to a worker."""

    planned: Planned

    def to_json(self) -> dict[str, Any]:
        return {"event": "trial-started", **_trial(self.planned)}


@dataclass(frozen=True)
class TrialFinished:
    """A trial ended, well or not, and is in the ledger."""

    planned: Planned
    result: Result

    def to_json(self) -> dict[str, Any]:
        return {
            "event": "trial-finished",
            **_trial(self.planned),
            "status": str(self.result.status),
            "seconds": round(self.result.seconds, 6),
            "metrics": {name: encode_float(v) for name, v in self.result.metrics.items()},
            "error": self.result.error,
        }


@dataclass(frozen=True)
class RunFinished:
    """All trials ended."""

    summary: Summary

    def to_json(self) -> dict[str, Any]:
        summary = self.summary
        return {
            "event": "run-finished",
            "run": summary.run,
            "counts": {str(status): n for status, n in summary.counts.items()},
            "failed": summary.failed,
            "skipped": summary.skipped,
            "blocked": summary.blocked,
            "seconds": round(summary.seconds, 3),
        }


Event: TypeAlias = RunStarted | TrialStarted | TrialFinished | RunFinished


def _trial(planned: Planned) -> dict[str, Any]:
    return {
        "paper": planned.slug,
        "scale": str(planned.scale),
        "key": planned.key,
        "params": dict(planned.trial.params),
        "seed": planned.trial.seed,
        "claims": list(planned.trial.claims),
    }


def count(statuses: Counter[Status]) -> dict[Status, int]:
    """The counts in the order in which the statuses are declared."""
    return {status: statuses[status] for status in Status if statuses[status]}
