"""The audit finds what is lost, and no more."""

from __future__ import annotations

import math

import pytest
import torch

from assay.papers.adasig.data import load
from assay.papers.adasig.training import Recipe, Setting

pytest.importorskip("jax_privacy")

from assay.papers.adasig.audit import (
    CANARY_NORM,
    CanaryClassifier,
    audit,
    poisson_ratio,
    with_canaries,
)
from assay.papers.adasig.privacy import SENSITIVITY

RECIPE = Recipe("mlp", batch=100, epochs=2, delta=1e-6)


@pytest.fixture(scope="module")
def examples():
    return load("synthetic", 0, None).train


@pytest.mark.parametrize("arm", ["flat", "adasig", "joint"])
def test_an_honest_run_stays_under_its_claim(arm, examples):
    found = audit(Setting(arm, 1.0, 0.4), RECIPE, examples, 0, canaries=1000)
    assert found["epsilon"] == pytest.approx(3, abs=0.02)
    assert found["epsilon_lower"] <= found["epsilon_lower_fdp"] < found["epsilon"]
    assert 0.5 < found["auroc"] < 0.8  # there is something to see


def test_a_run_with_a_tenth_of_its_noise_is_caught(examples):
    found = audit(Setting("adasig", 1.0, 0.4), RECIPE, examples, 0, 1000, noise_factor=0.1)
    assert found["epsilon"] == pytest.approx(3, abs=0.02)
    assert found["epsilon_lower"] > found["epsilon"]


def test_without_inclusion_there_is_nothing_to_find(examples):
    """Scores of two sets of canaries that are both left out."""
    from jax_privacy.auditing import CanaryScoreAuditor

    scores = torch.randn(2000, generator=torch.Generator().manual_seed(0)).numpy()
    found = CanaryScoreAuditor(scores[:1000], scores[1000:])
    assert found.epsilon_one_run(0.05, 1e-6) == 0


def test_a_canarys_gradient_is_a_coordinate_of_its_own(examples):
    included = torch.tensor([True, False, True])
    data = with_canaries(examples, 3, included)
    assert len(data) == len(examples) + 2
    model = CanaryClassifier(examples.x.shape[1], 4, 3)
    logits, losses = model(data.x)
    (torch.nn.functional.cross_entropy(logits[-1:], data.y[-1:]) + losses[-1]).backward()
    assert torch.equal(model.canary.weight.grad, torch.tensor([[0.0, 0.0, CANARY_NORM]]))
    assert torch.equal(model.head.weight.grad, torch.zeros_like(model.head.weight))
    assert torch.equal(losses[:-2], torch.zeros(len(examples)))


def test_canaries_are_the_worst_case_of_joint_accounting():
    u = CANARY_NORM / 2
    shift = math.tanh(u) ** 2 + (u / math.cosh(u) ** 2 / SENSITIVITY / 1.4801865) ** 2
    assert shift == pytest.approx(1, abs=1e-4)


def test_a_ratio_under_sampling_is_that_of_the_mixture():
    ratio = torch.tensor([0.0, math.log(3), -100.0], dtype=torch.float64)
    found = poisson_ratio(ratio, 0.25).exp()
    assert found.tolist() == pytest.approx([1, 1.5, 0.75])
