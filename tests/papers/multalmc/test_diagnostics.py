"""What is said of a run before and after it."""

import pytest
import torch

from assay.papers.multalmc.averaged import AveragedALMC
from assay.papers.multalmc.diagnostics import (
    effective_displacement,
    largest_curvature,
    stability_number,
    two_budget_agreement,
    virial,
)
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.sampler import TooManyDead
from assay.papers.multalmc.srock import stability_limit
from assay.papers.multalmc.targets.mixtures import GaussianMixture


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def gaussian(variance=0.25, mean=3.0):
    return GaussianMixture(torch.full((1, 2), mean), variance)


def test_the_papers_own_number():
    """h / (eps (1 - lambda)) = 10 at lambda = 0.99, eps = .05, h = .005: fine for five stages."""
    sampler = MultALMC(gaussian(), n_steps=10_000, step_size=0.005, eps=0.05)
    found = stability_number(sampler)
    assert found.number == pytest.approx(10, rel=0.02)
    assert found.lam == pytest.approx(0.99, abs=1e-3)
    assert found.limit == stability_limit(5)


def test_on_the_targets_scale_only_its_own_curvature_counts():
    """step_size / eps (curvature + lambda / (1 - lambda)), largest at the end of the path."""
    options = {"n_steps": 10_000, "step_size": 0.005, "eps": 0.05, "fast_scale": "target"}
    found = stability_number(MultALMC(gaussian(), **options), 4.0)
    assert found.number == pytest.approx(0.1 * (4 + 99), rel=0.02)
    assert found.lam == pytest.approx(0.99, abs=1e-3)


def test_a_number_beyond_the_limit_tells_a_run_that_dies():
    for eps, dies in ((0.1, False), (0.01, True)):
        sampler = MultALMC(gaussian(), n_steps=2000, step_size=0.005, eps=eps, generator=seeded())
        found = stability_number(sampler, largest_curvature(gaussian(), torch.zeros(4, 2)))
        assert (found.number > found.limit) == dies
        if dies:
            assert found.lam == 0.01
            with pytest.raises(TooManyDead):
                sampler.sample(50)
        else:
            assert sampler.sample(20).finite_mask.all()


def test_curvature_of_a_gaussian_and_of_a_quartic():
    spread = torch.tensor([0.5, 2.0], dtype=torch.float64)
    assert largest_curvature(
        lambda x: -(x.square() / spread).sum(1) / 2, torch.zeros(3, 2), dim=2
    ) == pytest.approx(2.0, rel=1e-4)
    at = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    assert largest_curvature(lambda x: -x.pow(4).sum(1), at, dim=1) == pytest.approx(48, rel=1e-3)


def test_curvature_of_a_module_in_single_precision():
    module = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    bent = largest_curvature(lambda x: module(x) - 2 * x.square().sum(1), torch.randn(5, 2), dim=2)
    assert bent == pytest.approx(4, rel=0.02)
    assert all(weight.grad is None for weight in module.parameters())


def test_virial_is_one_for_exact_draws_and_the_factor_of_hot_ones():
    two = GaussianMixture(torch.tensor([[-9.0, 0.0], [9.0, 3.0]]), 0.5, [0.3, 0.7])
    draws = two.sample(4000, seeded())
    found = virial(two, torch.cat([draws, torch.full((1, 2), torch.nan)]))
    assert abs(found.value - 1) < 4 * found.error < 0.5
    centres = two.means[two.assign(draws)].float()
    hot = virial(two, centres + 3**0.5 * (draws - centres))
    assert abs(hot.value - 3) < 4 * hot.error < 1.5


def test_virial_tells_a_run_just_beyond_stability_whose_draws_are_finite():
    normal = gaussian(1.0, 0.0)
    for step_size, hot in ((0.05, True), (0.02, False)):
        sampler = MultALMC(normal, n_steps=400, step_size=step_size, generator=seeded())
        result = sampler.sample(300)
        assert result.finite_mask.all()
        found = virial(normal, result.samples)
        assert (found.value > 2) == hot
        assert (stability_number(sampler, 1.0).number > stability_limit(5)) == hot


def test_displacement_tells_a_run_that_cannot_follow():
    """With the exact score, so that only the run time can be at fault."""
    far = gaussian(1.0, 20.0)
    for n_steps, follows in ((200, False), (1500, True)):
        sampler = AveragedALMC(
            far, n_steps=n_steps, step_size=0.05, friction=1.0, generator=seeded()
        )
        samples = sampler.sample(100).samples
        assert (effective_displacement(sampler, far.means) < 1) == follows
        assert ((samples.mean() - 20).abs() < 1) == follows


def test_twice_the_steps_agree_or_not():
    def make(target, step_size):
        seeds = iter((1, 2))
        return lambda n: MultALMC(
            target, n_steps=n, step_size=step_size, generator=seeded(next(seeds))
        )

    near = two_budget_agreement(make(gaussian(1.0, 0.5), 0.02), 400, 100)
    assert near.agrees
    assert near.long.n_grad > 1.8 * near.short.n_grad
    far = two_budget_agreement(make(gaussian(1.0, 20.0), 0.02), 100, 100)
    assert not far.agrees
    assert far.distance > 2 * far.floor


def test_bad_arguments():
    sampler = MultALMC(gaussian(), n_steps=10, step_size=0.01)
    with pytest.raises(TypeError, match=r"^sampler: got int"):
        stability_number(3)
    with pytest.raises(ValueError, match=r"^curvature: got -1"):
        stability_number(sampler, -1.0)
    with pytest.raises(ValueError, match=r"^samples: got \(4, 3\)"):
        effective_displacement(sampler, torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"^samples: got 0 that are finite, wants >= 1"):
        effective_displacement(sampler, torch.full((4, 2), torch.nan))
    with pytest.raises(ValueError, match=r"^width: got 0"):
        largest_curvature(gaussian(), torch.zeros(2, 2), width=0.0)
    with pytest.raises(ValueError, match=r"^x: got \(2,\), wants \(N, 2\)"):
        largest_curvature(gaussian(), torch.zeros(2))
    with pytest.raises(ValueError, match=r"^samples: got 1 that are finite, wants >= 2"):
        virial(gaussian(), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"^num_samples: got 1"):
        two_budget_agreement(lambda n: sampler, 10, 1)
