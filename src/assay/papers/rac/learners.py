"""Learners that see nothing of each other but the shared reward.

Each owns its networks, optimiser, episodes and random generators. Hyper-parameters default to the
paper's (Table 4) and, where it is silent, to those of PyMARL, on which its code is built.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.loss import lenient_loss
from assay.papers.rac.methods import I2Q, IQL, RAC, Hysteretic, Method, warn_of_disagreement
from assay.papers.rac.network import RACNet
from assay.papers.rac.replay import Episode, EpisodeReplay
from assay.papers.rac.visits import Visits
from assay.toolkits.checks import flag, number, one_of, whole


@dataclass(frozen=True)
class Step:
    """What an agent sees of the step after its action.

    Attributes:
        reward: The shared reward.
        obs: Its next observation, ``(obs_dim,)``.
        mask: Which actions it may take there, bool ``(A,)``.
        terminated: Whether the game itself ended; a step limit is no such end.
    """

    reward: float
    obs: np.ndarray
    mask: np.ndarray
    terminated: bool


class IndependentLearner(Protocol):
    """One agent, as `train` needs it. What it raises ends the training."""

    def act(self, obs: np.ndarray, mask: np.ndarray, epsilon: float = 0.0) -> int:
        """Chooses an available action, at random with probability `epsilon`."""

    def observe(self, step: Step) -> None:
        """Takes in what came of the last action."""

    def end_episode(self) -> None:
        """Keeps the episode; one of which nothing was observed, as in evaluation, is dropped."""

    def drop_episode(self) -> None:
        """Forgets an episode that was broken off."""

    def update(self) -> dict[str, float]:
        """Learns from episodes kept. Returns "loss" and its parts; empty without an update."""

    def finish(self) -> None:
        """Called at the end of training: the place for warnings."""

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on: tensors, arrays, numbers, and dictionaries of them."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""


class Core:
    """A network, its target copy and its optimiser.

    Args:
        method: Which network and which loss.
        obs_dim: Length of an input vector.
        n_actions: Number of actions.
        hidden: Width of the networks.
        recurrent: Whether they have a memory.
        learning_rate: Of RMSprop, > 0.
        max_grad_norm: Gradients are clipped to this norm, > 0.
        seed: Of the initial weights.
        members: How many learners own it together, each giving a batch for a step.
    """

    def __init__(
        self,
        method: Method,
        obs_dim: int,
        n_actions: int,
        hidden: int = 64,
        recurrent: bool = True,
        learning_rate: float = 5e-4,
        max_grad_norm: float = 10.0,
        seed: int = 0,
        members: int = 1,
    ) -> None:
        number("learning_rate", learning_rate, above=0)
        number("max_grad_norm", max_grad_norm, above=0)
        flag("recurrent", recurrent)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = method.network(obs_dim, n_actions, hidden, recurrent)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.optimiser = torch.optim.RMSprop(
            self.net.parameters(), lr=learning_rate, alpha=0.99, eps=1e-5
        )
        self.max_grad_norm = max_grad_norm
        self.members = members
        self._waiting: list[dict[str, Tensor]] = []

    def step(self, losses: dict[str, Tensor]) -> dict[str, float]:
        """One step down the gradient, of the mean loss once every member gave its own.

        Args:
            losses: "loss" and its parts, of one member.

        Returns:
            Their values; empty where other members are waited for.

        Raises:
            ValueError: Where the loss is NaN or infinite; weights stay as they were.
        """
        self._waiting.append(losses)
        if len(self._waiting) < self.members:
            return {}
        means = {
            name: torch.stack([given[name] for given in self._waiting]).mean() for name in losses
        }
        self._waiting = []
        if not means["loss"].isfinite():
            raise ValueError(
                f"loss: got {means['loss'].item()}, wants a finite number; smaller rewards or a "
                "smaller learning_rate may help"
            )
        self.optimiser.zero_grad()
        means["loss"].backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.max_grad_norm)
        self.optimiser.step()
        return {name: part.item() for name, part in means.items()}

    def state_dict(self) -> dict[str, Any]:
        """Of its three parts."""
        return {
            "net": self.net.state_dict(),
            "target": self.target.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Args:
            state: Of networks of the same sizes.
        """
        self.net.load_state_dict(state["net"])
        self.target.load_state_dict(state["target"])
        self.optimiser.load_state_dict(state["optimiser"])


class QLearner:
    """A learner with a Q-network, told by a `Method` how to learn.

    With a memory, the network's input is the observation and the last action, one-hot; without,
    the observation alone.

    Args:
        obs_dim: Length of an observation.
        n_actions: Number of actions.
        method: How it learns.
        hidden: Width of the networks.
        recurrent: Whether they have a memory (a GRU).
        learning_rate: Of RMSprop.
        max_grad_norm: Gradients are clipped to this norm.
        capacity: Episodes kept.
        max_len: Most steps of an episode.
        batch_size: Episodes in an update; there is none before so many are kept.
        target_every: Episodes between copies of the target.
        seed: Of weights, exploration and draws; agents of a team need different ones.
        core: A `Core` to own together with others in place of an own one.
        agent_id: What is added to the input to tell its owners apart, ``(k,)``.

    Attributes:
        core: Network, target and optimiser.
        replay: Its `EpisodeReplay`.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        method: Method,
        *,
        hidden: int = 64,
        recurrent: bool = True,
        learning_rate: float = 5e-4,
        max_grad_norm: float = 10.0,
        capacity: int = 5_000,
        max_len: int = 500,
        batch_size: int = 32,
        target_every: int = 200,
        seed: int = 0,
        core: Core | None = None,
        agent_id: np.ndarray | None = None,
    ) -> None:
        self.obs_dim = whole("obs_dim", obs_dim)
        self.n_actions = whole("n_actions", n_actions)
        self.method = method
        self.recurrent = flag("recurrent", recurrent)
        self.batch_size = whole("batch_size", batch_size)
        self.target_every = whole("target_every", target_every)
        if batch_size > whole("capacity", capacity):
            raise ValueError(f"batch_size: got {batch_size}, wants <= capacity = {capacity}")
        whole("seed", seed, 0)
        self._agent_id = np.zeros(0) if agent_id is None else agent_id
        inputs = obs_dim + recurrent * n_actions + len(self._agent_id)
        self.core = core or Core(
            method, inputs, n_actions, hidden, recurrent, learning_rate, max_grad_norm, seed
        )
        self.replay = EpisodeReplay(capacity, inputs, max_len, n_actions)
        self._explore, self._draw = (
            np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)
        )
        self.episodes = self._copied = 0
        self.drop_episode()

    def drop_episode(self) -> None:
        """Forgets an episode that was broken off."""
        self._episode = Episode()
        self._h: Tensor | None = None
        self._last: int | None = None

    def _input(self, obs: np.ndarray) -> np.ndarray:
        if np.shape(obs) != (self.obs_dim,):
            raise ValueError(f"obs: got shape {np.shape(obs)}, wants ({self.obs_dim},)")
        last = np.zeros(self.n_actions * self.recurrent)
        if self.recurrent and self._last is not None:
            last[self._last] = 1
        return np.concatenate([obs, last, self._agent_id]).astype(np.float32)

    def _mask(self, mask: np.ndarray) -> np.ndarray:
        allowed = np.asarray(mask, dtype=bool)
        if allowed.shape != (self.n_actions,) or not allowed.any():
            wanted = f"{self.n_actions} entries, at least one of them True"
            raise ValueError(f"mask: got {np.asarray(mask).tolist()}, wants {wanted}")
        return allowed

    @torch.no_grad()
    def action_values(self, obs: np.ndarray) -> np.ndarray:
        """The values that it acts on, ``(A,)``, in the state that its memory is in.

        Args:
            obs: ``(obs_dim,)``. A network with a memory takes this as the next observation.
        """
        given = torch.from_numpy(self._input(obs)).view(1, 1, -1)
        values, self._h = self.method.values(self.core.net, given, self._h)
        return values[0, 0].numpy()

    def act(self, obs: np.ndarray, mask: np.ndarray, epsilon: float = 0.0) -> int:
        """Chooses an available action: random with probability `epsilon`, else the best.

        Args:
            obs: ``(obs_dim,)``.
            mask: Which actions are available, bool ``(A,)``.
            epsilon: 0 to 1, the same throughout an episode.

        Raises:
            ValueError: Where shapes disagree, no action is available, or the episode is `max_len`
                steps long already.
        """
        if len(self._episode.actions) == self.replay.max_len:
            # At once, as an environment may have no end.
            raise ValueError(
                f"max_len: got {self.replay.max_len}, and an episode of more steps; give learners "
                "a larger max_len, or the environment a limit"
            )
        allowed = np.flatnonzero(self._mask(mask))
        if not self._episode.actions:
            self._episode.obs.append(self._input(obs))
            self._episode.masks.append(self._mask(mask))
        values = self.action_values(obs)
        action = int(allowed[values[allowed].argmax()])
        if epsilon > 0 and self._explore.random() < epsilon:
            action = int(self._explore.choice(allowed))
        self._episode.actions.append(action)
        self._episode.epsilons.append(epsilon)
        self._last = action
        return action

    def observe(self, step: Step) -> None:
        """Takes in what came of the last action.

        Args:
            step: Its reward, and what it sees next.

        Raises:
            ValueError: Where an action is missing, or shapes disagree.
        """
        episode = self._episode
        if len(episode.actions) != len(episode.rewards) + 1:
            raise ValueError("step: got none or two for an action, wants one after each act()")
        episode.rewards.append(step.reward)
        episode.terminated.append(step.terminated)
        episode.obs.append(self._input(step.obs))
        episode.masks.append(self._mask(step.mask))

    def end_episode(self) -> None:
        """Keeps the episode; one of which nothing was observed, as in evaluation, is dropped.

        Raises:
            ValueError: What `EpisodeReplay.store` refuses.
        """
        episode = self._episode
        self.drop_episode()
        if episode.rewards:
            self.replay.store(episode)
            self.episodes += 1
            self._keep(episode)

    def _keep(self, episode: Episode) -> None:
        """Called with every training episode that was kept."""

    def update(self) -> dict[str, float]:
        """One step on episodes drawn from its own.

        Returns:
            "loss" and its parts; empty before `batch_size` episodes are kept.
        """
        if len(self.replay) < self.batch_size:
            return {}
        found = self.core.step(self._losses(self.replay.sample(self.batch_size, self._draw)))
        if found and self.episodes - self._copied >= self.target_every:
            self.core.target.load_state_dict(self.core.net.state_dict())
            self._copied = self.episodes
        return found

    def _losses(self, batch: EpisodeBatch) -> dict[str, Tensor]:
        return self.method.loss(self.core.net, self.core.target, batch)

    def finish(self) -> None:
        """Does nothing for most learners."""

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on between two episodes."""
        return {
            "kind": type(self).__name__,
            "core": self.core.state_dict(),
            "replay": self.replay.state_dict(),
            "explore": self._explore.bit_generator.state,
            "draw": self._draw.bit_generator.state,
            "episodes": self.episodes,
            "copied": self._copied,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Args:
            state: Of a learner of the same kind and sizes.

        Raises:
            ValueError: Where it is of another kind.
        """
        if state["kind"] != type(self).__name__:
            raise ValueError(f"state: got a {state['kind']}, wants a {type(self).__name__}")
        self.core.load_state_dict(state["core"])
        self.replay.load_state_dict(state["replay"])
        self._explore.bit_generator.state = state["explore"]
        self._draw.bit_generator.state = state["draw"]
        self.episodes, self._copied = int(state["episodes"]), int(state["copied"])
        self.drop_episode()


class IQLearner(QLearner):
    """Independent Q-learning.

    Args:
        obs_dim: Length of an observation.
        n_actions: Number of actions.
        gamma: Discount, 0 to 1.
        **options: Those of `QLearner`.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.
    """

    def __init__(self, obs_dim: int, n_actions: int, gamma: float = 0.99, **options: Any) -> None:
        super().__init__(obs_dim, n_actions, IQL(gamma), **options)


class HystereticLearner(QLearner):
    """Hysteretic Q-learning: learns less from disappointments. Tune `beta`.

    With ``beta=0`` it is what a network can do of distributed Q-learning, whose update only ever
    raises values; exactly that is `TabularDistributedQ`.

    Args:
        obs_dim: Length of an observation.
        n_actions: Number of actions.
        beta: Weight of errors below zero, 0 to 1.
        gamma: Discount, 0 to 1.
        **options: Those of `QLearner`.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.
    """

    def __init__(
        self, obs_dim: int, n_actions: int, beta: float = 0.1, gamma: float = 0.99, **options: Any
    ) -> None:
        super().__init__(obs_dim, n_actions, Hysteretic(gamma, beta), **options)


class I2QLearner(QLearner):
    """I2Q for discrete actions and partial views; see `i2q_loss`.

    Args:
        obs_dim: Length of an observation.
        n_actions: Number of actions.
        mix: Share of the ideal transition's target, 0 to 1.
        expectile: 0.5 to 1.
        gamma: Discount, 0 to 1.
        **options: Those of `QLearner`.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        mix: float = 0.2,
        expectile: float = 0.52,
        gamma: float = 0.99,
        **options: Any,
    ) -> None:
        super().__init__(obs_dim, n_actions, I2Q(gamma, mix, expectile), **options)


class LenientLearner(QLearner):
    """Lenient Q-learning: forgives disappointments where it has been seldom.

    After n visits of an observation and action, their temperature is ``temperature decay^n``, and
    an error below zero is learned with probability ``1 - exp(-1 / (moderation T))``, as in
    `TabularLenient`. Tune `decay` to the number of visits to come.

    Args:
        obs_dim: Length of an observation.
        n_actions: Number of actions.
        temperature: Initial T > 0.
        decay: Factor at each visit, 0 to 1.
        moderation: > 0; larger forgives more.
        gamma: Discount, 0 to 1.
        **options: Those of `QLearner`.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.

    Source: Palmer et al., AAMAS 2018, with counts of observations in place of hashed features.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        temperature: float = 50.0,
        decay: float = 0.995,
        moderation: float = 1.0,
        gamma: float = 0.99,
        **options: Any,
    ) -> None:
        super().__init__(obs_dim, n_actions, IQL(gamma), **options)
        self.gamma = gamma
        self.heat = number("temperature", temperature, above=0) * number(
            "moderation", moderation, above=0
        )
        self.decay = number("decay", decay, least=0, most=1)
        self.visits = Visits(1, n_actions)

    def _keep(self, episode: Episode) -> None:
        for obs, action in zip(episode.obs[:-1], episode.actions, strict=True):
            self.visits.add(obs, 0, action)

    def acceptance(self, batch: EpisodeBatch) -> np.ndarray:
        """With which probability an error below zero is learned at each step, ``(B, T)``.

        Args:
            batch: Episodes of its own.
        """
        counts = self.visits.at(batch.obs[:, :-1])[..., 0, :]
        seen = np.take_along_axis(counts, batch.actions.numpy()[..., None], -1)[..., 0]
        with np.errstate(divide="ignore"):
            return -np.expm1(-1 / (self.heat * self.decay**seen))

    def _losses(self, batch: EpisodeBatch) -> dict[str, Tensor]:
        shares = self.acceptance(batch)
        accept = torch.from_numpy(self._draw.random(shares.shape) < shares)
        return lenient_loss(self.core.net, self.core.target, batch, self.gamma, accept)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "visits": self.visits.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.visits.load_state_dict(state["visits"])


class RACLearner(QLearner):
    """Return-aware context: learns what each action is worth when things go well.

    Args:
        obs_dim: Length of an observation.
        n_actions: Number of actions.
        context: Intervals of returns; a copy is kept.
        beta: Weight of the distillation of phi into Q_S.
        context_head: "hyper" or "concat", as in `RACNet`.
        act_on: "behaviour" acts on Q_S, "marginal" on phi (the paper's ablation RAC_w_phi).
        support: "none" takes the maximum over all contexts, as the paper does; "count" over those
            in which the action was seen at that observation, as others are extrapolation.
        gamma: Discount, 0 to 1.
        **options: Those of `QLearner`.

    Attributes:
        context: Its `ReturnContext`, which counts its training episodes.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.

    Source: the paper's section on the method, Table 4.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        context: ReturnContext,
        beta: float = 1.0,
        context_head: str = "hyper",
        act_on: str = "behaviour",
        support: str = "none",
        gamma: float = 0.99,
        **options: Any,
    ) -> None:
        self.context = copy.deepcopy(context)
        self.rac = RAC(gamma, self.context, beta, context_head, act_on)
        self.support = one_of("support", support, ("none", "count"))
        self.visits = Visits(self.context.bins, n_actions)
        super().__init__(obs_dim, n_actions, self.rac, **options)

    def _keep(self, episode: Episode) -> None:
        self.context.count(float(np.sum(episode.rewards)))
        if self.support == "count":
            # Rounded as the loss sees it: a return on an edge may fall on its other side.
            rewards = np.asarray(episode.rewards, dtype=np.float32)
            kappa = int(self.context.index(rewards.sum(dtype=np.float64)))
            for obs, action in zip(episode.obs[:-1], episode.actions, strict=True):
                self.visits.add(obs, kappa, action)

    def _supported(self, obs: Tensor) -> Tensor | None:
        if self.support == "none":
            return None
        return torch.from_numpy(self.visits.at(obs) > 0)

    @torch.no_grad()
    def action_values(self, obs: np.ndarray) -> np.ndarray:
        if self.rac.act_on == "behaviour" or self.support == "none":
            return super().action_values(obs)
        given = torch.from_numpy(self._input(obs)).view(1, 1, -1)
        assert isinstance(self.core.net, RACNet)
        phi, self._h = self.core.net.marginal(given, self._h, support=self._supported(given))
        return phi[0, 0].numpy()

    def _losses(self, batch: EpisodeBatch) -> dict[str, Tensor]:
        support = self._supported(batch.obs[:, :-1])
        return self.rac.loss(self.core.net, self.core.target, batch, support)

    @torch.no_grad()
    def contextual_values(self, obs: np.ndarray) -> np.ndarray:
        """Q_C of every context and action at the start of an episode, ``(m, A)``.

        Args:
            obs: ``(obs_dim,)``.
        """
        assert isinstance(self.core.net, RACNet)
        self.drop_episode()
        given = torch.from_numpy(self._input(obs)).view(1, 1, -1)
        return self.core.net.contextual(given)[0][0, 0].numpy()

    def finish(self) -> None:
        """Warns of a useless context, and of a policy that does not follow phi."""
        self.context.warn()
        if len(self.replay):
            rows = np.linspace(0, len(self.replay) - 1, min(len(self.replay), 256), dtype=np.int64)
            kept = self.replay.at(rows)
            support = self._supported(kept.obs[:, :-1])
            warn_of_disagreement(self.rac, self.core.net, kept, support)

    def state_dict(self) -> dict[str, Any]:
        extra = {"context": self.context.state_dict(), "visits": self.visits.state_dict()}
        return {**super().state_dict(), **extra}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.context.load_state_dict(state["context"])
        self.visits.load_state_dict(state["visits"])
