"""State machines in the formats of other tools: DOT and SCXML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from assay.papers.psmbench.machine import ProtocolStateMachine

_SCXML = "http://www.w3.org/2005/07/scxml"
_ORIGINAL = "urn:assay:psmbench"
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # not even as references


def to_dot(machine: ProtocolStateMachine) -> str:
    """DOT text: final states have a double border, a point marks the initial one."""
    graph = machine.to_networkx()
    lines = ["digraph machine {", "  rankdir=LR;", "  node [shape=box, style=rounded];"]
    for state, attributes in graph.nodes(data=True):
        lines.append(f"  {_quoted(state)}{' [peripheries=2]' if attributes['final'] else ''};")
    if machine.initial_state in graph:
        lines += ["  _start [shape=point];", f"  _start -> {_quoted(machine.initial_state)};"]
    for t in machine.transitions:
        label = "\n".join(part for part in (t.event, t.action) if part)
        lines.append(f"  {_quoted(t.source)} -> {_quoted(t.target)} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def to_scxml(machine: ProtocolStateMachine) -> str:
    """SCXML 1.0 text.

    Identifiers and event names there allow no blanks, so both are rewritten; the originals stay
    in attributes of the namespace ``urn:assay:psmbench``, and actions become `log` elements. A
    final state that has transitions of its own stays a `state` (SCXML forbids them in `final`).
    """
    ElementTree.register_namespace("", _SCXML)
    ElementTree.register_namespace("psm", _ORIGINAL)
    graph = machine.to_networkx()
    ids = _identifiers(list(graph))
    root = ElementTree.Element(f"{{{_SCXML}}}scxml", version="1.0")
    if machine.initial_state in ids:
        root.set("initial", ids[machine.initial_state])
    elements = {}
    for state, attributes in graph.nodes(data=True):
        ends = attributes["final"] and graph.out_degree(state) == 0
        element = ElementTree.SubElement(
            root, f"{{{_SCXML}}}{'final' if ends else 'state'}", id=ids[state]
        )
        element.set(f"{{{_ORIGINAL}}}name", state)
        if attributes["final"] and not ends:
            element.set(f"{{{_ORIGINAL}}}final", "true")
        elements[state] = element
    for t in machine.transitions:
        edge = ElementTree.SubElement(
            elements[t.source], f"{{{_SCXML}}}transition", target=ids[t.target]
        )
        if event := _token(t.event):
            edge.set("event", event)
            edge.set(f"{{{_ORIGINAL}}}event", t.event)
        if t.action:
            ElementTree.SubElement(edge, f"{{{_SCXML}}}log", label=t.action)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    text = _NO_XML.sub("\ufffd", text)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _identifiers(states: list[str]) -> dict[str, str]:
    ids: dict[str, str] = {}
    for state in states:
        base = _token(state) or "state"
        base = base if base[0].isalpha() else f"s_{base}"
        taken, name, count = set(ids.values()), base, 2
        while name in taken:
            name, count = f"{base}_{count}", count + 1
        ids[state] = name
    return ids


def _token(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")
