"""The seam between a run and the machines that run its trials."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from assay.runner.events import TrialStarted
from assay.runner.plan import Planned
from assay.study import Result


@dataclass(frozen=True)
class Answer:
    """How a trial ended.

    The files of `result` are temporary: they may be gone once the next answer is asked for.
    """

    planned: Planned
    result: Result
    started: datetime
    finished: datetime


Progress: TypeAlias = TrialStarted | Answer


class Executor(Protocol):
    """Runs trials somewhere: here in worker processes, or on a cluster."""

    def run(self, trials: Sequence[Planned]) -> Generator[Progress, None, None]:
        """Runs all trials and yields, for each, a `TrialStarted` and then an `Answer`.

        Whatever a trial does to its process is an answer too; the others go on. Closing the
        iterator stops what is running.
        """
        ...
