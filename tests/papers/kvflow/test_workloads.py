"""Generated workflows, and PEER on its questions."""

import math
from collections import Counter
from itertools import pairwise

import pytest

from assay.papers.kvflow.workloads import (
    Sizes,
    concurrent_workflows,
    parallel_graph,
    peer_applications,
    peer_graph,
    peer_questions,
    peer_workflows,
    run_graph,
    sequential_graph,
    synthetic_workflow,
)
from assay.toolkits.data import MissingData

SMALL = Sizes(fixed=6, dynamic=2, output=3)


def test_a_sequential_workflow_goes_round():
    trace = synthetic_workflow(sequential_graph(4), SMALL, n_rounds=3)
    assert [r.agent for r in trace] == [f"a{i % 4}" for i in range(12)]
    assert [r.after for r in trace] == [(), *((i,) for i in range(11))]
    assert trace[5].steps == {"a0": 3, "a1": 0, "a2": 1, "a3": 2}
    assert trace[5].next_use == 4
    assert {(len(r.prompt_ids), r.fixed_len, r.output_len) for r in trace} == {(8, 6, 3)}


def test_fixed_prompts_stay_and_the_rest_changes():
    trace = synthetic_workflow(sequential_graph(3), SMALL, n_rounds=4)
    fixed = {(r.agent, r.prompt_ids[: r.fixed_len]) for r in trace}
    assert len(fixed) == 3
    assert len({r.prompt_ids for r in trace}) == 12


def test_each_stage_of_a_branching_workflow_picks_one_of_its_agents():
    trace = synthetic_workflow(sequential_graph(5, 2), SMALL, n_rounds=20, seed=3)
    stages = [int(r.agent[1]) for r in trace]
    assert stages == [i % 5 for i in range(100)]
    counts = Counter(r.agent for r in trace)
    assert len(counts) == 10
    assert min(counts.values()) >= 4  # of 20 fair draws
    for request, later in pairwise(trace):
        assert request.steps[later.agent] == 1
        stage = later.agent[:2]
        assert [request.steps[f"{stage}.{j}"] for j in (0, 1)] == [1, 1]


def test_workers_run_together_and_the_writer_waits_for_all():
    trace = synthetic_workflow(parallel_graph(3), SMALL, n_rounds=2)
    names = ["plan", "work0", "work1", "work2", "write"]
    assert [r.agent for r in trace] == names * 2
    assert [r.after for r in trace[:6]] == [(), (0,), (0,), (0,), (1, 2, 3), (4,)]
    assert trace[1].steps == {"plan": 2, "work0": 0, "work1": 0, "work2": 0, "write": 1}
    assert {r.next_use for r in trace} == {3}


def test_an_or_join_waits_for_one():
    trace = synthetic_workflow(parallel_graph(3, join="any"), SMALL, n_rounds=1)
    assert [r.agent for r in trace][-1] == "write"
    assert trace[-1].after == (1,)


def test_without_a_loop_nothing_comes_again():
    graph = parallel_graph(2)
    graph = type(graph)().add("a").add("b", ["a"])
    trace = run_graph(graph, lambda agent, call: ([1], [2]), 1, n_rounds=5)
    assert [(r.agent, r.next_use) for r in trace] == [("a", math.inf), ("b", math.inf)]


def test_concurrent_workflows_share_nothing_and_start_apart():
    trace = concurrent_workflows(sequential_graph(3), 4, SMALL, n_rounds=2, spread=9.0)
    assert Counter(r.client for r in trace) == {f"w{i}": 6 for i in range(4)}
    prompts = {}
    for r in trace:
        prompts.setdefault((r.client, r.agent), set()).add(r.prompt_ids[:6])
    assert {len(found) for found in prompts.values()} == {1}
    assert len({next(iter(found)) for found in prompts.values()}) == 12
    starts = {r.t for r in trace}
    assert len(starts) == 4
    assert max(starts) < 9


def test_a_seed_decides_everything():
    make = [concurrent_workflows(sequential_graph(3, 2), 2, SMALL, seed=s) for s in (1, 1, 2)]
    assert make[0] == make[1]
    assert make[0] != make[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequential_graph(1), "n_agents: got 1"),
        (lambda: sequential_graph(3, 0), "n_branches: got 0"),
        (lambda: parallel_graph(0), "n_workers: got 0"),
        (lambda: parallel_graph(2, "most"), "join: got 'most'"),
        (lambda: Sizes(fixed=0), "fixed: got 0"),
        (lambda: Sizes(dynamic=-1), "dynamic: got -1"),
        (lambda: synthetic_workflow(peer_graph(), SMALL, n_rounds=0), "n_rounds: got 0"),
        (lambda: synthetic_workflow(peer_graph(), SMALL, seed=-1), "seed: got -1"),
        (lambda: concurrent_workflows(peer_graph(), 0, SMALL), "n_workflows: got 0"),
        (lambda: concurrent_workflows(peer_graph(), 1, SMALL, spread=-1), "spread: got -1"),
        (lambda: peer_applications(6), "n_groups: got 6"),
    ],
)
def test_numbers_out_of_range_are_refused(call, message):
    pytest.importorskip("yaml")
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture
def questions():
    pytest.importorskip("yaml")
    try:
        return peer_questions()
    except MissingData as missing:
        pytest.skip(str(missing))


def letters(text):
    return [ord(c) for c in text]


def test_peer_groups_share_a_header_and_differ_by_role(questions):
    assert len(questions) == 100
    groups = peer_applications()
    assert [g.client for g in groups] == [f"peer{i}" for i in range(5)]
    for agent in peer_graph().agents:
        prompts = [g.fixed[agent] for g in groups]
        assert len(set(prompts)) == 5
        assert len({p.splitlines()[0] for p in prompts}) == 1
        assert all(field not in p for p in prompts for field in ("{date}", "{input}", "{{", "}}"))
        assert all("Example question: " in p for p in prompts)
    plan = groups[0].fixed["plan"]
    assert "The chain of thought is represented in the form of sub-questions" in plan
    assert '"framework": list' in plan
    assert "Previous conversation" not in plan
    assert peer_applications(2, seed=1)[0].fixed != groups[0].fixed
    assert "Example question" not in peer_applications(1, n_examples=0)[0].fixed["plan"]
    with pytest.raises(ValueError, match="agent: got 'write'"):
        groups[0].dynamic("write", "Why?")


def test_a_peer_trace_asks_real_questions(questions):
    trace = peer_workflows(letters, n_groups=2, n_questions=3, output_len=20)
    assert Counter((r.client, r.agent) for r in trace) == {
        (f"peer{i}", agent): 3 for i in range(2) for agent in peer_graph().agents
    }
    asked = set()
    for r in trace:
        text = "".join(map(chr, r.prompt_ids[r.fixed_len :]))
        question = text.split("The question is: ")[1].strip()
        assert question in questions
        asked.add((r.client, question))
        background = text.split(":\n")[1].split("\nThe question")[0]
        assert len(background) == (0 if r.agent == "plan" else 20)
    assert len(asked) == 6
    assert trace == peer_workflows(letters, n_groups=2, n_questions=3, output_len=20)
    assert trace != peer_workflows(letters, n_groups=2, n_questions=3, output_len=20, seed=1)
