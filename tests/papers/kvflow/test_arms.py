"""Playing traces on the real loop, and the arms of the study."""

from __future__ import annotations

from contextlib import closing

import pytest

from assay.papers.kvflow.arms import Arm, Workload, simulate
from assay.papers.kvflow.claims import TIERED, UNTIERED
from assay.papers.kvflow.engine import Engine
from assay.papers.kvflow.hardware import Hardware, ModelShape
from assay.papers.kvflow.models import load_model
from assay.papers.kvflow.playback import play, rounds_of
from assay.papers.kvflow.workloads import (
    Sizes,
    concurrent_workflows,
    parallel_graph,
    sequential_graph,
    synthetic_workflow,
)

MODEL, TOKENIZER = load_model("tiny")
SIZES = Sizes(fixed=24, dynamic=4, output=2)


def cycle(n_rounds, n_agents=4, room=3):
    trace = synthetic_workflow(sequential_graph(n_agents), SIZES, n_rounds, n_vocab=260)
    return Workload(trace, n_agents, room * SIZES.fixed + SIZES.dynamic + SIZES.output)


def test_a_call_is_handed_in_once_those_have_ended_that_it_waits_for():
    trace = synthetic_workflow(parallel_graph(2), SIZES, 2, n_vocab=260)
    ended = set()

    def starts(position):
        assert ended >= set(trace[position].after), position

    with Engine(MODEL, TOKENIZER) as engine:
        answers = play(engine, trace, starts, ended.add)
    assert ended == set(range(len(trace)))
    assert [len(a.ids) for a in answers] == [r.output_len for r in trace]
    assert [a.prompt_tokens for a in answers] == [len(r.prompt_ids) for r in trace]


def test_rounds_are_traces_of_their_own():
    trace = concurrent_workflows(sequential_graph(3), 2, SIZES, 4, n_vocab=260)
    rounds = rounds_of(trace, 3)
    assert [len(calls) for calls in rounds] == [6] * 4
    assert [r.prompt_ids for calls in rounds for r in calls] == [r.prompt_ids for r in trace]
    for calls in rounds:
        for position, request in enumerate(calls):
            assert all(i < position for i in request.after)
            assert all(calls[i].client == request.client for i in request.after)
    # Only the first call of each workflow waits for nothing within its round.
    assert [sum(not r.after for r in calls) for calls in rounds] == [2] * 4


def test_pinning_keeps_the_first_agents_whoever_runs():
    load = cycle(8)
    with closing(Arm("pin", load, MODEL, TOKENIZER)) as arm:
        for n in range(8):
            arm.play(n)
        held = [arm.holds(ids) for ids in load.fixed.values()]
        assert held[:2] == [True, True]


@pytest.mark.parametrize(
    ("name", "rate"), [("lru", 0.0), ("steps", 2 / 3), ("mru_fixed", 2 / 3), ("belady", 2 / 3)]
)
def test_a_cycle_of_four_with_room_for_three_hits_as_theory_has_it(name, rate):
    load = cycle(2 + 6)
    with closing(Arm(name, load, MODEL, TOKENIZER)) as arm:
        for n in range(2):
            arm.play(n)
        arm.forget()
        for n in range(2, 8):
            arm.play(n)
        # Two random prompts may begin with the same token.
        assert arm.found()["hit_rate"] == pytest.approx(rate, abs=0.05)


def test_the_simulator_finds_what_the_loop_finds():
    load = cycle(6)
    shape = ModelShape(1000, 2, 4, 2, 16, 4)
    rates = Hardware.measured(1000, 0.01, 1.0)
    for name in ("lru", "steps", "mru", "pin", "hicache"):
        with closing(Arm(name, load, MODEL, TOKENIZER)) as arm:
            for n in range(6):
                arm.play(n)
            real = [sum(a.cached_tokens.values()) for _, a in arm.answers]
        report = simulate(name, load, rates, shape, running_on_device=False)
        assert [r.device + r.host for r in report.requests] == real, name


@pytest.mark.parametrize("name", [*UNTIERED, *TIERED])
def test_every_arm_gives_the_same_tokens(name):
    load = cycle(3)
    with Engine(MODEL, TOKENIZER) as engine:
        wanted = [a.ids for calls in rounds_of(load.trace, 4) for a in play(engine, calls)]
    with closing(Arm(name, load, MODEL, TOKENIZER)) as arm:
        for n in range(3):
            arm.play(n)
        assert [a.ids for _, a in arm.answers] == wanted
        assert arm.clock()["per_s"] > 0
