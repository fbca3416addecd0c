import pytest
import torch

from assay.papers.kvflow import blocks
from assay.papers.kvflow.blocks import BlockLayout


def block(n_tokens=7, dtype=torch.float32):
    return torch.randn(3, 2, 4, n_tokens, 5).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_is_what_its_cuts_join_to(dtype):
    whole = block(dtype=dtype)
    parts = [blocks.cut(whole, 0, 2), blocks.cut(whole, 2, 3), blocks.cut(whole, 3, 7)]
    assert torch.equal(blocks.join(parts), whole)
    assert blocks.checksum(blocks.join(parts)) == blocks.checksum(whole)
    assert all(part.is_contiguous() for part in parts)


def test_a_cut_owns_its_memory():
    whole = block()
    part = blocks.cut(whole, 0, 7)
    whole.zero_()
    assert part.abs().sum() > 0
    assert part.untyped_storage().nbytes() == blocks.n_bytes(part)


def test_layers_go_in_and_come_out():
    layers = [(torch.randn(4, 7, 5), torch.randn(4, 7, 5)) for _ in range(3)]
    whole = blocks.from_layers(layers)
    assert whole.shape == (3, 2, 4, 7, 5)
    for (k, v), (k_out, v_out) in zip(layers, blocks.to_layers(whole), strict=True):
        assert torch.equal(k, k_out)
        assert torch.equal(v, v_out)


def test_bytes_of_a_token_follow_the_formula():
    # 2 x layers x kv_heads x head_dim x bytes: Qwen2.5-32B in 16 bits has 256 KiB.
    assert BlockLayout(64, 8, 128, torch.float16).bytes_per_token == 256 * 1024
    layout = BlockLayout.of(block())
    assert layout.n_bytes(7) == blocks.n_bytes(block()) == 7 * layout.bytes_per_token


def test_checksum_sees_one_changed_element():
    whole = block()
    before = blocks.checksum(whole)
    whole[2, 1, 3, 6, 4] += 1e-3
    assert blocks.checksum(whole) != before


@pytest.mark.parametrize("shape", [(3, 2, 4, 7), (3, 3, 4, 7, 5), (3, 2, 4, 0, 5)])
def test_shapes_that_are_no_block_say_so(shape):
    with pytest.raises(ValueError, match=r"kv: got shape .*, wants \(layers, 2, kv_heads"):
        BlockLayout.of(torch.zeros(shape))


def test_what_is_no_tensor_says_so():
    with pytest.raises(TypeError, match="kv: got list, wants a tensor"):
        BlockLayout.of([1])
    with pytest.raises(ValueError, match="blocks: got none"):
        blocks.join([])
