"""Return-aware context: cooperative learners that share nothing but the reward.

"In-Context Fully Decentralized Cooperative Multi-Agent Reinforcement Learning", Li, Bao and Gao,
NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.rac.adapters import from_gymnasium, from_smac, make
    from assay.papers.rac.batch import EpisodeBatch
    from assay.papers.rac.batched import (
        BatchedHistory,
        BatchedLearners,
        BatchedMatrixGame,
        train_batched,
    )
    from assay.papers.rac.checkpoints import load_state, save_state
    from assay.papers.rac.context import ReturnContext
    from assay.papers.rac.cost import update_cost
    from assay.papers.rac.epsilon import Epsilon
    from assay.papers.rac.learners import (
        HystereticLearner,
        I2QLearner,
        IndependentLearner,
        IQLearner,
        LenientLearner,
        RACLearner,
        Step,
    )
    from assay.papers.rac.loss import hysteretic_loss, iql_loss, lenient_loss, rac_loss
    from assay.papers.rac.methods import I2Q, IQL, RAC, Hysteretic
    from assay.papers.rac.network import QNet, RACNet
    from assay.papers.rac.replay import Episode, EpisodeReplay
    from assay.papers.rac.tabular import (
        TabularDistributedQ,
        TabularHysteretic,
        TabularI2Q,
        TabularIQL,
        TabularLenient,
        TabularRAC,
    )
    from assay.papers.rac.tabular_training import TabularMatrixGame, train_tabular
    from assay.papers.rac.training import History, Trainer, make_learners, train

__all__ = [
    "I2Q",
    "IQL",
    "RAC",
    "BatchedHistory",
    "BatchedLearners",
    "BatchedMatrixGame",
    "Episode",
    "EpisodeBatch",
    "EpisodeReplay",
    "Epsilon",
    "History",
    "Hysteretic",
    "HystereticLearner",
    "I2QLearner",
    "IQLearner",
    "IndependentLearner",
    "LenientLearner",
    "QNet",
    "RACLearner",
    "RACNet",
    "ReturnContext",
    "Step",
    "TabularDistributedQ",
    "TabularHysteretic",
    "TabularI2Q",
    "TabularIQL",
    "TabularLenient",
    "TabularMatrixGame",
    "TabularRAC",
    "Trainer",
    "from_gymnasium",
    "from_smac",
    "hysteretic_loss",
    "iql_loss",
    "lenient_loss",
    "load_state",
    "make",
    "make_learners",
    "rac_loss",
    "save_state",
    "train",
    "train_batched",
    "train_tabular",
    "update_cost",
]

_HOMES = {
    "adapters": ["from_gymnasium", "from_smac", "make"],
    "batch": ["EpisodeBatch"],
    "batched": ["BatchedHistory", "BatchedLearners", "BatchedMatrixGame", "train_batched"],
    "checkpoints": ["load_state", "save_state"],
    "context": ["ReturnContext"],
    "cost": ["update_cost"],
    "epsilon": ["Epsilon"],
    "learners": [
        "HystereticLearner",
        "I2QLearner",
        "IQLearner",
        "IndependentLearner",
        "LenientLearner",
        "RACLearner",
        "Step",
    ],
    "loss": ["hysteretic_loss", "iql_loss", "lenient_loss", "rac_loss"],
    "methods": ["I2Q", "IQL", "RAC", "Hysteretic"],
    "network": ["QNet", "RACNet"],
    "replay": ["Episode", "EpisodeReplay"],
    "tabular": [
        "TabularDistributedQ",
        "TabularHysteretic",
        "TabularI2Q",
        "TabularIQL",
        "TabularLenient",
        "TabularRAC",
    ],
    "tabular_training": ["TabularMatrixGame", "train_tabular"],
    "training": ["History", "Trainer", "make_learners", "train"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
