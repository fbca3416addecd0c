"""The two value networks of a learner, and what is read from them under action masks."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.toolkits.checks import one_of, whole


class Linear(nn.Linear):
    """A linear layer, or many side by side where its parameters are stacked; see `stack`."""

    def forward(self, input: Tensor) -> Tensor:
        return affine(input, self.weight, self.bias)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``x W^T + b``, with weights of one layer or of many stacked.

    Args:
        x: ``(..., inputs)``, or ``(L, ..., inputs)`` for L layers.
        weight: ``(outputs, inputs)`` or ``(L, outputs, inputs)``.
        bias: ``(outputs,)`` or ``(L, outputs)``.
    """
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    rows = x.reshape(len(x), -1, x.shape[-1])
    return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT).view(*x.shape[:-1], -1)


class Trunk(nn.Module):
    """Features of a history: Linear + ReLU, then a GRU, or a second Linear + ReLU without memory.

    Args:
        obs_dim: Length of an input vector.
        hidden: Width.
        recurrent: Whether it has a memory.

    Shapes: input ``(..., T, obs_dim)``, output ``(..., T, hidden)``; with a memory exactly one
    leading axis, and a state ``(B, hidden)``.
    """

    def __init__(self, obs_dim: int, hidden: int, recurrent: bool) -> None:
        super().__init__()
        self.inner = Linear(obs_dim, hidden)
        self.memory = nn.GRU(hidden, hidden, batch_first=True) if recurrent else None
        self.outer = None if recurrent else Linear(hidden, hidden)

    def forward(self, obs: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = F.relu(self.inner(obs))
        if self.outer is not None:
            return F.relu(self.outer(x)), None
        assert self.memory is not None
        x, h = self.memory(x, None if h is None else h[None])
        return x, h[0]


class QNet(nn.Module):
    """Q(s, a) of a history: `Trunk` and a linear layer. The whole of an independent Q-learner.

    Args:
        obs_dim: Length of an input vector.
        n_actions: Number of actions A.
        hidden: Width of the trunk.
        recurrent: Whether the trunk has a memory.

    Raises:
        TypeError, ValueError: A size that is no positive integer.
    """

    def __init__(
        self, obs_dim: int, n_actions: int, hidden: int = 64, recurrent: bool = True
    ) -> None:
        super().__init__()
        for name, size in (("obs_dim", obs_dim), ("n_actions", n_actions), ("hidden", hidden)):
            whole(name, size)
        self.trunk = Trunk(obs_dim, hidden, recurrent)
        self.head = Linear(hidden, n_actions)

    def behaviour(self, obs: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Q values ``(B, T, A)`` of ``obs`` (B, T, obs_dim), and the state after the last step.

        Args:
            obs: Inputs of T steps.
            h: State before the first of them, ``(B, hidden)``; None is zeros.
        """
        x, h = self.trunk(obs, h)
        return self.head(x), h


class RACNet(QNet):
    """Q_S(s, a), which acts, and Q_C(s, c, a), which knows the context.

    Both have a trunk of their own. The last layer of Q_C depends on the context c, a one-hot
    vector of length m: with the "hyper" head its weights and biases are linear functions of c
    (Hyper-Net); with the "concat" head c is an input of the layer beside the features
    (Normal-Net). The trunk does not see c, so it runs once for all contexts.

    In the concat head one weight alone tells two contexts of an action apart. Where their returns
    are far apart it takes long to get there; the paper has the hyper head for such games.

    Args:
        obs_dim: Length of an input vector.
        n_actions: Number of actions A.
        n_contexts: Number of contexts m.
        hidden: Width of both trunks.
        recurrent: Whether the trunks have a memory (a GRU).
        context_head: "hyper" or "concat".

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.

    Source: the paper's section on the method and appendix C.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        n_contexts: int,
        hidden: int = 64,
        recurrent: bool = True,
        context_head: str = "hyper",
    ) -> None:
        super().__init__(obs_dim, n_actions, hidden, recurrent)
        self.n_contexts = whole("n_contexts", n_contexts)
        self.context_head = one_of("context_head", context_head, ("hyper", "concat"))
        self.context_trunk = Trunk(obs_dim, hidden, recurrent)
        if context_head == "hyper":
            self.hyper_weight = Linear(n_contexts, hidden * n_actions)
            self.hyper_bias = Linear(n_contexts, n_actions)
        else:
            self.concat = Linear(hidden + n_contexts, n_actions)

    def contextual(self, obs: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Q_C in every context, ``(B, T, m, A)``, and the state after the last step.

        Args:
            obs: Inputs of T steps, ``(B, T, obs_dim)``.
            h: State of this trunk before the first of them, ``(B, hidden)``; None is zeros.
        """
        x, h = self.context_trunk(obs, h)
        return self.heads(x), h

    def heads(self, x: Tensor) -> Tensor:
        """Q_C in every context, ``(..., m, A)``, of the context trunk's features.

        Args:
            x: ``(..., hidden)``.
        """
        if self.context_head == "hyper":
            # Of a one-hot input, a linear layer gives one column of its weights and its bias.
            weight = self.hyper_weight.weight + self.hyper_weight.bias.unsqueeze(-1)
            bias = self.hyper_bias.weight + self.hyper_bias.bias.unsqueeze(-1)
            rows = weight.unflatten(-2, (x.shape[-1], -1)).movedim(-1, -3).transpose(-1, -2)
            values = affine(x, rows.flatten(-3, -2), bias.mT.flatten(-2))
            return values.unflatten(-1, (self.n_contexts, -1))
        features, contexts = self.concat.weight.split([x.shape[-1], self.n_contexts], dim=-1)
        shared = affine(x, features, self.concat.bias).unsqueeze(-2)
        return shared + _beside(contexts.mT, shared)

    def marginal(
        self,
        obs: Tensor,
        h: Tensor | None = None,
        mask: Tensor | None = None,
        support: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The optimistic marginal value phi, ``(B, T, A)``, and the context trunk's state.

        Args:
            obs: Inputs of T steps, ``(B, T, obs_dim)``.
            h: State before the first of them, ``(B, hidden)``; None is zeros.
            mask: Which actions are available, bool ``(B, T, A)``.
            support: As in `optimistic`.

        Returns:
            phi without gradient, minus infinity where an action is not available or never seen.
        """
        with torch.no_grad():
            values, h = self.contextual(obs, h)
            phi = optimistic(values, support)
            return (phi if mask is None else phi.masked_fill(~mask, -torch.inf)), h


def _beside(table: Tensor, values: Tensor) -> Tensor:
    """Puts ``(m, A)``, or ``(L, m, A)`` of stacked networks, beside ``(..., 1, A)``."""
    if table.dim() == 2:
        return table
    return table.view(len(table), *[1] * (values.dim() - 3), *table.shape[1:])


class I2QNet(QNet):
    """Q(s, a), and the values of transitions and states that `i2q_loss` learns beside it.

    Args:
        obs_dim: Length of an input vector.
        n_actions: Number of actions A.
        hidden: Width of the trunk.
        recurrent: Whether the trunk has a memory.
        width: Width of the two other networks.

    Raises:
        TypeError, ValueError: A size that is no positive integer.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: int = 64,
        recurrent: bool = True,
        width: int = 256,
    ) -> None:
        super().__init__(obs_dim, n_actions, hidden, recurrent)
        self.qss = _value(2 * hidden, whole("width", width))
        self.v = _value(hidden, width)

    def features(self, obs: Tensor) -> Tensor:
        """``(B, T, hidden)``: what stands for states.

        Args:
            obs: ``(B, T, obs_dim)``.
        """
        return self.trunk(obs)[0]

    def transition_value(self, here: Tensor, there: Tensor) -> Tensor:
        """QSS(s, s'), ``(B, T)``.

        Args:
            here: Features of s, ``(B, T, hidden)``.
            there: Features of s', of the same shape.
        """
        return self.qss(torch.cat([here, there], -1)).squeeze(-1)

    def state_value(self, here: Tensor) -> Tensor:
        """V(s), ``(B, T)``.

        Args:
            here: Features of s, ``(B, T, hidden)``.
        """
        return self.v(here).squeeze(-1)


def _value(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        Linear(inputs, width), nn.ReLU(), Linear(width, width), nn.ReLU(), Linear(width, 1)
    )


def optimistic(values: Tensor, support: Tensor | None = None) -> Tensor:
    """``phi(s,a) = max_kappa Q_C(s, c_kappa, a)``.

    Args:
        values: Q_C, ``(..., m, A)``.
        support: Which combinations of context and action were seen, bool, of the same shape. The
            maximum is taken over those; an action seen in none gets minus infinity.

    Returns:
        ``(..., A)``.

    Source: the paper's section on the method.
    """
    if support is not None:
        values = values.masked_fill(~support, -torch.inf)
    return values.amax(-2)


def best_action(values: Tensor, mask: Tensor) -> Tensor:
    """The available action of the largest value, ``(...)`` int64.

    Args:
        values: ``(..., A)``.
        mask: Which actions are available, bool ``(..., A)``, at least one of each row.
    """
    return values.masked_fill(~mask, -torch.inf).argmax(-1)


def stack(nets: Sequence[QNet]) -> QNet:
    """L networks as one, whose parameters and inputs have a leading axis L.

    Nothing is shared: each computes with its own parameters, side by side.

    Args:
        nets: Of the same class and sizes, without memory. They are not changed.

    Returns:
        A network of that class with copies of their parameters.

    Raises:
        ValueError: Where there are none, or they have a memory.
    """
    if not nets or nets[0].trunk.memory is not None:
        raise ValueError("nets: wants at least one, all without memory (recurrent=False)")
    stacked = copy.deepcopy(nets[0])
    each = [dict(net.named_parameters()) for net in nets]
    with torch.no_grad():
        for name, parameter in stacked.named_parameters():
            parameter.data = torch.stack([parameters[name] for parameters in each])
    return stacked
