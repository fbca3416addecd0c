"""Constants of every sampler: those that did best on a seed that no claim uses.

The search is part of the laptop study, and a test holds what is chosen here to its arg-min. Every
sampler that is compared has a grid of at least four, MultALMC and MultCDiff too, and searches with
the evaluations that it is judged with; what it minimises is what is judged on the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from assay.study import Param

Constants = Mapping[str, Param]

TUNING_SEED = 1000

CURVATURES: Mapping[str, float] = {
    "eight": 1.4,
    "forty": 1.0,
    "plane": 1.0,
    "rings": 44.0,
    "funnel": 10.0,
    "wells": 32.0,
    "field": 50.0,
    "gate": 4.0,
    "ionosphere": 100.0,
    "sonar": 100.0,
}
"""About the largest curvature of each log-density where its mass is; Langevin steps are searched
in units of its inverse."""

_SCHEDULES = {"funnel": "cosine", "wells": "cosine", "field": "cosine", "ionosphere": "cosine",
              "sonar": "cosine"}  # fmt: skip
"""The paper's; linear for all others."""

_Tried = tuple[float, float, float, str]
_FREE: tuple[_Tried, ...] = (
    (0.005, 0.1, 0.01, "path"),
    (0.02, 0.1, 0.01, "path"),
    (0.02, 0.3, 0.01, "path"),
    (0.1, 0.3, 0.01, "path"),
    (0.1, 1.0, 0.01, "path"),
    (0.3, 1.0, 0.01, "path"),
    (1.0, 3.0, 0.01, "path"),
    (0.1, 0.3, 0.01, "target"),
)
_STIFF: tuple[_Tried, ...] = (
    (0.005, 0.1, 0.01, "path"),
    (0.005, 0.1, 0.01, "target"),
    (0.02, 0.3, 0.01, "target"),
    (0.01, 1.0, 0.05, "target"),
    (0.003, 0.3, 0.3, "path"),
    (0.01, 1.0, 0.3, "path"),
)
_NECK: tuple[_Tried, ...] = (
    (0.003, 0.07, 0.01, "path"),
    (0.003, 0.07, 0.01, "target"),
    (0.01, 1.0, 0.05, "target"),
    (0.003, 0.1, 0.1, "path"),
    (0.003, 0.3, 0.3, "path"),
    (0.01, 1.0, 0.3, "path"),
)
_LATTICE: tuple[_Tried, ...] = (
    (0.001, 0.05, 0.01, "path"),
    (0.001, 0.05, 0.01, "target"),
    (0.01, 0.3, 0.01, "target"),
    (0.01, 1.0, 0.05, "target"),
    (0.003, 1.0, 0.3, "path"),
    (0.003, 1.0, 0.45, "path"),
)
_POSTERIOR: tuple[_Tried, ...] = (
    (0.005, 0.1, 0.01, "path"),
    (0.005, 0.1, 0.01, "target"),
    (0.003, 1.0, 0.1, "path"),
    (0.01, 1.0, 0.1, "path"),
    (0.01, 1.0, 0.3, "path"),
    (0.05, 3.0, 0.3, "path"),
    (0.05, 1.0, 0.01, "target"),
)
_TRIED = {"rings": _STIFF, "funnel": _NECK, "wells": _STIFF, "field": _LATTICE,
          "ionosphere": _POSTERIOR, "sonar": _POSTERIOR}  # fmt: skip
"""Step, epsilon, the cut of the path and the fast variable's scale; the first are the paper's. At
its cut of 0.01 a fast variable on the path's scale starts ten standard deviations out, where stiff
targets are beyond the integrator's stability."""


def _named(step: float, eps: float, delta: float, fast_scale: str, schedule: str) -> Constants:
    return {
        "step": step,
        "eps": eps,
        "delta": delta,
        "schedule": schedule,
        "fast_scale": fast_scale,
    }


def _grid(**values: Sequence[Param]) -> list[Constants]:
    return [dict(zip(values, found, strict=True)) for found in product(*values.values())]


def candidates(target: str, sampler: str) -> list[Constants]:
    """All constants that are tried for a sampler on a target.

    Args:
        target: A key of `CURVATURES`.
        sampler: A name of `arms`.
    """
    curvature = CURVATURES[target]
    match sampler:
        case "multalmc" | "overdamped":
            schedule = _SCHEDULES.get(target, "linear")
            return [_named(*tried, schedule) for tried in _TRIED.get(target, _FREE)]
        case "multcdiff":
            return _grid(eps=(0.00003, 0.00005, 0.0005, 0.005), start=(1.0, 10.0))
        case "smc":
            return _grid(scale=(3.0, 10.0), ess=(0.5, 0.9, 0.99))
        case "pt":
            return _grid(temperatures=(5, 10, 20), scale=(3.0, 10.0))
        case "rdmc":
            return _grid(horizon=(1.0, 2.0, 3.0), inner=(1, 4))
        case "ulmc":
            return _grid(
                step=[round(c * curvature**-0.5, 4) for c in (0.3, 1.0, 1.7)], friction=(0.1, 1.0)
            )
        case "ula":
            return _grid(step=[round(c / curvature, 4) for c in (0.03, 0.1, 0.3, 1.0, 1.5)])
    raise KeyError(sampler)


CHOSEN: Mapping[str, Mapping[str, Constants]] = {
    "eight": {
        "multalmc": _named(0.1, 0.3, 0.01, "path", "linear"),
        "multcdiff": {"eps": 0.00003, "start": 10.0},
        "smc": {"scale": 10.0, "ess": 0.99},
        "pt": {"temperatures": 5, "scale": 10.0},
        "rdmc": {"horizon": 3.0, "inner": 4},
        "ulmc": {"step": 1.4368, "friction": 0.1},
        "ula": {"step": 0.7143},
    },
    "forty": {
        "multalmc": _named(0.3, 1.0, 0.01, "path", "linear"),
        "multcdiff": {"eps": 0.00005, "start": 10.0},
        "smc": {"scale": 10.0, "ess": 0.9},
        "pt": {"temperatures": 20, "scale": 10.0},
        "ulmc": {"step": 0.3, "friction": 1.0},
    },
    "rings": {
        "multalmc": _named(0.01, 1.0, 0.3, "path", "linear"),
        "pt": {"temperatures": 5, "scale": 3.0},
    },
    "funnel": {
        "multalmc": _named(0.003, 0.3, 0.3, "path", "cosine"),
        "pt": {"temperatures": 20, "scale": 10.0},
    },
    "wells": {
        "multalmc": _named(0.01, 1.0, 0.3, "path", "cosine"),
        "multcdiff": {"eps": 0.005, "start": 1.0},
        "pt": {"temperatures": 5, "scale": 10.0},
    },
    "plane": {
        "multalmc": _named(0.3, 1.0, 0.01, "path", "linear"),
        "overdamped": _named(0.1, 1.0, 0.01, "path", "linear"),
        "pt": {"temperatures": 20, "scale": 10.0},
    },
    "field": {
        "multalmc": _named(0.01, 1.0, 0.05, "target", "cosine"),
        "pt": {"temperatures": 20, "scale": 10.0},
    },
    "ionosphere": {
        "multalmc": _named(0.05, 1.0, 0.01, "target", "cosine"),
        "ulmc": {"step": 0.03, "friction": 1.0},
    },
    "sonar": {
        "multalmc": _named(0.01, 1.0, 0.3, "path", "cosine"),
        "ulmc": {"step": 0.03, "friction": 1.0},
    },
    "gate": {
        "multalmc": _named(0.005, 0.1, 0.01, "path", "linear"),
        "multcdiff": {"eps": 0.005, "start": 1.0},
    },
}
"""For each target the constants of each sampler."""


def chosen(target: str, sampler: str) -> Constants:
    """The constants of a sampler on a target; none for one that has none to choose.

    Args:
        target: A key of `CHOSEN`, or "three", which stands for a user's own and has what was found
            on another target.
        sampler: A name of `arms`.
    """
    found = CHOSEN["eight" if target == "three" else target]
    return found.get("multalmc" if sampler == "averaged" else sampler, {})
