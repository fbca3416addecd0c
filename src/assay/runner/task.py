"""What driver and worker process say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from assay.runner.plan import Planned
from assay.study import Status


@dataclass(frozen=True)
class Task:
    """A trial to run.

    Args:
        planned: the trial.
        log: file for what it prints.
        scratch: folder for what it saves; made when it saves something.
        threads: how many the libraries of this process have.
    """

    planned: Planned
    log: Path
    scratch: Path
    threads: int


@dataclass(frozen=True)
class Reply:
    """How it ended; `files` lie in the scratch folder, the rest is as in `assay.study.Result`."""

    status: Status
    metrics: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
