"""Both forms of the score identity against exact scores; the fast process leaves rho as it is."""

import math

import pytest
import torch

from assay.papers.multalmc.base import Normal, StudentT
from assay.papers.multalmc.score_identity import (
    fast_score,
    form_a,
    form_b,
    scaled_ito,
    scaled_langevin,
)
from assay.papers.multalmc.targets.mixtures import GaussianMixture

LAMBDAS = [0.01, 0.3, 0.6, 0.99]


@pytest.mark.parametrize("lam", LAMBDAS)
def test_both_forms_equal_the_exact_score_of_a_gaussian_target(lam):
    """rho is Gaussian and both forms are linear in Y, so the mean is the form at E[Y]."""
    mean, variance = 3.0, 0.25
    x = torch.linspace(-4, 4, 9, dtype=torch.float64)[:, None]
    precision = 1 / (lam * variance) + 1 / (1 - lam)
    y = (math.sqrt(lam) * mean / (lam * variance) + x / (1 - lam)) / precision
    exact = -(x - math.sqrt(lam) * mean) / (lam * variance + 1 - lam)

    def score(x):
        return (mean - x) / variance

    torch.testing.assert_close(form_a(Normal(), lam, x, y), exact, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(form_b(score, lam, y), exact, atol=1e-10, rtol=1e-10)
    # and rho is what the fast process targets: its score is 0 at the mean, with slope -precision
    assert fast_score(score, Normal(), lam, x, y).abs().max() < 1e-10
    torch.testing.assert_close(
        fast_score(score, Normal(), lam, x, y + 0.1), torch.full_like(x, -0.1 * precision)
    )


def expectation(values, log_rho, grid):
    weights = torch.softmax(log_rho, 0)
    return (weights[:, None] * values).sum(0)


@pytest.mark.parametrize("lam", [0.1, 0.6, 0.9])
@pytest.mark.parametrize("base", [Normal(), StudentT(3.0)])
def test_both_forms_equal_the_exact_score_of_a_mixture(lam, base):
    """In one dimension by quadrature; the path's density by its own convolution integral."""
    target = GaussianMixture(torch.tensor([[-2.0], [3.0]]), 0.5, [0.3, 0.7])
    grid = torch.linspace(-40, 40, 200_001, dtype=torch.float64)[:, None]
    for x in (-1.5, 0.2, 2.0):
        at = torch.tensor([[x]], dtype=torch.float64)
        log_rho = target.log_prob(grid / math.sqrt(lam)) + base.log_prob(
            (at - grid) / math.sqrt(1 - lam)
        )
        a = expectation(form_a(base, lam, at, grid), log_rho, grid)
        b = expectation(form_b(target.score, lam, grid), log_rho, grid)
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-7)
        if isinstance(base, Normal):
            exact = target.marginal(lam).score(at)[0]
        else:
            shift = torch.tensor([[1e-4]], dtype=torch.float64)
            up, down = (
                torch.logsumexp(
                    target.log_prob(grid / math.sqrt(lam))
                    + base.log_prob((at + s - grid) / math.sqrt(1 - lam)),
                    0,
                )
                for s in (shift, -shift)
            )
            exact = ((up - down) / 2e-4)[None]
        torch.testing.assert_close(a, exact, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dim", [1, 2])
def test_the_fast_processes_leave_rho_invariant(dim):
    """E_rho[L phi] = 0 for the generator L = drift . grad + w Laplace, by quadrature."""
    lam, base = 0.4, StudentT(2.5)
    target = GaussianMixture(torch.tensor([[-1.0] * dim, [1.5] * dim]), 0.4)
    nodes = torch.linspace(-9, 9, 20_001 if dim == 1 else 601, dtype=torch.float64)
    z = torch.cartesian_prod(*[nodes] * dim).reshape(-1, dim)
    x = torch.full((1, dim), 0.7, dtype=torch.float64)
    log_rho = target.log_prob(z) + base.log_prob((x - math.sqrt(lam) * z) / math.sqrt(1 - lam))

    def generator_means(drift, diffusion):
        half = diffusion**2 / 2
        for value, slope, curve in (
            (z, torch.ones_like(z), torch.zeros_like(z)),
            (z, 2 * z, 2 * torch.ones_like(z)),
            (z, z.cos(), -z.sin()),
        ):
            yield expectation(drift(value) * slope + half * curve, log_rho, z).abs().max()

    ito = scaled_ito(target.score, base, lam, x, z)
    for value in generator_means(*ito):
        assert value < 1e-6
    for value in generator_means(*scaled_langevin(target.score, base, lam, x)):
        assert value < 1e-6
    # the test can fail: without the weight's gradient rho is not invariant
    drift, diffusion = ito
    wrong = (lambda z: drift(z) + 2 * lam / base.df * (x / math.sqrt(lam) - z)), diffusion
    assert max(generator_means(*wrong)) > 1e-2


def test_the_scaled_processes_are_those_in_y():
    lam, base = 0.35, StudentT(2.0)
    target = GaussianMixture(torch.tensor([[-1.0, 2.0], [1.5, 0.0]]), 0.4)
    x, y = torch.randn(2, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    root = math.sqrt(lam)
    f = fast_score(target.score, base, lam, x, y)
    drift, diffusion = scaled_langevin(target.score, base, lam, x)
    torch.testing.assert_close(drift(y / root) / lam * root, f)
    assert diffusion / root * root == pytest.approx(math.sqrt(2))
    weight = 1 + (y - x).square().sum(1, keepdim=True) / base.df
    drift, diffusion = scaled_ito(target.score, base, lam, x, y / root)
    torch.testing.assert_close(drift(y / root) / lam * root, weight * f + 2 * (y - x) / base.df)
    torch.testing.assert_close(diffusion, (2 * weight).sqrt())
