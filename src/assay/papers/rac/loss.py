"""The losses of all learners with networks, on batches of whole episodes."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.network import QNet, RACNet, best_action, optimistic

_FAR = -1e9  # minus infinity would make 0 * infinity of an unavailable action's share


def over_steps(values: Tensor, filled: Tensor) -> Tensor:
    """Mean over the steps that happened.

    Args:
        values: ``(B, T)``.
        filled: 1 for those steps, ``(B, T)``.
    """
    return (values * filled).sum() / filled.sum()


def bootstrap(
    values: Tensor, target_values: Tensor, batch: EpisodeBatch, gamma: float, double: bool
) -> Tensor:
    """``r + gamma (1 - d) Qbar(s', a*)`` of every step, without gradient.

    Args:
        values: Of the learning network, ``(B, T + 1, A)``.
        target_values: Of its target copy, of the same shape.
        batch: The episodes.
        gamma: Discount, 0 to 1.
        double: Whether a* is best for the learning network (double Q) or for the target.

    Returns:
        ``(B, T)``.
    """
    choice = best_action((values if double else target_values).detach()[:, 1:], batch.mask[:, 1:])
    ahead = target_values[:, 1:].gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    return (batch.rewards + gamma * (1 - batch.terminated) * ahead).detach()


def taken(values: Tensor, actions: Tensor) -> Tensor:
    """Values ``(B, T)`` of the actions taken, of ``values`` (B, T + 1, A).

    Args:
        values: The last step is left out.
        actions: ``(B, T)``.
    """
    return values[:, :-1].gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def distillation(behaviour: Tensor, phi: Tensor, mask: Tensor) -> Tensor:
    """``KL(softmax(Q_S) || softmax(phi))`` of each row over its available actions.

    Args:
        behaviour: Q_S, ``(..., A)``; the gradient goes here only.
        phi: Optimistic marginal values, ``(..., A)``; an action of minus infinity counts as not
            available.
        mask: Which actions are available, bool ``(..., A)``.

    Returns:
        ``(...)``, >= 0.

    Source: Section 3.2.
    """
    mask = mask & (phi > -torch.inf)
    ours = behaviour.masked_fill(~mask, _FAR).log_softmax(-1)
    theirs = phi.detach().masked_fill(~mask, _FAR).log_softmax(-1)
    return (ours.exp() * (ours - theirs)).sum(-1)


def td_error(
    net: QNet, target: QNet, batch: EpisodeBatch, gamma: float, double: bool = True
) -> Tensor:
    """``r + gamma (1 - d) Qbar(s', a*) - Q(s, a)`` of every step, ``(B, T)``.

    Args:
        net: The learning network.
        target: Its target copy.
        batch: The episodes.
        gamma: Discount, 0 to 1.
        double: Double Q-learning.
    """
    values, _ = net.behaviour(batch.obs)
    with torch.no_grad():
        target_values, _ = target.behaviour(batch.obs)
    return bootstrap(values, target_values, batch, gamma, double) - taken(values, batch.actions)


def rac_loss(
    net: RACNet,
    target: RACNet,
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
        support: Combinations of context and action seen, bool ``(B, T, m, A)``; None takes the
            maximum over all contexts, as the paper does.

    Returns:
        Scalars: "loss", and its parts "td_c", "td_s" and "kl" (unweighted).

    Raises:
        ValueError: Where the numbers of contexts disagree, or a return is NaN or infinite.

    Source: Section 3.2.
    """
    if context.bins != net.n_contexts:
        raise ValueError(f"context: got {context.bins} contexts, wants {net.n_contexts}")
    kappa = torch.from_numpy(context.index(batch.returns.cpu().numpy())).to(batch.obs.device)
    values, _ = net.contextual(batch.obs)
    with torch.no_grad():
        target_values, _ = target.contextual(batch.obs)
    episodes = torch.arange(len(kappa), device=kappa.device)
    own, own_target = values[episodes, :, kappa], target_values[episodes, :, kappa]
    error = bootstrap(own, own_target, batch, gamma, double) - taken(own, batch.actions)
    td_c = over_steps(error**2, batch.filled)

    behaviour, _ = net.behaviour(batch.obs)
    with torch.no_grad():
        target_behaviour, _ = target.behaviour(batch.obs)
    error = bootstrap(behaviour, target_behaviour, batch, gamma, double)
    error = error - taken(behaviour, batch.actions)
    td_s = over_steps(error**2, batch.filled)

    phi = optimistic(values[:, :-1].detach(), support)
    kl = over_steps(distillation(behaviour[:, :-1], phi, batch.mask[:, :-1]), batch.filled)
    return {"loss": td_c + td_s + beta * kl, "td_c": td_c, "td_s": td_s, "kl": kl}


def iql_loss(
    net: QNet, target: QNet, batch: EpisodeBatch, gamma: float, double: bool = True
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
    net: QNet, target: QNet, batch: EpisodeBatch, gamma: float, beta: float, double: bool = True
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
    net: QNet,
    target: QNet,
    batch: EpisodeBatch,
    gamma: float,
    accept: Tensor,
    double: bool = True,
) -> dict[str, Tensor]:
    """Squared errors, those below zero only where they are accepted.

    Args:
        net, target, batch, gamma, double: As in `td_error`.
        accept: Which steps learn from an error below zero, bool ``(B, T)``.

    Returns:
        {"loss": scalar}.

    Source: Palmer et al., AAMAS 2018.
    """
    error = td_error(net, target, batch, gamma, double)
    weight = ((error >= 0) | accept).to(error.dtype)
    return {"loss": over_steps(weight * error**2, batch.filled)}
