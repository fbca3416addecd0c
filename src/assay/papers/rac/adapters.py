"""Environments of other libraries as PettingZoo parallel environments, and what learners read
from any of them: observations, action masks and the shared reward.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space, Tuple
from pettingzoo import ParallelEnv

TeamReward = Literal["sum", "mean"]


def observation_of(obs_value: Any) -> np.ndarray:
    """One agent's observation as the vector that a network reads.

    Args:
        obs_value: An array or number of any shape, or a mapping that holds one under
            ``"observation"`` (PettingZoo's form with an action mask).

    Returns:
        A float32 vector ``(size,)``.

    Raises:
        TypeError: Where it is no array of numbers.
        ValueError: Where it holds NaN or infinity.
    """
    if isinstance(obs_value, Mapping):
        if "observation" not in obs_value:
            raise TypeError(
                f"obs_value: got a mapping of {sorted(obs_value)}, wants 'observation' in it"
            )
        obs_value = obs_value["observation"]
    try:
        vector = np.asarray(obs_value, dtype=np.float32).ravel()
    except (TypeError, ValueError):
        kind = type(obs_value).__name__
        raise TypeError(f"obs_value: got {kind}, wants an array of numbers") from None
    if not np.isfinite(vector).all():
        raise ValueError("obs_value: got NaN or infinity, wants finite numbers")
    return vector


def action_mask_of(obs_value: Any, info: Mapping[str, Any] | None, n_actions: int) -> np.ndarray:
    """Which actions one agent may take.

    The mask is looked for under ``"action_mask"`` in the observation, then in the info. An
    environment that has none allows every action.

    Args:
        obs_value: The agent's observation.
        info: The agent's info.
        n_actions: Number of the agent's actions.

    Returns:
        A bool vector ``(n_actions,)`` with at least one True.

    Raises:
        ValueError: Where no action is available, where the mask has another length or holds
            other values than 0 and 1, or where an observation of the form
            ``{"observation", "action_mask"}`` came without its mask.
    """
    mask = None
    if isinstance(obs_value, Mapping):
        mask = obs_value.get("action_mask")
    if mask is None and info is not None:
        mask = info.get("action_mask")
    if mask is None:
        if isinstance(obs_value, Mapping):
            raise ValueError("action_mask: in neither the observation nor the info, wants one")
        return np.ones(n_actions, dtype=bool)
    given = np.asarray(mask)
    if given.shape != (n_actions,):
        raise ValueError(f"action_mask: got shape {given.shape}, wants ({n_actions},)")
    if not np.isin(given, (0, 1)).all():
        raise ValueError(f"action_mask: got {given.tolist()}, wants 0 or 1 for each action")
    allowed = given.astype(bool)
    if not allowed.any():
        raise ValueError("action_mask: no action is available")
    return allowed


def shared_reward(rewards: Mapping[str, float], team_reward: TeamReward | None = None) -> float:
    """The one reward of a step that all agents share.

    Args:
        rewards: Each agent's reward of the step.
        team_reward: What to make of unequal rewards: their ``"sum"``, their ``"mean"`` over the
            agents that got one, or None to refuse them.

    Returns:
        The reward.

    Raises:
        ValueError: Where a reward is no finite number, where rewards differ and `team_reward` is
            None, where there are none, or where `team_reward` is no such word.
    """
    if team_reward not in (None, "sum", "mean"):
        raise ValueError(f"team_reward: got {team_reward!r}, wants None, 'sum' or 'mean'")
    if not rewards:
        raise ValueError("rewards: got none, wants one for each agent")
    values = []
    for agent, reward in rewards.items():
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise ValueError(f"rewards: got {reward!r} for {agent}, wants a number") from None
        if not math.isfinite(value):
            raise ValueError(f"rewards: got {value} for {agent}, wants a finite number")
        values.append(value)
    if team_reward == "sum":
        return sum(values)
    if team_reward == "mean":
        return sum(values) / len(values)
    if not all(math.isclose(value, values[0], rel_tol=1e-6) for value in values):
        raise ValueError(
            f"rewards: got {dict(zip(rewards, values, strict=True))}, wants equal ones; "
            "team_reward (--team-reward) of 'sum' or 'mean' makes one of them"
        )
    return values[0]


class _Listed(ParallelEnv):  # PettingZoo ships no types
    """An environment that takes and gives lists, one entry for each agent.

    `reset` and `step` of a subclass speak of lists; this class makes PettingZoo's dictionaries of
    them. All agents stay to the end: who dies early goes on with its ``no-op``, as these
    environments have it, and ends with the others.
    """

    def __init__(self, env: Any, observation_spaces: list[Any], n_actions: list[int]) -> None:
        self.env = env
        self._raw = getattr(env, "unwrapped", env)
        names = [f"agent_{i}" for i in range(len(n_actions))]
        self.possible_agents = names
        self.agents: list[str] = []
        self.metadata = {**getattr(env, "metadata", {}), "name": type(self._raw).__name__}
        self.render_mode = getattr(env, "render_mode", None)
        self._observation_spaces = dict(zip(names, observation_spaces, strict=True))
        self._action_spaces = {a: Discrete(n) for a, n in zip(names, n_actions, strict=True)}

    def observation_space(self, agent: str) -> Space[Any]:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observations = self._reset(seed, options)
        self.agents = list(self.possible_agents)
        return self._by_agent(observations), self._infos()

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        acting = self.agents
        observations, rewards, terminated, truncated = self._step([int(actions[a]) for a in acting])
        if np.ndim(rewards) == 0:
            rewards = [rewards] * len(acting)
        answer = (
            self._by_agent(observations),
            self._by_agent([float(reward) for reward in rewards]),
            dict.fromkeys(acting, terminated),
            dict.fromkeys(acting, truncated and not terminated),
            self._infos(),
        )
        if terminated or truncated:
            self.agents = []
        return answer

    def state(self) -> np.ndarray:
        if not hasattr(self._raw, "get_state"):
            return super().state()
        return np.asarray(self._raw.get_state(), dtype=np.float32)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _by_agent(self, values: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))

    def _infos(self) -> dict[str, dict[str, Any]]:
        if not hasattr(self._raw, "get_avail_actions"):
            return {agent: {} for agent in self.possible_agents}
        masks = np.asarray(self._raw.get_avail_actions(), dtype=np.int8)
        return {a: {"action_mask": mask} for a, mask in self._by_agent(masks).items()}

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        raise NotImplementedError

    def _step(self, actions: list[int]) -> tuple[Any, Any, bool, bool]:
        raise NotImplementedError


class _Gymnasium(_Listed):
    def __init__(self, env: Any, limit: int | None) -> None:
        spaces = (env.observation_space, env.action_space)
        if not all(isinstance(space, Tuple) for space in spaces):
            raise TypeError(
                f"env: got spaces {spaces[0]} and {spaces[1]}, wants a Tuple of one for each agent"
            )
        if not all(isinstance(space, Discrete) for space in env.action_space):
            raise TypeError(f"env: got action space {env.action_space}, wants Discrete for each")
        if limit is not None and limit < 1:
            raise ValueError(f"limit: got {limit}, wants an integer >= 1 or None")
        n_actions = [int(space.n) for space in env.action_space]
        if hasattr(env.unwrapped, "get_avail_actions"):
            # All masks have one length, which spaces of single agents may fall short of.
            most = getattr(env.unwrapped, "n_actions", max(n_actions))
            n_actions = [most] * len(n_actions)
        super().__init__(env, list(env.observation_space), n_actions)
        self._limit = limit
        self._steps = 0

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        self._steps = 0
        return self.env.reset(seed=seed, options=options)[0]

    def _step(self, actions: list[int]) -> tuple[Any, Any, bool, bool]:
        observations, rewards, terminated, truncated, _ = self.env.step(actions)
        self._steps += 1
        truncated = bool(truncated) or self._steps == self._limit
        return observations, rewards, bool(terminated), truncated


class _Smac(_Listed):
    def __init__(self, env: Any) -> None:
        info = env.get_env_info()
        agents = info["n_agents"]
        spaces = [Box(-np.inf, np.inf, (info["obs_shape"],), np.float32) for _ in range(agents)]
        super().__init__(env, spaces, [info["n_actions"]] * agents)

    def _observations(self) -> list[np.ndarray]:
        return [np.asarray(seen, dtype=np.float32) for seen in self.env.get_obs()]

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        self.env.reset()
        return self._observations()

    def _step(self, actions: list[int]) -> tuple[Any, Any, bool, bool]:
        reward, over, info = self.env.step(actions)
        cut = bool(info.get("episode_limit", False))
        return self._observations(), reward, bool(over) and not cut, cut


def from_gymnasium(env: Any, limit: int | None = None) -> ParallelEnv:
    """A multi-agent gymnasium environment that takes and gives tuples, as a parallel environment.

    So do ``lbforaging``, ``rware`` and ``smaclite``. Rewards may be a number or one for each
    agent. Where the environment has ``get_avail_actions()``, infos hold each agent's
    ``"action_mask"``.

    Args:
        env: The environment; its spaces are gymnasium's `Tuple`, actions `Discrete`.
        limit: Steps after which an episode is truncated. Several of these environments call a time
            limit of their own a termination: set theirs higher, and this one instead.

    Returns:
        The parallel environment, with agents ``agent_0``, ``agent_1`` and so on.

    Raises:
        TypeError: For other spaces.
        ValueError: For a limit below 1.
    """
    return _Gymnasium(env, limit)


def from_smac(env: Any) -> ParallelEnv:
    """An environment with SMAC's interface as a parallel environment.

    Args:
        env: What has ``get_env_info``, ``get_obs``, ``get_state``, ``get_avail_actions``,
            ``reset()``, and ``step(actions)`` that gives reward, whether the episode is over, and
            an info. ``info["episode_limit"]`` makes that a truncation (StarCraft's gives it with
            ``continuing_episode=True``).

    Returns:
        The parallel environment. Its ``reset(seed)`` cannot seed, for want of a way to: give the
        seed to the constructor of `env`.

    Raises:
        TypeError: Where a method is missing.
    """
    wanted = ("get_env_info", "get_obs", "get_state", "get_avail_actions", "reset", "step")
    missing = [name for name in wanted if not hasattr(env, name)]
    if missing:
        raise TypeError(f"env: {type(env).__name__} has no {', '.join(missing)}")
    return _Smac(env)


MATRIX_GAMES = {
    "paper": "paper_game",
    "climbing": "climbing",
    "partially-stochastic-climbing": "partially_stochastic_climbing",
    "stochastic-climbing": "stochastic_climbing",
}

NAMES = {
    "matrix:paper": "the paper's matrix game",
    "matrix:climbing": "the climbing game",
    "matrix:penalty-10": "the penalty game, with any number",
    "matrix:partially-stochastic-climbing": "climbing in which 7 becomes 14 or 0",
    "matrix:stochastic-climbing": "climbing in which every payoff has two values",
    "tree": "a random deep tree",
    "predator-prey": "punishing predator-prey on a grid",
    "lbf:8x8-2p-2f-coop": "level-based foraging, any size that lbforaging has",
    "mpe:simple_spread_v3": "particle environments of mpe2",
    "smaclite:2s3z": "SMAClite, where it is installed",
    "package.module:function": "whatever gives a PettingZoo parallel environment",
}
"""What `make` takes, with examples."""

# Steps of an episode in SMAC, for the maps that SMAClite has.
SMAC_LIMITS = {
    "10m_vs_11m": 150,
    "27m_vs_30m": 180,
    "2c_vs_64zg": 400,
    "2s3z": 120,
    "2s_vs_1sc": 300,
    "3s5z": 150,
    "3s5z_vs_3s6z": 170,
    "3s_vs_5z": 250,
    "MMM": 150,
    "MMM2": 180,
    "bane_vs_bane": 200,
    "corridor": 400,
}


def make(name: str, **options: Any) -> ParallelEnv:
    """The environment of that name.

    Args:
        name: One of the forms in `NAMES`.
        **options: What its constructor takes, such as ``punishment=-5`` for ``predator-prey``,
            ``penalty=0.1`` and ``limit=50`` for ``lbf``, ``local_ratio=0.0`` for ``mpe``.

    Returns:
        A PettingZoo parallel environment.

    Raises:
        ValueError: For a name or option that there is not, or a package that is not installed.
    """
    kind, colon, rest = name.partition(":")
    makers = {"matrix": _matrix, "lbf": _foraging, "mpe": _particles, "smaclite": _smaclite}
    try:
        if kind in makers and colon:
            return makers[kind](rest, options)
        if name in ("tree", "predator-prey"):
            from assay.papers.rac import environments

            game = environments.RandomTree if name == "tree" else environments.PredatorPrey
            return game(**options)
        if colon:
            return _imported(kind, rest, options)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
    raise ValueError(f"env: got {name!r}, wants one of {', '.join(NAMES)}")


def _matrix(game: str, options: dict[str, Any]) -> ParallelEnv:
    from assay.papers.rac import environments

    if game in MATRIX_GAMES:
        return getattr(environments, MATRIX_GAMES[game])(**options)
    found = re.fullmatch(r"penalty(-?\d+(?:\.\d+)?)", game)
    if found:
        return environments.penalty(float(found[1]), **options)
    raise ValueError(f"env: no matrix game {game!r}, wants {', '.join(MATRIX_GAMES)} or penalty-10")


class _PlacedAnew(gymnasium.Wrapper):
    """Foraging whose starts depend on the seed alone, not on where players last stood."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        game: Any = self.unwrapped
        for player in game.players:
            player.position = None
        return self.env.reset(seed=seed, options=options)


def _foraging(layout: str, options: dict[str, Any]) -> ParallelEnv:
    foraging = _installed("lbforaging.foraging", "pip install lbforaging")
    try:
        spec = gymnasium.spec(f"Foraging-{layout}-v3")
    except gymnasium.error.Error as error:
        raise ValueError(f"env: lbforaging has no {layout!r}: {error}") from None
    arguments = spec.kwargs | options
    limit = arguments.pop("limit", spec.kwargs["max_episode_steps"])
    # Its own limit would be a termination.
    arguments["max_episode_steps"] = limit + 1
    return from_gymnasium(_PlacedAnew(foraging.ForagingEnv(**arguments)), limit)


def _particles(scenario: str, options: dict[str, Any]) -> ParallelEnv:
    _installed("mpe2", "pip install mpe2")
    try:
        module = import_module(f"mpe2.{scenario}")
    except ImportError:
        raise ValueError(f"env: mpe2 has no {scenario!r}, wants such as simple_spread_v3") from None
    return module.parallel_env(**options)


def _smaclite(map_name: str, options: dict[str, Any]) -> ParallelEnv:
    _installed("smaclite", "see github.com/uoe-agents/smaclite")
    limit = options.pop("limit", SMAC_LIMITS.get(map_name))
    try:
        env = gymnasium.make(f"smaclite/{map_name}-v0", disable_env_checker=True, **options)
    except gymnasium.error.Error as error:
        raise ValueError(f"env: smaclite has no {map_name!r}: {error}") from None
    return from_gymnasium(env, limit)


def _imported(module: str, function: str, options: dict[str, Any]) -> ParallelEnv:
    try:
        maker = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"env: {module}:{function} cannot be imported ({error}); names are {', '.join(NAMES)}"
        ) from error
    env = maker(**options)
    if not isinstance(env, ParallelEnv):
        kind = type(env).__name__
        raise ValueError(f"env: {module}:{function} gives {kind}, wants a PettingZoo ParallelEnv")
    return env


def _installed(package: str, how: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ValueError(f"env: needs {package} ({how}): {error}") from None
