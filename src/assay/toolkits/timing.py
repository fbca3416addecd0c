"""Times of code, interleaved so that what disturbs one arm disturbs all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Any

import psutil

MAX_SPREAD = 1.3
"""Largest ratio of lower quartile to minimum of an arm that passes for a quiet machine."""

MAX_FOREIGN = 0.1
"""Largest share of the CPUs' time that other processes may use on a quiet machine."""

_ROUNDS = 3

Arms = Mapping[str, Callable[[], Any]]


def interleave(
    arms: Arms, repeats: int, between: Callable[[], Any] = lambda: None, rounds: int = _ROUNDS
) -> dict[str, float]:
    """Median seconds of each arm, called in turn: A B C, A B C, ...

    A set of repeats during which the machine was busy is thrown away and taken again, for all
    arms together, up to `rounds` times. If none was quiet, every median is NaN: such times
    decide nothing.

    Args:
        arms: what to time, by name; each is called twice first.
        repeats: how often each is timed.
        between: called before each timing, outside it.
        rounds: how many sets to take at most.

    Returns:
        "<name>_s" for each arm; "spread", the largest ratio of lower quartile to minimum;
        "foreign", the share of all CPU time that went to other processes; "rounds", how many
        sets were taken.
    """
    for arm in arms.values():
        arm()
        arm()
    for taken in range(1, rounds + 1):  # noqa: B007
        times: dict[str, list[float]] = {name: [] for name in arms}
        load = Load()
        for _ in range(repeats):
            for name, arm in arms.items():
                between()
                start = time.perf_counter()
                arm()
                times[name].append(time.perf_counter() - start)
        foreign = load.foreign()
        # Inclusive, as of three values the exclusive lower quartile is the minimum itself.
        spread = max(quantiles(t, n=4, method="inclusive")[0] / min(t) for t in times.values())
        quiet = spread <= MAX_SPREAD and foreign <= MAX_FOREIGN
        if quiet:
            break
    medians = {f"{name}_s": median(t) if quiet else math.nan for name, t in times.items()}
    return {**medians, "spread": spread, "foreign": foreign, "rounds": float(taken)}


class Load:
    """CPU time since it was made, split into ours and that of others."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        cpu, own = psutil.cpu_times(), time.process_time()
        idle = cpu.idle + getattr(cpu, "iowait", 0.0)
        return sum(cpu[:8]) - idle, idle, own

    def foreign(self) -> float:
        """Share of all CPU time that went to other processes."""
        busy, idle, own = (b - a for a, b in zip(self._start, self._now(), strict=True))
        return max(0.0, busy - own) / max(busy + idle, 1e-9)
