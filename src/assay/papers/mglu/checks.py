"""Checks of arguments that several files share."""

from __future__ import annotations

from typing import Any


def positive(name: str, value: Any) -> int:
    """`value` if it is an integer >= 1. Raises TypeError or ValueError naming `name`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: got {value!r}, wants an integer >= 1")
    if value < 1:
        raise ValueError(f"{name}: got {value}, wants an integer >= 1")
    return value


def number(name: str, value: Any) -> float:
    """`value` if it is a real number. Raises TypeError naming `name`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: got {value!r}, wants a number")
    return value


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of `allowed`. Raises ValueError naming `name`."""
    if value not in allowed:
        raise ValueError(f"{name}: got {value!r}, wants one of {', '.join(allowed)}")
    return str(value)
