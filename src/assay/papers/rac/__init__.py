"""Return-aware context: cooperative learners that share nothing but the reward.

"In-Context Fully Decentralized Cooperative Multi-Agent Reinforcement Learning", Li, Bao and Gao,
NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.rac.batch import EpisodeBatch
    from assay.papers.rac.batched import (
        BatchedHistory,
        BatchedLearners,
        BatchedMatrixGame,
        train_batched,
    )
    from assay.papers.rac.context import ReturnContext
    from assay.papers.rac.epsilon import Epsilon
    from assay.papers.rac.loss import hysteretic_loss, iql_loss, lenient_loss, rac_loss
    from assay.papers.rac.methods import I2Q, IQL, RAC, Hysteretic
    from assay.papers.rac.network import QNet, RACNet
    from assay.papers.rac.tabular import (
        TabularDistributedQ,
        TabularHysteretic,
        TabularI2Q,
        TabularIQL,
        TabularLenient,
        TabularRAC,
    )
    from assay.papers.rac.tabular_training import TabularMatrixGame, train_tabular

__all__ = [
    "I2Q",
    "IQL",
    "RAC",
    "BatchedHistory",
    "BatchedLearners",
    "BatchedMatrixGame",
    "EpisodeBatch",
    "Epsilon",
    "Hysteretic",
    "QNet",
    "RACNet",
    "ReturnContext",
    "TabularDistributedQ",
    "TabularHysteretic",
    "TabularI2Q",
    "TabularIQL",
    "TabularLenient",
    "TabularMatrixGame",
    "TabularRAC",
    "hysteretic_loss",
    "iql_loss",
    "lenient_loss",
    "rac_loss",
    "train_batched",
    "train_tabular",
]

_HOMES = {
    "batch": ["EpisodeBatch"],
    "batched": ["BatchedHistory", "BatchedLearners", "BatchedMatrixGame", "train_batched"],
    "context": ["ReturnContext"],
    "epsilon": ["Epsilon"],
    "loss": ["hysteretic_loss", "iql_loss", "lenient_loss", "rac_loss"],
    "methods": ["I2Q", "IQL", "RAC", "Hysteretic"],
    "network": ["QNet", "RACNet"],
    "tabular": [
        "TabularDistributedQ",
        "TabularHysteretic",
        "TabularI2Q",
        "TabularIQL",
        "TabularLenient",
        "TabularRAC",
    ],
    "tabular_training": ["TabularMatrixGame", "train_tabular"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
