"""Random machines and damage by degrees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.papers.psmbench.synthetic import DAMAGE, random_machine, render, synonym


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 16), more=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_random_machines_are_well_formed(seed, n, more):
    machine = random_machine(n, n - 1 + min(more, 15 * n), np.random.default_rng(seed))
    assert len(machine.states) == n
    assert machine.check() == []


def test_sizes_out_of_range_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="n_states: got 1"):
        random_machine(1, 3, rng)
    with pytest.raises(ValueError, match="n_transitions: got 2"):
        random_machine(5, 2, rng)


def test_prose_has_a_sentence_for_each_transition():
    machine = random_machine(5, 9, np.random.default_rng(1))
    lines = render(machine, 3, np.random.default_rng(2)).splitlines()
    assert len(lines) == 12
    assert sum(line.startswith("In state") for line in lines) == 9


@pytest.mark.parametrize("operation", DAMAGE)
def test_damage_grows_with_its_share(operation):
    machine = random_machine(8, 20, np.random.default_rng(3))
    damaged = [
        DAMAGE[operation](machine, share, np.random.default_rng(4)) for share in (0.0, 0.5, 1.0)
    ]
    assert damaged[0] == machine
    left = [len(set(map(str, d.transitions)) & set(map(str, machine.transitions))) for d in damaged]
    assert left[0] > left[1] > left[2]
    with pytest.raises(ValueError, match=r"share: got 1\.5"):
        DAMAGE[operation](machine, 1.5, np.random.default_rng(4))


def test_synonyms_replace_words():
    assert synonym("Wait Stop Reply") == "pending_halt_answer"
    assert synonym("XYZZY") == "XYZZY"
