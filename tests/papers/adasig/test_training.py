"""Private runs: equal budgets, paired draws, and what the diagnostics measure."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from assay.papers.adasig import models
from assay.papers.adasig.arms import ARMS
from assay.papers.adasig.data import load
from assay.papers.adasig.training import (
    Recipe,
    Setting,
    batches,
    build,
    mismatch,
    noise_multiplier,
    privately,
    train,
)

RECIPE = Recipe("mlp", batch=100, epochs=2)


@pytest.fixture(scope="module")
def splits():
    return load("synthetic", 1, None)


def setting(arm):
    return Setting(arm, ARMS[arm].values[0], 0.4)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_learns_and_spends_the_same_budget(arm, splits):
    run = train(setting(arm), RECIPE, splits, seed=0, diagnose=True)
    assert run.test > 40  # a coin of four sides has 25
    assert run.epsilon == pytest.approx(3, abs=0.02)
    assert run.epsilon <= 3
    assert 0 < run.cosine <= 1
    assert run.snr > 0
    moving = ARMS[arm].clipping in ("adasig", "sigmoid")
    assert len(run.slopes) == (14 if moving else 0)
    assert math.isnan(run.agreement) != (ARMS[arm].clipping == "adasig")


def test_equal_seeds_give_equal_runs(splits):
    first, again = (train(setting("adasig"), RECIPE, splits, seed=5) for _ in range(2))
    assert (first.test, first.slopes) == (again.test, again.slopes)
    assert train(setting("adasig"), RECIPE, splits, seed=6).slopes != first.slopes


def test_arms_start_from_equal_weights_and_draw_equal_batches(splits):
    drawn = []
    for arm in ("flat", "adasig", "adaptive"):
        model = build(RECIPE, splits.train, 3)
        _, _, loader, _ = privately(model, setting(arm), RECIPE, splits.train, 3)
        weights = torch.cat([p.flatten() for p in model.parameters()])
        drawn.append((weights, [y for _, y in batches(loader, 2)]))
    for weights, labels in drawn[1:]:
        assert torch.equal(weights, drawn[0][0])
        assert all(torch.equal(a, b) for a, b in zip(labels, drawn[0][1], strict=True))
    sizes = {len(y) for y in drawn[0][1]}
    assert len(sizes) > 1, "Poisson batches differ in size"


def test_a_rate_is_that_of_the_update_whatever_the_unit_of_the_bound(splits):
    """With C and the learning rate scaled against each other, AUTO-S makes the same steps."""
    runs = [
        train(setting("auto_s"), replace(RECIPE, bound=bound), splits, seed=2)
        for bound in (1.0, 0.1)
    ]
    assert runs[0].test == pytest.approx(runs[1].test, abs=1.0)


def test_the_mismatch_is_that_of_the_sums(splits):
    model = build(RECIPE, splits.train, 0)
    private, optimizer, loader, _ = privately(
        model, Setting("flat", 0.5, 0.4), RECIPE, splits.train, 0
    )
    x, y = next(iter(loader))
    F.cross_entropy(private(x), y).backward()
    each = torch.cat([g.flatten(1) for g in optimizer.grad_samples], dim=1)
    optimizer.step()
    cosine, snr = mismatch(optimizer)
    clipped = (each * (0.5 / each.norm(dim=1)).clamp(max=1).unsqueeze(1)).sum(0)
    assert cosine == pytest.approx(
        F.cosine_similarity(clipped, each.sum(0), dim=0).item(), abs=1e-5
    )
    noise = 0.5 * optimizer.noise_multiplier
    assert snr == pytest.approx((clipped.norm() / noise).item(), rel=0.15)


def test_noise_spends_the_budget_by_another_accountant():
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    sigma = noise_multiplier(RECIPE, 7)
    step = PoissonSampledDpEvent(1 / 7, GaussianDpEvent(sigma))
    found = PLDAccountant().compose(SelfComposedDpEvent(step, 14)).get_epsilon(1e-5)
    assert found == pytest.approx(3, abs=0.03)


def test_models_have_the_sizes_of_their_sources():
    assert sum(p.numel() for p in models.tanh_cnn().parameters()) == 26_010
    images = torch.zeros(2, 1, 28, 28)
    assert models.tanh_cnn()(images).shape == (2, 10)
    assert models.mlp(784, 10)(images).shape == (2, 10)


def test_an_unknown_model_is_named(splits):
    with pytest.raises(ValueError, match="'vit'"):
        build(replace(RECIPE, model="vit"), splits.train, 0)
