"""The small drawing of an effect: its interval, its point, and the side that the test asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.study import Compare, Holds, Test, Threshold, Trend, Verdict


@dataclass(frozen=True)
class Strip:
    """Positions in percent of the width; `asked` may be empty, `low == high` for a point."""

    low: float
    high: float
    effect: float
    asked: tuple[float, float]
    margins: tuple[float, ...]


def asked_range(test: Test) -> tuple[float, float]:
    """The range in which the effect supports the claim; either end may be infinite."""
    match test:
        case Compare():
            return _side(test.op, test.margin)
        case Threshold():
            return _side(test.op, test.value)
        case Trend():
            return test.low, test.high
        case Holds():
            return test.at_least, test.at_most


def _side(op: str, margin: float) -> tuple[float, float]:
    return (margin, math.inf) if op == ">" else (-math.inf, margin)


def quantity(test: Test) -> str:
    """What the effect of a test is: "ratio", "mean", "slope" ..."""
    match test:
        case Compare():
            name = test.how if test.interval != "exact" else f"worst {test.how}"
        case Threshold():
            names = {"exact": "worst value", "proportion": "proportion"}
            name = names.get(test.interval, "mean")
        case Trend(method="spearman"):
            name = "rank correlation"
        case Trend():
            name = "exponent" if test.log_x and test.log_y else "slope"
        case Holds():
            return "worst value"
    return f"{name}, weakest group" if test.each else name


def is_range(test: Test) -> bool:
    """True where low and high are extremes of exact measurements and no confidence interval."""
    return isinstance(test, Holds) or getattr(test, "interval", "") == "exact"


def strips(test: Test, verdicts: Sequence[Verdict]) -> list[Strip | None]:
    """One drawing a verdict, all on one axis; None where a verdict has no finite interval."""
    margins = [m for m in asked_range(test) if math.isfinite(m)]
    drawable = [all(map(math.isfinite, (v.effect, v.low, v.high))) for v in verdicts]
    values = [
        *margins,
        *(x for v, ok in zip(verdicts, drawable, strict=True) if ok for x in (v.low, v.high)),
    ]
    if not any(drawable):
        return [None] * len(verdicts)
    least, most = min(values), max(values)
    pad = (most - least) * 0.12 or abs(most) * 0.1 or 1.0
    least, most = least - pad, most + pad

    def at(value: float) -> float:
        return round(100 * (min(max(value, least), most) - least) / (most - least), 2)

    low, high = asked_range(test)
    return [
        Strip(at(v.low), at(v.high), at(v.effect), (at(low), at(high)), tuple(map(at, margins)))
        if ok
        else None
        for v, ok in zip(verdicts, drawable, strict=True)
    ]
