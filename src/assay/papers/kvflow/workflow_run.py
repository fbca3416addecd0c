"""One execution of a step graph: who is ready, who runs, and how far everybody is."""

from __future__ import annotations

import math
from collections.abc import Iterable

from assay.papers.kvflow.step_graph import Edge, StepGraph, _join, _names


class WorkflowRun:
    """One execution of a step graph: results wait on edges until the agent behind them starts.

    A join fires when its condition holds and takes the results it waited for, so that an OR join
    after agents that all run is started by each of them.

        run = graph.run()
        while run.ready:
            for agent in run.ready:
                run.start(agent)          # its request carries run.steps()
            for agent in run.active:
                run.finish(agent)

    Args:
        graph: Checked here.
        entries: The agents it starts with; None: those that wait for nobody.

    Raises:
        ValueError: The graph is wrong, or an entry is no agent of it.

    Attributes:
        ready: Agents that can start now, in the graph's order.
        active: Agents that run, in the graph's order.
    """

    def __init__(self, graph: StepGraph, entries: Iterable[str] | None = None) -> None:
        self._graph = graph
        self._ready = set(graph.entries if entries is None else _names("entries", entries))
        if unknown := self._ready - set(graph.agents):
            raise ValueError(f"entries: got {sorted(unknown)}, wants some of {graph.agents}")
        self._active: set[str] = set()
        self._tokens: set[Edge] = set()

    @property
    def ready(self) -> tuple[str, ...]:
        return tuple(agent for agent in self._graph.agents if agent in self._ready)

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(agent for agent in self._graph.agents if agent in self._active)

    def options(self, agent: str) -> tuple[str, ...]:
        """The agents that `finish` may be told to start: targets of its branches and loops.

        Args:
            agent: One of the graph.
        """
        chosen = [dst for dsts in self._graph.branch_targets(agent) for dst in dsts]
        return (*chosen, *self._graph.loop_targets(agent))

    def inputs(self, agent: str) -> tuple[str, ...]:
        """The finished agents whose results an agent takes when it starts.

        Args:
            agent: One of `ready`.

        Returns:
            All whose results wait for it; one for an OR join, and none for an entry.
        """
        found = tuple(src for src in self._graph.agents if (src, agent) in self._tokens)
        return found[:1] if self._graph._joins[agent] == "any" else found

    def start(self, agent: str) -> None:
        """Starts an agent.

        Args:
            agent: One of `ready`.

        Raises:
            ValueError: It is not ready.
        """
        if agent not in self._ready:
            raise ValueError(f"agent: got {agent!r}, wants one that is ready: {list(self.ready)}")
        self._ready.remove(agent)
        self._active.add(agent)
        self._tokens = {edge for edge in self._tokens if edge[1] != agent}

    def finish(self, agent: str, then: Iterable[str] = ()) -> None:
        """Ends an agent's run and makes ready what waited for it.

        Args:
            agent: One of `active`.
            then: The agents of `options` that were chosen. Where one of them is reached by a
                loop edge, the workflow goes back and the agent's other successors do not start.

        Raises:
            ValueError: It does not run, or `then` holds something that is no option.
        """
        if agent not in self._active:
            raise ValueError(f"agent: got {agent!r}, wants one that runs: {list(self.active)}")
        chosen, options = set(_names("then", then)), self.options(agent)
        if wrong := chosen - set(options):
            raise ValueError(f"then: got {sorted(wrong)}, wants some of {list(options)}")
        graph = self._graph
        self._active.remove(agent)
        back = chosen.intersection(graph.loop_targets(agent))
        self._tokens |= {(agent, dst) for dst in back}
        self._ready |= back
        if back:
            return
        choices = {dst for dsts in graph.branch_targets(agent) for dst in dsts}
        for later, sources in graph._predecessors().items():
            if agent not in sources or (later in choices and later not in chosen):
                continue
            self._tokens.add((agent, later))
            inputs = [0 if (s, later) in self._tokens else math.inf for s in sources]
            if _join(later, graph._joins[later], inputs) < math.inf:
                self._ready.add(later)

    def steps(self) -> dict[str, float]:
        """`StepGraph.steps` at this moment; agents that are ready count as one step away."""
        return self._graph._relax(self._starts(), self._tokens)

    def next_use(self) -> dict[str, float]:
        """`StepGraph.next_use` at this moment."""
        return self._graph._next_use(self._starts(), self._tokens)

    def _starts(self) -> dict[str, int]:
        return dict.fromkeys(self._ready, 1) | dict.fromkeys(self._active, 0)
