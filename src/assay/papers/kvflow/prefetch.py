"""Which fixed prompts are to be on the device before they are asked for (section 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

from assay.papers.kvflow.radix_tree import AgentKey
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

    def wanted(self) -> list[tuple[AgentKey, float]]:
        """Agents not served yet, with their steps-to-execution; the next first."""
        return sorted(self._soon.items(), key=lambda item: item[1])
