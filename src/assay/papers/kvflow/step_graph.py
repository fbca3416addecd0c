"""The Agent Step Graph: how many steps until an agent runs again (paper, section 3.1)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from assay.papers.kvflow.workflow_run import WorkflowRun

Join = Literal["all", "any"] | Callable[[list[float]], float]
Edge = tuple[str, str]

_JOINS: dict[str, Callable[[list[float]], float]] = {"all": max, "any": min}


class StepGraph:
    """Agents, what each waits for, and the steps until each can run at the earliest.

    Three kinds of edge: a dependency (`add`), a choice between agents of which one is started
    (`branch`), and a back edge (`loop`), which starts its target once more without the target's
    other predecessors. Methods that add return the graph, so that they can be chained.

        graph = StepGraph().add("plan").add("search", ["plan"]).add("read", ["plan"])
        graph.add("answer", ["search", "read"], join="all").loop("answer", "plan")
        graph.steps(["plan"])  # {"plan": 0, "search": 1, "read": 1, "answer": 2}
    """

    def __init__(self) -> None:
        self._after: dict[str, list[str]] = {}
        self._joins: dict[str, Join | None] = {}
        self._loops: list[Edge] = []
        self._branches: list[tuple[str, tuple[str, ...]]] = []
        self._valid = False

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents, in the order in which they were added."""
        return tuple(self._after)

    @property
    def entries(self) -> tuple[str, ...]:
        """The agents that wait for nobody: those that a workflow starts with."""
        self.validate()
        return tuple(agent for agent, before in self._predecessors().items() if not before)

    def add(self, agent: str, after: Iterable[str] = (), join: Join | None = None) -> StepGraph:
        """Adds an agent.

        Args:
            agent: Its name, unique in the graph.
            after: Names of the agents it waits for; they may be added later.
            join: "all" of them are needed (the AND join, and what None means), "any" one starts
                it (the OR join), or a function of the predecessors' step values (whole numbers or
                infinity, in the order of `after`) that returns theirs together, as `max` does
                for "all" and `min` for "any"; one is added to it. It must not fall where a value
                rises.

        Raises:
            ValueError: The name is taken, a predecessor is named twice, or the join is unknown.
            TypeError: A name is no string, or `after` is one.
        """
        _name("agent", agent)
        if agent in self._after:
            raise ValueError(f"agent: got {agent!r} twice, wants one agent of each name")
        before = _names("after", after)
        if join is not None and not callable(join) and join not in _JOINS:
            raise ValueError(f"join of {agent!r}: got {join!r}, wants 'all', 'any' or a function")
        self._after[agent] = before
        self._joins[agent] = join
        self._valid = False
        return self

    def loop(self, src: str, dst: str) -> StepGraph:
        """Marks that `dst` may run again after `src`, whatever its other predecessors do.

        Args:
            src: The agent after which the workflow goes back.
            dst: The agent it goes back to; `src` must come after it (or be it).
        """
        self._loops.append((_name("src", src), _name("dst", dst)))
        self._valid = False
        return self

    def branch(self, src: str, dsts: Iterable[str]) -> StepGraph:
        """Marks that one of several agents is started after `src`.

        Their values are those of `add` (the earliest possible step) until one of them has
        started; the others then no longer wait for this run of `src`.

        Args:
            src: The agent that decides.
            dsts: Those it chooses from; each has `src` as one more predecessor.

        Raises:
            ValueError: `dsts` is empty or names an agent twice.
            TypeError: A name is no string, or `dsts` is one.
        """
        targets = tuple(_names("dsts", dsts))
        if not targets:
            raise ValueError(f"dsts of {src!r}: got none, wants at least one agent")
        self._branches.append((_name("src", src), targets))
        self._valid = False
        return self

    def branch_targets(self, agent: str) -> list[tuple[str, ...]]:
        """The alternatives that an agent chooses from, one tuple per branch.

        Args:
            agent: One of the graph.
        """
        return [targets for src, targets in self._branches if src == agent]

    def loop_targets(self, agent: str) -> list[str]:
        """The agents to which the workflow may go back after an agent.

        Args:
            agent: One of the graph.
        """
        return [dst for src, dst in self._loops if src == agent]

    def validate(self) -> None:
        """Checks the whole graph; `steps` does so by itself.

        Raises:
            ValueError: An edge names an unknown agent, a join has nothing to wait for, a cycle
                has no loop edge, a loop edge does not go back, or an AND join waits for agents
                of which only one is ever started. The message names the agent.
        """
        if self._valid:
            return
        before = self._predecessors()
        for agent, sources in before.items():
            for source in sources:
                if source not in self._after:
                    raise ValueError(f"agent {agent!r}: it comes after {source!r}, which is none")
            if self._joins.get(agent) is not None and not sources:
                raise ValueError(f"agent {agent!r}: its join has no predecessor to wait for")
        for edge in self._loops:
            for agent in edge:
                if agent not in self._after:
                    raise ValueError(f"loop {edge[0]!r} -> {edge[1]!r}: {agent!r} is no agent")
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            cycle = error.args[1]
            raise ValueError(
                f"agent {cycle[0]!r}: can never start, as it waits for itself "
                f"({' -> '.join(cycle)}); mark the edge that goes back with loop(src, dst)"
            ) from None
        for src, dst in self._loops:
            if src not in self._reached(dst):
                raise ValueError(
                    f"loop {src!r} -> {dst!r}: {src!r} does not come after {dst!r}, so that "
                    f"nothing goes back; use after= or branch"
                )
        if conflict := self._conflict():
            agent, (src, targets) = conflict
            raise ValueError(
                f"agent {agent!r}: its join can never fire, as it needs more than one of "
                f"{list(targets)}, of which the branch at {src!r} starts one"
            )
        self._valid = True

    def steps(self, active: Iterable[str], done: Iterable[str] = ()) -> dict[str, float]:
        """Steps until each agent can run at the earliest (the values that requests carry).

        Args:
            active: The agents that are running: 0 steps.
            done: Agents that have finished in this round; to a join that waits for one of them
                it counts as 0. `WorkflowRun` keeps both for a workflow that loops.

        Returns:
            One value per agent: a whole number, or infinity for one that cannot be reached.

        Raises:
            ValueError: An agent is unknown, the graph is wrong (`validate`), or a join function
                returned something that is no number of steps.
        """
        running, tokens = self._state(active, done)
        return self._relax(dict.fromkeys(running, 0), tokens)

    def next_use(self, active: Iterable[str], done: Iterable[str] = ()) -> dict[str, float]:
        """`steps`, with the agents that run at their NEXT run: what is left when they finish.

        An agent on a cycle of n edges is n steps from its next run while it runs. A cache that
        keeps its 0 after it finished would hold on to the prefix that is needed last.

        Args:
            active: The agents that are running.
            done: As in `steps`.

        Returns:
            One value per agent, infinity for one that does not run again.

        Raises:
            ValueError: As in `steps`.
        """
        running, tokens = self._state(active, done)
        return self._next_use(dict.fromkeys(running, 0), tokens)

    def run(self, entries: Iterable[str] | None = None) -> WorkflowRun:
        """A workflow about to start: who is ready, running, and how far everybody is.

        Args:
            entries: The agents it starts with; None: all of `entries`.

        Raises:
            ValueError: The graph is wrong, or an agent is unknown.
        """
        from assay.papers.kvflow.workflow_run import WorkflowRun

        return WorkflowRun(self, entries)

    @classmethod
    def from_networkx(cls, graph: Any) -> StepGraph:
        """A step graph from a `networkx.DiGraph`.

        Args:
            graph: Directed. A node's attribute `join` is that of `add`; an edge with a true
                attribute `loop` goes back, and edges with a true attribute `branch` that leave
                one node are alternatives. Nodes become agents named `str(node)`.

        Raises:
            TypeError: It is no directed graph.
            ValueError: As in `validate`.
        """
        from assay.papers.kvflow.graph_imports import read_networkx

        return read_networkx(graph)

    @classmethod
    def from_langgraph(cls, app: Any) -> StepGraph:
        """A step graph from a compiled LangGraph graph.

        An edge `add_edge([a, b], c)` is an AND join, every other node starts with any of its
        predecessors (that is how LangGraph runs). Conditional edges are a branch, unless some
        node waits for two of their targets: then the router may start several. An edge that
        closes a cycle, seen from the start node, is a loop edge.

        Args:
            app: What `StateGraph.compile()` returns.

        Raises:
            TypeError: It is something else.
            ValueError: As in `validate`.
        """
        from assay.papers.kvflow.graph_imports import read_langgraph

        return read_langgraph(app)

    def _predecessors(self) -> dict[str, list[str]]:
        """Every agent's predecessors without loop edges: those of `add`, then those of `branch`."""
        before = {agent: list(sources) for agent, sources in self._after.items()}
        for src, targets in self._branches:
            for dst in targets:
                if dst not in before:
                    raise ValueError(f"branch at {src!r}: {dst!r} is no agent")
                if src not in before[dst]:
                    before[dst].append(src)
        return before

    def _reached(self, start: str) -> set[str]:
        """The agents that come after one, itself included, without loop edges."""
        after: dict[str, list[str]] = {}
        for agent, sources in self._predecessors().items():
            for source in sources:
                after.setdefault(source, []).append(agent)
        found, todo = {start}, [start]
        while todo:
            for agent in after.get(todo.pop(), ()):
                if agent not in found:
                    found.add(agent)
                    todo.append(agent)
        return found

    def _conflict(self) -> tuple[str, tuple[str, tuple[str, ...]]] | None:
        """An AND join that needs two alternatives of one branch, and the branch.

        A branch inside a loop may choose the one now and the other in the next round.
        """
        reached = {dst: self._reached(dst) for _, dst in self._loops}
        single = [
            i
            for i, (src, _) in enumerate(self._branches)
            if not any(
                src in reached[dst] and end in self._reached(src) for end, dst in self._loops
            )
        ]
        before = self._predecessors()
        needs: dict[str, set[tuple[int, str]]] = {}
        for agent in TopologicalSorter(before).static_order():
            ways = [
                needs[source]
                | {
                    (i, agent)
                    for i in single
                    if self._branches[i][0] == source and agent in self._branches[i][1]
                }
                for source in before[agent]
            ]
            if self._joins[agent] in (None, "all"):
                needs[agent] = set().union(*ways)
                branches = [i for i, _ in needs[agent]]
                for i in set(branches):
                    if branches.count(i) > 1:
                        return agent, self._branches[i]
            else:
                needs[agent] = set.intersection(*ways) if ways else set()
        return None

    def _state(self, active: Iterable[str], done: Iterable[str]) -> tuple[set[str], set[Edge]]:
        """The running agents, and the edges on which a finished agent's result still waits."""
        self.validate()
        running, finished = set(_names("active", active)), set(_names("done", done))
        for name, agents in (("active", running), ("done", finished)):
            for agent in agents:
                if agent not in self._after:
                    raise ValueError(f"{name}: got {agent!r}, wants one of {list(self._after)}")
        started = running | finished
        tokens = {
            (source, agent)
            for agent, sources in self._predecessors().items()
            if agent not in started
            for source in sources
            if source in finished
        }
        for src, targets in self._branches:
            if started.intersection(targets):
                tokens -= {(src, agent) for agent in targets}
        return running, tokens

    def _trigger(
        self, agent: str, sources: Sequence[str], values: dict[str, float], tokens: set[Edge]
    ) -> float:
        """The step at which an agent is started, from the values of those before it."""
        found = math.inf
        if sources:
            inputs = [0 if (s, agent) in tokens else values.get(s, math.inf) for s in sources]
            found = _join(agent, self._joins[agent], inputs)
        for src, dst in self._loops:
            if dst == agent:
                found = min(found, 0 if (src, dst) in tokens else values.get(src, math.inf))
        return found + 1

    def _next_use(self, starts: dict[str, int], tokens: set[Edge]) -> dict[str, float]:
        values = self._relax(starts, tokens)
        before = self._predecessors()
        return values | {
            agent: self._trigger(agent, before[agent], values, tokens)
            for agent, value in starts.items()
            if value == 0
        }

    def _relax(self, starts: dict[str, int], tokens: set[Edge]) -> dict[str, float]:
        """The least solution of the recursion with some agents' values given.

        Values become final in rising order, as in Dijkstra's algorithm: an AND join gets its
        own when its last predecessor has one.
        """
        before = self._predecessors()
        after: dict[str, list[str]] = {agent: [] for agent in before}
        for agent, sources in before.items():
            for source in sources:
                after[source].append(agent)
        for src, dst in self._loops:
            after[src].append(dst)
        values: dict[str, float] = {}
        heap: list[tuple[float, str]] = [(value, agent) for agent, value in starts.items()]
        heap += [
            (self._trigger(agent, before[agent], values, tokens), agent)
            for agent in before
            if agent not in starts
        ]
        heapq.heapify(heap)
        while heap:
            value, agent = heapq.heappop(heap)
            if agent in values or value == math.inf:
                continue
            values[agent] = value
            for later in after[agent]:
                if later not in values:
                    found = self._trigger(later, before[later], values, tokens)
                    heapq.heappush(heap, (found, later))
        return {agent: values.get(agent, math.inf) for agent in before}


def _name(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{argument}: got {value!r}, wants a name (a string that is not empty)")
    return value


def _names(argument: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, str):
        raise TypeError(f"{argument}: got the string {values!r}, wants several names")
    found = [_name(argument, value) for value in values]
    if len(set(found)) < len(found):
        raise ValueError(f"{argument}: got {found}, wants each name once")
    return found


def _join(agent: str, join: Join | None, inputs: list[float]) -> float:
    combine = join if callable(join) else _JOINS[join or "all"]
    value = combine(inputs)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"join of {agent!r}: returned {value!r}, wants a number of steps")
    if not (value == math.inf or (value >= 0 and value % 1 == 0)):
        raise ValueError(f"join of {agent!r}: returned {value}, wants a whole number >= 0 or inf")
    return value if value == math.inf else int(value)
