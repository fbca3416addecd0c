"""The packed block: same outputs, checked loading, plain tensors in its state."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.papers.mglu import MGLU, PackedMGLU, SwiMGLU


def block(n=3, h=21, d=10, **options):
    torch.manual_seed(0)
    return MGLU(h, d, n, mask_init_std=1.0, **options)


@pytest.mark.parametrize("layout", ["planes", "bytes"])
@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"bias": True}, {"activation": "gelu"}])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_packing_keeps_the_outputs(layout, options, backend):
    trained = block(**options)
    packed = trained.pack(layout=layout)
    packed.backend = backend
    for shape in ((21,), (1, 21), (2, 5, 21), (20, 21)):
        x = torch.randn(shape)
        torch.testing.assert_close(packed(x), trained(x), rtol=1e-5, atol=1e-5)


def test_half_weights_and_wider_input():
    trained = block(h=64, d=32)
    packed = trained.pack(torch.bfloat16)
    assert packed.weight.dtype == packed.down_proj.weight.dtype == torch.bfloat16
    out = packed(torch.ones(1, 64))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, trained(torch.ones(1, 64)), rtol=0.1, atol=0.05)


def test_no_input_gives_no_output():
    assert block().pack()(torch.zeros(0, 21)).shape == (0, 21)


@pytest.mark.parametrize("layout", ["planes", "bytes"])
def test_state_goes_through_safetensors(tmp_path, layout):
    packed = block().pack(layout=layout)
    assert list(packed.state_dict()) == [
        "weight",
        "mask_bits",
        "n_masks",
        "layout",
        "down_proj.weight",
    ]
    save_file(packed.state_dict(), tmp_path / "block.safetensors")
    other = PackedMGLU(21, 10, 3, layout=layout)
    other.load_state_dict(load_file(tmp_path / "block.safetensors"))
    x = torch.randn(4, 21)
    assert torch.equal(other(x), packed(x))


def test_loading_checks_masks_layout_and_size():
    state = block().pack().state_dict()
    with pytest.raises(RuntimeError, match="n_masks: got 3, wants 2"):
        PackedMGLU(21, 10, 2).load_state_dict(state)
    with pytest.raises(RuntimeError, match="layout: got planes, wants bytes"):
        PackedMGLU(21, 10, 3, layout="bytes").load_state_dict(state)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        PackedMGLU(22, 10, 3).load_state_dict(state)
    del state["n_masks"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"n_masks"'):
        PackedMGLU(21, 10, 3).load_state_dict(state)


def test_it_is_for_inference_only():
    packed = block().pack()
    with pytest.raises(RuntimeError, match="packed weights are inference only; use MGLU"):
        packed.train()(torch.zeros(1, 21))
    packed.eval()
    x = torch.zeros(1, 21, requires_grad=True)
    with pytest.raises(RuntimeError, match="inference only"):
        packed(x)
    with torch.no_grad():
        assert packed(x).shape == (1, 21)


def test_one_node_for_the_compiler():
    packed = block().pack()
    x = torch.randn(1, 21)
    compiled = torch.compile(packed, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), packed(x))
    exported = torch.export.export(packed, (x,))
    names = [str(node.target) for node in exported.graph.nodes]
    assert sum("assay_mglu.mglu_hidden" in name for name in names) == 1


def test_weight_bytes_are_those_of_the_buffers():
    assert block(h=64, d=8, n=4).pack(torch.bfloat16).weight_bytes() == 8 * 64 * (16 + 4) // 8
    in_bytes = block(h=64, d=8, n=4).pack(torch.bfloat16, layout="bytes")
    assert in_bytes.weight_bytes() == 8 * 64 * (16 + 8) // 8


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="n_masks: got 9, wants 1 to 8 for the layout 'bytes'"):
        block(n=9).pack(layout="bytes")
    with pytest.raises(ValueError, match="n_masks: got 17, wants 1 to 16"):
        SwiMGLU(4, 4, 17).pack()
    with pytest.raises(TypeError, match="mglu: got Linear, wants an MGLU; a gated block without"):
        PackedMGLU.from_mglu(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"dtype: got torch\.int8"):
        PackedMGLU(4, 4, dtype=torch.int8)
    with pytest.raises(ValueError, match="backend: got 'gpu'"):
        PackedMGLU(4, 4, backend="gpu")
    with pytest.raises(ValueError, match=r"x: got shape \(1, 5\), wants \(..., 4\)"):
        PackedMGLU(4, 4)(torch.zeros(1, 5))


def test_a_state_with_odd_numbers_of_masks_is_named():
    packed = MGLU(8, 6, 2).pack()
    state = {**packed.state_dict(), "n_masks": torch.tensor([2, 2])}
    with pytest.raises(RuntimeError, match=r"n_masks: got shape \(2,\), wants one number"):
        packed.load_state_dict(state)
