"""What the games of this package have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

Returns = tuple[
    dict[str, np.ndarray],
    dict[str, float],
    dict[str, bool],
    dict[str, bool],
    dict[str, dict[str, Any]],
]


class CooperativeGame(ParallelEnv):  # PettingZoo ships no types
    """A parallel environment in which all agents get the same reward.

    A game says how it starts (`_start`), what a joint action does (`_play`), and what an agent and
    a global view see (`_observe`, `state`).

    Args:
        agents: Names of the agents.
        n_actions: Number of each agent's actions.
        observation_size: Length of every agent's observation, values in [0, 1].
        state_size: Length of the global state, values in [0, 1].
        render_mode: One of the game's ``metadata["render_modes"]``, or None.

    Raises:
        ValueError: For another `render_mode`.
    """

    metadata: dict[str, Any]

    def __init__(
        self,
        agents: Sequence[str],
        n_actions: Sequence[int],
        observation_size: int,
        state_size: int,
        render_mode: str | None,
    ) -> None:
        modes = self.metadata["render_modes"]
        if render_mode not in (None, *modes):
            raise ValueError(f"render_mode: got {render_mode!r}, wants None or one of {modes}")
        self.render_mode = render_mode
        self.possible_agents = list(agents)
        self.agents: list[str] = []
        self.state_space = Box(0.0, 1.0, (state_size,), np.float32)
        self._observation_spaces = {
            agent: Box(0.0, 1.0, (observation_size,), np.float32) for agent in agents
        }
        self._action_spaces = {a: Discrete(n) for a, n in zip(agents, n_actions, strict=True)}
        self._random, _ = seeding.np_random()

    def observation_space(self, agent: str) -> Box:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        if seed is not None:
            self._random, _ = seeding.np_random(seed)
        self._start()
        self.agents = list(self.possible_agents)
        return {a: self._observe(a) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, int]) -> Returns:
        acting = self.agents
        joint = np.zeros(len(self.possible_agents), int)
        for agent in acting:
            space = self._action_spaces[agent]
            if not space.contains(actions[agent]):
                raise ValueError(
                    f"actions: got {actions[agent]} for {agent}, wants 0 to {space.n - 1}"
                )
            joint[self.possible_agents.index(agent)] = actions[agent]
        reward, gone, cut = self._play(joint)
        left = dict(zip(self.possible_agents, gone, strict=True))
        terminations = {agent: bool(left[agent]) for agent in acting}
        truncations = {agent: cut and not left[agent] for agent in acting}
        self.agents = [a for a in acting if not (terminations[a] or truncations[a])]
        return (
            {agent: self._observe(agent) for agent in acting},
            dict.fromkeys(acting, reward),
            terminations,
            truncations,
            {agent: {} for agent in acting},
        )

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _play(self, joint: np.ndarray) -> tuple[float, Sequence[bool] | np.ndarray, bool]:
        """Plays a joint action (whatever for agents that have left).

        Returns:
            The reward, whether each agent's part has ended, and whether time is up.
        """

    @abstractmethod
    def _observe(self, agent: str) -> np.ndarray: ...

    @abstractmethod
    def state(self) -> np.ndarray: ...
