"""What tells one learner from another: its network, its loss, and the values it acts on.

The same few lines drive a single learner and many stacked ones.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.loss import (
    context_error,
    hysteretic_loss,
    i2q_loss,
    iql_loss,
    over_steps,
    rac_loss,
)
from assay.papers.rac.network import I2QNet, QNet, RACNet, best_action
from assay.toolkits.checks import number, one_of

MAX_DISAGREEMENT = 0.5
"""Largest share of states whose greedy actions by Q_S and phi differ without a warning."""


class Method(Protocol):
    """A way to learn from whole episodes."""

    def network(self, obs_dim: int, n_actions: int, hidden: int, recurrent: bool) -> QNet:
        """A new network of one agent, drawn from torch's global generator."""

    def loss(self, net: Any, target: Any, batch: EpisodeBatch) -> dict[str, Tensor]:
        """ "loss" and its parts, one number for each agent."""

    def values(self, net: Any, obs: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Values to act on, ``(..., T, A)``, and the state after the last step."""


@dataclass(frozen=True)
class IQL:
    """Independent Q-learning, double.

    Args:
        gamma: Discount, 0 to 1.

    Raises:
        ValueError: Where `gamma` is outside 0 to 1.
    """

    gamma: float = 0.99

    def __post_init__(self) -> None:
        number("gamma", self.gamma, least=0, most=1)

    def network(self, obs_dim: int, n_actions: int, hidden: int, recurrent: bool) -> QNet:
        return QNet(obs_dim, n_actions, hidden, recurrent)

    def loss(self, net: Any, target: Any, batch: EpisodeBatch) -> dict[str, Tensor]:
        return iql_loss(net, target, batch, self.gamma)

    def values(self, net: Any, obs: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return net.behaviour(obs, h)


@dataclass(frozen=True)
class Hysteretic(IQL):
    """Hysteretic Q-learning: squared errors below zero are weighted by `beta`.

    Args:
        gamma: Discount, 0 to 1.
        beta: 0 to 1; 1 is independent Q-learning, 0 believes in nothing but the best outcome.

    Raises:
        ValueError: An argument outside its range, named in the message.
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        number("beta", self.beta, least=0, most=1)

    def loss(self, net: Any, target: Any, batch: EpisodeBatch) -> dict[str, Tensor]:
        return hysteretic_loss(net, target, batch, self.gamma, self.beta)


@dataclass(frozen=True)
class I2Q(IQL):
    """I2Q as its authors run it on discrete actions; see `i2q_loss`.

    Args:
        gamma: Discount, 0 to 1.
        mix: Share of the ideal transition's target, 0 to 1.
        expectile: 0.5 to 1.

    Raises:
        ValueError: An argument outside its range, named in the message.
    """

    mix: float = 0.2
    expectile: float = 0.52

    def __post_init__(self) -> None:
        super().__post_init__()
        number("mix", self.mix, least=0, most=1)
        number("expectile", self.expectile, least=0.5, most=1)

    def network(self, obs_dim: int, n_actions: int, hidden: int, recurrent: bool) -> QNet:
        return I2QNet(obs_dim, n_actions, hidden, recurrent)

    def loss(self, net: Any, target: Any, batch: EpisodeBatch) -> dict[str, Tensor]:
        return i2q_loss(net, target, batch, self.gamma, self.mix, self.expectile)


@dataclass(frozen=True)
class RAC(IQL):
    """Return-aware context.

    Args:
        gamma: Discount, 0 to 1.
        context: Intervals of returns.
        beta: Weight of the distillation of phi into Q_S, >= 0: the paper has 10 in the matrix
            game, 1 in predator-prey and 0.01 or 0.001 in StarCraft. Too small a weight leaves Q_S
            as independent Q-learning has it.
        context_head: "hyper" or "concat", as in `RACNet`.
        act_on: "behaviour" acts on Q_S; "marginal" acts on phi and does without Q_S, which is
            the paper's ablation RAC_w_phi.

    Raises:
        TypeError: Without a `ReturnContext`.
        ValueError: An argument outside its range, named in the message.
    """

    context: ReturnContext | None = None
    beta: float = 1.0
    context_head: str = "hyper"
    act_on: str = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.context, ReturnContext):
            raise TypeError(f"context: got {self.context!r}, wants a ReturnContext")
        number("beta", self.beta, least=0)
        one_of("context_head", self.context_head, ("hyper", "concat"))
        one_of("act_on", self.act_on, ("behaviour", "marginal"))

    def network(self, obs_dim: int, n_actions: int, hidden: int, recurrent: bool) -> QNet:
        assert self.context is not None
        bins = self.context.bins
        return RACNet(obs_dim, n_actions, bins, hidden, recurrent, self.context_head)

    def loss(
        self, net: Any, target: Any, batch: EpisodeBatch, support: Tensor | None = None
    ) -> dict[str, Tensor]:
        assert self.context is not None
        if self.act_on == "marginal":
            error, _ = context_error(net, target, batch, self.context, self.gamma)
            td_c = over_steps(error**2, batch.filled)
            return {"loss": td_c, "td_c": td_c}
        return rac_loss(net, target, batch, self.context, self.gamma, self.beta, support=support)

    def values(self, net: Any, obs: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return net.behaviour(obs, h) if self.act_on == "behaviour" else net.marginal(obs, h)

    def disagreement(self, net: Any, batch: EpisodeBatch, support: Tensor | None = None) -> Tensor:
        """Share of steps at which Q_S and phi have different best actions, for each agent.

        Args:
            net: A `RACNet`, or many stacked.
            batch: Episodes.
            support: As in `rac_loss`.
        """
        with torch.no_grad():
            here, mask = batch.obs[..., :-1, :], batch.mask[..., :-1, :]
            ours = best_action(net.behaviour(here)[0], mask)
            theirs = best_action(net.marginal(here, support=support)[0], mask)
        return over_steps((ours != theirs).to(batch.filled.dtype), batch.filled)


def warn_of_disagreement(
    method: Method, net: Any, batch: EpisodeBatch, support: Tensor | None = None
) -> None:
    """Warns where Q_S of return-aware context does not follow phi in most of the states.

    Args:
        method: Nothing is done for another one, or where it acts on phi itself.
        net: Its network, or many stacked.
        batch: Episodes from the end of training.
        support: As in `rac_loss`.
    """
    if not isinstance(method, RAC) or method.act_on == "marginal":
        return
    shares = method.disagreement(net, batch, support).reshape(-1)
    apart = int((shares > MAX_DISAGREEMENT).sum())
    if apart:
        warnings.warn(
            f"the policies of {apart} of {len(shares)} learners differ from the greedy choice of "
            f"phi in more than {MAX_DISAGREEMENT:.0%} of the states in their replay; a larger "
            f"beta than {method.beta:g} makes them follow it",
            stacklevel=2,
        )
