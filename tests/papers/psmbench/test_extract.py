"""Extraction with a scripted model: prompts, parsing, pieces, mergers, failures."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest

from assay.papers.psmbench import PSMExtractor, Section
from assay.papers.psmbench.document import estimate_tokens
from assay.papers.psmbench.extract import _cut
from assay.papers.psmbench.prompts import extraction_messages, merge_messages, parse_reply
from assay.papers.psmbench.synthetic import random_machine, render
from assay.toolkits.llm import (
    Budget,
    Client,
    Completion,
    LLMError,
    ReplayMiss,
    ReplyCache,
    Usage,
)

EDGE = re.compile(r"In state (\w+), on (.+?), (.+?) and go to state (\w+)\.")


class Reader:
    """A model that understands the rendered prose, and what its test tells it to do wrong."""

    identity = {"backend": "scripted", "model": "reader"}  # noqa: RUF012
    concurrency = 4

    def __init__(self, context_window=None, merging="", failing=()):
        self.context_window = context_window
        self.merging = merging
        self.failing = failing
        self.requests = []
        self._lock = threading.Lock()

    def send(self, request):
        (message,) = request.messages
        with self._lock:
            self.requests.append(message["content"])
        if "<partial>" in message["content"]:
            return Completion(self.merging, Usage(10, 5))
        text = message["content"].split("<section>")[1]
        for word, reply in self.failing:
            if word in text:
                if isinstance(reply, Exception):
                    raise reply
                return reply
        edges = [
            dict(zip(("from", "event", "action", "to"), found, strict=True))
            for found in EDGE.findall(text)
        ]
        if not edges:
            return Completion("<json>None</json>", Usage(10, 1))
        states = sorted({end for edge in edges for end in (edge["from"], edge["to"])})
        body = json.dumps({"states": states, "transitions": edges})
        if request.schema is None:
            body = f"<json>{body}</json>"
        return Completion(body, Usage(10, 20))


def sections(*texts: str) -> list[Section]:
    return [Section(f"{i}.", "S", f"Section {i}. S", text) for i, text in enumerate(texts, 1)]


@pytest.fixture
def prose():
    machine = random_machine(6, 14, np.random.default_rng(0))
    lines = render(machine, 6, np.random.default_rng(1)).splitlines()
    return machine, ["\n".join(lines[i::4]) for i in range(4)]


@pytest.mark.parametrize("structured", [False, True])
def test_a_machine_told_in_prose_is_recovered(prose, structured):
    machine, texts = prose
    model = Reader()
    result = PSMExtractor(Client(model), structured=structured).extract("XP", sections(*texts))
    assert set(result.psm.transitions) == set(machine.transitions)
    assert set(result.psm.states) == set(machine.states)
    assert result.errors == ()
    assert [p.section.number for p in result.partials] == ["1.", "2.", "3.", "4."]
    assert result.usage == Usage(40, 80)
    assert result.cost is None, "no price is known for this model"
    assert len(model.requests) == 4


def test_sections_too_long_for_the_model_are_cut_with_overlap(prose):
    machine, texts = prose
    model = Reader(context_window=1000)
    extractor = PSMExtractor(Client(model), max_tokens=300, overlap=30)
    result = extractor.extract("XP", sections("\n".join(texts)))
    assert len(result.partials) > 1
    assert result.partials[0].section.tag.endswith(f"(part 1 of {len(result.partials)})")
    assert set(result.psm.transitions) == set(machine.transitions)
    for prompt in model.requests:
        assert estimate_tokens(prompt) + 300 <= 1000


def test_pieces_cover_the_text_and_overlap():
    text = "".join(f"line {i}\n" for i in range(100)) + "".join(f"{i:04d}" for i in range(125))
    pieces = _cut(text, room=40, overlap=10, count_tokens=estimate_tokens)
    assert all(estimate_tokens(piece) <= 40 for piece in pieces)
    position = 0
    for before, piece in zip(["", *pieces], pieces, strict=False):
        start = text.index(piece, max(0, position - 40)) if before else 0
        assert start <= position, "no gap"
        position = start + len(piece)
    assert position == len(text)
    assert sum(map(len, pieces)) > len(text), "they share something"
    assert "".join(_cut(text, 40, 0, estimate_tokens)) == text


def test_a_context_window_too_small_for_the_prompt_is_refused():
    with pytest.raises(ValueError, match="max_tokens: got 8192"):
        PSMExtractor(Client(Reader(context_window=4096)))
    extractor = PSMExtractor(Client(Reader(context_window=700)), max_tokens=400)
    with pytest.raises(ValueError, match="context window: 700 tokens"):
        extractor.extract("XP", sections("words " * 400))


def test_failures_are_collected_and_the_rest_is_used(prose):
    _, texts = prose
    texts = [*texts, "AAA", "BBB", "CCC"]
    model = Reader(
        failing=[
            ("AAA", LLMError("server on fire")),
            ("BBB", Completion("<json>{broken</json>", Usage(1, 1))),
            ("CCC", Completion('<json>{"states": ["A"', Usage(1, 1), "length")),
        ]
    )
    result = PSMExtractor(Client(model)).extract("XP", sections(*texts))
    assert len(result.psm.transitions) == 14
    assert result.errors[0] == "Section 5. S: server on fire"
    assert result.errors[1].startswith("Section 6. S: broken JSON")
    assert result.errors[2].startswith("Section 7. S: cut off at max_tokens")


def test_the_paper_s_merger_sees_all_raw_replies(prose):
    _, texts = prose
    merged = {"states": ["A"], "initial_state": "A", "final_states": [], "transitions": []}
    model = Reader(merging=f"<json>{json.dumps(merged)}</json>")
    result = PSMExtractor(Client(model), "llm").extract("XP", sections(*texts, "nothing here"))
    assert result.psm.states == ["A"]
    assert model.requests[-1].count("\n<partial>\n") == 5
    assert "<json>None</json>" in model.requests[-1].split("<partial>")[-1]


def test_hybrid_shows_the_model_one_merged_machine(prose):
    _, texts = prose
    model = Reader(merging='<json>{"states": ["A"], "transitions": []}</json>')
    result = PSMExtractor(Client(model), "hybrid").extract("XP", sections(*texts))
    assert model.requests[-1].count("\n<partial>\n") == 1
    assert result.psm.states == ["A"]


@pytest.mark.parametrize("reply", ["", "no tags", "<json>None</json>", "<json>[1]</json>"])
def test_a_failed_merge_falls_back_and_says_so(prose, reply):
    machine, texts = prose
    result = PSMExtractor(Client(Reader(merging=reply)), "llm").extract("XP", sections(*texts))
    assert set(result.psm.transitions) == set(machine.transitions)
    assert result.errors[-1].endswith("the deterministic merger was used")


def test_a_merge_that_does_not_fit_is_not_tried(prose):
    machine, texts = prose
    model = Reader(context_window=1500)
    result = PSMExtractor(Client(model), "llm", max_tokens=900).extract("XP", sections(*texts))
    assert "the context window has 1500" in result.errors[-1]
    assert set(result.psm.transitions) == set(machine.transitions)


def test_a_second_run_replays(prose, tmp_path):
    _, texts = prose
    path = tmp_path / "replies.sqlite"
    first = PSMExtractor(Client(Reader(), ReplyCache(path))).extract("XP", sections(*texts))
    silent = Reader(failing=[("", LLMError("must not be called"))])
    replayed = PSMExtractor(Client(silent, ReplyCache(path, "replay")))
    assert replayed.extract("XP", sections(*texts)).psm == first.psm
    assert silent.requests == []
    missing = replayed.extract("Other", sections(*texts))
    assert len(missing.errors) == 4
    assert "differs in messages[0].content" in missing.errors[0]
    with pytest.raises(ReplayMiss):
        replayed.client.complete(extraction_messages("Other", "t", "x"))


def test_a_budget_stops_the_calls(prose):
    _, texts = prose
    model = Reader()
    result = PSMExtractor(Client(model, budget=Budget(max_calls=2))).extract("XP", sections(*texts))
    assert len(model.requests) == 2
    assert sum("max_calls" in error for error in result.errors) == 2


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="merger: got 'magic'"):
        PSMExtractor(Client(Reader()), "magic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sections: got none"):
        PSMExtractor(Client(Reader())).extract("XP", [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<json>None</json>", None),
        ("<JSON>\nnone\n</JSON>", None),
        ("<json></json>", None),
        ('say <json>{"a": 1}</json> and <json>{"b": 2}</json>', {"a": 1}),
        ('<json>```json\n{"a": 1}\n```</json>', {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ("None", None),
    ],
)
def test_replies_are_parsed(text, value):
    assert parse_reply(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no machine in here", "no <json> block"),
        ("", "no <json> block"),
        ("<json>{'a': 1}</json>", "broken JSON"),
        ('<json>{"a": 1', "no <json> block"),
    ],
)
def test_unusable_replies_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_reply(text)


def test_prompts_keep_their_contract():
    (message,) = extraction_messages("TCP", "Section 3. X", "{braces} stay")
    text = message["content"]
    for phrase in (
        "TCP",
        "Section 3. X",
        "{braces} stay",
        "<json>None</json>",
        "30 characters",
        "CamelCase",
        "snake_case",
        "receive, send, timeout",
        "from, event, action",
    ):
        assert phrase in text
    (message,) = merge_messages("TCP", ["<json>None</json>", "{}"])
    assert message["content"].count("\n<partial>\n") == 2
    assert "initial_state" in message["content"]
