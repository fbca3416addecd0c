"""What the ledger says of a claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from assay.study.vocabulary import Need, Protocol, Scale


class Outcome(StrEnum):
    """The six verdicts."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"  # only an exact protocol can say so
    NOT_REPRODUCED = "not reproduced"  # the same finding under a reduced or proxy protocol
    INCONCLUSIVE = "inconclusive"
    NEEDS = "needs"  # something is missing: data, hardware, a package, another scale
    FAILED = "failed"  # a trial broke


@dataclass(frozen=True)
class Verdict:
    """The outcome for one claim at one scale.

    `effect` with its 95 % interval [low, high] is in the unit of the test (NaN where there is
    none); `n` counts pairs, trials or groups as the test does; `asked` is what the test wanted,
    such as "> 1.10"; `reason` says it all in one line.
    """

    claim: str
    scale: Scale
    outcome: Outcome
    reason: str
    protocol: Protocol | None = None
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    asked: str = ""
    needs: tuple[Need, ...] = ()
