"""Traces: what is written is read back, text is tokenised in parts, and bad lines are named."""

import json
import math

import pytest

from assay.papers.kvflow.trace import TraceRequest, merge_traces, read_trace, write_trace
from assay.papers.kvflow.workloads import Sizes, sequential_graph, synthetic_workflow

LINE = {"client": "c", "agent": "a", "output_len": 1, "prompt_ids": [1, 2]}


def test_what_is_written_is_read_back(tmp_path):
    trace = synthetic_workflow(sequential_graph(3, 2), Sizes(5, 2, 1), n_rounds=2)
    trace += [TraceRequest("c", "a", (1,), 1, 2, {"a": 0, "b": math.inf}, t=1.5, next_use=math.inf)]
    trace += [TraceRequest("c", "a", (1,), 0, 2, next_use=0)]
    write_trace(tmp_path / "x.jsonl", trace)
    assert read_trace(tmp_path / "x.jsonl") == trace
    json.loads((tmp_path / "x.jsonl").read_text().splitlines()[0], parse_constant=pytest.fail)


def test_the_least_that_a_line_needs(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("\n" + json.dumps(LINE) + "\n\n")
    assert read_trace(path) == [TraceRequest("c", "a", (1, 2), 0, 1)]


def test_the_two_parts_of_a_text_are_tokenised_apart(tmp_path):
    path = tmp_path / "x.jsonl"
    line = {**LINE, "prompt_text": ["ab", "ba"]}
    del line["prompt_ids"]
    path.write_text(json.dumps(line) + "\n" + json.dumps({**line, "prompt_text": "abba"}))

    def pairs(text):  # a tokenizer for which "bb" is one token
        return [ord(c) for c in text.replace("bb", "B")]

    first, second = read_trace(path, pairs)
    assert (first.prompt_ids, first.fixed_len) == (tuple(map(ord, "abba")), 2)
    assert (second.prompt_ids, second.fixed_len) == (tuple(map(ord, "aBa")), 0)
    with pytest.raises(ValueError, match="line 1: prompt_text: got text"):
        read_trace(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": None}, "client: got None"),
        ({"prompt_ids": None}, "prompt_ids: got None"),
        ({"prompt_ids": []}, "got no token"),
        ({"prompt_ids": [1.5]}, "prompt_ids: got 1.5"),
        ({"prompt_text": "x"}, "wants one of the two"),
        ({"fixed_len": 3}, "fixed_len of agent 'a': got 3, wants at most the prompt's length, 2"),
        ({"fixed_len": -1}, "fixed_len: got -1"),
        ({"output_len": 0}, "output_len: got 0"),
        ({"output_len": "x"}, "output_len: got 'x'"),
        ({"steps": {"b": -1}}, "steps of agent 'b': got -1"),
        ({"steps": {"b": 0.5}}, "steps of agent 'b': got 0.5"),
        ({"steps": []}, "steps: got"),
        ({"t": -1}, "t: got -1"),
        ({"after": [1]}, "after: got 1"),
        ({"after": 0}, "after: got 0"),
        ({"next_use": "soon"}, "next_use: got 'soon'"),
        ({"fixed": 1}, "fixed: got an unknown field"),
    ],
)
def test_a_bad_line_is_named(tmp_path, change, message):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + json.dumps({**LINE, **change}))
    with pytest.raises(ValueError, match=rf"x\.jsonl, line 2: .*{message}"):
        read_trace(path)


@pytest.mark.parametrize("text", ["[1]", "{", '{"client": "c", "agent": "a"}'])
def test_what_is_no_request_is_named(tmp_path, text):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"x\.jsonl, line 1"):
        read_trace(tmp_path / "x.jsonl")


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_trace(tmp_path / "x.jsonl")


def test_merged_traces_take_turns_and_keep_what_they_wait_for():
    first = synthetic_workflow(sequential_graph(2), Sizes(3, 1, 1), 2, "x")
    second = synthetic_workflow(sequential_graph(2), Sizes(3, 1, 1), 2, "y", t=5.0)
    both = merge_traces([first, first, second])
    assert [r.client for r in both] == ["x", "x", "y"] * 4
    assert [r.after for r in both[:6]] == [(), (), (), (0,), (1,), (2,)]
    for at, request in enumerate(both):
        assert all(i < at and both[i].client == request.client for i in request.after)
