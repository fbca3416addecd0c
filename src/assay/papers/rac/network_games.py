"""Learners with networks, many runs at a time: on the matrix game, predator-prey and foraging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.papers.rac.adapters import make
from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.batched import (
    BatchedHistory,
    BatchedMatrixGame,
    train_batched,
)
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.environments import BatchedPredatorPrey, paper_game
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.loss import lenient_loss
from assay.papers.rac.methods import I2Q, IQL, RAC, Hysteretic, Method
from assay.papers.rac.mixing import QMIX, VDN

FORAGING_PENALTY = 0.1
_SIDE = 5
_STATES = (2 * _SIDE - 1) ** 4

EDGES = (-12.0, 0.0, 6.0, 8.0)
"""Left edges of the paper's four contexts in the matrix game."""


def possible_contexts() -> np.ndarray:
    """Which contexts an action of the matrix game can come with, bool ``(m, A)``."""
    rewards = paper_game().expected[0]
    kappa = ReturnContext(edges=EDGES).index(rewards)
    return (kappa[None] == np.arange(len(EDGES))[:, None, None]).any(2)


def marginal_error(phi: np.ndarray) -> float:
    """Largest distance of phi ``(agents, A)`` from the best reward that an action can bring."""
    rewards = paper_game().expected[0]
    best = np.stack([rewards.max(1), rewards.max(0)])
    return float(np.abs(phi - best).max())


@dataclass(frozen=True)
class SeenRAC(RAC):
    """RAC whose maximum is taken over combinations of context and action that were drawn before.

    For games of one state.

    Args:
        seen: Filled while learning, ``(learners, m, A)``.
    """

    seen: dict[str, Tensor] = field(default_factory=dict)

    def loss(
        self, net: Any, target: Any, batch: EpisodeBatch, support: Tensor | None = None
    ) -> dict[str, Tensor]:
        assert self.context is not None
        kappa = torch.from_numpy(self.context.index(batch.returns.numpy()))
        learners, actions = len(kappa), batch.mask.shape[-1]
        shape = (learners, self.context.bins, actions)
        seen = self.seen.setdefault("seen", torch.zeros(shape, dtype=torch.bool))
        seen[torch.arange(learners)[:, None], kappa, batch.actions[..., 0]] = True
        return super().loss(net, target, batch, seen[:, None, None])


def method_of(learner: str, value: float, context: ReturnContext, **options: Any) -> Method:
    """How a learner of the study learns.

    Args:
        learner: "rac", "rac-marginal" (acts on phi), "rac-support" (seen contexts only), "iql",
            "hysteretic", "i2q", "vdn" or "qmix".
        value: Weight of RAC's distillation, rate of "hysteretic".
        context: Intervals of returns, for RAC.
        **options: Of every method, such as ``gamma``.

    Raises:
        ValueError: For another learner.
    """
    match learner:
        case "rac":
            return RAC(context=context, beta=value, **options)
        case "rac-marginal":
            return RAC(context=context, act_on="marginal", **options)
        case "rac-support":
            return SeenRAC(context=context, beta=value, **options)
        case "iql":
            return IQL(**options)
        case "hysteretic":
            return Hysteretic(beta=value, **options)
        case "i2q":
            return I2Q(**options)
        case "vdn":
            return VDN(**options)
        case "qmix":
            return QMIX(**options)
    raise ValueError(f"learner: got {learner!r}, wants one of the study")


def matrix_runs(
    learner: str, value: float, runs: int, episodes: int, seed: int
) -> dict[str, np.ndarray]:
    """Trains independent pairs on the paper's matrix game, by its settings but for the length.

    Args:
        learner, value: As in `method_of`.
        runs: Number of pairs.
        episodes: As many as updates; epsilon falls over two thirds of them.
        seed: Of weights, exploration and draws.

    Returns:
        "episodes" ``(k,)`` and greedy "returns" ``(k, runs)`` in the course of training,
        "final_return" and "optimal" ``(runs,)`` at its end; for RAC also "q_c"
        ``(runs, agents, m, A)`` and "phi" ``(runs, agents, A)``.
    """
    context = ReturnContext(edges=EDGES)
    game = BatchedMatrixGame(paper_game(), runs, seed=seed)
    learners, history = train_batched(
        game,
        method_of(learner, value, context),
        episodes=episodes,
        eval_every=200,
        epsilon=Epsilon(steps=max(1, episodes * 2 // 3)),
        seed=seed,
        groups=2 if learner in ("vdn", "qmix") else 1,
    )
    found = _course(history, last=1)
    found["optimal"] = found["final_return"] == paper_game().best_return
    if learner.startswith("rac"):
        net: Any = learners.net
        start = game.reset().flatten(0, 1)[:, None, None]
        with torch.no_grad():
            values, _ = net.contextual(start)
        q_c = values[:, 0, 0].unflatten(0, (runs, -1)).numpy()
        found |= {"q_c": q_c, "phi": q_c.max(2)}
    return found


def _course(history: BatchedHistory, last: int = 3) -> dict[str, np.ndarray]:
    """The curve, and the mean of its last points."""
    returns = np.array(history.returns)
    return {
        "episodes": np.array(history.episodes),
        "returns": returns,
        "final_return": returns[-last:].mean(0),
    }


def large_pursuit_runs(
    learner: str, value: float, runs: int, steps: int, seed: int, device: str = "cpu"
) -> dict[str, np.ndarray]:
    """Trains the paper's 8 predators on 8 walking preys, each seeing 5 x 5 cells of 10 x 10.

    Args:
        learner, value: As in `method_of`.
        runs: Number of groups.
        steps: Environment steps of each, in episodes of at most 200.
        seed: Of weights, exploration, starts and draws.
        device: Where to train.

    Returns:
        "episodes", "returns" and "final_return" as `pursuit_runs` has them.
    """
    env = BatchedPredatorPrey(
        runs,
        size=10,
        predators=8,
        preys=8,
        punishment=-2.0,
        limit=200,
        prey_moves=True,
        observation="window",
        seed=seed,
        device=device,
    )
    # Two predators leave with each prey, so that half of the prey are the most they catch.
    catches = min(env.preys, env.predators // 2)
    context = ReturnContext(env.punishment * env.limit / 3, env.reward * catches, 15)
    episodes = max(1, steps // env.limit)
    _, history = train_batched(
        env,
        method_of(learner, value, context),
        episodes=episodes,
        eval_every=max(1, episodes // 30),
        batch_size=min(32, episodes),
        seed=seed,
    )
    return _course(history)


class BatchedForaging:
    """Level-based foraging for many runs, each with its own environment, as a `BatchedGame`.

    Two agents must load the food together; who loads in vain pays the penalty. An agent sees where
    food and partner are from where it stands, and its own row and column, each one-hot. Levels are
    left out: with two agents that must both load they do not matter.

    Args:
        runs: How many.
        seed: Of the layouts.
        limit: Most steps of an episode.
        penalty: What a failed attempt costs each of those who made it.
    """

    n_actions = 6

    def __init__(
        self, runs: int, seed: int, limit: int = 25, penalty: float = FORAGING_PENALTY
    ) -> None:
        self.limit = limit
        self._envs = [make("lbf:5x5-2p-1f-coop", penalty=penalty, limit=limit) for _ in range(runs)]
        self._agents = self._envs[0].possible_agents
        seeds = np.random.SeedSequence(seed).generate_state(runs)
        for env, own in zip(self._envs, seeds, strict=True):
            env.reset(seed=int(own))
        self._seen = torch.zeros(runs, len(self._agents), 9, dtype=torch.long)

    def reset(self) -> Tensor:
        """Starts an episode of every run: observations ``(runs, 2, 46)``."""
        for run, env in enumerate(self._envs):
            self._look(run, env.reset()[0])
        return self._observations()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `BatchedGame` says.

        Args:
            actions: ``(runs, 2)``.
        """
        shape = actions.shape
        rewards = torch.zeros(shape[0])
        ends, cuts = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        for run, (env, chosen) in enumerate(zip(self._envs, actions.tolist(), strict=True)):
            if env.agents:
                seen, gains, ended, cut, _ = env.step(dict(zip(self._agents, chosen, strict=True)))
                self._look(run, seen)
                rewards[run] = sum(gains.values())
                ends[run] = any(ended.values())
                cuts[run] = any(cut.values())
        return self._observations(), rewards, ends, cuts

    def _look(self, run: int, seen: Mapping[str, np.ndarray]) -> None:
        rows = np.stack([seen[agent] for agent in self._agents])
        self._seen[run] = torch.from_numpy(rows.astype(np.int64))

    def _observations(self) -> Tensor:
        food, own, partner = (self._seen[..., at : at + 2] for at in (0, 3, 6))
        # Food that is gone has a place outside the field; nobody acts on that.
        offsets = [
            (there - own).clamp(1 - _SIDE, _SIDE - 1) + _SIDE - 1 for there in (food, partner)
        ]
        places = [F.one_hot(offset, 2 * _SIDE - 1) for offset in offsets] + [F.one_hot(own, _SIDE)]
        return torch.cat([place.flatten(-2) for place in places], -1).float()


@dataclass(frozen=True)
class LenientForager(IQL):
    """Lenient Q-learning on `BatchedForaging`, whose states it tells apart one by one.

    As `LenientLearner`, but an entry cools each time it is learned from.

    Args:
        gamma: Discount, 0 to 1.
        decay: Factor of the temperature, 0 to 1.
        learners: How many are stacked.
        seed: Of what is forgiven.
    """

    decay: float = 0.99
    learners: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        learned = torch.zeros(self.learners, _STATES, BatchedForaging.n_actions)
        object.__setattr__(self, "learned", learned)
        object.__setattr__(self, "random", torch.Generator().manual_seed(self.seed))

    learned: Tensor = field(init=False)
    random: torch.Generator = field(init=False)

    def loss(self, net: Any, target: Any, batch: EpisodeBatch) -> dict[str, Tensor]:
        rows = torch.arange(self.learners)[:, None, None]
        entries = (rows, foraging_states(batch.obs[..., :-1, :]), batch.actions)
        heat = 50.0 * self.decay ** self.learned[entries]
        accept = torch.rand(heat.shape, generator=self.random) < -torch.expm1(-1 / heat)
        self.learned.index_put_(entries, batch.filled, accumulate=True)
        return lenient_loss(net, target, batch, self.gamma, accept)


def foraging_states(obs: Tensor) -> Tensor:
    """The number of each observation of `BatchedForaging`, ``(...)`` below 6,561: where food and
    partner are from the agent.

    Args:
        obs: ``(..., 46)``.
    """
    numbers = torch.zeros(obs.shape[:-1], dtype=torch.long, device=obs.device)
    width = 2 * _SIDE - 1
    for place in obs[..., : 4 * width].unflatten(-1, (4, width)).unbind(-2):
        numbers = numbers * width + place.argmax(-1)
    return numbers


def foraging_runs(
    learner: str, value: float, runs: int, episodes: int, seed: int
) -> dict[str, np.ndarray]:
    """Trains independent pairs on level-based foraging with a penalty.

    Args:
        learner, value: As in `method_of`, or "lenient" with the decay of its temperature.
        runs: Number of pairs.
        episodes: Episodes to learn from, of at most 25 steps.
        seed: Of weights, exploration, layouts and draws.

    Returns:
        "episodes" ``(k,)`` and greedy "returns" ``(k, runs)``, means over 20 layouts, and
        "final_return" ``(runs,)``.
    """
    game = BatchedForaging(runs, seed)
    method: Method
    if learner == "lenient":
        method = LenientForager(0.95, value, 2 * runs, seed)
    else:
        method = method_of(learner, value, ReturnContext(-1.0, 1.0, 10), gamma=0.95)
    _, history = train_batched(
        game,
        method,
        episodes=episodes,
        eval_every=80,
        eval_episodes=20,
        epsilon=Epsilon(steps=max(1, episodes * game.limit // 2)),
        learning_rate=1e-3,
        target_every=50,
        updates=2,
        seed=seed,
    )
    return _course(history)
