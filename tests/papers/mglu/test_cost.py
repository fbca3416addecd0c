"""Bytes by counting, against the paper's own numbers."""

from __future__ import annotations

import pytest

from assay.papers.mglu import decode_cost
from assay.papers.mglu.timing import decode_bytes


@pytest.mark.parametrize(("n", "saving"), [(1, 0.46875), (4, 0.375), (8, 0.25), (16, 0.0)])
def test_saving_is_16_minus_n_over_32(n, saving):
    cost = decode_cost(4096, 14336, n)
    assert 1 - cost.bytes_mglu_packed / cost.bytes_glu == saving
    if n <= 8:
        assert 1 - cost.bytes_mglu_byte / cost.bytes_glu == 0.25
    else:
        assert cost.bytes_mglu_byte is None


def test_weights_of_the_papers_two_models():
    """Embeddings apart, with attention heads of 64: 113M and 141M, 808M and 1.08B; masks apart."""
    for h, d, layers, heads, glu, mglu, masks in (
        (768, 3072, 12, 24, 141e6, 113e6, 28.3e6),
        (2048, 8192, 16, 32, 1.08e9, 808e6, 268e6),
    ):
        attention = 4 * h * heads * 64 * layers
        feed_forward = decode_cost(h, d, 1).bytes_glu // 2 * layers + h * d * layers
        assert attention + feed_forward == pytest.approx(glu, rel=0.01)
        assert attention + feed_forward - h * d * layers == pytest.approx(mglu, rel=0.01)
        assert h * d * layers == pytest.approx(masks, rel=0.01)


def test_sizes_of_the_small_model_in_mebibytes():
    h, d, layers = 768, 3072, 12
    bodies = 2 * 4 * h * 1536 * layers + 2 * h * d * layers  # attention and output projections
    cost = {n: decode_cost(h, d, n) for n in (1, 2, 4, 8)}
    mebibytes = {n: (bodies + layers * c.bytes_mglu_packed) / 2**20 for n, c in cost.items()}
    assert (bodies + layers * cost[1].bytes_glu) / 2**20 == pytest.approx(269, abs=1.1)
    for n, printed in {1: 219, 2: 222, 4: 229, 8: 242}.items():
        assert mebibytes[n] == pytest.approx(printed, abs=1.1)


def test_a_packed_block_holds_exactly_these_bytes():
    found = decode_bytes(65, 7, 3)
    assert found["counted"] == 1
    assert found["saving"] == 1 - (65 * 2 + 3 * 9) / (65 * 4)


def test_floor_is_bytes_over_bandwidth():
    cost = decode_cost(4096, 14336, 4)
    assert cost.floor_s(4.8e12, "glu") == pytest.approx(49e-6, rel=0.01)
    assert cost.floor_s(4.8e12, "bytes") == pytest.approx(37e-6, rel=0.01)
    assert cost.floor_s(4.8e12) == pytest.approx(31e-6, rel=0.02)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="n_masks: got 17, wants 1 to 16"):
        decode_cost(8, 8, 17)
    with pytest.raises(ValueError, match="bits: got 12"):
        decode_cost(8, 8, 1, bits=12)
    with pytest.raises(TypeError, match=r"h: got 8\.0"):
        decode_cost(8.0, 8, 1)
    with pytest.raises(ValueError, match="bandwidth: got 0"):
        decode_cost(8, 8, 1).floor_s(0)
    with pytest.raises(ValueError, match="a byte holds at most 8 masks"):
        decode_cost(8, 8, 9).floor_s(1e9, "bytes")
