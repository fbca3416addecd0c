"""Policies: closed forms of one cycle, the optimum as a bound, equal steps as LRU."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.papers.kvflow.eviction import LFU, LRU, MRU, SLRU, Belady, StepsToExecution, replay
from assay.papers.kvflow.step_graph import StepGraph

N = 10
WARM, MEASURED = 10, 9  # whole cycles; (C-1)/(N-1) is the mean over N-1 cycles


def cyclic(n_cycles):
    trace = [str(i % N) for i in range(n_cycles * N)]
    graph = StepGraph()
    for i in range(N):
        graph.add(str(i), [str(i - 1)] if i else [])
    graph.loop(str(N - 1), "0")
    return trace, [graph.steps([agent]) for agent in trace]


def steady_hits(policy_of, capacity):
    trace, steps = cyclic(WARM + MEASURED)
    hits = replay(trace, capacity, policy_of(trace), steps).hits
    return sum(hits[WARM * N :])


@pytest.mark.parametrize("capacity", range(1, N))
def test_one_cycle_of_equal_prefixes(capacity):
    n_requests = MEASURED * N
    assert steady_hits(lambda trace: LRU(), capacity) == 0
    optimum = n_requests * (capacity - 1) // (N - 1)
    assert n_requests * (capacity - 1) % (N - 1) == 0
    assert steady_hits(lambda trace: StepsToExecution(), capacity) == optimum
    assert steady_hits(lambda trace: MRU(), capacity) == optimum
    # The end of the trace is known to Belady alone: nothing is needed after it.
    assert optimum <= steady_hits(Belady, capacity) <= optimum + capacity


def test_a_just_finished_agent_kept_at_zero_spoils_the_order():
    # What the recursion gives if the finished agent's 0 outlives its request.
    trace, steps = cyclic(WARM + MEASURED)
    wrong = [steps[0], *({**now, before: 0} for now, before in zip(steps[1:], trace, strict=False))]
    assert sum(replay(trace, 4, StepsToExecution(), wrong).hits) < sum(
        replay(trace, 4, StepsToExecution(), steps).hits
    )


def test_everything_fits():
    trace, steps = cyclic(3)
    for policy in (LRU(), LFU(), MRU(), SLRU(), StepsToExecution(), Belady(trace)):
        result = replay(trace, N, policy, steps)
        assert (result.misses, result.evicted) == (N, ())


traces = st.lists(st.integers(0, 7), max_size=60)


@given(traces, st.integers(1, 8), st.integers(0, 2**32))
def test_nobody_misses_less_than_belady(trace, capacity, seed):
    draw = random.Random(seed)
    steps = [{item: draw.choice([0, 1, 2, math.inf]) for item in range(8)} for _ in trace]
    least = replay(trace, capacity, Belady(trace)).misses
    for policy in (LRU(), LFU(), MRU(), SLRU(), StepsToExecution(), StepsToExecution(MRU())):
        assert replay(trace, capacity, policy, steps).misses >= least


@given(traces, st.integers(1, 8), st.sampled_from([0, 3, math.inf]))
def test_equal_steps_decide_as_lru_does(trace, capacity, value):
    equal = [dict.fromkeys(range(8), value)] * len(trace)
    assert replay(trace, capacity, StepsToExecution(), equal) == replay(trace, capacity, LRU())


def test_policies_on_a_trace_by_hand():
    trace = list("abacabd")  # at d with room for 3: a has 2 hits, b 1, c 0; c is the oldest
    assert replay(trace, 3, LRU()).evicted == ("c",)
    assert replay(trace, 3, LFU()).evicted == ("c",)
    assert replay(trace, 3, MRU()).evicted == ("b",)
    assert replay([*trace, "a"], 3, SLRU()).hits[-1]
    assert replay(list("aabacd"), 3, LRU()).evicted == ("b",)
    assert replay(list("aabbacd"), 2, SLRU(1)).evicted == ("b", "c")
    assert replay(
        list("abcdca"), 3, StepsToExecution(), [{"a": 1, "b": 7, "c": 2}] * 6
    ).evicted == ("b",)


def test_suffixes_go_before_fixed_prompts_however_far():
    steps = [{"a": 9, "b": 1}] * 4
    assert replay(["a", "b", "x", "y"], 3, StepsToExecution(), steps).evicted == ("x",)


def test_ties_are_broken_by_the_policy_given():
    trace = list("abc")
    assert replay(trace, 2, StepsToExecution()).evicted == ("a",)
    assert replay(trace, 2, StepsToExecution(tie=MRU())).evicted == ("b",)


def test_belady_knows_the_next_request_with_a_prefix():
    policy = Belady([[1, 2, 3], [1, 2, 4], [5], [1, 2, 3, 9]])
    assert policy.next_use([1, 2]) == 0
    policy.advance()
    assert policy.next_use([1, 2]) == 1
    assert policy.next_use([1, 2, 3]) == 3
    policy.serve(2)
    assert policy.next_use([5]) == math.inf
    policy.advance()
    policy.advance()
    assert policy.next_use([]) == math.inf
    with pytest.raises(ValueError, match="position: got 4"):
        policy.serve(4)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="capacity: got 0"):
        replay("ab", 0, LRU())
    with pytest.raises(ValueError, match="steps: got 1 mappings, wants 2"):
        replay("ab", 1, LRU(), [{}])
    with pytest.raises(ValueError, match="tie: got 'mru'"):
        StepsToExecution("mru")
    with pytest.raises(TypeError, match="tie: got 3"):
        StepsToExecution(3)
    with pytest.raises(ValueError, match="protected_hits"):
        SLRU(0)
    assert math.isnan(replay([], 1, LRU()).hit_rate)
