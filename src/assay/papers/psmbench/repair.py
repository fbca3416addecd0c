"""What can be wrong with a machine, and how a lenient reading mends it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True)
class Issue:
    """Something wrong with a machine.

    Args:
        path: where, such as ``transitions[12].event``; empty for the machine as a whole.
        message: what.
        severity: "error" breaks the format or refers to a state that is not there; "warning" is
            unusual in a protocol.
    """

    path: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Repair:
    """A lenient reading: every change of the data is noted with its path."""

    def __init__(self, notes: list[Issue]) -> None:
        self.notes = notes

    def note(self, path: str, message: str) -> None:
        self.notes.append(Issue(path, message, "warning"))

    def machine(self, data: dict[str, Any]) -> dict[str, Any]:
        known = ("states", "initial_state", "final_states", "transitions")
        self.extra(data, known, "")
        transitions = [
            self.transition(item, f"transitions[{index}]")
            for index, item in enumerate(self.items(data, "transitions"))
        ]
        return {
            "states": self.names(data, "states"),
            "initial_state": self.text(data, "initial_state", "initial_state"),
            "final_states": self.names(data, "final_states"),
            "transitions": [transition for transition in transitions if transition],
        }

    def transition(self, data: Any, path: str) -> dict[str, str] | None:
        if not isinstance(data, dict):
            self.note(path, f"dropped, got {kind_of(data)} {start_of(data)}, wants an object")
            return None
        known = ("from", "event", "action", "to")
        self.extra(data, known, f"{path}.")
        return {key: self.text(data, key, f"{path}.{key}") for key in known}

    def extra(self, data: dict[str, Any], known: tuple[str, ...], prefix: str) -> None:
        for key in data:
            if key not in known:
                self.note(f"{prefix}{key}", "dropped, no such field")

    def items(self, data: dict[str, Any], key: str) -> list[Any]:
        value = data.get(key)
        if isinstance(value, list):
            return value
        self.note(key, "missing" if key not in data else f"got {kind_of(value)}, wants a list")
        return [] if value is None or isinstance(value, dict) else [value]

    def names(self, data: dict[str, Any], key: str) -> list[str]:
        names = []
        for index, value in enumerate(self.items(data, key)):
            if value is None:
                self.note(f"{key}[{index}]", "dropped, got null")
            else:
                names.append(self.string(value, f"{key}[{index}]"))
        return names

    def text(self, data: dict[str, Any], key: str, path: str) -> str:
        if data.get(key) is None:
            self.note(path, "missing" if key not in data else "got null, wants a string")
            return ""
        return self.string(data[key], path)

    def string(self, value: Any, path: str) -> str:
        if isinstance(value, str):
            clean = value.encode("utf-8", "replace").decode()
            if clean != value:
                self.note(path, "lone surrogates, replaced")
            return clean
        self.note(path, f"got {kind_of(value)}, wants a string")
        if isinstance(value, list):
            return "; ".join(item if isinstance(item, str) else json.dumps(item) for item in value)
        return json.dumps(value)


def kind_of(value: Any) -> str:
    """The JSON name of a value's type, with its article."""
    if value is None:
        return "null"
    names = {str: "a string", list: "a list", dict: "an object", bool: "a boolean"}
    return names.get(type(value), "a number")


def start_of(value: Any) -> str:
    """The first 80 characters of a value, quoted."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text[:80]) + ("..." if len(text) > 80 else "")
