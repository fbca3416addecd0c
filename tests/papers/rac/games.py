"""Small parallel environments for tests."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Corridor(ParallelEnv):
    """Two agents; agent_1 leaves after two steps, the game goes on to `length` or its limit.

    Action 2 is never available. The reward of step t is t for everybody.
    """

    metadata = {"name": "corridor"}  # noqa: RUF012

    def __init__(self, length=4, cut=False, rewards=lambda t: (t, t), masks=True):
        self.possible_agents = ["agent_0", "agent_1"]
        self.agents = []
        self.length, self.cut, self.rewards, self.masks = length, cut, rewards, masks
        self.taken = []

    def observation_space(self, agent):
        return Box(0, 99, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(3)

    def _seen(self):
        obs = np.array([self.t, 1], dtype=np.float32)
        if not self.masks:
            return obs
        return {"observation": obs, "action_mask": np.array([1, 1, 0], dtype=np.int8)}

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return {a: self._seen() for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.taken.append(actions)
        self.t += 1
        acting, over = self.agents, self.t == self.length
        ends = {a: (over and not self.cut) or (a == "agent_1" and self.t == 2) for a in acting}
        cuts = {a: over and self.cut and not ends[a] for a in acting}
        self.agents = [a for a in acting if not (ends[a] or cuts[a])]
        paid = dict(zip(self.possible_agents, self.rewards(self.t), strict=True))
        return (
            {a: self._seen() for a in acting},
            {a: float(paid[a]) for a in acting},
            ends,
            cuts,
            {a: {} for a in acting},
        )


class Roster(ParallelEnv):
    """An episode of given steps in which who takes part is given for each; actions are 1 and 2.

    All that matters comes from the roster: ``[{"a"}, {"a", "b"}]`` is an episode of two steps, in
    which b arrives after the first.
    """

    metadata = {"name": "roster"}  # noqa: RUF012

    def __init__(self, *roster, cut=frozenset(), reward=1.0):
        self.possible_agents = ["a", "b"]
        self.agents = []
        self.roster, self.cut, self.reward = roster, cut, reward
        self.taken = []

    def observation_space(self, agent):
        return Box(0, 99, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2, start=1)

    def _present(self):
        return sorted(self.roster[self.t]) if self.t < len(self.roster) else []

    def _seen(self, agents):
        return {a: np.array([self.t + 1], np.float32) for a in agents}

    def reset(self, seed=None, options=None):
        self.t = 0
        self.agents = self._present()
        return self._seen(self.agents), {a: {} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        assert all(self.action_space(a).contains(action) for a, action in actions.items())
        self.taken.append(actions)
        self.t += 1
        acting, self.agents = self.agents, self._present()
        gone = set(acting) - set(self.agents)
        seen = sorted(set(acting) | set(self.agents))
        return (
            self._seen(seen),
            dict.fromkeys(acting, self.reward),
            {a: a in gone - self.cut for a in acting},
            {a: a in gone & self.cut for a in acting},
            {a: {} for a in seen},
        )
