"""The two value networks of a learner, and what is read from them under action masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.papers.rac.checks import one_of, whole


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
        self.inner = nn.Linear(obs_dim, hidden)
        self.memory = nn.GRU(hidden, hidden, batch_first=True) if recurrent else None
        self.outer = None if recurrent else nn.Linear(hidden, hidden)

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
        self.head = nn.Linear(hidden, n_actions)

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

    Args:
        obs_dim: Length of an input vector.
        n_actions: Number of actions A.
        n_contexts: Number of contexts m.
        hidden: Width of both trunks.
        recurrent: Whether the trunks have a memory (a GRU).
        context_head: "hyper" or "concat".

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.

    Source: Section 3.2, appendix C.
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
            self.hyper_weight = nn.Linear(n_contexts, hidden * n_actions)
            self.hyper_bias = nn.Linear(n_contexts, n_actions)
        else:
            self.concat = nn.Linear(hidden + n_contexts, n_actions)

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
            weight, bias = self.hyper()
            return torch.einsum("...h,mha->...ma", x, weight) + bias
        # A one-hot input only picks one column of the weights.
        hidden = x.shape[-1]
        shared = F.linear(x, self.concat.weight[:, :hidden], self.concat.bias)
        return shared.unsqueeze(-2) + self.concat.weight[:, hidden:].T

    def hyper(self) -> tuple[Tensor, Tensor]:
        """Weights ``(m, hidden, A)`` and biases ``(m, A)`` of every context's last layer."""
        bias = self.hyper_bias.weight.T + self.hyper_bias.bias
        weight = self.hyper_weight.weight.T + self.hyper_weight.bias
        return weight.view(self.n_contexts, -1, bias.shape[-1]), bias

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


def optimistic(values: Tensor, support: Tensor | None = None) -> Tensor:
    """``phi(s,a) = max_kappa Q_C(s, c_kappa, a)``.

    Args:
        values: Q_C, ``(..., m, A)``.
        support: Which combinations of context and action were seen, bool, of the same shape. The
            maximum is taken over those; an action seen in none gets minus infinity.

    Returns:
        ``(..., A)``.

    Source: Section 3.2.
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
