"""Protocol state machines: the data model, its file format, and what can be wrong with one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from assay.papers.psmbench.repair import Issue, Repair, kind_of, start_of
from assay.toolkits.files import read_json, write_text

if TYPE_CHECKING:
    import networkx as nx


class MachineError(ValueError):
    """A state machine that cannot be read; the message names the path inside the file."""


def _encodable(text: str) -> str:
    # JSON can spell halves of a surrogate pair, which no file and no drawing can hold.
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise ValueError("a lone surrogate is no text")
    return text


Text: TypeAlias = Annotated[str, AfterValidator(_encodable)]


class Transition(BaseModel):
    """One edge of a machine: in state `source`, on `event`, do `action` and go to `target`.

    Files and keyword arguments through `model_validate` call the end points ``from`` and ``to``.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )

    source: Text = Field(alias="from")
    event: Text
    action: Text
    target: Text = Field(alias="to")

    def __str__(self) -> str:
        label = " / ".join(part for part in (self.event, self.action) if part)
        return f"{self.source} --[{label}]--> {self.target}"


class ProtocolStateMachine(BaseModel):
    """A protocol's states and transitions, in the format of the PSMBench data set.

    Args:
        states: names of all states.
        initial_state: where the protocol starts; empty where it is not known.
        final_states: where it may end.
        transitions: the edges.

    Raises:
        pydantic.ValidationError: (a ValueError) for fields of the wrong type.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    states: list[Text]
    initial_state: Text = ""
    final_states: list[Text] = Field(default_factory=list)
    transitions: list[Transition]

    _repairs: tuple[Issue, ...] = PrivateAttr(default=())

    @property
    def repairs(self) -> tuple[Issue, ...]:
        """What a lenient reading had to change; empty for a well-formed file."""
        return self._repairs

    @classmethod
    def from_data(cls, data: Any, *, lenient: bool = False) -> ProtocolStateMachine:
        """The machine in parsed JSON.

        Args:
            data: a mapping with `states`, `initial_state`, `final_states`, `transitions`, each
                transition with `from`, `event`, `action`, `to`.
            lenient: coerce what language models get wrong (missing or null fields, lists for
                strings, additional keys) and keep a note of each in `repairs`, instead of raising.

        Raises:
            MachineError: naming the path inside the data, such as ``transitions[12].event``.
        """
        if not isinstance(data, dict):
            raise MachineError(f"got {kind_of(data)} {start_of(data)}, wants a JSON object")
        repairs: list[Issue] = []
        if lenient:
            data = Repair(repairs).machine(data)
        try:
            machine = cls.model_validate(data)
        except ValidationError as error:
            raise MachineError("; ".join(map(str, _issues(error)))) from None
        machine._repairs = tuple(repairs)
        return machine

    @classmethod
    def from_file(cls, path: str | Path, *, lenient: bool = False) -> ProtocolStateMachine:
        """Reads a machine from a JSON file; see `from_data`.

        Raises:
            MachineError: naming the file and the path inside it.
            OSError: where the file cannot be read.
        """
        path = Path(path)
        try:
            data = read_json(path)
        except ValueError as error:
            raise MachineError(str(error)) from None
        try:
            return cls.from_data(data, lenient=lenient)
        except MachineError as error:
            raise MachineError(f"{path}: {error}") from None

    def to_data(self) -> dict[str, Any]:
        """The machine as plain lists, dicts and strings, in the data set's format."""
        return self.model_dump(by_alias=True)

    def to_file(self, path: str | Path) -> None:
        """Writes the machine as JSON that `from_file` reads. Raises OSError."""
        write_text(Path(path), json.dumps(self.to_data(), indent=2, ensure_ascii=False) + "\n")

    def undeclared(self) -> list[str]:
        """States that transitions use but `states` does not list, in order of appearance."""
        declared = set(self.states)
        used = (state for t in self.transitions for state in (t.source, t.target))
        return list(dict.fromkeys(state for state in used if state not in declared))

    def check(self, *, strict: bool = True) -> list[Issue]:
        """What is wrong with the machine; empty where nothing is.

        Args:
            strict: also report warnings: duplicates, states without transitions or out of reach
                from the initial state, and several targets for one event.
        """
        found = list(self._errors())
        if strict:
            found += self._warnings()
        return found

    def _errors(self) -> Iterator[Issue]:
        declared = set(self.states)
        if not self.states:
            yield Issue("states", "empty")
        for index, state in enumerate(self.states):
            if not state.strip():
                yield Issue(f"states[{index}]", "an empty name")
        if not self.initial_state:
            yield Issue("initial_state", "empty")
        elif self.initial_state not in declared:
            yield Issue("initial_state", f"{self.initial_state!r} is not in states")
        for index, state in enumerate(self.final_states):
            if state not in declared:
                yield Issue(f"final_states[{index}]", f"{state!r} is not in states")
        for index, transition in enumerate(self.transitions):
            for key, state in (("from", transition.source), ("to", transition.target)):
                if state not in declared:
                    yield Issue(f"transitions[{index}].{key}", f"{state!r} is not in states")

    def _warnings(self) -> Iterator[Issue]:
        import networkx as nx

        seen: set[Any] = set()
        for name, items in (("states", self.states), ("transitions", self.transitions)):
            for index, item in enumerate(items):
                if item in seen:
                    yield Issue(f"{name}[{index}]", f"repeats {str(item)!r}", "warning")
                seen.add(item)
        graph = self.to_networkx()
        start = self.initial_state
        reachable = {start, *nx.descendants(graph, start)} if start in graph else set(graph)
        for index, state in enumerate(self.states):
            if graph.degree(state) == 0:
                yield Issue(f"states[{index}]", f"no transition uses {state!r}", "warning")
            elif state not in reachable:
                yield Issue(
                    f"states[{index}]", f"{state!r} cannot be reached from {start!r}", "warning"
                )
        targets = Counter((t.source, t.event) for t in set(self.transitions) if t.event)
        for (state, event), count in targets.items():
            if count > 1:
                yield Issue(
                    "transitions", f"{count} for event {event!r} in state {state!r}", "warning"
                )

    def to_networkx(self) -> nx.MultiDiGraph:
        """A directed multigraph: one node per state (also undeclared ones), one edge per
        transition with attributes `event` and `action`; nodes carry `initial` and `final`."""
        import networkx as nx

        graph = nx.MultiDiGraph(initial_state=self.initial_state)
        final = set(self.final_states)
        for state in dict.fromkeys([*self.states, *self.undeclared()]):
            graph.add_node(state, initial=state == self.initial_state, final=state in final)
        for t in self.transitions:
            graph.add_edge(t.source, t.target, event=t.event, action=t.action)
        return graph

    def to_dot(self) -> str:
        """The machine in the DOT language of Graphviz."""
        from assay.papers.psmbench.export import to_dot

        return to_dot(self)

    def to_scxml(self) -> str:
        """The machine as a W3C SCXML document; original names are kept as attributes."""
        from assay.papers.psmbench.export import to_scxml

        return to_scxml(self)


def _issues(error: ValidationError) -> list[Issue]:
    return [
        Issue(
            path=_path(item["loc"]),
            message="missing"
            if item["type"] == "missing"
            else f"{item['msg']}, got {kind_of(item['input'])} {start_of(item['input'])}",
        )
        for item in error.errors()
    ]


def _path(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")
