"""Base distributions: scores, draws and the pull of the fast drift."""

import pytest
import torch

from assay.papers.multalmc.base import Normal, StudentT

BASES = [Normal(), StudentT(3.0)]


def points(n=6, d=4):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("base", BASES)
def test_score_is_the_gradient_of_the_log_density(base):
    x = points().requires_grad_()
    (gradient,) = torch.autograd.grad(base.log_prob(x).sum(), x)
    torch.testing.assert_close(base.score(x.detach()), gradient)


@pytest.mark.parametrize("base", BASES)
def test_pull_adds_the_scaled_score(base):
    total, gap = points(), points(6, 4) + 1
    wanted = total - 0.3 * 1.7 * base.score(1.7 * gap)
    torch.testing.assert_close(base.pull(total.clone(), gap, 1.7, 0.3), wanted)


def test_draws_have_the_distribution_they_claim():
    from scipy import stats

    generator = torch.Generator().manual_seed(0)
    normal = Normal().sample(4000, 3, generator, torch.float64)
    heavy = StudentT(2.0).sample(4000, 3, generator, torch.float64)
    assert stats.kstest(normal[:, 1].numpy(), "norm").pvalue > 0.01
    assert stats.kstest(heavy[:, 1].numpy(), stats.t(2).cdf).pvalue > 0.01
    # of one t vector, not of independent t components: |x|^2 / d is F(d, df)
    radius = (heavy.square().sum(1) / 3).numpy()
    assert stats.kstest(radius, stats.f(3, 2).cdf).pvalue > 0.01


def test_draws_come_from_the_generator():
    for base in BASES:
        a, b = (
            base.sample(5, 2, torch.Generator().manual_seed(7), torch.float32) for _ in range(2)
        )
        assert torch.equal(a, b)


@pytest.mark.parametrize("df", [0.0, -1.0, float("nan")])
def test_bad_degrees_of_freedom(df):
    with pytest.raises(ValueError, match=r"^df: got"):
        StudentT(df)
