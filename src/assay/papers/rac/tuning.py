"""Constants of the baselines, and of RAC's tables, that did best on seeds that no claim uses.

The trials of the search are part of the laptop study, and a test holds what is chosen here to
their arg-max: the largest score, among equal ones the largest return, then the first of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assay.study import Param

HYSTERETIC_RATES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7)
LENIENT_DECAYS = (0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998)
TABULAR_BINS = (2.0, 3.0, 5.0, 10.0, 20.0, 40.0)
FINE_BINS = 20.0

TUNING_SEED = 1000

_GRIDS: Mapping[str, tuple[float, ...]] = {
    "hysteretic": HYSTERETIC_RATES,
    "lenient": LENIENT_DECAYS,
    "rac": TABULAR_BINS,
}
_FORAGING_GRIDS: Mapping[str, tuple[float, ...]] = {
    "hysteretic": (0.1, 0.3, 0.5),
    "lenient": (0.5, 0.9, 0.98, 0.999),
    "rac": (0.01, 0.1, 1.0, 10.0),
}

_BLOCK: Mapping[str, Param] = {"runs": 100, "episodes": 3000}
_GROUP: Mapping[str, Param] = {"runs": 16, "episodes": 3000}
SIZES: Mapping[str, Mapping[str, Param]] = {
    "matrix": _BLOCK,
    "climbing": _BLOCK,
    "penalty-10": _BLOCK,
    "penalty-50": _BLOCK,
    "two-stage": _BLOCK,
    "climbing-partial": _BLOCK,
    "climbing-full": _BLOCK,
    "pursuit-2": _GROUP,
    "pursuit-5": _GROUP,
    "pursuit-10": _GROUP,
    "pursuit-20": _GROUP,
    "matrix-network": {"runs": 10, "episodes": 6000},
    "foraging": {"runs": 2, "episodes": 600},
}
"""What is searched where, and how long each candidate trains: as long as the trials that are
judged, but for foraging half as long."""

CHOSEN: Mapping[str, Mapping[str, float]] = {
    "matrix": {"hysteretic": 0.01, "lenient": 0.9998, "rac": 2.0},
    "climbing": {"hysteretic": 0.01, "lenient": 0.9998, "rac": 5.0},
    "penalty-10": {"hysteretic": 0.01, "lenient": 0.995, "rac": 2.0},
    "penalty-50": {"hysteretic": 0.01, "lenient": 0.9995, "rac": 2.0},
    "two-stage": {"hysteretic": 0.01, "lenient": 0.9998, "rac": 3.0},
    "climbing-partial": {"hysteretic": 0.1, "lenient": 0.998, "rac": 2.0},
    "climbing-full": {"hysteretic": 0.1, "lenient": 0.999, "rac": 2.0},
    "pursuit-2": {"hysteretic": 0.3, "lenient": 0.999, "rac": 20.0},
    "pursuit-5": {"hysteretic": 0.03, "lenient": 0.9998, "rac": 10.0},
    "pursuit-10": {"hysteretic": 0.3, "lenient": 0.999, "rac": 10.0},
    "pursuit-20": {"hysteretic": 0.1, "lenient": 0.9998, "rac": 20.0},
    "matrix-network": {"hysteretic": 0.01},
    "foraging": {"hysteretic": 0.3, "lenient": 0.9, "rac": 0.1},
}
"""For each game the constant of each learner that has one: rate for errors below zero, decay of
the temperature; of RAC the number of contexts, and in foraging the weight of the distillation."""


def searched(*games: str) -> Iterator[tuple[str, str, float]]:
    """Every candidate: game, learner, constant.

    Args:
        *games: Keys of `CHOSEN`; default: all.
    """
    for where in games or CHOSEN:
        grids = _FORAGING_GRIDS if where == "foraging" else _GRIDS
        for learner in CHOSEN[where]:
            for value in grids[learner]:
                yield where, learner, value


def chosen(where: str, learner: str) -> float:
    """The constant of a learner in a game; 0 for one that has none, 20 contexts for "rac-fine".

    Args:
        where: A key of `CHOSEN`, or a game without search, which gets 0.
        learner: Such as "hysteretic".
    """
    return FINE_BINS if learner == "rac-fine" else CHOSEN.get(where, {}).get(learner, 0.0)
