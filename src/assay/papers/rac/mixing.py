"""VDN and QMIX for the study: agents that learn one joint value and act on their own parts of it.

They train on what all agents did, which a decentralized learner never sees. For one-step games
and `train_batched` with `groups` set to the number of agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.loss import over_steps, taken
from assay.papers.rac.methods import IQL
from assay.papers.rac.network import Linear, QNet


@dataclass(frozen=True)
class VDN(IQL):
    """The joint value is the sum of the agents' values.

    Args:
        gamma: Not used: in a one-step game the target is the reward.
        agents: Number of agents, neighbours in the stack of learners.

    Source: Sunehag et al., "Value-decomposition networks", 2018.
    """

    agents: int = 2

    def loss(self, net: Any, target: Any, batch: EpisodeBatch) -> dict[str, Tensor]:
        if batch.continues:
            raise ValueError("batch: got steps that do not end the game, wants a one-step game")
        values, _ = net.behaviour(batch.obs[..., :-1, :])
        own = taken(values, batch.actions).unflatten(0, (-1, self.agents))
        error = self._total(net, own, batch) - batch.rewards[:: self.agents]
        loss = over_steps(error**2, batch.filled[:: self.agents])
        return {"loss": loss.repeat_interleave(self.agents) / self.agents}

    def _total(self, net: Any, own: Tensor, batch: EpisodeBatch) -> Tensor:
        """Joint values ``(groups, B, T)`` of the agents' values ``(groups, agents, B, T)``."""
        return own.sum(1)


@dataclass(frozen=True)
class QMIX(VDN):
    """The joint value is a monotonic network of the agents' values.

    Args:
        gamma: Not used: in a one-step game the target is the reward.
        agents: Number of agents, neighbours in the stack of learners.

    Source: Rashid et al., "QMIX", 2018: 32 mixing units, ELU, hypernetworks of the state.
    """

    def network(self, obs_dim: int, n_actions: int, hidden: int, recurrent: bool) -> QNet:
        return QMIXNet(obs_dim, n_actions, hidden, self.agents)

    def _total(self, net: Any, own: Tensor, batch: EpisodeBatch) -> Tensor:
        mixed = net.mix(
            own.movedim(1, -1).repeat_interleave(self.agents, 0), batch.obs[..., :-1, :]
        )
        return mixed[:: self.agents]


class QMIXNet(QNet):
    """An agent's values and a mixing network. The group's first agent has the one that is used.

    Args:
        obs_dim: Length of an observation, which is the state too.
        n_actions: Number of actions.
        hidden: Width of the trunk.
        agents: Number of agents.
    """

    UNITS = 32

    def __init__(self, obs_dim: int, n_actions: int, hidden: int, agents: int) -> None:
        super().__init__(obs_dim, n_actions, hidden, recurrent=False)
        self.first_weight = Linear(obs_dim, agents * self.UNITS)
        self.first_bias = Linear(obs_dim, self.UNITS)
        self.last_weight = Linear(obs_dim, self.UNITS)
        self.last_inner = Linear(obs_dim, self.UNITS)
        self.last_bias = Linear(self.UNITS, 1)

    def mix(self, own: Tensor, state: Tensor) -> Tensor:
        """Joint values ``(..., T)``.

        Args:
            own: Values of all agents' actions, ``(..., T, agents)``.
            state: ``(..., T, obs_dim)``.
        """
        weight = self.first_weight(state).abs().unflatten(-1, (-1, self.UNITS))
        inner = F.elu((own.unsqueeze(-1) * weight).sum(-2) + self.first_bias(state))
        offset = self.last_bias(F.relu(self.last_inner(state))).squeeze(-1)
        return (inner * self.last_weight(state).abs()).sum(-1) + offset
