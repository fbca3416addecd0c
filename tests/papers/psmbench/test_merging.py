"""Merging without a language model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.papers.psmbench import ProtocolStateMachine, merge
from assay.papers.psmbench.synthetic import random_machine
from assay.toolkits.embedding import LetterPairs


def test_names_equal_in_normal_form_are_joined(make_machine):
    merged = merge(
        [
            make_machine(("SynSent", "receive ACK", "", "Open")),
            make_machine(("SYN_SENT", "receive_ACK", "", "open"), ("SYN_SENT", "timeout", "", "X")),
        ]
    )
    assert merged.states == ["SYN_SENT", "Open", "X"]
    assert [str(t) for t in merged.transitions] == [
        "SYN_SENT --[receive ACK]--> Open",
        "SYN_SENT --[timeout]--> X",
    ]
    assert merged.initial_state == "SYN_SENT"
    assert merged.final_states == ["Open", "X"]


def test_similar_names_are_joined_where_an_embedder_says_so(make_machine):
    parts = [
        make_machine(("Closing", "e", "", "Done")),
        make_machine(("Closings", "e", "", "Done")),
    ]
    assert merge(parts).states == ["Closing", "Done", "Closings"]
    joined = merge(parts, LetterPairs(), threshold=0.8)
    assert joined.states == ["Closing", "Done"]
    assert len(joined.transitions) == 1


def test_undeclared_states_become_states(make_machine):
    assert merge([make_machine(("A", "e", "", "B"), states=["A"])]).states == ["A", "B"]


def test_a_cycle_starts_at_its_first_state(handshake):
    merged = merge([handshake])
    assert merged.initial_state == "Closed"
    assert merged.final_states == []
    assert merged.check(strict=False) == []


def test_nothing_merges_to_nothing():
    assert merge([]) == ProtocolStateMachine(states=[], transitions=[])


def test_a_wrong_threshold_is_refused():
    with pytest.raises(ValueError, match="threshold: got 0"):
        merge([], threshold=0)


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_a_machine_cut_in_two_is_put_together_again(seed, cut):
    machine = random_machine(7, 20, np.random.default_rng(seed))
    parts = [
        ProtocolStateMachine(states=[], transitions=edges)
        for edges in (machine.transitions[:cut], machine.transitions[cut:])
    ]
    merged = merge(parts)
    assert set(merged.states) == set(machine.states)
    assert merged.transitions == machine.transitions
    assert merge([merged, merged]).transitions == merged.transitions
