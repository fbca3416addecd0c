"""Trade-offs on frozen gradients, and the bounds of one step."""

from __future__ import annotations

import pytest
import torch

from assay.papers.adasig.bounds import measured_bounds
from assay.papers.adasig.data import load
from assay.papers.adasig.frozen import (
    PARAMETERS,
    RULES,
    STAGES,
    Curve,
    along_training,
    common_norms,
    per_sample_gradients,
    trace,
)
from assay.papers.adasig.training import Recipe, Setting, build

RECIPE = Recipe("mlp", batch=100, epochs=2)


@pytest.fixture(scope="module")
def gradients():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randn(300, 1, generator=generator).exp()
    return lengths * (torch.randn(300, 40, generator=generator) + 0.3)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_goes_from_equal_weights_to_normalisation(rule, gradients):
    curve = trace(gradients, rule, PARAMETERS)
    x = gradients.norm(dim=1, keepdim=True)
    normalised = (gradients / x).sum(0)
    assert curve.norms[-1] == pytest.approx(normalised.norm().item() / 300, rel=1e-3)
    if rule != "psac":  # its weight is never below 1 / (x + 1)
        assert curve.cosines[0] == pytest.approx(1, abs=1e-3)
        assert curve.norms[0] < 0.01


@pytest.mark.parametrize("rule", RULES)
def test_no_gradient_keeps_more_than_the_sensitivity(rule):
    x = torch.logspace(-6, 6, 200, dtype=torch.float64)
    for parameter in PARAMETERS[::10]:
        assert (RULES[rule](x, parameter) * x <= 1 + 1e-9).all()


def test_the_best_cosine_at_a_norm_is_read_off_the_curve():
    curve = Curve(cosines=(1.0, 0.8, 0.6), norms=(0.0, 0.2, 0.4))
    assert curve.best_cosine(0.3) == pytest.approx(0.7)
    assert curve.best_cosine(0.2) == pytest.approx(0.8)
    falling = Curve(cosines=(1.0, 0.5, 0.9), norms=(0.1, 0.4, 0.2))
    assert falling.best_cosine(0.15) == pytest.approx(0.9166, abs=1e-3)
    with pytest.raises(ValueError, match="at most 0"):
        curve.best_cosine(0.5)


def test_norms_that_all_rules_reach(gradients):
    curves = {rule: trace(gradients, rule, PARAMETERS) for rule in RULES}
    norms = common_norms(curves)
    assert norms == sorted(norms)
    for curve in curves.values():
        assert min(curve.norms) < norms[0]
        assert norms[-1] < max(curve.norms)


def test_rules_that_share_no_norm_are_not_compared():
    apart = {"a": Curve((1.0, 0.9), (0.0, 0.1)), "b": Curve((0.9, 0.8), (0.2, 0.3))}
    assert common_norms(apart) == []


def test_per_sample_gradients_are_those_of_each_example():
    examples = load("synthetic", 0, None).test.part(torch.arange(5))
    model = build(RECIPE, examples, 0)
    found = per_sample_gradients(model, examples)
    for i in range(5):
        model.zero_grad()
        x, y = examples[i : i + 1]
        torch.nn.functional.cross_entropy(model(x), y).backward()
        wanted = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert torch.allclose(found[i], wanted, atol=1e-6)


def test_gradients_are_taken_at_every_stage():
    splits = load("synthetic", 0, None)
    found = list(along_training(Setting("flat", 1.0, 0.4), RECIPE, splits, 0, n=50))
    assert len(found) == len(STAGES)
    assert all(g.shape == found[0].shape for g in found)
    assert not torch.equal(found[0], found[1])


def test_the_bounds_of_a_step():
    found = measured_bounds(200_000)
    assert found["slope_sensitivity"] == pytest.approx(0.4477432, abs=1e-6)
    assert found["paper_over_gaussian"] == pytest.approx(1, abs=1e-3)
    assert 0.9999 < found["joint_over_gaussian"] <= 1


def test_less_noise_than_joint_accounting_asks_for_would_cost_more(monkeypatch):
    from assay.papers.adasig import bounds

    honest = bounds.split_noise
    monkeypatch.setattr(
        bounds,
        "split_noise",
        lambda sigma, ratio=1.01: (1.0, 1.45) if ratio == "joint" else honest(sigma, ratio),
    )
    assert measured_bounds(100_000)["joint_over_gaussian"] > 1.001
