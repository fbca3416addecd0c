"""Episodes as the losses read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EpisodeBatch:
    """B episodes of one agent, padded to T steps; of many agents with leading axes.

    Attributes:
        obs: Inputs of the network, ``(..., B, T + 1, obs_dim)``: also those after the last step.
        mask: Which actions are available, bool ``(..., B, T + 1, A)``; in the padding any.
        actions: ``(..., B, T)`` int64.
        rewards: The shared reward, ``(..., B, T)``; 0 in the padding.
        terminated: 1 where the game itself ended, ``(..., B, T)``. A step limit is no such end.
        filled: 1 for steps that happened, 0 in the padding, ``(..., B, T)``.
    """

    obs: Tensor
    mask: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    filled: Tensor

    @property
    def continues(self) -> bool:
        """Whether any step leads on to another state whose value matters."""
        return bool((self.terminated < self.filled).any())

    @property
    def returns(self) -> Tensor:
        """Undiscounted returns, ``(..., B)`` float64: what the context is made of."""
        return self.rewards.sum(-1, dtype=torch.float64)
