"""Many independent runs at once: the learners of every seed and agent stacked in one network.

For feed-forward networks on short episodes. Nothing is shared between learners but the calls:
each has its own parameters, optimiser moments, gradient clipping and episodes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.methods import Method, warn_of_disagreement
from assay.papers.rac.network import QNet, best_action, stack
from assay.toolkits.checks import whole

_SMALL = 1e-30


class BatchedGame(Protocol):
    """The same game played by many seeds at once, such as `BatchedPredatorPrey`."""

    n_actions: int
    limit: int
    """Most steps of an episode."""

    def reset(self) -> Tensor:
        """Starts an episode in every seed. Returns observations ``(seeds, agents, obs_dim)``."""

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Takes actions ``(seeds, agents)``.

        Returns:
            Observations, zero for agents that have left; shared rewards ``(seeds,)``;
            terminations and truncations ``(seeds, agents)``, True in the step in which an
            agent's part ends.
        """


class BatchedMatrixGame:
    """Many runs of a `MatrixGame`, as a `BatchedGame`.

    Args:
        game: Its tables and stages are taken; it is not played itself.
        batch: Number of runs.
        seed: Of the draws where luck has a part.
        joint: Whether one agent chooses the joint action: the upper bound of what any
            decentralized learner can reach.

    Raises:
        TypeError, ValueError: Where `batch` is no positive integer, or agents differ in their
            number of actions.
    """

    def __init__(self, game: Any, batch: int, seed: int = 0, joint: bool = False) -> None:
        self.batch = whole("batch", batch)
        shape = game.expected.shape[1:]
        if len(set(shape)) > 1 and not joint:
            raise ValueError(f"game: got {shape} actions, wants the same number for all agents")
        self.limit = len(game.lotteries)
        self.agents = 1 if joint else len(shape)
        self.n_actions = int(np.prod(shape)) if joint else shape[0]
        self._shape = shape
        self._odds = [torch.as_tensor(odds) for odds, _ in game.lotteries]
        self._tables = [
            torch.as_tensor(tables, dtype=torch.float32).flatten(1) for _, tables in game.lotteries
        ]
        self._random = torch.Generator().manual_seed(seed)
        self._stage = 0

    def reset(self) -> Tensor:
        """The first stage, one-hot, ``(batch, agents, stages)``."""
        self._stage = 0
        return self._observations()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Plays a stage.

        Args:
            actions: ``(batch, agents)``.

        Returns:
            As `BatchedGame` says.
        """
        joint = actions[:, 0]
        if self.agents > 1:
            for size, own in zip(self._shape[1:], actions[:, 1:].unbind(1), strict=True):
                joint = joint * size + own
        odds, tables = self._odds[self._stage], self._tables[self._stage]
        drawn = torch.zeros_like(joint)
        if len(odds) > 1:
            drawn = torch.multinomial(odds, self.batch, replacement=True, generator=self._random)
        self._stage += 1
        over = torch.full((self.batch, self.agents), self._stage == self.limit)
        return self._observations(), tables[drawn, joint], over, torch.zeros_like(over)

    def _observations(self) -> Tensor:
        stages = torch.zeros(self.batch, self.agents, self.limit)
        if self._stage < self.limit:
            stages[..., self._stage] = 1.0
        return stages


class BatchedReplay:
    """The episodes of L learners, each with its own; all store one at the same time.

    Args:
        capacity: Most episodes kept of each learner.
        learners: L.
        steps: Most steps of an episode.
        obs_dim: Length of an input vector.
        n_actions: Number of actions.
        seed: Of the draws.
        device: Where episodes are kept.
    """

    def __init__(
        self,
        capacity: int,
        learners: int,
        steps: int,
        obs_dim: int,
        n_actions: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = whole("capacity", capacity)
        self.size = 0
        self._next = 0
        whole_shape, inner = (capacity, learners, steps + 1), (capacity, learners, steps)
        zeros = torch.zeros
        self._data = EpisodeBatch(
            obs=zeros(*whole_shape, obs_dim, device=device),
            mask=zeros(*whole_shape, n_actions, dtype=torch.bool, device=device),
            actions=zeros(inner, dtype=torch.long, device=device),
            rewards=zeros(inner, device=device),
            terminated=zeros(inner, device=device),
            filled=zeros(inner, device=device),
        )
        self._learners = torch.arange(learners, device=device)[:, None]
        self._random = torch.Generator(device).manual_seed(seed)

    def store(self, episode: EpisodeBatch) -> None:
        """Keeps an episode of each learner, in place of the oldest where it is full.

        Args:
            episode: With leading axis L and none for episodes: ``obs`` is (L, T + 1, obs_dim).
        """
        for name, kept in vars(self._data).items():
            kept[self._next] = getattr(episode, name)
        self._next = (self._next + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, episodes: int, groups: int = 1) -> EpisodeBatch:
        """Draws episodes of each learner, with replacement.

        Args:
            episodes: B.
            groups: Learners in each run of this many neighbours draw the same episodes. 1 for
                independent learners; the number of agents for those that learn as one.

        Returns:
            A batch with leading axis L, cut after the longest episode drawn.
        """
        learners = len(self._learners)
        drawn = torch.randint(
            self.size,
            (learners // groups, episodes),
            generator=self._random,
            device=self._learners.device,
        ).repeat_interleave(groups, 0)
        filled = self._data.filled[drawn, self._learners]
        steps = int(filled.sum(-1).max())
        cut = {
            name: kept[drawn, self._learners, : steps + (name in ("obs", "mask"))]
            for name, kept in vars(self._data).items()
            if name != "filled"
        }
        return EpisodeBatch(**cut, filled=filled[..., :steps])


@dataclass
class BatchedHistory:
    """What came of training many seeds.

    Attributes:
        episodes: Training episodes played before each evaluation.
        returns: Undiscounted return of the greedy policies at each, ``(evaluations, seeds)``.
        losses: Last training loss before each, mean over agents, of the same shape.
    """

    episodes: list[int] = field(default_factory=list)
    returns: list[list[float]] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)


class BatchedLearners:
    """The learners of all agents in all seeds, stacked.

    Args:
        method: How they learn, such as ``RAC(context=...)`` or ``IQL()``.
        seeds: Number of runs.
        agents: Number of agents of each.
        obs_dim: Length of an observation; nothing is added to it.
        n_actions: Number of actions.
        hidden: Width of the networks.
        learning_rate: Of RMSprop.
        max_grad_norm: Gradients of each learner are clipped to this norm.
        seed: Of initial weights and of exploration.
        device: Where they live.

    Attributes:
        net: The stacked network; learner ``seed * agents + agent`` is row of each parameter.
        target: Its target copy.

    Raises:
        TypeError, ValueError: A size that is no positive integer.
    """

    def __init__(
        self,
        method: Method,
        seeds: int,
        agents: int,
        obs_dim: int,
        n_actions: int,
        hidden: int = 64,
        learning_rate: float = 5e-4,
        max_grad_norm: float = 10.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.method = method
        self.seeds, self.agents = whole("seeds", seeds), whole("agents", agents)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            nets = [
                method.network(obs_dim, n_actions, hidden, recurrent=False)
                for _ in range(seeds * agents)
            ]
        self.net: QNet = stack(nets).to(device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.max_grad_norm = max_grad_norm
        self._parameters = list(self.net.parameters())
        self._optimiser = torch.optim.RMSprop(
            self._parameters, lr=learning_rate, alpha=0.99, eps=1e-5, foreach=True
        )
        self._random = torch.Generator(device).manual_seed(seed)

    @torch.no_grad()
    def act(self, obs: Tensor, mask: Tensor, epsilon: Tensor | float = 0.0) -> Tensor:
        """Epsilon-greedy actions, ``(seeds, agents)``.

        Args:
            obs: ``(seeds, agents, obs_dim)``.
            mask: Which actions are available, bool ``(seeds, agents, A)``.
            epsilon: Of each seed, ``(seeds,)``, or of all.
        """
        values, _ = self.method.values(self.net, obs.flatten(0, 1).unsqueeze(1), None)
        greedy = best_action(values.squeeze(1).unflatten(0, (self.seeds, -1)), mask)
        draws = torch.rand(2, *mask.shape, generator=self._random, device=obs.device)
        random = draws[0].masked_fill(~mask, -1.0).argmax(-1)
        share = torch.as_tensor(epsilon, device=obs.device).expand(self.seeds).unsqueeze(-1)
        return torch.where(draws[1, ..., 0] < share, random, greedy)

    def update(self, batch: EpisodeBatch) -> dict[str, Tensor]:
        """One step of every learner on its own batch.

        Args:
            batch: With leading axis ``seeds * agents``.

        Returns:
            "loss" and its parts as `Method.loss` has them.
        """
        losses = self.method.loss(self.net, self.target, batch)
        self._optimiser.zero_grad()
        losses["loss"].sum().backward()
        clip_each(self._parameters, self.max_grad_norm)
        # Square roots of zeros and denormal numbers, the second moments of units that are off,
        # take many times as long as others. This bound is lost beside RMSprop's epsilon.
        if moments := [state["square_avg"] for state in self._optimiser.state.values()]:
            torch._foreach_clamp_min_(moments, _SMALL)
        self._optimiser.step()
        return {name: part.detach() for name, part in losses.items()}

    def copy_target(self) -> None:
        """Copies the network to its target."""
        self.target.load_state_dict(self.net.state_dict())


def clip_each(parameters: Sequence[Tensor], max_norm: float) -> None:
    """Clips the gradients of each learner to a norm, as `torch.nn.utils.clip_grad_norm_` does.

    Args:
        parameters: Stacked, with a leading axis of learners.
        max_norm: Largest norm over all of a learner's parameters.
    """
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(grad.flatten(1), dim=1) for grad in grads])
    scale = (max_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))


def play_episode(
    game: BatchedGame, learners: BatchedLearners, epsilon: Tensor | float = 0.0
) -> EpisodeBatch:
    """One episode of every seed.

    An agent that leaves early sees zeros, can take action 0 only, and keeps the shared reward
    until the game ends.

    Args:
        game: What they play.
        learners: Who plays.
        epsilon: Share of random actions of each seed, ``(seeds,)``, or of all.

    Returns:
        One episode of each learner, padded to `game.limit`, with a leading axis of learners and
        none of episodes.
    """
    obs = game.reset()
    seeds, agents, _ = obs.shape
    steps = range(game.limit)
    gone = torch.zeros(seeds, agents, dtype=torch.bool, device=obs.device)
    running = torch.ones(seeds, 1, dtype=torch.bool, device=obs.device)
    idle = torch.arange(game.n_actions, device=obs.device) == 0
    mask = ~gone.unsqueeze(-1) | idle
    episode = EpisodeBatch(
        obs=obs.new_zeros(seeds, agents, len(steps) + 1, obs.shape[-1]),
        mask=mask.unsqueeze(2).repeat(1, 1, len(steps) + 1, 1),
        actions=obs.new_zeros(seeds, agents, len(steps), dtype=torch.long),
        rewards=obs.new_zeros(seeds, agents, len(steps)),
        terminated=obs.new_zeros(seeds, agents, len(steps)),
        filled=obs.new_zeros(seeds, agents, len(steps)),
    )
    episode.obs[:, :, 0] = obs
    for t in steps:
        actions = learners.act(obs, mask, epsilon)
        obs, rewards, ends, cuts = game.step(actions)
        gone = gone | ends
        over = (gone | cuts).all(1, keepdim=True)
        mask = ~gone.unsqueeze(-1) | idle
        episode.actions[:, :, t] = actions
        episode.rewards[:, :, t] = rewards.unsqueeze(1) * running
        episode.terminated[:, :, t] = (running & over & ~cuts.any(1, keepdim=True)).to(obs.dtype)
        episode.filled[:, :, t] = running.to(obs.dtype)
        episode.obs[:, :, t + 1] = obs
        episode.mask[:, :, t + 1] = mask
        running = running & ~over
        if not running.any():
            break
    return EpisodeBatch(**{name: part.flatten(0, 1) for name, part in vars(episode).items()})


def train_batched(
    game: BatchedGame,
    method: Method,
    episodes: int,
    eval_every: int,
    epsilon: Epsilon | None = None,
    seed: int = 0,
    hidden: int = 64,
    learning_rate: float = 5e-4,
    capacity: int = 5_000,
    batch_size: int = 32,
    target_every: int = 200,
    eval_episodes: int = 1,
    groups: int = 1,
    updates: int = 1,
) -> tuple[BatchedLearners, BatchedHistory]:
    """Trains the learners of every agent in every seed: an episode, then updates.

    Args:
        game: What they play; its number of runs is the number of seeds.
        method: How they learn.
        episodes: Training episodes of each seed, >= 1.
        eval_every: Evaluates the greedy policies after so many, and at the end.
        epsilon: Share of random actions by environment steps of each seed; default `Epsilon`'s.
        seed: Of weights, exploration and draws from the replay.
        hidden: Width of the networks.
        learning_rate: Of RMSprop.
        capacity: Episodes kept of each learner.
        batch_size: Episodes in an update; there is none before so many are kept.
        target_every: Episodes between copies of the target.
        eval_episodes: Episodes of an evaluation.
        groups: As in `BatchedReplay.sample`.
        updates: After each episode.

    Returns:
        The learners and the course of their training.

    Raises:
        TypeError, ValueError: A count that is no positive integer, `groups` that leave learners
            over, or a batch larger than the replay.
    """
    for name, count in (
        ("episodes", episodes),
        ("eval_every", eval_every),
        ("batch_size", batch_size),
        ("target_every", target_every),
        ("eval_episodes", eval_episodes),
        ("updates", updates),
        ("groups", groups),
    ):
        whole(name, count)
    if batch_size > whole("capacity", capacity):
        raise ValueError(f"batch_size: got {batch_size}, wants <= capacity = {capacity}")
    epsilon = epsilon or Epsilon()
    first = game.reset()
    seeds, agents, obs_dim = first.shape
    if seeds * agents % groups:
        raise ValueError(f"groups: got {groups}, wants a divisor of {seeds * agents} learners")
    sizes = (seeds, agents, obs_dim, game.n_actions)
    learners = BatchedLearners(
        method, *sizes, hidden=hidden, learning_rate=learning_rate, seed=seed, device=first.device
    )
    replay = BatchedReplay(
        capacity, seeds * agents, game.limit, obs_dim, game.n_actions, seed, first.device
    )
    history = BatchedHistory()
    steps = np.zeros(seeds)
    losses = torch.full((seeds * agents,), torch.nan, device=first.device)
    for done in range(1, episodes + 1):
        share = torch.as_tensor(epsilon(steps), device=first.device)
        episode = play_episode(game, learners, share)
        steps += episode.filled.sum(-1).view(seeds, agents)[:, 0].cpu().numpy()
        replay.store(episode)
        if replay.size >= batch_size:
            for _ in range(updates):
                losses = learners.update(replay.sample(batch_size, groups))["loss"]
        if done % target_every == 0:
            learners.copy_target()
        if done % eval_every == 0 or done == episodes:
            played = [play_episode(game, learners).returns for _ in range(eval_episodes)]
            history.episodes.append(done)
            history.returns.append(torch.stack(played).mean(0).view(seeds, agents)[:, 0].tolist())
            history.losses.append(losses.view(seeds, agents).mean(1).tolist())
    warn_of_disagreement(method, learners.net, replay.sample(batch_size))
    return learners, history
