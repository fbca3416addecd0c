"""The losses of all learners with networks, on batches of whole episodes.

They work on one agent's batch, and on those of many agents stacked along leading axes; a loss is
then one number for each agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.network import best_action, optimistic

_FAR = -1e9  # minus infinity would make 0 * infinity of an unavailable action's share


class BehaviourNet(Protocol):
    """A network with action values: a `QNet`, or many of them stacked."""

    def behaviour(self, obs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Values ``(..., B, T, A)`` of ``obs`` (..., B, T, obs_dim), and a state."""


class ContextualNet(BehaviourNet, Protocol):
    """A network that also has action values in every context."""

    @property
    def n_contexts(self) -> int:
        """Number of contexts m."""

    def contextual(self, obs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Values ``(..., B, T, m, A)`` of ``obs`` (..., B, T, obs_dim), and a state."""


def over_steps(values: Tensor, filled: Tensor) -> Tensor:
    """Mean over the steps that happened, ``(...)``.

    Args:
        values: ``(..., B, T)``.
        filled: 1 for those steps, ``(..., B, T)``.
    """
    return (values * filled).sum((-2, -1)) / filled.sum((-2, -1))


def evaluate(
    net: Callable[..., tuple[Tensor, Any]],
    target: Callable[..., tuple[Tensor, Any]],
    batch: EpisodeBatch,
) -> tuple[Tensor, Tensor | None]:
    """Values of the learning network and, without gradient, of its target copy.

    Where every step ends its game the target is not asked, nor is anyone about the states after
    it: None stands for its values.

    Args:
        net: Of ``(..., B, T + 1, obs_dim)``, the values and a state.
        target: Likewise.
        batch: The episodes.
    """
    if not batch.continues:
        return net(batch.obs[..., : batch.actions.shape[-1], :])[0], None
    with torch.no_grad():
        target_values, _ = target(batch.obs)
    return net(batch.obs)[0], target_values


def bootstrap(
    values: Tensor, target_values: Tensor | None, batch: EpisodeBatch, gamma: float, double: bool
) -> Tensor:
    """``r + gamma (1 - d) Qbar(s', a*)`` of every step, without gradient.

    Args:
        values: Of the learning network, ``(..., B, T + 1, A)``.
        target_values: Of its target copy, of the same shape; None where every step ends a game.
        batch: The episodes.
        gamma: Discount, 0 to 1.
        double: Whether a* is best for the learning network (double Q) or for the target.

    Returns:
        ``(..., B, T)``.
    """
    if target_values is None:
        return batch.rewards
    chooser = (values if double else target_values).detach()[..., 1:, :]
    choice = best_action(chooser, batch.mask[..., 1:, :])
    ahead = target_values[..., 1:, :].gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    return (batch.rewards + gamma * (1 - batch.terminated) * ahead).detach()


def taken(values: Tensor, actions: Tensor) -> Tensor:
    """Values ``(..., B, T)`` of the actions taken.

    Args:
        values: ``(..., B, T or T + 1, A)``.
        actions: ``(..., B, T)``.
    """
    values = values[..., : actions.shape[-1], :]
    return values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def distillation(behaviour: Tensor, phi: Tensor, mask: Tensor) -> Tensor:
    """``KL(softmax(Q_S) || softmax(phi))`` of each row over its available actions.

    Args:
        behaviour: Q_S, ``(..., A)``; the gradient goes here only.
        phi: Optimistic marginal values, ``(..., A)``; an action of minus infinity counts as not
            available.
        mask: Which actions are available, bool ``(..., A)``.

    Returns:
        ``(...)``, >= 0.

    Source: the paper's section on the method.
    """
    mask = mask & (phi > -torch.inf)
    ours = behaviour.masked_fill(~mask, _FAR).log_softmax(-1)
    theirs = phi.detach().masked_fill(~mask, _FAR).log_softmax(-1)
    return (ours.exp() * (ours - theirs)).sum(-1)


def td_error(
    net: BehaviourNet,
    target: BehaviourNet,
    batch: EpisodeBatch,
    gamma: float,
    double: bool = True,
) -> Tensor:
    """``r + gamma (1 - d) Qbar(s', a*) - Q(s, a)`` of every step, ``(..., B, T)``.

    Args:
        net: The learning network.
        target: Its target copy.
        batch: The episodes.
        gamma: Discount, 0 to 1.
        double: Double Q-learning.
    """
    values, target_values = evaluate(net.behaviour, target.behaviour, batch)
    return bootstrap(values, target_values, batch, gamma, double) - taken(values, batch.actions)


def context_error(
    net: ContextualNet,
    target: ContextualNet,
    batch: EpisodeBatch,
    context: ReturnContext,
    gamma: float,
    double: bool = True,
) -> tuple[Tensor, Tensor]:
    """The error of Q_C in the context of each episode's return, the same at all its steps.

    Args:
        net, target, batch, gamma, double: As in `td_error`.
        context: Intervals of returns.

    Returns:
        Errors as in `td_error`, and Q_C in all contexts, ``(..., B, T or T + 1, m, A)``.

    Raises:
        ValueError: Where the numbers of contexts disagree, or a return is NaN or infinite.
    """
    if context.bins != net.n_contexts:
        raise ValueError(f"context: got {context.bins} contexts, wants {net.n_contexts}")
    index = context.index(batch.returns.cpu().numpy())
    kappa = torch.from_numpy(index).to(batch.obs.device)[..., None, None, None]

    def own(values: Tensor) -> Tensor:
        where = kappa.expand(*values.shape[:-2], 1, values.shape[-1])
        return values.gather(-2, where).squeeze(-2)

    values, target_values = evaluate(net.contextual, target.contextual, batch)
    chosen = own(values)
    own_target = None if target_values is None else own(target_values)
    goal = bootstrap(chosen, own_target, batch, gamma, double)
    return goal - taken(chosen, batch.actions), values


def rac_loss(
    net: ContextualNet,
    target: ContextualNet,
    batch: EpisodeBatch,
    context: ReturnContext,
    gamma: float,
    beta: float,
    double: bool = True,
    support: Tensor | None = None,
) -> dict[str, Tensor]:
    """``L_C + L_TD + beta L_sup`` on whole episodes.

    L_C fits Q_C in the context of each episode's return, the same at all of its steps. L_TD is
    independent Q-learning of Q_S. L_sup is `distillation` of ``phi = max_kappa Q_C`` into Q_S; no
    gradient of it reaches Q_C. All are means over the steps that happened.

    Args:
        net: The learning network.
        target: Its target copy.
        batch: Episodes of one agent.
        context: Intervals of returns, as many as the network has contexts.
        gamma: Discount, 0 to 1.
        beta: Weight of L_sup.
        double: Double Q-learning, as the authors' code has it; the paper writes a plain maximum.
        support: Combinations of context and action seen, bool ``(..., B, T, m, A)``; None takes
            the maximum over all contexts, as the paper does.

    Returns:
        Scalars: "loss", and its parts "td_c", "td_s" and "kl" (unweighted).

    Raises:
        ValueError: Where the numbers of contexts disagree, or a return is NaN or infinite.

    Source: the paper's section on the method, equations 5 to 11.
    """
    error, values = context_error(net, target, batch, context, gamma, double)
    td_c = over_steps(error**2, batch.filled)

    behaviour, target_behaviour = evaluate(net.behaviour, target.behaviour, batch)
    goal = bootstrap(behaviour, target_behaviour, batch, gamma, double)
    td_s = over_steps((goal - taken(behaviour, batch.actions)) ** 2, batch.filled)

    steps = batch.actions.shape[-1]
    phi = optimistic(values[..., :steps, :, :].detach(), support)
    divergence = distillation(behaviour[..., :steps, :], phi, batch.mask[..., :steps, :])
    kl = over_steps(divergence, batch.filled)
    return {"loss": td_c + td_s + beta * kl, "td_c": td_c, "td_s": td_s, "kl": kl}


def iql_loss(
    net: BehaviourNet,
    target: BehaviourNet,
    batch: EpisodeBatch,
    gamma: float,
    double: bool = True,
) -> dict[str, Tensor]:
    """Independent Q-learning: the mean squared `td_error`.

    Args:
        net, target, batch, gamma, double: As in `td_error`.

    Returns:
        {"loss": scalar}.
    """
    error = td_error(net, target, batch, gamma, double)
    return {"loss": over_steps(error**2, batch.filled)}


def hysteretic_loss(
    net: BehaviourNet,
    target: BehaviourNet,
    batch: EpisodeBatch,
    gamma: float,
    beta: float,
    double: bool = True,
) -> dict[str, Tensor]:
    """Squared errors, those below zero weighted by `beta`.

    Args:
        net, target, batch, gamma, double: As in `td_error`.
        beta: 0 to 1; 1 is independent Q-learning.

    Returns:
        {"loss": scalar}.

    Source: Omidshafiei et al., ICML 2017.
    """
    error = td_error(net, target, batch, gamma, double)
    weight = torch.where(error < 0, beta, 1.0).to(error.dtype)
    return {"loss": over_steps(weight * error**2, batch.filled)}


def lenient_loss(
    net: BehaviourNet,
    target: BehaviourNet,
    batch: EpisodeBatch,
    gamma: float,
    accept: Tensor,
    double: bool = True,
) -> dict[str, Tensor]:
    """Squared errors, those below zero only where they are accepted.

    Args:
        net, target, batch, gamma, double: As in `td_error`.
        accept: Which steps learn from an error below zero, bool ``(..., B, T)``.

    Returns:
        {"loss": scalar}.

    Source: Palmer et al., AAMAS 2018.
    """
    error = td_error(net, target, batch, gamma, double)
    weight = ((error >= 0) | accept).to(error.dtype)
    return {"loss": over_steps(weight * error**2, batch.filled)}


class TransitionNet(BehaviourNet, Protocol):
    """An `I2QNet`, or many of them stacked."""

    def features(self, obs: Tensor) -> Tensor:
        """``(..., B, T, hidden)`` of ``obs`` (..., B, T, obs_dim)."""

    def transition_value(self, here: Tensor, there: Tensor) -> Tensor:
        """QSS ``(..., B, T)`` of features of a state and of the next."""

    def state_value(self, here: Tensor) -> Tensor:
        """V ``(..., B, T)`` of features of a state."""


def i2q_loss(
    net: TransitionNet,
    target: TransitionNet,
    batch: EpisodeBatch,
    gamma: float,
    mix: float = 0.2,
    expectile: float = 0.52,
    double: bool = True,
) -> dict[str, Tensor]:
    """I2Q for discrete actions and partial views, where next states cannot be enumerated.

    QSS(s,s') fits ``y = r + gamma (1 - d) V(s')``; V(s) is the upper expectile of QSS over the
    next states seen, in place of a maximum; Q fits ``mix y + (1 - mix)`` times the target of
    independent Q-learning. States are features of the target trunk.

    Where all states look alike, as in a one-step game, y is the reward and this is independent
    Q-learning.

    Args:
        net, target, batch, gamma, double: As in `td_error`.
        mix: Share of y in the target of Q, 0 to 1.
        expectile: 0.5 is the mean, 1 the maximum.

    Returns:
        Scalars: "loss", the sum of "qss", "v" and "td". They share no parameters.

    Source: Jiang and Lu, NeurIPS 2022, and the settings of their code for SMAC. There the gradients
    of each of the three networks are clipped alone, here those of all together.
    """
    with torch.no_grad():
        features = target.features(batch.obs)
        here, there = features[..., :-1, :], features[..., 1:, :]
        goal = batch.rewards + gamma * (1 - batch.terminated) * target.state_value(there)
        ideal = target.transition_value(here, there)
    qss = over_steps((goal - net.transition_value(here, there)) ** 2, batch.filled)

    error = ideal - net.state_value(here)
    weight = torch.where(error > 0, expectile, 1 - expectile).to(error.dtype)
    v = over_steps(error**2, weight.detach() * batch.filled)

    values, target_values = evaluate(net.behaviour, target.behaviour, batch)
    goal = mix * goal + (1 - mix) * bootstrap(values, target_values, batch, gamma, double)
    td = over_steps((goal - taken(values, batch.actions)) ** 2, batch.filled)
    return {"loss": qss + v + td, "qss": qss, "v": v, "td": td}
