"""One trial of the ledger with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assay.study import Result, Scale


@dataclass(frozen=True)
class Entry:
    """A result with where it belongs and under which conditions it was measured.

    Args:
        slug: the paper.
        version: version of its study.
        scale: scale at which it ran.
        result: what came out, with its key, params and seed.
        started, finished: aware datetimes; the ledger keeps them in UTC.
        environment: what `assay.runner.capture_environment` saw; filled in by the ledger from
            the trial's run and ignored when an entry is recorded.
    """

    slug: str
    version: int
    scale: Scale
    result: Result
    started: datetime
    finished: datetime
    environment: Mapping[str, Any] = field(default_factory=dict)
