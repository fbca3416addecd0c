"""Sampling: transformers' warpers, a random stream for each request."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from assay.papers.kvflow.sampling import Sampler, Sampling

LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.5, -1.0])


def drawn(n=3000, **options):
    sampler = Sampler(Sampling(seed=0, **options))
    return Counter(sampler(LOGITS) for _ in range(n))


def test_greedy_takes_the_most_likely():
    assert Sampler(Sampling())(LOGITS) == 1


def test_frequencies_are_the_probabilities():
    counts = drawn(temperature=2.0)
    expected = (LOGITS / 2).softmax(-1)
    for token, p in enumerate(expected.tolist()):
        assert abs(counts[token] / 3000 - p) < 4 * (p * (1 - p) / 3000) ** 0.5


def test_top_k_and_top_p_cut_off():
    assert set(drawn(temperature=5.0, top_k=2)) == {1, 3}
    # Probabilities 0.55, 0.33, 0.07, ...: the first two reach 0.8 together.
    assert set(drawn(temperature=1.0, top_p=0.8)) == {1, 3}


def test_streams_are_apart():
    sampling = Sampling(temperature=1.0, seed=3)
    a, b = Sampler(sampling), Sampler(sampling)
    first = [a(LOGITS) for _ in range(20)]
    assert [b(LOGITS) for _ in range(20)] == first
    unseeded = {tuple(s(LOGITS) for _ in range(30)) for s in [Sampler(Sampling(1.0))] * 2}
    assert len(unseeded) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature: got -0.1, wants a finite number >= 0"),
        ({"top_k": 0}, "top_k: got 0, wants an integer >= 1"),
        ({"top_p": 0.0}, "top_p: got 0.0"),
        ({"top_p": 1.1}, "top_p: got 1.1"),
        ({"seed": -1}, "seed: got -1"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)
