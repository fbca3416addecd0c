"""Baselines: right on a Gaussian, right about what they evaluated, as good as they can be."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from assay.papers.multalmc.baselines import (
    jax_log_prob,
    nuts,
    parallel_tempering,
    rdmc,
    tempered_smc,
    ula,
    ulmc,
)
from assay.papers.multalmc.metrics import mode_weight_tv
from assay.papers.multalmc.targets import (
    DoubleWell,
    Funnel,
    GaussianMixture,
    LogisticRegression,
    PhiFour,
    Rings,
    eight_gaussians,
    ten_students,
)

IN_TORCH = {
    "ula": partial(ula, n_evaluations=1000, step_size=0.02),
    "ulmc": partial(ulmc, n_evaluations=400),
    "mala tempering": partial(parallel_tempering, n_evaluations=1500, leapfrog_steps=1),
    "few chains": partial(parallel_tempering, n_evaluations=300, num_chains=50, n_temperatures=5),
    "tempering": partial(parallel_tempering, n_evaluations=3000),
    "rdmc": partial(rdmc, n_evaluations=2000, n_steps=30, warm_steps=5, inner_chains=3),
}
GAUSSIAN = GaussianMixture(torch.tensor([[3.0, -1.0]]), 0.25)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_gaussian(x, independent, bias=0.0):
    """Mean and variance of `GAUSSIAN`, within what so many independent draws scatter."""
    assert (x.mean(0) - torch.tensor([3.0, -1.0])).abs().max() < 4.5 * 0.5 / math.sqrt(independent)
    assert (x.var(0) / 0.25 - 1).abs().max() < 4.5 * math.sqrt(2 / independent) + bias
    assert abs(float(torch.corrcoef(x.T)[0, 1])) < 4.5 / math.sqrt(independent)


@pytest.mark.parametrize("name", IN_TORCH)
def test_mean_and_variance_of_a_gaussian(name):
    n = 1000
    result = IN_TORCH[name](GAUSSIAN, n, generator=seeded())
    assert result.samples.shape == (n, 2)
    assert result.samples.dtype == torch.float32
    assert result.finite_mask.all()
    assert result.seconds > 0
    # Draws of one chain hang together; ULA's variance is too large by h / (2 v), 4 % here.
    assert_gaussian(result.samples, 250 if "few" in name else n, 0.04)


class Counting:
    """A target that counts the points it is asked for, in torch and in jax."""

    dim = 2

    def __init__(self):
        self.scores = self.log_probs = self.in_jax = 0

    def log_prob(self, x):
        self.log_probs += len(x)
        return GAUSSIAN.log_prob(x)

    def score(self, x):
        self.scores += len(x)
        return GAUSSIAN.score(x)

    def jax_log_prob(self, x):
        import jax

        jax.debug.callback(self.count, x[0])
        return jax_log_prob(GAUSSIAN)(x)

    def count(self, _):
        self.in_jax += 1


@pytest.mark.parametrize("name", IN_TORCH)
def test_counts_are_those_of_the_target(name):
    target, n = Counting(), 100
    result = IN_TORCH[name](target, n, generator=seeded())
    checks, looks = 56, 32  # scores and log-densities that look at the target before the run
    assert (target.scores - checks) / n == pytest.approx(result.n_grad, abs=1)
    if name == "rdmc":  # each gradient here is asked for together with its log-density
        assert target.log_probs - looks == n * (result.n_grad + result.n_logp)
    else:
        assert result.n_logp == 0
        assert target.log_probs - looks <= n * result.n_grad
    budget = IN_TORCH[name].keywords["n_evaluations"]
    assert 0.8 * budget < result.n_grad + result.n_logp <= budget


@pytest.fixture(scope="module")
def jax():
    """jax, made to compile faster what runs only once."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("blackjax")
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield jax
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.slow
def test_nuts_counts_its_leapfrog_steps_and_draws_a_gaussian(jax):
    target = Counting()
    result = nuts(target, 500, n_evaluations=12, num_chains=1, generator=seeded())
    jax.effects_barrier()
    assert target.in_jax == pytest.approx(500 * result.n_grad, abs=500)
    assert 11 <= result.n_grad <= 12
    assert_gaussian(result.samples, 250)
    trace = result.trace
    spent = trace["transitions"] * trace["evaluations_per_transition"] + trace["warmup_evaluations"]
    assert float(spent) == pytest.approx(target.in_jax, abs=5)
    assert 0.3 < float(trace["step_sizes"]) < 1.5  # times 1 / 0.5, the root of the curvature


@pytest.mark.slow
def test_smc_counts_all_its_evaluations_and_draws_a_gaussian(jax):
    target, n = Counting(), 64
    result = tempered_smc(target, n, n_evaluations=400, generator=seeded())
    jax.effects_barrier()
    assert target.in_jax == n * (result.n_grad + result.n_logp)
    assert 280 < result.n_grad + result.n_logp <= 400
    assert result.n_logp > 0
    temperatures = result.trace["temperatures"]
    assert (temperatures.diff() >= 0).all()
    assert temperatures[-2:].tolist() == [1, 1]  # the last moves are at the target itself
    assert_gaussian(result.samples, n / 2)  # some particles are copies that have moved apart


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("tempering", partial(parallel_tempering, n_evaluations=6000)),
        ("rdmc", partial(rdmc, n_evaluations=6000)),
    ],
)
def test_methods_for_many_modes_find_all_eight(name, sampler):
    """Each is to be at its best here, as what it is compared with is compared on this target."""
    target = eight_gaussians()
    x = sampler(target, 500, generator=seeded(1)).samples
    # five times the mean of the total variation of 500 exact draws
    assert mode_weight_tv(x, target) < 5 * 0.8 * math.sqrt(8 / (2 * math.pi * 500))


def test_unadjusted_dynamics_stays_where_it_came_down():
    target = eight_gaussians()
    x = ula(target, 300, n_evaluations=1000, generator=seeded()).samples
    assert mode_weight_tv(x, target) > 0.5


def test_tempering_adapts_its_ladder_and_its_steps():
    trace = parallel_tempering(eight_gaussians(), 300, n_evaluations=8000, generator=seeded()).trace
    rejections, betas = trace["swap_rejections"], trace["betas"]
    assert float(rejections.max() - rejections.min()) < 0.15
    assert betas[0] == 1
    assert betas[-1] == 0
    assert (betas.diff() < 0).all()
    assert ((trace["acceptance"] - 0.8).abs() < 0.1).all()
    assert trace["step_sizes"][0] < trace["step_sizes"][-1]


@pytest.mark.parametrize("name", IN_TORCH)
def test_equal_generators_give_equal_draws(name):
    first, again, other = (
        IN_TORCH[name](GAUSSIAN, 100, generator=seeded(seed)).samples for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


TWINS = [
    GaussianMixture(torch.tensor([[0.0, 1.0], [2.0, -1.0]]), torch.tensor([0.5, 2.0]), [1, 2]),
    ten_students(3),
    Rings(),
    Funnel(4),
    DoubleWell(6, 3, 2.0),
    PhiFour(5, 0.1, beta=5.0),
    LogisticRegression([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]], [0, 1, 1], prior_scale=2.0),
]


@pytest.fixture(scope="module")
def twins(jax):
    """Points, and their log-densities and scores in jax, of all targets in one compilation."""
    points = [
        1.5 * torch.randn(20, target.dim, generator=seeded(), dtype=torch.float64)
        for target in TWINS
    ]

    @jax.jit
    def evaluate(points):
        functions = [jax.vmap(jax.value_and_grad(jax_log_prob(target))) for target in TWINS]
        return [function(x) for function, x in zip(functions, points, strict=True)]

    with jax.enable_x64(True):
        return list(zip(points, evaluate([x.numpy() for x in points]), strict=True))


@pytest.mark.parametrize("index", range(len(TWINS)), ids=[type(t).__name__ for t in TWINS])
def test_densities_in_jax_are_those_in_torch(twins, index):
    target, (x, (values, scores)) = TWINS[index], twins[index]
    np.testing.assert_allclose(values, target.log_prob(x).numpy(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(scores, target.score(x).numpy(), rtol=1e-9, atol=1e-9)


def test_refuses_bad_arguments():
    with pytest.raises(ValueError, match="n_evaluations: got 0"):
        ula(GAUSSIAN, 10, n_evaluations=0)
    with pytest.raises(ValueError, match="step_size: got -1"):
        ulmc(GAUSSIAN, 10, n_evaluations=10, step_size=-1)
    with pytest.raises(ValueError, match="num_chains: got 11, wants <= num_samples"):
        parallel_tempering(GAUSSIAN, 10, n_evaluations=1000, num_chains=11)
    with pytest.raises(ValueError, match="n_evaluations: got 100, wants >= 6720"):
        rdmc(
            GAUSSIAN, 10, n_evaluations=100, n_steps=140, warm_steps=0, inner_chains=4, proposals=9
        )
    with pytest.raises(TypeError, match="generator: got int"):
        ula(GAUSSIAN, 10, n_evaluations=10, generator=3)
    with pytest.raises(ValueError, match="n_evaluations: got 30") as refusal:
        parallel_tempering(GAUSSIAN, 10, n_evaluations=30)
    least = int(str(refusal.value).split(">= ")[1].split()[0])
    assert parallel_tempering(GAUSSIAN, 10, n_evaluations=least).finite_mask.all()


def test_refuses_what_jax_cannot_do():
    pytest.importorskip("blackjax")
    plain = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    with pytest.raises(TypeError, match="target: got MultivariateNormal, wants one of"):
        nuts(plain, 10, n_evaluations=100)
    with pytest.raises(ValueError, match="n_evaluations: got 10, wants >= "):
        tempered_smc(GAUSSIAN, 10, n_evaluations=10, generator=seeded())
