"""Schedules lambda of the diffusion path, and the friction's ramp."""

from __future__ import annotations

import math
from collections.abc import Callable

from assay.toolkits.checks import number, one_of, whole

Schedule = Callable[[float], float]


def linear(u: float) -> float:
    """lambda(u) = u for u from 0 to 1."""
    return u


def cosine(u: float) -> float:
    """lambda(u) = (1 - cos(pi u)) / 2 for u from 0 to 1: slow at both ends."""
    return (1 - math.cos(math.pi * u)) / 2


SCHEDULES: dict[str, Schedule] = {"linear": linear, "cosine": cosine}


def lambdas(schedule: str | Schedule, n_steps: int) -> list[float]:
    """lambda at the start of each step, at u = 0, 1/L, ..., (L - 1)/L.

    Args:
        schedule: "linear", "cosine", or a function from [0, 1] to [0, 1] that rises to 1.
        n_steps: L, >= 1.

    Returns:
        L numbers from 0 to 1, none below the one before.

    Raises:
        TypeError: `schedule` is neither a name nor a function, or `n_steps` no integer.
        ValueError: an unknown name; values that fall, leave [0, 1] or do not end at 1.
    """
    whole("n_steps", n_steps)
    if isinstance(schedule, str):
        schedule = SCHEDULES[one_of("schedule", schedule, SCHEDULES)]
    if not callable(schedule):
        raise TypeError(f"schedule: got {schedule!r}, wants a name or a function of u in [0, 1]")
    try:
        values = [float(schedule(i / n_steps)) for i in range(n_steps + 1)]
    except (TypeError, ValueError) as error:
        raise TypeError(f"schedule: got {error}, wants a function of a number to one") from error
    for i, value in enumerate(values):
        if not 0 <= value <= 1 + 1e-9:  # also false for NaN
            at = f"{value} at u = {i / n_steps:g}"
            raise ValueError(f"schedule: got {at}, wants values from 0 to 1")
    for i in range(n_steps):
        if values[i + 1] < values[i]:
            fall = f"{values[i]:g} before {values[i + 1]:g} at u = {(i + 1) / n_steps:g}"
            raise ValueError(f"schedule: got {fall}, wants values that never fall")
    if abs(values[-1] - 1) > 1e-6:
        raise ValueError(f"schedule: got {values[-1]:g} at u = 1, wants 1")
    return values[:-1]


def frictions(friction: float | tuple[float, float], n_steps: int) -> list[float]:
    """Gamma of each step: the smallest for the first L/2, then linear to the largest.

    Args:
        friction: (Gamma_min, Gamma_max), 0 < Gamma_min <= Gamma_max, or one number for both.
        n_steps: L; even where the friction rises, so that it has a half.

    Returns:
        L numbers.

    Raises:
        TypeError, ValueError: a friction that is no number > 0, that falls, or an odd `n_steps`
            with one that rises.
    """
    pair = friction if isinstance(friction, tuple | list) else (friction, friction)
    if len(pair) != 2:
        raise ValueError(f"friction: got {friction!r}, wants one number or (smallest, largest)")
    low, high = (number("friction", value, above=0) for value in pair)
    if high < low:
        raise ValueError(f"friction: got {friction!r}, wants the smallest first")
    if low == high:
        return [low] * n_steps
    if n_steps % 2:
        raise ValueError(f"n_steps: got {n_steps}, wants an even number where the friction rises")
    half = n_steps // 2
    return [low] * half + [low + (high - low) * (i + 1) / half for i in range(half)]
