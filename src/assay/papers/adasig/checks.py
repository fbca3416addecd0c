"""Checks of arguments that several files share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def number(name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """`value` if it is a finite number > `above` and >= `least`.

    Raises TypeError or ValueError naming `name`.
    """
    wants = f"> {above:g}" if above > -math.inf else f">= {least:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: got {value!r}, wants one number {wants}")
    if not (math.isfinite(value) and value > above and value >= least):
        raise ValueError(f"{name}: got {value!r}, wants a finite number {wants}")
    return value


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`. Raises ValueError naming `name`."""
    names = tuple(allowed)
    if value not in names:
        raise ValueError(f"{name}: got {value!r}, wants one of {', '.join(names)}")
    return str(value)
