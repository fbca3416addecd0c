"""Step graphs of other libraries' workflows; the libraries themselves are not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.papers.kvflow.step_graph import Edge, Join, StepGraph


def read_networkx(graph: Any) -> StepGraph:
    """`StepGraph.from_networkx`."""
    if not (hasattr(graph, "is_directed") and graph.is_directed()):
        raise TypeError(f"graph: got {type(graph).__name__}, wants a networkx.DiGraph")
    after: dict[Any, list[str]] = {node: [] for node in graph.nodes}
    choices: dict[str, list[str]] = {}
    loops: list[Edge] = []
    for src, dst, data in graph.edges(data=True):
        if data.get("loop"):
            loops.append((str(src), str(dst)))
        elif data.get("branch"):
            choices.setdefault(str(src), []).append(str(dst))
        else:
            after[dst].append(str(src))
    made = StepGraph()
    for node, data in graph.nodes(data=True):
        made.add(str(node), after[node], data.get("join"))
    for src, dsts in choices.items():
        made.branch(src, dsts)
    for src, dst in loops:
        made.loop(src, dst)
    made.validate()
    return made


def read_langgraph(app: Any) -> StepGraph:
    """`StepGraph.from_langgraph`."""
    if not (hasattr(app, "get_graph") and hasattr(app, "builder")):
        raise TypeError(f"app: got {type(app).__name__}, wants a compiled LangGraph graph")
    drawn = app.get_graph()
    ends = {"__start__", "__end__"}
    conditional = {(e.source, e.target): bool(e.conditional) for e in drawn.edges}
    loops = _back_edges(["__start__", *drawn.nodes], list(conditional))
    after: dict[str, list[str]] = {name: [] for name in drawn.nodes if name not in ends}
    choices: dict[str, list[str]] = {}
    for (src, dst), chosen in conditional.items():
        if ends & {src, dst} or (src, dst) in loops:
            continue
        if chosen:
            choices.setdefault(src, []).append(dst)
        else:
            after[dst].append(src)
    while True:
        made = StepGraph()
        for name in after:
            order = after[name] + [src for src, dsts in choices.items() if name in dsts]
            waits = [srcs for srcs, dst in app.builder.waiting_edges if dst == name]
            made.add(name, after[name], _langgraph_join(order, waits))
        for src, dsts in choices.items():
            made.branch(src, dsts)
        for src, dst in loops:
            made.loop(src, dst)
        if (conflict := made._conflict()) is None:
            break
        src = conflict[1][0]
        for dst in choices.pop(src):
            after[dst].append(src)
    made.validate()
    return made


def _back_edges(roots: list[str], edges: list[Edge]) -> list[Edge]:
    """The edges that lead to an agent on the way from a root to their own source."""
    after: dict[str, list[str]] = {}
    for src, dst in edges:
        after.setdefault(src, []).append(dst)
    found: list[Edge] = []
    seen: set[str] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path, ways = [root], [iter(after.get(root, ()))]
        while path:
            dst = next(ways[-1], "")
            if not dst:
                ways.pop()
                path.pop()
            elif dst in path:
                found.append((path[-1], dst))
            elif dst not in seen:
                seen.add(dst)
                path.append(dst)
                ways.append(iter(after.get(dst, ())))
    return found


def _langgraph_join(sources: list[str], waits: Sequence[Sequence[str]]) -> Join | None:
    """LangGraph's rule: any plain edge, or all edges of one list."""
    if not sources:
        return None
    groups = [[sources.index(name) for name in wait if name in sources] for wait in waits]
    groups = [group for group in groups if group]
    waited = {i for group in groups for i in group}
    groups += [[i] for i in range(len(sources)) if i not in waited]
    if len(groups) == 1:
        return "all"
    if all(len(group) == 1 for group in groups):
        return "any"
    return lambda values: min(max(values[i] for i in group) for group in groups)
