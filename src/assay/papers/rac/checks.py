"""Checks of arguments that several files share."""

from __future__ import annotations

import math
from typing import Any


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value` if it is an integer >= `least`. Raises TypeError or ValueError naming `name`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: got {value!r}, wants an integer >= {least}")
    if value < least:
        raise ValueError(f"{name}: got {value}, wants an integer >= {least}")
    return int(value)


def within(name: str, value: Any, low: float, high: float = math.inf) -> float:
    """`value` if it is a number in [low, high]. Raises TypeError or ValueError naming `name`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: got {value!r}, wants a number")
    if not low <= value <= high:
        wanted = f">= {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        raise ValueError(f"{name}: got {value}, wants {wanted}")
    return float(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of `allowed`. Raises ValueError naming `name`."""
    if value not in allowed:
        raise ValueError(f"{name}: got {value!r}, wants one of {', '.join(allowed)}")
    return str(value)
