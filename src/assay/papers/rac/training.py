"""Training of independent learners on any PettingZoo parallel environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from pettingzoo import AECEnv

from assay.papers.rac.adapters import TeamReward, action_mask_of, observation_of, shared_reward
from assay.papers.rac.checkpoints import load_state, save_state
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.learners import (
    Core,
    HystereticLearner,
    I2QLearner,
    IndependentLearner,
    IQLearner,
    LenientLearner,
    QLearner,
    RACLearner,
    Step,
)
from assay.toolkits.checks import flag, one_of, whole

ALGORITHMS: dict[str, type[QLearner]] = {
    "rac": RACLearner,
    "iql": IQLearner,
    "hysteretic": HystereticLearner,
    "lenient": LenientLearner,
    "i2q": I2QLearner,
}
"""Learners by the names that `make_learners` knows."""


@dataclass
class History:
    """The course of a training run.

    Attributes:
        steps: Environment steps before each evaluation.
        returns: Mean undiscounted return of the greedy policies at each.
        losses: Mean training loss over agents and updates since the evaluation before; NaN
            without updates.
        epsilon: Share of random actions in the last training episode before each.
    """

    steps: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    epsilon: list[float] = field(default_factory=list)

    def to_json(self) -> str:
        """As JSON; NaN becomes null."""
        columns = {
            name: [None if value != value else value for value in values]
            for name, values in asdict(self).items()
        }
        return json.dumps(columns)

    @classmethod
    def from_json(cls, text: str) -> History:
        """What `to_json` wrote.

        Args:
            text: JSON.

        Raises:
            ValueError: Where it is something else.
        """
        try:
            columns: dict[str, Any] = {
                name: [np.nan if value is None else value for value in values]
                for name, values in json.loads(text).items()
            }
            return cls(**columns)
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"text: no history of a training run: {error}") from None


class Trainer:
    """`train`, in parts: it can be stopped between two episodes, saved and resumed.

    Args:
        env: A PettingZoo parallel environment, made anew from a seed at each reset.
        learners: One for each of its possible agents, by name.
        eval_every: Environment steps between evaluations.
        seed: Of the environment's episodes.
        epsilon: Share of random actions by environment steps; default `Epsilon`'s.
        team_reward: What to make of rewards that differ among agents: "sum", "mean", or None to
            refuse them.
        eval_episodes: Greedy episodes of an evaluation.
        turn_episodes: Learners update in turns of so many episodes while the others rest, as in
            MA2QL (Su et al., 2022); None lets all update after every episode.

    Attributes:
        history: The course so far.
        step: Environment steps so far.
        episode: Training episodes so far.

    Raises:
        TypeError, ValueError: Where agents and learners do not agree, or for a count that is no
            positive integer.
    """

    def __init__(
        self,
        env: Any,
        learners: Mapping[str, IndependentLearner],
        eval_every: int,
        seed: int = 0,
        epsilon: Epsilon | None = None,
        team_reward: TeamReward | None = None,
        eval_episodes: int = 10,
        turn_episodes: int | None = None,
    ) -> None:
        agents = _agents(env)
        if set(agents) != set(learners):
            raise ValueError(f"learners: got {list(learners)}, wants one for each of {agents}")
        self.env = env
        self.learners = {agent: learners[agent] for agent in agents}
        self.eval_every = whole("eval_every", eval_every)
        self.seed = whole("seed", seed, 0)
        if epsilon is not None and not callable(epsilon):
            raise TypeError(f"epsilon: got {epsilon!r}, wants an Epsilon")
        self.epsilon = epsilon or Epsilon()
        self.team_reward = team_reward
        self.eval_episodes = whole("eval_episodes", eval_episodes)
        self.turn_episodes = (
            None if turn_episodes is None else whole("turn_episodes", turn_episodes)
        )
        cores = (getattr(one, "core", None) for one in self.learners.values())
        if self.turn_episodes and any(getattr(core, "members", 1) > 1 for core in cores):
            # A shared network steps when all its owners gave their losses.
            raise ValueError(
                f"turn_episodes: got {turn_episodes} for learners that share parameters, wants None"
            )
        self.history = History()
        self.step = self.episode = 0
        self._losses: list[float] = []
        self._next_evaluation = self.eval_every

    def run(self, steps: int, after_evaluation: Callable[[Trainer], None] | None = None) -> History:
        """Trains until so many environment steps have been made in all, to the episode's end.

        Args:
            steps: In all, those before a resume included.
            after_evaluation: Called after each evaluation, such as to save.

        Returns:
            `history`, which ends with an evaluation.

        Raises:
            ValueError: What the environment gives that learners cannot use, naming it with the
                episode and step.
        """
        whole("steps", steps)
        while self.step < steps:
            epsilon = float(self.epsilon(self.step))
            _, length = self._play(epsilon, self._env_seed(0, self.episode), training=True)
            self.step += length
            self.episode += 1
            for agent in self._updating():
                found = self.learners[agent].update()
                if found:
                    self._losses.append(found["loss"])
            if self.step >= self._next_evaluation or self.step >= steps:
                self._evaluate(epsilon)
                self._next_evaluation = (self.step // self.eval_every + 1) * self.eval_every
                if after_evaluation is not None:
                    after_evaluation(self)
        for learner in self.learners.values():
            learner.finish()
        return self.history

    def _updating(self) -> list[str]:
        agents = list(self.learners)
        if self.turn_episodes is None:
            return agents
        return [agents[(self.episode - 1) // self.turn_episodes % len(agents)]]

    def _evaluate(self, epsilon: float) -> None:
        seeds = (self._env_seed(1 + i, self.episode) for i in range(self.eval_episodes))
        returns = [self._play(0.0, seed, training=False)[0] for seed in seeds]
        self.history.steps.append(self.step)
        self.history.returns.append(float(np.mean(returns)))
        self.history.losses.append(float(np.mean(self._losses)) if self._losses else np.nan)
        self.history.epsilon.append(epsilon)
        self._losses = []

    def _env_seed(self, *key: int) -> int:
        # A seed for every episode, so that a resumed run meets the episodes it would have met.
        return int(np.random.SeedSequence((self.seed, *key)).generate_state(1)[0] >> 1)

    def _play(self, epsilon: float, env_seed: int, training: bool) -> tuple[float, int]:
        """Plays an episode; returns its undiscounted return and length."""
        try:
            return play_parallel(
                self.env, self.learners, epsilon, env_seed, self.team_reward, training
            )
        except _StepError as error:
            raise ValueError(f"episode {self.episode}, step {error.step}: {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on between two episodes."""
        return {
            "learners": {agent: one.state_dict() for agent, one in self.learners.items()},
            "history": asdict(self.history),
            "step": self.step,
            "episode": self.episode,
            "losses": list(self._losses),
            "next_evaluation": self._next_evaluation,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Args:
            state: Of a trainer made with the same arguments.

        Raises:
            ValueError: Where its agents are others.
        """
        if set(state["learners"]) != set(self.learners):
            raise ValueError(f"state: got agents {sorted(state['learners'])}, wants this team's")
        for agent, one in self.learners.items():
            one.load_state_dict(state["learners"][agent])
        self.history = History(**state["history"])
        self.step, self.episode = int(state["step"]), int(state["episode"])
        self._losses = list(state["losses"])
        self._next_evaluation = int(state["next_evaluation"])

    def save(self, folder: str | Path) -> None:
        """Writes `state_dict` to ``folder/training.safetensors``.

        Args:
            folder: Made where it does not exist.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_state(Path(folder) / "training", self.state_dict())

    def resume(self, folder: str | Path) -> None:
        """Goes on where `save` left it.

        Args:
            folder: That of `save`.

        Raises:
            OSError, ValueError: Where the files are missing or damaged, or of another team.
        """
        path = Path(folder) / "training"
        state = load_state(path)
        try:
            self.load_state_dict(state)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: does not fit this team: {error}") from error


class _StepError(ValueError):
    """What an environment gave at a step that learners cannot use."""

    def __init__(self, step: int, error: Exception) -> None:
        super().__init__(str(error))
        self.step = step


def play_parallel(
    env: Any,
    learners: Mapping[str, Any],
    epsilon: float = 0.0,
    env_seed: int | None = None,
    team_reward: TeamReward | None = None,
    training: bool = False,
) -> tuple[float, int]:
    """Plays one episode.

    An agent that does not take part, as its part has ended before the game or is still to begin,
    sees zeros, can take action 0 only, and keeps the shared reward: its return stays that of the
    team. What it sees as it leaves is kept, where the environment says so.

    Args:
        env: A PettingZoo parallel environment.
        learners: One for each agent; where they do not train, anything that can `act`,
            `end_episode` and `drop_episode` as an `IndependentLearner`.
        epsilon: Share of random actions.
        env_seed: Of the environment's episode.
        team_reward: As in `Trainer`.
        training: Whether learners keep the episode.

    Returns:
        The undiscounted return and the number of steps.

    Raises:
        ValueError: What the environment gives that learners cannot use.
    """
    observations, infos = env.reset(seed=env_seed)
    sizes = {agent: _n_actions(env, agent) for agent in learners}
    step = 0
    try:
        idle = {a: np.arange(sizes[a]) == 0 for a in learners}
        seen: dict[str, tuple[np.ndarray, np.ndarray]] = {
            a: _seen(observations, infos, a, sizes[a])
            if a in env.agents
            else (_nothing(env, a), idle[a])
            for a in learners
        }
        if not env.agents:
            raise ValueError("env: got no agents after reset(), wants an episode of some steps")
        total = 0.0
        while env.agents:
            acting = list(env.agents)
            actions = {a: learners[a].act(*seen[a], epsilon) for a in learners}
            observations, rewards, ends, cuts, infos = env.step(
                {a: actions[a] + int(env.action_space(a).start) for a in acting}
            )
            reward = shared_reward(rewards, team_reward)
            total += reward
            over = not env.agents
            terminated = over and not any(cuts.values())
            for agent in learners:
                stays = agent in env.agents or (over and agent in acting and not ends[agent])
                seen[agent] = (
                    _seen(observations, infos, agent, sizes[agent])
                    if stays
                    else (_last_seen(observations, acting, agent, seen[agent][0]), idle[agent])
                )
                if training:
                    learners[agent].observe(Step(reward, *seen[agent], terminated))
            step += 1
        for learner in learners.values():
            learner.end_episode()
    except BaseException as error:
        for learner in learners.values():
            learner.drop_episode()
        if isinstance(error, ValueError):
            raise _StepError(step, error) from error
        raise
    return total, step


def _agents(env: Any) -> list[str]:
    wanted = ("possible_agents", "reset", "step", "action_space")
    # A PettingZoo environment of turns has all of these, too.
    if isinstance(env, AECEnv) or not all(hasattr(env, name) for name in wanted):
        raise TypeError(
            f"env: got {type(env).__name__}, wants a PettingZoo parallel environment "
            "(pettingzoo.utils.aec_to_parallel makes one of an AEC environment)"
        )
    return list(env.possible_agents)


def _n_actions(env: Any, agent: str) -> int:
    space = env.action_space(agent)
    if not isinstance(space, Discrete):
        raise TypeError(f"env: got actions {space} for {agent}, wants Discrete ones")
    return int(space.n)


def _seen(
    observations: Mapping[str, Any], infos: Mapping[str, Any], agent: str, n_actions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Observation and mask of an agent that takes part."""
    if agent not in observations:
        raise ValueError(f"{agent}: got no observation, wants one while it takes part")
    given = observations[agent]
    try:
        return observation_of(given), action_mask_of(given, infos.get(agent), n_actions)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{agent}: {error}") from error


def _nothing(env: Any, agent: str) -> np.ndarray:
    """Zeros in place of what an agent will see, whose part has not begun."""
    return np.zeros_like(observation_of(env.observation_space(agent).sample()))


def _last_seen(
    observations: Mapping[str, Any], acting: list[str], agent: str, before: np.ndarray
) -> np.ndarray:
    """What an agent sees as it leaves, where the environment says so; zeros from then on."""
    if agent in acting and agent in observations:
        return observation_of(observations[agent])
    return np.zeros_like(before)


def train(
    env: Any,
    learners: Mapping[str, IndependentLearner],
    steps: int,
    eval_every: int,
    seed: int = 0,
    epsilon: Epsilon | None = None,
    team_reward: TeamReward | None = None,
    eval_episodes: int = 10,
    turn_episodes: int | None = None,
) -> History:
    """Trains independent learners on a PettingZoo parallel environment.

    Each acts, remembers and updates alone; what they have in common is the reward. Epsilon changes
    between episodes only.

    Args:
        env: The environment.
        learners: One for each possible agent, such as `make_learners` makes.
        steps: Environment steps; the last episode is played to its end.
        eval_every: Environment steps between evaluations.
        seed, epsilon, team_reward, eval_episodes, turn_episodes: As in `Trainer`, which can also
            be stopped and resumed.

    Returns:
        The course of the training.

    Raises:
        TypeError, ValueError: As `Trainer` and `Trainer.run`.
    """
    trainer = Trainer(
        env, learners, eval_every, seed, epsilon, team_reward, eval_episodes, turn_episodes
    )
    return trainer.run(steps)


def make_learners(
    env: Any,
    algo: str = "rac",
    *,
    share_parameters: bool = False,
    seed: int = 0,
    context: ReturnContext | None = None,
    bins: int = 10,
    team_reward: TeamReward | None = None,
    **options: Any,
) -> dict[str, QLearner]:
    """A learner for each agent of an environment, sized by its spaces.

    Args:
        env: A PettingZoo parallel environment with discrete actions.
        algo: "rac", "iql", "hysteretic", "lenient" or "i2q".
        share_parameters: Whether all agents own one network together, told apart by an agent
            number in its input. That is PyMARL's habit, also where it calls learners independent.
        seed: Each agent's own streams come from this and its place.
        context: Intervals of returns, for RAC. Default: `bins` of them between the smallest and
            largest return of 200 random episodes, which is a poor guess where random play never
            meets the best returns.
        bins: Number of contexts of that default.
        team_reward: As in `Trainer`, for those episodes.
        **options: Those of the learner's class.

    Returns:
        Learners by the agents' names.

    Raises:
        TypeError, ValueError: For another `algo`, actions that are not discrete, or options that
            the learner does not take; with `share_parameters`, where agents' spaces differ.
    """
    kind = ALGORITHMS[one_of("algo", algo, tuple(ALGORITHMS))]
    agents = _agents(env)
    whole("seed", seed, 0)
    sizes = {}
    observations, _ = env.reset(seed=seed)
    for agent in agents:
        here = agent in observations
        first = observation_of(observations[agent]) if here else _nothing(env, agent)
        sizes[agent] = (len(first), _n_actions(env, agent))
    if algo == "rac":
        if context is None:
            returns = random_returns(env, 200, seed, team_reward)
            if not returns.min() < returns.max():
                raise ValueError(
                    f"context: got none, and {returns.min():g} from all random episodes, which is "
                    "no interval; wants a ReturnContext"
                )
            context = ReturnContext.from_returns(returns, bins, tail=0.0)
        options["context"] = context
    elif context is not None:
        raise ValueError(f"context: got one for {algo!r}, which has no use for it")
    seeds = np.random.SeedSequence(seed).generate_state(len(agents)).tolist()
    if not flag("share_parameters", share_parameters):
        return {
            agent: kind(*sizes[agent], seed=own, **options)
            for agent, own in zip(agents, seeds, strict=True)
        }
    if len(set(sizes.values())) > 1:
        raise ValueError(f"share_parameters: got agents of sizes {sizes}, wants equal ones")
    obs_dim, n_actions = sizes[agents[0]]
    team: dict[str, QLearner] = {}
    core: Core | None = None
    for agent, own, number in zip(agents, seeds, np.eye(len(agents)), strict=True):
        one = kind(obs_dim, n_actions, seed=own, core=core, agent_id=number, **options)
        team[agent], core = one, one.core
    assert core is not None
    core.members = len(agents)
    return team


def random_returns(
    env: Any,
    episodes: int,
    seed: int = 0,
    team_reward: TeamReward | None = None,
    max_len: int = 10_000,
) -> np.ndarray:
    """Undiscounted returns of episodes of random available actions, ``(episodes,)``.

    Args:
        env: A PettingZoo parallel environment.
        episodes: How many.
        seed: Of actions and environment.
        team_reward: As in `Trainer`.
        max_len: Most steps of an episode.

    Raises:
        ValueError: Where an episode is longer, or gives what learners could not use.
    """
    rng = np.random.default_rng(whole("seed", seed, 0))
    team = {agent: _AtRandom(rng, whole("max_len", max_len)) for agent in _agents(env)}
    seeds = rng.integers(2**31, size=whole("episodes", episodes)).tolist()
    return np.array([play_parallel(env, team, 0.0, one, team_reward)[0] for one in seeds])


@dataclass
class _AtRandom:
    rng: np.random.Generator
    max_len: int
    steps: int = 0

    def act(self, obs: np.ndarray, mask: np.ndarray, epsilon: float) -> int:
        if self.steps == self.max_len:
            raise ValueError(
                f"max_len: got {self.max_len}, and an episode of random actions of more steps; "
                "give the environment a limit"
            )
        self.steps += 1
        return int(self.rng.choice(np.flatnonzero(mask)))

    def end_episode(self) -> None:
        self.steps = 0

    def drop_episode(self) -> None:
        self.steps = 0
