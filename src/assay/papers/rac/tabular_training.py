"""Many runs of tabular learners on one game at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from assay.papers.rac.tabular import TabularLearner
from assay.toolkits.checks import whole


class TabularGame(Protocol):
    """A cooperative game of which many runs are played at once."""

    def reset(self, seeds: int) -> np.ndarray:
        """Starts an episode of every run. Returns their states, ``(seeds,)``."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes every run's joint action, ``(agents, seeds)``.

        Returns:
            The next states, the rewards, and whether the game has ended, each ``(seeds,)``.
        """


class TabularMatrixGame:
    """Many runs of a `MatrixGame`, as states: stage 0, 1, ..., and the end.

    Args:
        game: Its tables and stages are taken; it is not played itself.
        show_joint_action: Whether states also tell the last joint action; see `TabularI2Q`.
        rng: Source of the draws; a generator or a seed.

    Attributes:
        n_states: Number of states.
        shape: Numbers of the agents' actions.
        best_return: Largest expected return.
    """

    def __init__(
        self,
        game: Any,
        show_joint_action: bool = False,
        rng: np.random.Generator | int = 0,
    ) -> None:
        self._lotteries = game.lotteries
        self.shape: tuple[int, ...] = game.expected.shape[1:]
        self.best_return: float = game.best_return
        self._joint = int(np.prod(self.shape)) if show_joint_action else 1
        self.n_states = 1 + len(self._lotteries) * self._joint
        self._rng = np.random.default_rng(rng)
        self._stage = 0

    def reset(self, seeds: int) -> np.ndarray:
        """State 0 of every run, ``(seeds,)``.

        Args:
            seeds: Number of runs.
        """
        self._stage = 0
        return np.zeros(seeds, dtype=np.int64)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Plays the next stage.

        Args:
            actions: ``(agents, seeds)``.

        Returns:
            States, rewards and ends, each ``(seeds,)``.
        """
        seeds = actions.shape[1]
        shares, tables = self._lotteries[self._stage]
        drawn = self._rng.choice(len(shares), size=seeds, p=shares)
        rewards = tables[(drawn, *actions)]
        states = np.full(seeds, 1 + self._stage * self._joint)
        if self._joint > 1:
            states += np.ravel_multi_index(tuple(actions), self.shape)
        self._stage += 1
        return states, rewards, np.full(seeds, self._stage == len(self._lotteries))


def train_tabular(
    game: TabularGame,
    learners: Sequence[TabularLearner],
    episodes: int,
    epsilon: float | Callable[[int], float],
    max_steps: int = 1_000,
) -> np.ndarray:
    """Trains one learner for each agent in every run.

    Args:
        game: What they play.
        learners: One for each agent, all with the same number of runs.
        episodes: How many, >= 1.
        epsilon: Share of random actions: a number, or what to take at episode 0, 1, ...; the same
            within an episode.
        max_steps: Step limit of an episode; learners bootstrap there.

    Returns:
        Undiscounted returns of the training episodes, ``(episodes, seeds)``.

    Raises:
        ValueError: Where the learners' numbers of runs differ.
    """
    seeds = {learner.seeds for learner in learners}
    if len(seeds) != 1:
        raise ValueError(f"learners: got {sorted(seeds)} runs, wants the same for all")
    returns = np.zeros((whole("episodes", episodes), learners[0].seeds))
    for episode in range(episodes):
        share = epsilon(episode) if callable(epsilon) else epsilon
        played = play(game, learners, share, max_steps)
        for learner, actions in zip(learners, played["actions"].swapaxes(0, 1), strict=True):
            learner.learn(
                played["states"], actions, played["rewards"], played["ends"], played["filled"]
            )
        returns[episode] = played["rewards"].sum(0)
    return returns


def play(
    game: TabularGame,
    learners: Sequence[TabularLearner],
    epsilon: float = 0.0,
    max_steps: int = 1_000,
) -> dict[str, np.ndarray]:
    """One episode of every run, without learning.

    Args:
        game, learners, epsilon, max_steps: As in `train_tabular`.

    Returns:
        "states" ``(T + 1, seeds)``, "actions" ``(T, agents, seeds)``, and "rewards" (0 after a
        run's end), "ends" and "filled", each ``(T, seeds)``.
    """
    state = game.reset(learners[0].seeds)
    whole("max_steps", max_steps)
    running = np.ones(learners[0].seeds, dtype=bool)
    states = [state]
    steps: list[tuple[np.ndarray, ...]] = []
    while running.any() and len(steps) < max_steps:
        actions = np.stack([learner.act(state, epsilon) for learner in learners])
        state, rewards, ends = game.step(actions)
        states.append(state)
        steps.append((actions, np.where(running, rewards, 0.0), ends, running))
        running = running & ~ends
    arrays = [np.stack(parts) for parts in zip(*steps, strict=True)]
    return {
        "states": np.stack(states),
        **dict(zip(("actions", "rewards", "ends", "filled"), arrays, strict=True)),
    }
