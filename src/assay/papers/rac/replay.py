"""The episodes that one agent has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from assay.papers.rac.batch import EpisodeBatch
from assay.toolkits.checks import whole


@dataclass
class Episode:
    """One agent's episode while it goes on.

    Attributes:
        obs: Inputs of the network, each ``(obs_dim,)``; one more than there are steps.
        masks: Which actions are available, bool ``(A,)``; as many.
        actions: Of each step.
        rewards: Shared, of each step.
        terminated: Whether the game itself ended, at each step.
        epsilons: Share of random actions, at each step.
    """

    obs: list[np.ndarray] = field(default_factory=list)
    masks: list[np.ndarray] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    epsilons: list[float] = field(default_factory=list)


class EpisodeReplay:
    """A ring of whole episodes, padded to the same length.

    Args:
        capacity: Most episodes kept.
        obs_dim: Length of an input vector.
        max_len: Most steps of an episode.
        n_actions: Number of actions A.

    Attributes:
        epsilon: Share of random actions in each episode kept, ``(capacity,)``.

    Raises:
        TypeError, ValueError: A size that is no positive integer, or more than memory can hold.
    """

    def __init__(self, capacity: int, obs_dim: int, max_len: int, n_actions: int) -> None:
        self.capacity, self.max_len = whole("capacity", capacity), whole("max_len", max_len)
        whole("obs_dim", obs_dim), whole("n_actions", n_actions)
        try:
            self._obs = np.zeros((capacity, max_len + 1, obs_dim), dtype=np.float32)
        except MemoryError as error:
            raise ValueError(
                f"capacity, max_len: got {capacity} and {max_len}, wants fewer episodes or steps "
                f"of observations of {obs_dim} numbers: {error}"
            ) from None
        self._mask = np.ones((capacity, max_len + 1, n_actions), dtype=bool)
        self._actions = np.zeros((capacity, max_len), dtype=np.int64)
        self._rewards = np.zeros((capacity, max_len), dtype=np.float32)
        self._terminated = np.zeros((capacity, max_len), dtype=np.float32)
        self._length = np.zeros(capacity, dtype=np.int64)
        self.epsilon = np.zeros(capacity, dtype=np.float64)
        self._stored = 0

    def __len__(self) -> int:
        return min(self._stored, self.capacity)

    def store(self, episode: Episode) -> None:
        """Keeps an episode, in place of the oldest where it is full.

        Args:
            episode: At least one step.

        Raises:
            ValueError: Where it is empty or longer than `max_len`, where epsilon changed within
                it, or where a reward is NaN or infinite as a float32.
        """
        steps = len(episode.actions)
        if not 1 <= steps <= self.max_len:
            raise ValueError(f"episode: got {steps} steps, wants 1 to max_len = {self.max_len}")
        if len(set(episode.epsilons)) > 1:
            raise ValueError(
                f"episode: got epsilon from {min(episode.epsilons)} to {max(episode.epsilons)}, "
                "wants the same at all of its steps"
            )
        with np.errstate(over="ignore"):
            kept_rewards = np.asarray(episode.rewards, dtype=np.float32)
        bad = np.flatnonzero(~np.isfinite(kept_rewards))
        if bad.size:
            reward = episode.rewards[bad[0]]
            raise ValueError(
                f"rewards: got {reward} at step {bad[0]} of episode {self._stored}, wants a finite "
                "float32"
            )
        row = self._stored % self.capacity
        self._obs[row], self._mask[row] = 0, True
        self._obs[row, : steps + 1] = episode.obs
        self._mask[row, : steps + 1] = episode.masks
        for kept, values in (
            (self._actions, episode.actions),
            (self._rewards, kept_rewards),
            (self._terminated, episode.terminated),
        ):
            kept[row] = 0
            kept[row, :steps] = values
        self._length[row], self.epsilon[row] = steps, episode.epsilons[0]
        self._stored += 1

    def sample(self, episodes: int, rng: np.random.Generator) -> EpisodeBatch:
        """Draws episodes, none of them twice, cut after the longest.

        Args:
            episodes: B, at most as many as are kept.
            rng: Source of the draw.

        Raises:
            ValueError: Where fewer are kept.
        """
        if not 1 <= episodes <= len(self):
            raise ValueError(f"episodes: got {episodes}, wants 1 to {len(self)}, as many as kept")
        return self.at(rng.choice(len(self), episodes, replace=False))

    def at(self, rows: Sequence[int] | np.ndarray) -> EpisodeBatch:
        """The episodes at these rows, cut after the longest.

        Args:
            rows: Each 0 to ``len(self) - 1``.
        """
        rows = np.asarray(rows)
        steps = int(self._length[rows].max())
        filled = np.arange(steps) < self._length[rows, None]
        return EpisodeBatch(
            obs=torch.from_numpy(self._obs[rows, : steps + 1]),
            mask=torch.from_numpy(self._mask[rows, : steps + 1]),
            actions=torch.from_numpy(self._actions[rows, :steps]),
            rewards=torch.from_numpy(self._rewards[rows, :steps]),
            terminated=torch.from_numpy(self._terminated[rows, :steps]),
            filled=torch.from_numpy(filled.astype(np.float32)),
        )

    def state_dict(self) -> dict[str, Any]:
        """The episodes kept, as arrays cut after the longest, and how many were ever stored."""
        part = (slice(len(self)), slice(self._length[: len(self)].max(initial=0) + 1))
        kept = {name: array[part[: array.ndim]].copy() for name, array in self._arrays().items()}
        return {"stored": self._stored, **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Args:
            state: Of a replay of the same sizes.

        Raises:
            ValueError: Where it is of other sizes.
        """
        stored = int(state["stored"])
        rows = min(stored, self.capacity)
        for name, array in self._arrays().items():
            kept = state[name]
            # What is kept is cut after the longest episode.
            wanted = (rows, *kept.shape[1:2], *array.shape[2:])
            if kept.shape != wanted or kept.shape[1:2] > array.shape[1:2]:
                raise ValueError(
                    f"state: got {name} {kept.shape} of {stored} episodes, wants that of a replay "
                    f"{array.shape}"
                )
        for name, array in self._arrays().items():
            array[: len(self)] = name == "mask"
            kept = state[name]
            array[tuple(map(slice, kept.shape[:2]))] = kept
        self._stored = stored

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "obs": self._obs,
            "mask": self._mask,
            "actions": self._actions,
            "rewards": self._rewards,
            "terminated": self._terminated,
            "length": self._length,
            "epsilon": self.epsilon,
        }
