"""Sentence embeddings: unit vectors, each string once, safe to share."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.toolkits.embedding import CachedEmbedder, Embedder, LetterPairs, MiniLM


@given(st.lists(st.text(max_size=20), min_size=1, max_size=10))
def test_letter_pairs_are_unit_vectors(texts):
    vectors = LetterPairs().encode(texts)
    assert vectors.shape == (len(texts), 37 * 37)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_all_are_embedders():
    assert isinstance(LetterPairs(), Embedder)
    assert isinstance(MiniLM(), Embedder)


@pytest.fixture(scope="module")
def minilm():
    return MiniLM()


def test_minilm_knows_meaning(minilm):
    vectors = minilm.encode(["the session is over", "connection terminated", "a red apple", ""])
    assert vectors.shape == (4, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_a_vector_hardly_depends_on_its_batch(minilm):
    texts = ["SYN SENT", "a much longer text about retransmission timers and windows"]
    alone = np.concatenate([minilm.encode([text]) for text in texts])
    np.testing.assert_allclose(minilm.encode(texts), alone, atol=1e-5)


def test_other_weights_are_refused(monkeypatch):
    embedder = MiniLM()
    monkeypatch.setattr(embedder, "fingerprint", "0" * 64)
    with pytest.raises(ValueError, match="wants 0000"):
        embedder.encode(["x"])


class Counting(LetterPairs):
    def __init__(self):
        self.seen = []

    def encode(self, texts):
        self.seen += texts
        return super().encode(texts)


def test_each_distinct_string_is_embedded_once(tmp_path):
    inner = Counting()
    texts = ["b", "a", "b", "", "é\x00"]
    first = CachedEmbedder(inner, tmp_path).encode(texts)
    np.testing.assert_array_equal(first, LetterPairs().encode(texts))
    assert inner.seen == ["b", "a", "", "é\x00"]
    again = CachedEmbedder(inner, tmp_path).encode([*texts, "c"])
    np.testing.assert_array_equal(again[:5], first)
    assert inner.seen == ["b", "a", "", "é\x00", "c"]
    assert CachedEmbedder(inner, tmp_path).encode([]).shape == (0, 37 * 37)


def test_embedders_do_not_share_vectors(tmp_path):
    class Other(LetterPairs):
        name = "other"

    assert CachedEmbedder(LetterPairs(), tmp_path).path != CachedEmbedder(Other(), tmp_path).path


def _encode(folder, texts):
    CachedEmbedder(LetterPairs(), folder).encode(texts)


def test_processes_may_fill_it_together(tmp_path):
    context = multiprocessing.get_context("spawn")
    texts = [str(i) for i in range(300)]
    workers = [context.Process(target=_encode, args=(tmp_path, texts)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    found = CachedEmbedder(Counting(), tmp_path)
    np.testing.assert_array_equal(found.encode(texts), LetterPairs().encode(texts))
    assert found.embedder.seen == []


@pytest.mark.parametrize("embedder", [LetterPairs(), MiniLM()])
def test_wrong_types_are_refused(embedder, tmp_path):
    for tried in (embedder, CachedEmbedder(embedder, tmp_path)):
        with pytest.raises(TypeError, match="texts: got one str"):
            tried.encode("text")
        with pytest.raises(TypeError, match=r"texts\[1\]: got int"):
            tried.encode(["a", 3])
    with pytest.raises(ValueError, match="batch_size: got 0"):
        MiniLM(batch_size=0)
