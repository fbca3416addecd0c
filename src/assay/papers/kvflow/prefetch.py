"""Which fixed prompts are to be on the device before they are asked for (section 3.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from assay.papers.kvflow.link import PREFETCH
from assay.papers.kvflow.radix_tree import AgentKey
from assay.papers.kvflow.residency import Move, Residency
from assay.toolkits.checks import whole


class Prefetcher:
    """Asks for the fixed prompts of the agents that run soon; one for each cache.

    The copies are made by the threads of the cache's link, while the model computes.
    """

    def __init__(self, ahead: int = 1, max_inflight: int = 2) -> None:
        """Says how far to look.

        Args:
            ahead: agents with so many steps to their execution, or fewer, are prefetched, >= 0.
            max_inflight: fixed prompts that are loaded at once, >= 1. The paper has a limit and
                does not say which.

        Raises:
            TypeError, ValueError: one is no integer in range.
        """
        self.ahead = whole("ahead", ahead, least=0)
        self.max_inflight = whole("max_inflight", max_inflight)
        self._soon: dict[AgentKey, float] = {}
        self._inflight: list[list[Move]] = []

    def on_steps(self, client: str, steps: Mapping[str, float]) -> None:
        """Takes note of fresh steps-to-execution.

        Args:
            client: the application.
            steps: of each agent.
        """
        for agent, s in steps.items():
            if s <= self.ahead:
                self._soon[client, agent] = s
            else:
                self._soon.pop((client, agent), None)

    def forget(self, client: str, agent: str | None = None) -> None:
        """Asks no more for an agent, or for any of a client, until steps are told again."""
        agents = [a for c, a in self._soon if c == client] if agent is None else [agent]
        for name in agents:
            self._soon.pop((client, name), None)

    def start(self, residency: Residency) -> bool:
        """Starts loads of what is needed soon, within the limits; each agent's once.

        Args:
            residency: where the fixed prompts are; its tree's lock is held.

        Returns:
            Whether one was refused for want of room.
        """
        self._inflight = [p for p in self._inflight if not all(move.ended for move in p)]
        refused = math.inf
        for (client, agent), s in self.wanted():
            if len(self._inflight) >= self.max_inflight:
                break
            end = residency.tree.fixed_end(client, agent)
            path = [] if end is None else end.path()
            missing = sum(node.n_tokens for node in path if not residency.coming(node))
            # Where there was no room, there is none for as much that is needed no sooner.
            if missing >= refused:
                continue
            # Evicting what is needed as soon, or sooner, would defeat the purpose.
            moves = residency.load(path, PREFETCH, worse_than=s, prefetch=True)
            if moves is None:
                refused = missing
                continue
            self.forget(client, agent)
            if moves:
                self._inflight.append(moves)
                residency.counts["prefetches"] += 1
        return refused < math.inf

    def wanted(self) -> list[tuple[AgentKey, float]]:
        """Agents not served yet, with their steps-to-execution; the next first."""
        return sorted(self._soon.items(), key=lambda item: item[1])
