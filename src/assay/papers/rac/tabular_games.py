"""Learners with tables, on matrix games and on predator-prey with one still prey."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from assay.papers.rac.context import ReturnContext
from assay.papers.rac.environments import (
    BatchedPredatorPrey,
    MatrixGame,
    climbing,
    paper_game,
    partially_stochastic_climbing,
    penalty,
    stochastic_climbing,
)
from assay.papers.rac.tabular import (
    TabularDistributedQ,
    TabularHysteretic,
    TabularI2Q,
    TabularIQL,
    TabularLearner,
    TabularLenient,
    TabularRAC,
)
from assay.papers.rac.tabular_training import TabularMatrixGame, play, train_tabular

GAMES: Mapping[str, Callable[[], MatrixGame]] = {
    "matrix": paper_game,
    "climbing": climbing,
    "penalty-10": lambda: penalty(-10),
    "penalty-50": lambda: penalty(-50),
    "two-stage": lambda: MatrixGame(
        [[8, -12, -12], [-12, 6, 0], [-12, 0, 6]], [[6, 0, -12], [0, 6, -12], [-12, -12, 8]]
    ),
    "climbing-partial": partially_stochastic_climbing,
    "climbing-full": stochastic_climbing,
}
"""The games of the study by name; "two-stage" is the paper's played twice, the second time with
its actions in the reverse order."""

_SIZE = 4
_LIMIT = 15
_CATCH = 10.0
_POINTS = 30  # of a curve


def annealed(episode: int, episodes: int) -> float:
    """Epsilon, which falls from 1 to 0.05 over two thirds of the episodes.

    Args:
        episode: 0 and up.
        episodes: How many there are.
    """
    return max(0.05, 1 - 0.95 * episode / (2 / 3 * episodes))


def make_learner(
    name: str, value: float, low: float, high: float, n_states: int, n_actions: int, **options: Any
) -> TabularLearner:
    """A tabular learner of the study.

    Those that average over outcomes start from zero, as in textbooks: a first outcome that sets
    the value, and is a punishment, would hold hysteretic and lenient learners back for long.

    Args:
        name: "rac", "rac-fine", "iql", "hysteretic", "lenient", "distributed" or "i2q".
        value: Number of contexts of RAC, rate of "hysteretic", decay of "lenient".
        low, high: Bounds of the return, for RAC.
        n_states, n_actions: Sizes of its table.
        **options: Of `TabularLearner`.

    Raises:
        ValueError: For another name.
    """
    sizes = (n_states, n_actions)
    match name:
        case "rac" | "rac-fine":
            return TabularRAC(*sizes, ReturnContext(low, high, int(value)), **options)
        case "iql":
            return TabularIQL(*sizes, first_visit=False, **options)
        case "hysteretic":
            return TabularHysteretic(*sizes, beta=value, first_visit=False, **options)
        case "lenient":
            return TabularLenient(*sizes, decay=value, first_visit=False, **options)
        case "distributed":
            return TabularDistributedQ(*sizes, **options)
        case "i2q":
            return TabularI2Q(*sizes, n_successors=n_actions**2, **options)
    raise ValueError(f"name: got {name!r}, wants a learner of the study")


def matrix_runs(
    game: str, learner: str, value: float, runs: int, episodes: int, seed: int
) -> dict[str, np.ndarray]:
    """Trains independent pairs of learners on a matrix game, then plays greedily.

    Args:
        game: One of `GAMES`.
        learner: As in `make_learner`. I2Q also sees the last joint action, as it must.
        value: Its constant.
        runs: Number of pairs.
        episodes: Plays to learn from.
        seed: Of exploration, luck and ties.

    Returns:
        Of each pair ``(runs,)``: "returns", the expected return of its joint actions, and
        "optimal", whether that is the largest there is.
    """
    env = GAMES[game]()
    shown = learner == "i2q"
    *streams, luck = np.random.SeedSequence(seed).spawn(3)
    trained = TabularMatrixGame(env, shown, np.random.default_rng(luck))
    expected = TabularMatrixGame(MatrixGame(*env.expected), shown)
    low, high = (sum(bound(tables) for _, tables in env.lotteries) for bound in (np.min, np.max))
    pair = [
        make_learner(
            learner,
            value,
            low,
            high,
            n_states=trained.n_states,
            n_actions=trained.shape[0],
            seeds=runs,
            rng=np.random.default_rng(stream),
        )
        for stream in streams
    ]
    train_tabular(trained, pair, episodes, lambda episode: annealed(episode, episodes))
    returns = play(expected, pair)["rewards"].sum(0)
    return {"returns": returns, "optimal": returns > env.best_return - 1e-9}


class StillPrey:
    """Predator-prey with two predators and one still prey, as a table of its transitions.

    Nothing in it depends on absolute places and nothing but the start is random: it has a state
    for each pair of places relative to the prey's, and the table is read off the batched game.

    Args:
        punishment: Reward of a lone attempt, <= 0.
        rng: Of the starting places.
    """

    def __init__(self, punishment: float, rng: np.random.Generator) -> None:
        self._starts, self._next, self._rewards = _still_prey(punishment)
        self.end = self.n_states = _SIZE**4
        self.n_states += 1
        self._rng = rng
        self._state = np.zeros(0, dtype=np.int64)

    def reset(self, seeds: int) -> np.ndarray:
        """States of `seeds` new episodes, ``(seeds,)``."""
        self._state = self._rng.choice(self._starts, size=seeds)
        return self._state

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Next states, rewards and ends, each ``(seeds,)``, of actions ``(2, seeds)``."""
        first, second = actions
        rewards = self._rewards[self._state, first, second]
        self._state = self._next[self._state, first, second]
        return self._state, rewards, self._state == self.end


@cache
def _still_prey(punishment: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starting states, and next state and reward of each state and joint action.

    Random joint actions from random starts meet every combination sooner or later.
    """
    games = 4096
    env = BatchedPredatorPrey(games, _SIZE, punishment=punishment, reward=_CATCH, limit=_LIMIT)
    shape = (_SIZE**4 + 1, env.n_actions, env.n_actions)
    successors, rewards = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
    generator = torch.Generator().manual_seed(0)
    starts = np.zeros(0, dtype=np.int64)
    seen = -1
    while (successors >= 0).sum() > seen:
        seen = (successors >= 0).sum()
        for _ in range(20):
            before = _relative(env.reset())
            starts = np.union1d(starts, before)
            actions = torch.randint(env.n_actions, (games, 2), generator=generator)
            after, reward, terminated, _ = env.step(actions)
            entry = (before, *actions.numpy().T)
            successors[entry] = np.where(terminated.all(1).numpy(), _SIZE**4, _relative(after))
            rewards[entry] = reward.numpy()
    return starts, successors, rewards


def _relative(observations: torch.Tensor) -> np.ndarray:
    """States of observations ``(games, 2, 3 * cells)``; any number where the game is over."""
    cells = observations[:, 0].unflatten(-1, (3, _SIZE**2)).argmax(-1).numpy()
    places = np.stack(np.divmod(cells, _SIZE), axis=-1)
    rows, columns = ((places[:, :2] - places[:, 2:]) % _SIZE).T
    first, second = rows * _SIZE + columns
    return first * _SIZE**2 + second


def pursuit_runs(
    punishment: float, learner: str, value: float, runs: int, episodes: int, seed: int
) -> dict[str, np.ndarray]:
    """Trains independent pairs of predators, then has each hunt greedily.

    Args:
        punishment: Reward of a lone attempt, <= 0.
        learner: As in `make_learner`.
        value: Its constant.
        runs: Number of pairs.
        episodes: Episodes to learn from.
        seed: Of exploration, starts and ties.

    Returns:
        "capture_rate" ``(runs,)``, the share of 50 greedy hunts from random places that end with
        the prey caught; "returns" ``(k, runs)`` of training, means over k stretches of it that
        end at "episodes" ``(k,)``; "final_return" ``(runs,)``, the last of them.
    """
    *streams, start, greedy = np.random.SeedSequence(seed).spawn(4)
    game = StillPrey(punishment, np.random.default_rng(start))
    low = punishment * _LIMIT / 3
    pair = [
        make_learner(
            learner,
            value,
            low,
            _CATCH,
            n_states=game.n_states,
            n_actions=6,
            seeds=runs,
            rng=np.random.default_rng(stream),
        )
        for stream in streams
    ]
    returns = train_tabular(
        game, pair, episodes, lambda episode: annealed(episode, episodes), _LIMIT
    )
    hunts = [
        play(StillPrey(punishment, np.random.default_rng(s)), pair, max_steps=_LIMIT)
        for s in greedy.spawn(50)
    ]
    caught = [(hunt["ends"] & hunt["filled"]).any(0) for hunt in hunts]
    stretches = np.array_split(returns, min(_POINTS, episodes))
    means = np.stack([stretch.mean(0) for stretch in stretches])
    return {
        "capture_rate": np.mean(caught, axis=0),
        "episodes": np.cumsum([len(stretch) for stretch in stretches]),
        "returns": means,
        "final_return": means[-1],
    }
