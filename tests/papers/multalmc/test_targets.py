"""Scores against autograd, exact draws against densities, phi^4 against sums over all fields."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from assay.papers.multalmc import targets
from assay.papers.multalmc.targets import (
    DoubleWell,
    Funnel,
    GaussianMixture,
    LogisticRegression,
    PhiFour,
    Rings,
    StudentMixture,
    eight_gaussians,
    forty_gaussians,
    ten_students,
)


def unequal():
    means = torch.tensor([[0.0, 1.0], [2.0, -1.0], [5.0, 5.0]])
    return GaussianMixture(means, torch.tensor([0.5, 2.0, 1.0]), [1, 2, 3])


SAMPLED = {
    "one Gaussian": lambda: GaussianMixture(torch.tensor([[3.0, -1.0]]), 0.25),
    "unequal Gaussians": unequal,
    "eight Gaussians": eight_gaussians,
    "forty Gaussians": lambda: forty_gaussians(10),
    "ten Students": lambda: ten_students(3),
    "Students with weights": lambda: StudentMixture(torch.tensor([[0.0], [4.0]]), 5.0, [1, 3]),
    "rings": Rings,
    "funnel": lambda: Funnel(4, 3.0),
    "double wells": lambda: DoubleWell(4, 2, 2.0),
    "phi^4": lambda: PhiFour(6, 0.1, beta=5.0, grid_points=100),
}


def regression():
    random = np.random.default_rng(0)
    return LogisticRegression(random.normal(size=(20, 3)), random.integers(0, 2, 20))


@pytest.mark.parametrize("make", [*SAMPLED.values(), regression], ids=[*SAMPLED, "logistic"])
def test_scores_are_those_of_autograd(make):
    target = make()
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(50, target.dim, generator=generator, dtype=torch.float64)
    x.requires_grad_()
    log_prob = target.log_prob(x)
    assert log_prob.shape == (50,)
    expected = torch.autograd.grad(log_prob.sum(), x)[0]
    torch.testing.assert_close(target.score(x.detach()), expected, rtol=1e-9, atol=1e-9)
    single = x.detach().float()
    assert target.score(single).dtype == target.log_prob(single).dtype == torch.float32
    torch.testing.assert_close(target.score(single).double(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("make", SAMPLED.values(), ids=SAMPLED)
def test_exact_draws_meet_steins_identity(make):
    """Under the density ``E score = 0`` and ``E x_i score_i = -1``, coordinate by coordinate."""
    target, n = make(), 20000
    x = target.sample(n, torch.Generator().manual_seed(1), torch.float64)
    assert x.shape == (n, target.dim)
    score = target.score(x)
    for values, expected in ((score, 0.0), (x * score, -1.0)):
        z = (values.mean(0) - expected) / (values.std(0) / math.sqrt(n))
        assert z.abs().max() < 4.5
    again = target.sample(n, torch.Generator().manual_seed(1), torch.float64)
    assert torch.equal(x, again)


@pytest.mark.parametrize(
    ("target", "low", "high"),
    [
        (unequal(), -10, 15),
        (Rings(), -6, 6),
        (eight_gaussians(), -6, 26),
        (Funnel(2, 1.0), -60, 60),
    ],
    ids=["mixture", "rings", "eight Gaussians", "funnel"],
)
def test_densities_that_are_said_to_be_normalised_are(target, low, high):
    axis = torch.linspace(low, high, 800, dtype=torch.float64)  # no point at 0: rings have a pole
    points = torch.cartesian_prod(axis, axis)
    mass = target.log_prob(points).exp().sum() * (axis[1] - axis[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=2e-3)


def test_the_students_density_is_scipys():
    target = StudentMixture(torch.tensor([[1.0, 2.0]]), 2.0)
    x = 3 * torch.randn(20, 2, dtype=torch.float64)
    expected = stats.multivariate_t([1, 2], np.eye(2), df=2).logpdf(x.numpy())
    np.testing.assert_allclose(target.log_prob(x).numpy(), expected, rtol=1e-10)


def test_draws_of_mixtures_have_the_marginals_of_their_densities():
    def cdf(x):
        return np.average(
            stats.norm.cdf(x[:, None], [0, 2, 5], np.sqrt([0.5, 2, 1])), 1, weights=[1, 2, 3]
        )

    x = unequal().sample(5000, torch.Generator().manual_seed(0))
    assert x.dtype == torch.get_default_dtype()
    assert stats.kstest(x[:, 0].double().numpy(), cdf).pvalue > 1e-3
    t = StudentMixture(torch.zeros(1, 1), 2.0).sample(5000, torch.Generator().manual_seed(0))
    assert stats.kstest(t[:, 0].double().numpy(), stats.t(2).cdf).pvalue > 1e-3


def test_weights_of_modes_are_those_of_draws():
    for target in (unequal(), Rings(), DoubleWell(4, 2, 2.0), SAMPLED["phi^4"]()):
        x = target.sample(20000, torch.Generator().manual_seed(2), torch.float64)
        found = target.mode_probabilities(x)
        assert found.shape == (20000, len(target.mode_weights))
        error = (found.mean(0) - target.mode_weights).abs()
        assert error.max() < 4.5 * 0.5 / math.sqrt(20000)
        assert (target.assign(x) == found.argmax(1)).all()


def test_modes_are_assigned_to_themselves():
    for target in (eight_gaussians(), ten_students(5), DoubleWell(6, 5), PhiFour(16, 0.05)):
        assert target.assign(target.modes).tolist() == list(range(len(target.modes)))
        if not isinstance(target, (GaussianMixture, StudentMixture)):
            assert target.score(target.modes).abs().max() < 1e-3
    with pytest.raises(ValueError, match="no modes"):
        Funnel().assign(torch.zeros(1, 10))


def test_the_law_of_the_diffusion_path():
    target = unequal()
    generator = torch.Generator().manual_seed(0)
    x = target.sample(20000, generator, torch.float64)
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    path, n = math.sqrt(0.3) * x + math.sqrt(0.7) * noise, 20000
    score = target.marginal(0.3).score(path)
    z = (path * score + 1).mean(0) / ((path * score).std(0) / math.sqrt(n))
    assert z.abs().max() < 4.5
    assert torch.equal(target.marginal(1.0).variances, target.variances)
    standard = target.marginal(0.0).log_prob(path)
    expected = -0.5 * (path**2).sum(1) - math.log(2 * math.pi)
    torch.testing.assert_close(standard, expected, rtol=1e-10, atol=1e-10)


def test_wells_by_quadrature():
    target = DoubleWell(3, 2, 2.0)
    mass, _ = integrate.quad(lambda x: float(target.well_density(np.array(x))), -4, 4, limit=200)
    assert mass == pytest.approx(1, abs=1e-8)
    second, _ = integrate.quad(lambda x: x * x * float(target.well_density(np.array(x))), -4, 4)
    x = target.sample(20000, torch.Generator().manual_seed(0), torch.float64)
    for column in (0, 1):
        squares = x[:, column] ** 2
        assert abs(float(squares.mean()) - second) < 4 * float(squares.std()) / math.sqrt(20000)

    def cdf(values):
        grid = np.linspace(-4, 4, 4001)
        return np.interp(values, grid, np.cumsum(target.well_density(grid)) * (grid[1] - grid[0]))

    assert stats.kstest(x[:, 1].numpy(), cdf).pvalue > 1e-3
    assert float(x[:, 2].var()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_phi_four_is_the_sum_over_all_fields(dim):
    target = PhiFour(dim, 0.3, beta=3.0)
    grid = np.linspace(-3, 3, 61)
    cells = [(value, 0.5 if abs(value) < 1e-9 else float(value < 0)) for value in grid]
    fields = torch.tensor(list(itertools.product(grid, repeat=dim)), dtype=torch.float64)
    weight = target.log_prob(fields).exp().numpy() * (grid[1] - grid[0]) ** dim
    assert target.log_normaliser == pytest.approx(math.log(weight.sum()), abs=1e-4)
    below = np.array([share for _, share in cells])
    middle = np.searchsorted(grid, fields[:, dim // 2].numpy())
    assert float(target.mode_weights[0]) == pytest.approx(
        (weight * below[middle]).sum() / weight.sum(), abs=2e-3
    )
    for site in range(dim):
        fine, density = target.site_density(site)
        second = (density * fine**2).sum() * (fine[1] - fine[0])
        brute = (weight * fields[:, site].numpy() ** 2).sum() / weight.sum()
        assert second == pytest.approx(brute, rel=1e-4)


def test_phi_four_without_a_field_is_symmetric():
    target = PhiFour(32)
    assert target.mode_weights.tolist() == pytest.approx([0.5, 0.5], abs=1e-12)
    _, density = target.site_density(7)
    np.testing.assert_allclose(density, density[::-1], atol=1e-10)
    np.testing.assert_allclose(density, target.site_density(24)[1], atol=1e-10)
    torch.testing.assert_close(target.modes[0], -target.modes[1], rtol=0, atol=1e-3)
    weights = [float(PhiFour(32, h).mode_weights[0]) for h in (0.0, 0.02, 0.05)]
    assert weights == sorted(weights)
    assert weights[-1] > 0.6


def test_draws_of_phi_four_have_its_marginals():
    target = PhiFour(12, 0.05)
    x = target.sample(4000, torch.Generator().manual_seed(0), torch.float64).numpy()
    for site in (0, 6, 11):
        grid, density = target.site_density(site)
        edges = np.concatenate([grid, grid[-1:]]) + (grid[0] - grid[1]) / 2
        cdf = np.concatenate([[0], np.cumsum(density)]) / density.sum()
        p = stats.kstest(x[:, site], lambda v, e=edges, c=cdf: np.interp(v, e, c)).pvalue
        assert p > 1e-3


def test_predictive_likelihood_by_hand():
    target = LogisticRegression([[0.0], [1.0]], [0, 1], [[2.0], [-1.0]], [1, 0])
    samples = torch.tensor([[1.0, 0.0], [0.0, 1.0]])

    def sigmoid(z):
        return 1 / (1 + math.exp(-z))

    first = (sigmoid(2) + sigmoid(1)) / 2
    second = (1 - sigmoid(-1) + 1 - sigmoid(1)) / 2
    expected = math.log(first) + math.log(second)
    assert target.predictive_log_likelihood(samples) == pytest.approx(expected)
    with pytest.raises(ValueError, match="X_test"):
        LogisticRegression([[0.0]], [1]).predictive_log_likelihood(samples)


@pytest.mark.parametrize(
    ("name", "dim", "held_out"),
    [("breast_cancer", 31, 114), ("wine", 14, 36), ("digits", 65, 360)],
)
def test_regressions_on_data_that_scikit_learn_ships(name, dim, held_out):
    target = getattr(targets, name)()
    assert (target.dim, len(target.test_design)) == (dim, held_out)
    columns = target.design[:, :-1]
    torch.testing.assert_close(columns.mean(0), torch.zeros(dim - 1).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "dim", "rows"), [("ionosphere", 35, 280), ("sonar", 61, 166)])
def test_regressions_on_data_of_the_uci_repository(name, dim, rows):
    from assay.toolkits.data import MissingData

    try:
        target = getattr(targets, name)()
    except MissingData as missing:
        pytest.skip(str(missing))
    assert (target.dim, len(target.design)) == (dim, rows)
    assert 0.4 < float(target.labels.mean()) < 0.7
    other = getattr(targets, name)(seed=1)
    assert not torch.equal(other.design, target.design)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianMixture(torch.zeros(3)), "means"),
        (lambda: GaussianMixture(torch.zeros(3, 2), -1.0), "variance"),
        (lambda: GaussianMixture(torch.zeros(3, 2), weights=[1, 2]), "weights"),
        (lambda: GaussianMixture(torch.zeros(3, 2)).marginal(1.5), "lam"),
        (lambda: StudentMixture(torch.zeros(3, 2), 0.0), "df"),
        (lambda: Rings(width=2.0), "width"),
        (lambda: Funnel(1), "dim"),
        (lambda: DoubleWell(3, 4), "wells"),
        (lambda: PhiFour(100, grid_points=60), "grid_points"),
        (lambda: PhiFour(4).site_density(4), "site"),
        (lambda: LogisticRegression([[1.0], [2.0]], [1, 2]), "y"),
        (lambda: LogisticRegression([[1.0]], [1], [[1.0, 2.0]], [1]), "X_test"),
        (lambda: eight_gaussians().sample(0), "n"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=rf"^{message}: got"):
        make()
