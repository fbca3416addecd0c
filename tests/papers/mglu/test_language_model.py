"""The small language models: corpus, kinds, training."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from assay.papers.mglu import language_model as lm

RECIPE = lm.Recipe(
    hidden=16, intermediate=24, layers=1, heads=2, context=16, batch=4, steps=12, lr=3e-3
)


def test_corpus_is_prose_and_its_end_is_held_out():
    text = lm.corpus()
    assert 300_000 < len(text) < 2_000_000
    assert len(lm.fingerprint()) == 64
    training, held_out = lm.split(text)
    assert len(held_out) == pytest.approx(len(text) / 10, abs=1)
    assert bytes(torch.cat([training, held_out]).tolist()) == text


@pytest.mark.parametrize(
    ("kind", "weights"),
    [("gelu", 2), ("swiglu", 3), ("shared", 2), ("mglu1", 2), ("mglu4", 2), ("mglu2-fixed", 2)],
)
def test_kinds_share_a_body_and_differ_in_their_blocks(kind, weights):
    model, other = lm.build_model(kind, RECIPE, 5), lm.build_model("swiglu", RECIPE, 5)
    block = model.model.layers[0].mlp
    counted = sum(p.numel() for name, p in block.named_parameters() if name != "mask_logits")
    assert counted == weights * 16 * 24
    for name, parameter in model.named_parameters():
        if "mlp" not in name:
            assert torch.equal(parameter, other.get_parameter(name)), name
        if name.endswith("mask_logits"):
            assert parameter.requires_grad == (not kind.endswith("-fixed"))


def test_unknown_kinds_are_refused():
    for kind in ("relu", "swiglu-fixed", "mglu2-frozen"):
        with pytest.raises(ValueError, match="kind: got"):
            lm.build_model(kind, RECIPE, 0)


def test_training_is_repeatable_lowers_the_loss_and_leaves_curves():
    curves: dict[str, list] = {}

    def record(name, step, value):
        curves.setdefault(name, []).append((step, value))

    first = lm.train("mglu2", RECIPE, 7, record)
    again = lm.train("mglu2", RECIPE, 7, lambda *_: None)
    timeless = {k: v for k, v in first.items() if k != "step_s"}
    assert timeless == {k: v for k, v in again.items() if k != "step_s"}
    assert first["held_out_nll"] < math.log(256)
    assert first["ffn_weights"] == 2 * 16 * 24
    assert curves["held_out_nll"][-1] == (12, first["held_out_nll"])
    assert curves["train_nll"][-1][1] < curves["train_nll"][0][1]
    assert {"mask_density/layer0", "flip_rate/layer0"} <= curves.keys()


def test_equal_seeds_see_equal_batches(monkeypatch):
    seen: dict[str, list[torch.Tensor]] = {}
    loss_of = lm.loss_of
    for kind in ("swiglu", "mglu1"):

        def spy(model, windows, kind=kind):
            if model.training:
                seen.setdefault(kind, []).append(windows.clone())
            return loss_of(model, windows)

        monkeypatch.setattr(lm, "loss_of", spy)
        lm.train(kind, RECIPE, 3, lambda *_: None)
    assert len(seen["swiglu"]) == len(seen["mglu1"]) == RECIPE.steps
    assert all(map(torch.equal, seen["swiglu"], seen["mglu1"]))


def test_evaluation_is_over_the_whole_held_out_part():
    held_out = torch.arange(16 * 5 + 1) % 256
    model = lm.build_model("gelu", RECIPE, 0)
    windows = held_out.unfold(0, 17, 16)
    assert len(windows) == 5
    with torch.no_grad():
        wanted = lm.loss_of(model.eval(), windows).item()
    assert lm.evaluate(model, held_out, 16) == pytest.approx(wanted, rel=1e-6)


def test_learning_rate_warms_up_and_ends_at_a_tenth():
    rates = [lm.learning_rate(step, 200) for step in range(200)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0)
    assert rates.index(max(rates)) in (9, 10)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)
    assert all(a >= b for a, b in pairwise(rates[10:]))


def test_rise_is_the_climb_above_the_minimum_so_far():
    assert lm.rise([3.0, 2.0, 1.0, 4.0, 2.0], window=1) == 3.0
    assert lm.rise([3.0, 2.0, 1.0]) == 0.0
    assert lm.rise([1.0, math.nan]) == lm.DIVERGED
