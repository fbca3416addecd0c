"""How often each action was taken where, told apart by the observation."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor


class Visits:
    """Counts of (observation, context, action).

    Observations are told apart bit by bit, which suits games of discrete views; one of real
    numbers is hardly ever seen twice.

    Args:
        n_contexts: m; 1 where contexts do not matter.
        n_actions: Number of actions A.
    """

    def __init__(self, n_contexts: int, n_actions: int) -> None:
        self._shape = (n_contexts, n_actions)
        self._counts: dict[bytes, np.ndarray] = {}
        self._none = np.zeros(self._shape, dtype=np.int64)

    def add(self, obs: np.ndarray, kappa: int, action: int) -> None:
        """Counts one step.

        Args:
            obs: float32 ``(obs_dim,)``.
            kappa: Context.
            action: Taken.
        """
        key = np.asarray(obs, dtype=np.float32).tobytes()
        if key not in self._counts:
            self._counts[key] = self._none.copy()
        self._counts[key][kappa, action] += 1

    def at(self, obs: np.ndarray | Tensor) -> np.ndarray:
        """The counts at many observations, ``(..., m, A)``.

        Args:
            obs: float32 ``(..., obs_dim)``.
        """
        rows = np.asarray(obs, dtype=np.float32)
        found = [
            self._counts.get(row.tobytes(), self._none) for row in rows.reshape(-1, rows.shape[-1])
        ]
        return np.stack(found).reshape(*rows.shape[:-1], *self._shape)

    def state_dict(self) -> dict[str, Any]:
        """Observations ``(k, obs_dim)`` and their counts ``(k, m, A)``."""
        keys = [np.frombuffer(key, dtype=np.float32) for key in self._counts]
        counts = list(self._counts.values())
        return {
            "obs": np.stack(keys) if keys else np.zeros((0, 0), dtype=np.float32),
            "counts": np.stack(counts) if counts else np.zeros((0, *self._shape), dtype=np.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Args:
            state: Of counts of the same shape.
        """
        pairs = zip(state["obs"], state["counts"], strict=True)
        self._counts = {row.tobytes(): count.copy() for row, count in pairs}
