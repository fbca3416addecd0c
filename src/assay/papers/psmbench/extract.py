"""Extracting a state machine from a specification with a language model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from assay.papers.psmbench.document import CountTokens, Section, estimate_tokens
from assay.papers.psmbench.machine import ProtocolStateMachine
from assay.papers.psmbench.merging import merge
from assay.papers.psmbench.prompts import extraction_messages, merge_messages, parse_reply
from assay.toolkits.embedding import Embedder
from assay.toolkits.llm import LLM, LLMError, Reply, Usage, complete_all

Merger: TypeAlias = Literal["deterministic", "llm", "hybrid"]
MERGERS: tuple[Merger, ...] = ("deterministic", "llm", "hybrid")


@dataclass(frozen=True)
class Partial:
    """What the model made of one section, or of one piece of a section that was too long.

    `machine` is None where the model found nothing there, or where `error` says what went wrong.
    """

    section: Section
    reply: str
    machine: ProtocolStateMachine | None
    error: str = ""


@dataclass(frozen=True)
class Extraction:
    """An extracted machine and how it came about.

    Args:
        psm: the merged machine; without states where nothing was found.
        partials: one per call, in the order of the text.
        usage: tokens over all calls.
        cost: US dollars; None where a price is not known.
        errors: what went wrong, naming the section; the rest of the text was used.
    """

    psm: ProtocolStateMachine
    partials: tuple[Partial, ...]
    usage: Usage
    cost: float | None
    errors: tuple[str, ...]


class PSMExtractor:
    """Asks a model for the machine in each section, then merges the answers.

    Args:
        client: the model, such as `assay.toolkits.llm.Client`.
        merger: "deterministic" (equal and similar names are joined, no further call), "llm" (the
            paper's: one call that sees all raw replies) or "hybrid" (deterministic first, then one
            call that sees the result only). Where a merging call fails, the deterministic result
            is returned and the failure noted.
        concurrency: most calls at once; None for what the client suggests.
        embedder: tells the deterministic merger which names are similar; None for equal ones only.
        max_tokens: longest reply; the paper's value.
        overlap: tokens that the pieces of a section share where it does not fit the client's
            context window.
        count_tokens: the model's own token count; the default takes four characters for one.
        structured: let the server enforce the format by a JSON schema in place of the tags.

    Raises:
        ValueError: for values out of range.
    """

    def __init__(
        self,
        client: LLM,
        merger: Merger = "deterministic",
        concurrency: int | None = None,
        *,
        embedder: Embedder | None = None,
        max_tokens: int = 8192,
        overlap: int = 200,
        count_tokens: CountTokens = estimate_tokens,
        structured: bool = False,
    ) -> None:
        if merger not in MERGERS:
            raise ValueError(f"merger: got {merger!r}, wants one of {', '.join(MERGERS)}")
        if overlap < 0:
            raise ValueError(f"overlap: got {overlap}, wants >= 0")
        if client.context_window is not None and max_tokens >= client.context_window:
            raise ValueError(
                f"max_tokens: got {max_tokens}, wants less than the context window of "
                f"{client.context_window} tokens"
            )
        self.client = client
        self.merger = merger
        self.concurrency = concurrency
        self.embedder = embedder
        self.max_tokens = max_tokens
        self.overlap = overlap
        self.count_tokens = count_tokens
        self.structured = structured

    def extract(self, protocol: str, sections: Iterable[Section]) -> Extraction:
        """The protocol's machine.

        Args:
            protocol: its name, as the prompt gives it to the model.
            sections: of its specification, from `RFCDocument.sections` or `PsmBench.segments`.

        Raises:
            ValueError: where there are no sections, or the context window is too small for any.
            BudgetExceeded, ReplayMiss: are collected in `errors` like any failed call.
        """
        pieces = [piece for section in sections for piece in self._pieces(protocol, section)]
        if not pieces:
            raise ValueError("sections: got none, wants at least one")
        calls = [
            self._call(extraction_messages(protocol, piece.tag, piece.content)) for piece in pieces
        ]
        outcomes = complete_all(self.client, calls, self.concurrency)
        partials = [
            self._partial(piece, outcome) for piece, outcome in zip(pieces, outcomes, strict=True)
        ]
        replies = [outcome for outcome in outcomes if isinstance(outcome, Reply)]
        errors = [
            f"{partial.section.tag}: {partial.error}" for partial in partials if partial.error
        ]

        psm = merge([p.machine for p in partials if p.machine is not None], self.embedder)
        if self.merger != "deterministic" and psm.states:
            shown = [p.reply for p in partials if p.reply]
            if self.merger == "hybrid":
                shown = [psm.model_dump_json(by_alias=True)]
            merged, reply, error = self._merge(protocol, shown)
            psm = merged or psm
            replies += [reply] if reply else []
            errors += [f"merging: {error}; the deterministic merger was used"] if error else []
        return Extraction(
            psm=psm,
            partials=tuple(partials),
            usage=sum((reply.usage for reply in replies), Usage(0, 0)),
            cost=_total([reply.cost for reply in replies]),
            errors=tuple(errors),
        )

    async def aextract(self, protocol: str, sections: Iterable[Section]) -> Extraction:
        """As `extract`, in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.extract, protocol, sections)

    def _call(self, messages: Any) -> dict[str, Any]:
        schema = {"schema": ProtocolStateMachine} if self.structured else {}
        return {"messages": messages, "max_tokens": self.max_tokens, "temperature": 0.0, **schema}

    def _partial(self, piece: Section, outcome: Reply | LLMError) -> Partial:
        if isinstance(outcome, LLMError):
            return Partial(piece, "", None, str(outcome))
        try:
            return Partial(piece, outcome.text, _machine(outcome))
        except ValueError as error:
            cut = "cut off at max_tokens; " if outcome.finish_reason == "length" else ""
            return Partial(piece, outcome.text, None, f"{cut}{error}")

    def _merge(
        self, protocol: str, partials: Sequence[str]
    ) -> tuple[ProtocolStateMachine | None, Reply | None, str]:
        messages = merge_messages(protocol, partials)
        needed = self.count_tokens(messages[0]["content"]) + self.max_tokens
        window = self.client.context_window
        if window is not None and needed > window:
            return None, None, f"needs {needed} tokens, the context window has {window}"
        try:
            reply = self.client.complete(**self._call(messages))
        except LLMError as error:
            return None, None, str(error)
        try:
            machine = _machine(reply)
        except ValueError as error:
            return None, reply, str(error)
        if machine is None or not machine.states:
            return None, reply, "the model answered that there is no machine"
        return machine, reply, ""

    def _pieces(self, protocol: str, section: Section) -> list[Section]:
        """The section, or overlapping pieces of it that fit the context window."""
        window = self.client.context_window
        if window is None:
            return [section]
        frame = self.count_tokens(extraction_messages(protocol, section.tag, "")[0]["content"])
        room = window - self.max_tokens - frame - _SLACK
        if self.count_tokens(section.content) <= room:
            return [section]
        if room <= self.overlap:
            raise ValueError(
                f"context window: {window} tokens leave {room} for text beside prompt and reply, "
                f"wants more than the overlap of {self.overlap}"
            )
        texts = _cut(section.content, room, self.overlap, self.count_tokens)
        return [
            replace(section, tag=f"{section.tag} (part {i} of {len(texts)})", content=text)
            for i, text in enumerate(texts, 1)
        ]


_SLACK = 32
"""Tokens for the chat template and the note of the part."""


def _machine(reply: Reply) -> ProtocolStateMachine | None:
    if isinstance(reply.parsed, ProtocolStateMachine):
        return reply.parsed if reply.parsed.states else None
    data = parse_reply(reply.text)
    return None if data is None else ProtocolStateMachine.from_data(data, lenient=True)


def _total(costs: Sequence[float | None]) -> float | None:
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _cut(text: str, room: int, overlap: int, count_tokens: CountTokens) -> list[str]:
    """Runs of whole lines of at most `room` tokens; each starts with the end of the one before."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        lines += _halved(line, max(1, room - overlap), count_tokens)
    sizes = [count_tokens(line) for line in lines]
    pieces, start, end = [], 0, 0
    while end < len(lines):
        total = sum(sizes[start:end])
        while end < len(lines) and total + sizes[end] <= room:
            total += sizes[end]
            end += 1
        pieces.append("".join(lines[start:end]))
        start, shared = end, 0
        while end < len(lines) and start > 0 and shared + sizes[start - 1] <= overlap:
            start -= 1
            shared += sizes[start]
    return pieces


def _halved(line: str, room: int, count_tokens: CountTokens) -> list[str]:
    if count_tokens(line) <= room or len(line) < 2:
        return [line]
    middle = len(line) // 2
    return [
        half
        for part in (line[:middle], line[middle:])
        for half in _halved(part, room, count_tokens)
    ]
