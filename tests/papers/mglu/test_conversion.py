"""MGLU blocks in Hugging Face models, and what optimisers are given."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from assay.papers.mglu import (
    MGLU,
    LlamaMGLUMLP,
    PackedMGLU,
    SwiMGLU,
    pack_model,
    param_groups,
    replace_mlp,
    swimglu_mlp,
)


def config(**options):
    return LlamaConfig(
        **{
            "vocab_size": 32,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            **options,
        }
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(config())


def test_every_block_is_replaced_and_the_rest_is_kept(model):
    attention = model.model.layers[0].self_attn.q_proj.weight.clone()
    assert replace_mlp(model, n_masks=2) is model
    for layer in model.model.layers:
        assert isinstance(layer.mlp, LlamaMGLUMLP)
        assert layer.mlp.n_masks == 2
        assert layer.mlp.weight.shape == (24, 16)
        assert layer.mlp.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, attention)
    tokens = torch.arange(8)[None]
    model(input_ids=tokens, labels=tokens).loss.backward()
    assert model.model.layers[1].mlp.mask_logits.grad.abs().sum() > 0


def test_a_trained_model_packed_gives_the_same_logits_and_generates(model):
    replace_mlp(model, n_masks=3).eval()
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        before = model(input_ids=tokens).logits
        after = pack_model(model)(input_ids=tokens).logits
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert all(isinstance(layer.mlp, PackedMGLU) for layer in model.model.layers)
    assert model.generate(tokens, max_new_tokens=3, do_sample=False).shape == (1, 11)


def test_dtype_and_mode_follow_the_model(model):
    replace_mlp(model.to(torch.bfloat16).eval(), 1)
    block = model.model.layers[0].mlp
    assert (block.weight.dtype, block.mask_logits.dtype) == (torch.bfloat16, torch.float32)
    assert not block.training


def test_a_checkpoint_is_refused_unless_its_weights_may_be_lost(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="model: was loaded from a checkpoint; a trained gated"):
        replace_mlp(loaded)
    assert isinstance(replace_mlp(loaded, 1, reinit=True).model.layers[0].mlp, MGLU)


def test_a_model_without_such_blocks_is_refused(model):
    with pytest.raises(ValueError, match="model: Linear has no block with gate_proj"):
        replace_mlp(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="model: LlamaForCausalLM holds no MGLU block"):
        pack_model(model)


def test_blocks_from_a_configuration():
    block = LlamaMGLUMLP(config(hidden_act="gelu", mlp_bias=True), n_masks=2)
    assert (block.hidden_size, block.intermediate_size, block.activation) == (16, 24, "gelu")
    assert block.down_proj.bias is not None
    assert swimglu_mlp(config()).activation == "silu"
    with pytest.raises(ValueError, match=r"config\.hidden_act: got 'tanh', wants one of silu"):
        LlamaMGLUMLP(config(hidden_act="tanh"))
    with pytest.raises(ValueError, match=r"config\.hidden_act: got 'gelu', wants 'silu'"):
        swimglu_mlp(config(hidden_act="gelu"))


def test_parameter_groups_hold_every_parameter_once(model):
    replace_mlp(model, 2)
    groups = {g["name"]: g for g in param_groups(model, 0.1, mask_weight_decay=0.0)}
    assert {name: g["weight_decay"] for name, g in groups.items()} == {
        "weights": 0.1,
        "masks": 0.0,
        "no_decay": 0.0,
    }
    listed = [id(p) for g in groups.values() for p in g["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    assert [p.ndim for p in groups["masks"]["params"]] == [3, 3]
    torch.optim.AdamW(groups.values(), lr=1e-3)


def test_parameter_groups_default_and_frozen_masks():
    block = SwiMGLU(4, 4)
    assert {g["name"]: g["weight_decay"] for g in param_groups(block)} == {
        "weights": 0.1,
        "masks": 0.1,
    }
    block.mask_logits.requires_grad_(False)
    assert [g["name"] for g in param_groups(block)] == ["weights"]
    with pytest.raises(ValueError, match="mask_weight_decay: got -1"):
        param_groups(block, mask_weight_decay=-1)
