"""A trial's chance depends on its seed alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from assay.study import Trial


def test_arms_of_equal_seed_draw_equal_streams(run):
    a, b, other, fresh = run(
        Trial({"do": "draw", "arm": "a"}, seed=7),
        Trial({"do": "draw", "arm": "b"}, seed=7),
        Trial({"do": "draw", "arm": "a"}, seed=8),
        Trial({"do": "draw", "arm": "c"}, seed=7, fresh_process=True),
        jobs=1,
    )
    assert dict(a.metrics) == dict(b.metrics) == dict(fresh.metrics)
    for name in ("value", "numpy", "python", "seed"):
        assert a.metrics[name] != other.metrics[name]


def test_streams_come_from_the_seed_sequence(run):
    (drawn,) = run(Trial({"do": "draw"}, seed=7))
    sequence = np.random.SeedSequence(7)
    seed = int(sequence.generate_state(1)[0])
    assert drawn.metrics["seed"] == seed
    assert drawn.metrics["value"] == np.random.default_rng(sequence).random()
    assert drawn.metrics["python"] == random.Random(seed).random()
    assert drawn.metrics["numpy"] == np.random.RandomState(seed).random_sample()


def test_torch_is_seeded_whether_or_not_it_was_loaded(run):
    torch = pytest.importorskip("torch")
    loading, loaded, other = run(
        Trial({"do": "draw_torch"}, seed=7),
        Trial({"do": "draw_with_torch_loaded"}, seed=7),
        Trial({"do": "draw_with_torch_loaded"}, seed=8),
        jobs=1,
    )
    seed = int(np.random.SeedSequence(7).generate_state(1)[0])
    expected = torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()
    assert loading.metrics == loaded.metrics == {"torch": expected, "threads": 1}
    assert other.metrics["torch"] != expected
