"""Masks as bits: both layouts, every number of masks, ragged shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.papers.mglu.packing import (
    LAYOUTS,
    MAX_MASKS,
    mask_shape,
    pack_masks,
    unpack_mask,
    unpack_masks,
)


def masks(n, d, h, seed=0):
    return torch.rand(n, d, h, generator=torch.Generator().manual_seed(seed)) > 0.5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", range(1, 17))
@pytest.mark.parametrize(("d", "h"), [(1, 1), (7, 13), (3, 64), (5, 33)])
def test_unpacking_gives_back_what_was_packed(layout, n, d, h):
    if n > MAX_MASKS[layout]:
        with pytest.raises(ValueError, match=f"n_masks: got {n}, wants 1 to 8 for the layout"):
            pack_masks(masks(n, d, h), layout)
        return
    given_masks = masks(n, d, h)
    packed = pack_masks(given_masks, layout)
    assert packed.dtype == torch.uint8
    assert tuple(packed.shape) == mask_shape(n, d, h, layout)
    assert torch.equal(unpack_masks(packed, n, h, layout), given_masks)
    assert torch.equal(unpack_mask(packed, n - 1, h, layout), given_masks[-1])


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 16), st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**31))
def test_planes_hold_bit_j_of_byte_k_for_column_8k_plus_j(n, d, h, seed):
    given_masks = masks(n, d, h, seed)
    packed = pack_masks(given_masks)
    bits = [(packed[..., k // 8] >> k % 8 & 1).bool() for k in range(packed.shape[-1] * 8)]
    assert torch.equal(torch.stack(bits[:h], -1), given_masks)
    assert not any(padding.any() for padding in bits[h:]), "padding is zero"


def test_seventeen_masks_are_too_many():
    with pytest.raises(ValueError, match="n_masks: got 17, wants 1 to 16"):
        pack_masks(masks(17, 1, 1))


def test_bad_input_is_named():
    with pytest.raises(TypeError, match=r"masks: got torch\.float32, wants torch\.bool"):
        pack_masks(torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match=r"masks: got shape \(2, 3\), wants \(n, d, h\)"):
        pack_masks(torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="layout: got 'words', wants one of planes, bytes"):
        pack_masks(masks(1, 2, 3), "words")
    with pytest.raises(ValueError, match=r"packed: got shape \(1, 2, 1\), wants \(2, 2, 1\)"):
        unpack_masks(pack_masks(masks(1, 2, 3)), 2, 3)
