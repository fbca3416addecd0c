"""The random deep tree of I2Q: a fully cooperative game whose states reveal every choice."""

from __future__ import annotations

import numpy as np

from assay.papers.rac.environments.game import CooperativeGame
from assay.toolkits.checks import whole

MAX_NODES = 10_000_000


class RandomTree(CooperativeGame):
    """A tree with a branch for each joint action (Jiang and Lu, "I2Q", NeurIPS 2022).

    As in their code a step pays the reward of the node that it leaves, drawn from U(-1, 1), so
    that the choice at the last node does not matter.

    Args:
        tree_seed: Which tree. `reset` with a seed does not change it: nothing in it is random.
        agents: Number of agents, >= 1.
        actions: Number of each agent's actions, >= 2.
        depth: Steps in an episode, >= 1.
        render_mode: ``"ansi"`` or None.

    Attributes:
        best_return: Largest return, by dynamic programming. A score is return / best return.

    Raises:
        TypeError, ValueError: For sizes out of range, more than ten million nodes, or another
            `render_mode`.

    Observations are the path so far: float32 vectors ``(depth * agents * actions,)``, one-hot for
    each choice made.
    """

    metadata = {"name": "random_tree", "render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(
        self,
        tree_seed: int = 0,
        agents: int = 2,
        actions: int = 3,
        depth: int = 5,
        render_mode: str | None = None,
    ) -> None:
        for name, value, least in (
            ("agents", agents, 1),
            ("actions", actions, 2),
            ("depth", depth, 1),
        ):
            whole(name, value, least)
        branches = actions**agents
        if branches ** (depth - 1) > MAX_NODES:
            raise ValueError(f"depth: got {branches}^{depth - 1} nodes, wants <= {MAX_NODES}")
        random = np.random.default_rng(tree_seed)
        self._rewards = [random.uniform(-1, 1, branches**level) for level in range(depth)]
        best = self._rewards[-1]
        for rewards in reversed(self._rewards[:-1]):
            best = rewards + best.reshape(-1, branches).max(axis=1)
        self.best_return = float(best[0])
        names = [f"agent_{i}" for i in range(agents)]
        size = depth * agents * actions
        super().__init__(names, [actions] * agents, size, size, render_mode)
        self._actions = actions
        self._start()

    def _start(self) -> None:
        self._path: list[tuple[int, ...]] = []
        self._node = 0

    def _play(self, joint: np.ndarray) -> tuple[float, list[bool], bool]:
        reward = float(self._rewards[len(self._path)][self._node])
        branch = int(np.ravel_multi_index(joint.tolist(), (self._actions,) * len(joint)))
        self._node = self._node * self._actions ** len(joint) + branch
        self._path.append(tuple(joint.tolist()))
        return reward, [len(self._path) == len(self._rewards)] * len(joint), False

    def _observe(self, agent: str) -> np.ndarray:
        return self.state()

    def state(self) -> np.ndarray:
        vector = np.zeros(self.state_space.shape, np.float32)
        chosen = np.asarray(self._path, dtype=int).ravel()
        vector[np.arange(chosen.size) * self._actions + chosen] = 1.0
        return vector

    def render(self) -> str | None:
        if self.render_mode is None:
            return None
        return " -> ".join(["root", *(str(joint) for joint in self._path)])
