"""Checks of arguments: each returns the value, or says what it got and what it wants."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any


def whole(name: str, value: Any, least: int = 1) -> int:
    """The value if it is an integer >= `least`.

    Args:
        name: of the argument, for the message.
        value: a Python or numpy integer; a bool is none.
        least: the smallest that is allowed.

    Raises:
        TypeError: it is no integer.
        ValueError: it is too small.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: got {value!r}, wants an integer >= {least}")
    if value < least:
        raise ValueError(f"{name}: got {value}, wants an integer >= {least}")
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> float:
    """The value if it is a finite number, >= `least`, > `above` and <= `most`.

    Args:
        name: of the argument, for the message.
        value: a Python or numpy number; a bool is none.
        least, above, most: the bounds; `most` goes with one of the others.

    Raises:
        TypeError: it is no number.
        ValueError: it is NaN, infinite or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: got {value!r}, wants one number{_bounds(least, above, most)}")
    found = float(value)
    if not (math.isfinite(found) and found >= least and found > above and found <= most):
        bounds = _bounds(least, above, most)
        raise ValueError(f"{name}: got {value}, wants a finite number{bounds}")
    return found


def _bounds(least: float, above: float, most: float) -> str:
    lower = f" > {above:g}" if above > least else f" >= {least:g}"
    if most == math.inf:
        return lower if max(above, least) > -math.inf else ""
    if above > least:
        return f"{lower}, <= {most:g}"
    return f" from {least:g} to {most:g}"


def flag(name: str, value: Any) -> bool:
    """The value if it is True or False.

    Args:
        name: of the argument, for the message.
        value: a bool; the word "false", which counts as true, is none.

    Raises:
        TypeError: it is no bool.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}, wants True or False")
    return value


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """The value if it is one of the allowed ones.

    Args:
        name: of the argument, for the message.
        value: a name.
        allowed: the names there are.

    Raises:
        ValueError: it is none of them.
    """
    names = tuple(allowed)
    if value not in names:
        raise ValueError(f"{name}: got {value!r}, wants one of {', '.join(names)}")
    return str(value)
