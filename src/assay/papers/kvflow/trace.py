"""Requests of agents on record: what was asked, who asked, and who was to run next."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.toolkits.checks import number, whole
from assay.toolkits.files import parse_json, write_text

Tokenize = Callable[[str], Sequence[int]]

_FIELDS = {
    *("t", "client", "agent", "fixed_len", "prompt_ids", "prompt_text"),
    *("output_len", "steps", "after", "next_use"),
}


@dataclass(frozen=True)
class TraceRequest:
    """One call of an agent.

    Attributes:
        client: The application.
        agent: The agent in it.
        prompt_ids: Token ids of the prompt, at least one.
        fixed_len: Tokens at its beginning that are the same in all calls of the agent.
        output_len: Tokens generated, >= 1.
        steps: Steps to execution of the client's agents as the call is made; infinity for those
            out of reach; empty where the workflow is unknown.
        t: Seconds from the start of the trace before which the call is not made.
        after: Positions in the trace of earlier calls that must have ended first.
        next_use: Steps from this call to the agent's next one, which is what its value becomes
            when the call ends; None where that is unknown.
    """

    client: str
    agent: str
    prompt_ids: tuple[int, ...] = field(repr=False)
    fixed_len: int
    output_len: int
    steps: Mapping[str, float] = field(default_factory=dict, repr=False)
    t: float = 0.0
    after: tuple[int, ...] = ()
    next_use: float | None = None

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError(f"prompt of agent {self.agent!r}: got no token, wants at least one")
        whole("output_len", self.output_len)
        if whole("fixed_len", self.fixed_len, 0) > len(self.prompt_ids):
            raise ValueError(
                f"fixed_len of agent {self.agent!r}: got {self.fixed_len}, wants at most the "
                f"prompt's length, {len(self.prompt_ids)}"
            )
        number("t", self.t, least=0)
        for agent, value in self.steps.items():
            _steps_value(f"steps of agent {agent!r}", value)
        if self.next_use is not None:
            _steps_value("next_use", self.next_use)


def write_trace(path: Path, trace: Sequence[TraceRequest]) -> None:
    """Writes a trace, one JSON object a line; infinity is written as null in `steps`.

    Args:
        path: The file, which is written as a whole or not at all.
        trace: Its requests.

    Raises:
        OSError: It cannot be written.
    """
    lines = []
    for request in trace:
        record: dict[str, Any] = {
            "t": request.t,
            "client": request.client,
            "agent": request.agent,
            "fixed_len": request.fixed_len,
            "prompt_ids": list(request.prompt_ids),
            "output_len": request.output_len,
            "steps": {a: None if s == math.inf else s for a, s in request.steps.items()},
        }
        if request.after:
            record["after"] = list(request.after)
        if request.next_use is not None:
            never = request.next_use == math.inf
            record["next_use"] = "never" if never else request.next_use
        lines.append(json.dumps(record, ensure_ascii=False))
    write_text(path, "".join(line + "\n" for line in lines))


def read_trace(path: Path, tokenize: Tokenize | None = None) -> list[TraceRequest]:
    """Reads a trace.

    A line is an object with `client`, `agent`, `output_len`, `prompt_ids` or `prompt_text`, and,
    where known, `fixed_len`, `steps` (null: infinity), `t`, `after`, `next_use` ("never":
    infinity). `prompt_text` is a text, or a pair of texts [fixed, rest], which are tokenised
    apart because a token may otherwise span their border; `fixed_len` may then be left out.

    Args:
        path: A file of UTF-8 text; empty lines are passed over.
        tokenize: Turns text into token ids; needed for `prompt_text` alone.

    Returns:
        Its requests, in the order of the file.

    Raises:
        ValueError: A line is no such object; the message names file and line.
        OSError: The file cannot be read.
    """
    trace: list[TraceRequest] = []
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from None
    for number_, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            trace.append(_request(parse_json(line), tokenize, len(trace)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number_}: {error}") from None
    return trace


def merge_traces(traces: Iterable[Sequence[TraceRequest]]) -> list[TraceRequest]:
    """Several traces as one, in which they run at the same time.

    Args:
        traces: Each with clients of its own, or with the same ones where they share agents.

    Returns:
        Their requests in turns: the first of each, in the order of `t`, the second of each, ...
    """
    keyed = [
        (i, request.t, n, request)
        for n, trace in enumerate(traces)
        for i, request in enumerate(trace)
    ]
    keyed.sort(key=lambda entry: entry[:3])
    place = {(n, i): at for at, (i, _, n, _) in enumerate(keyed)}
    return [
        replace(request, after=tuple(place[n, j] for j in request.after))
        for _, _, n, request in keyed
    ]


def _request(record: Any, tokenize: Tokenize | None, position: int) -> TraceRequest:
    if not isinstance(record, dict):
        raise ValueError(f"got {type(record).__name__}, wants an object")
    if unknown := set(record) - _FIELDS:
        raise ValueError(f"{sorted(unknown)[0]}: got an unknown field, wants {sorted(_FIELDS)}")
    for name in ("client", "agent", "output_len"):
        if name not in record:
            raise ValueError(f"{name}: missing")
    for name in ("client", "agent"):
        if not isinstance(record[name], str):
            raise ValueError(f"{name}: got {record[name]!r}, wants a string")
    ids, fixed_len = _prompt(record, tokenize)
    steps = record.get("steps", {})
    if not isinstance(steps, dict):
        raise ValueError(f"steps: got {steps!r}, wants an object of agents and numbers")
    after = record.get("after", [])
    if not isinstance(after, list):
        raise ValueError(f"after: got {after!r}, wants a list of positions")
    for i in after:
        if whole("after", i, 0) >= position:
            raise ValueError(f"after: got {i}, wants positions of earlier requests (< {position})")
    next_use = record.get("next_use")
    return TraceRequest(
        client=record["client"],
        agent=record["agent"],
        prompt_ids=ids,
        fixed_len=fixed_len,
        output_len=record["output_len"],
        steps={agent: math.inf if value is None else value for agent, value in steps.items()},
        t=record.get("t", 0.0),
        after=tuple(after),
        next_use=math.inf if next_use == "never" else next_use,
    )


def _prompt(record: dict[str, Any], tokenize: Tokenize | None) -> tuple[tuple[int, ...], int]:
    if ("prompt_ids" in record) == ("prompt_text" in record):
        raise ValueError("prompt_ids, prompt_text: wants one of the two")
    if "prompt_ids" in record:
        ids = record["prompt_ids"]
        if not isinstance(ids, list):
            raise ValueError(f"prompt_ids: got {ids!r}, wants a list of token ids")
        return tuple(whole("prompt_ids", i, 0) for i in ids), record.get("fixed_len", 0)
    if tokenize is None:
        raise ValueError("prompt_text: got text, wants prompt_ids, or a tokenizer to read it with")
    text = record["prompt_text"]
    parts = [text] if isinstance(text, str) else text
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"prompt_text: got {text!r}, wants a text or [fixed text, rest]")
    pieces = [tuple(tokenize(part)) for part in parts]
    fixed_len = len(pieces[0]) if len(pieces) > 1 else 0
    return tuple(i for piece in pieces for i in piece), record.get("fixed_len", fixed_len)


def _steps_value(name: str, value: Any) -> None:
    if value != math.inf:
        whole(name, value, 0)
