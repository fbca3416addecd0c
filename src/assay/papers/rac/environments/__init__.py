"""Cooperative games in which the safe action looks best while partners still explore."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.rac.environments.batched import BatchedPredatorPrey
    from assay.papers.rac.environments.matrix import (
        MatrixGame,
        climbing,
        paper_game,
        partially_stochastic_climbing,
        penalty,
        stochastic_climbing,
    )
    from assay.papers.rac.environments.predator_prey import PredatorPrey
    from assay.papers.rac.environments.tree import RandomTree

__all__ = [
    "BatchedPredatorPrey",
    "MatrixGame",
    "PredatorPrey",
    "RandomTree",
    "climbing",
    "paper_game",
    "partially_stochastic_climbing",
    "penalty",
    "stochastic_climbing",
]

_HOME = dict.fromkeys(__all__, "matrix") | {
    "BatchedPredatorPrey": "batched",
    "PredatorPrey": "predator_prey",
    "RandomTree": "tree",
}


def __getattr__(name: str) -> Any:
    # Only the batched game needs torch.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
