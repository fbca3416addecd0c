"""What is accepted as a target, and what is said of what is not."""

import warnings

import pytest
import torch
from torch import distributions as td

from assay.papers.multalmc.target import Target, as_target, from_pyro_potential


class Gauss:
    dim = 2

    def log_prob(self, x):
        return -0.5 * ((x - 3) / 0.5).square().sum(-1)

    def score(self, x):
        return (3 - x) / 0.25


def points(n=40, d=2):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0))


def test_all_kinds_give_the_same_scores():
    gauss = Gauss()
    assert isinstance(gauss, Target)
    normal = td.Independent(td.Normal(torch.full((2,), 3.0), 0.5), 1)
    full = td.MultivariateNormal(torch.full((2,), 3.0), 0.25 * torch.eye(2))
    for target in (gauss, normal, full, gauss.log_prob):
        made = as_target(target, 2)
        assert made.dim == 2
        torch.testing.assert_close(made.score(points()), gauss.score(points()))
        made.check(points())


def test_evaluations_are_counted_and_counts_are_not_shared():
    target = as_target(Gauss())
    for _ in range(3):
        target.score(points())
    target.log_prob(points())
    assert (target.n_grad, target.n_logp) == (3, 1)
    again = as_target(target)
    assert (again.n_grad, again.n_logp, again.inner) == (0, 0, target.inner)


def test_automatic_differentiation_works_where_gradients_are_off():
    target = as_target(Gauss().log_prob, 2)
    with torch.no_grad():
        gradient = target.score(points())
    torch.testing.assert_close(gradient, Gauss().score(points()))
    assert not gradient.requires_grad


def test_mixture_distribution_survives_a_chain_that_left_the_numbers():
    mixture = td.MixtureSameFamily(
        td.Categorical(torch.ones(2)), td.Independent(td.Normal(torch.zeros(2, 3), 1.0), 1)
    )
    target = as_target(mixture)
    x = points(4, 3)
    x[1] = torch.nan
    assert target.score(x).isfinite().all(1).tolist() == [True, False, True, True]
    with pytest.raises(ValueError, match="support"):
        mixture.log_prob(x)  # the user's own object still validates


@pytest.mark.parametrize(
    ("target", "dim", "error", "message"),
    [
        (3.0, 2, TypeError, r"^target: got float, wants"),
        (Gauss().log_prob, None, ValueError, r"^dim: got None"),
        (Gauss().log_prob, 0, ValueError, r"^dim: got 0"),
        (Gauss(), 3, ValueError, r"^dim: got 3, wants the target's own, 2"),
        (td.Normal(torch.zeros(2), 1.0), None, ValueError, r"batch shape \(2,\)"),
        (td.Normal(0.0, 1.0), None, ValueError, r"event shape \(\)"),
        (td.Dirichlet(torch.ones(3)), None, ValueError, r"support .* transform"),
        (
            td.Independent(td.Gamma(torch.ones(2), 1.0), 1),
            None,
            ValueError,
            r"support .* transform",
        ),
    ],
)
def test_bad_targets(target, dim, error, message):
    with pytest.raises(error, match=message):
        as_target(target, dim)


@pytest.mark.parametrize(
    ("log_prob", "error", "message"),
    [
        (
            lambda x: -x.square().sum(-1, keepdim=True),
            ValueError,
            r"got shape \(40, 1\), wants \(40,\)",
        ),
        (lambda x: -x.square().sum(), ValueError, r"got shape \(\), wants \(40,\)"),
        (lambda x: -x.square().sum(-1).double(), ValueError, "got torch.float64"),
        (lambda x: x.sum(-1) * torch.nan, ValueError, "no finite value"),
        (lambda x: 0.0, TypeError, "got float, wants a tensor"),
        (lambda x: -x.detach().square().sum(-1), ValueError, "cannot differentiate"),
        (
            lambda x: torch.zeros(len(x)) + torch.ones((), requires_grad=True),
            ValueError,
            "cannot differentiate",
        ),
        (lambda x: x.sum(-1) - x.sum(-1).mean(), ValueError, "score of 0 everywhere"),
    ],
)
def test_bad_values(log_prob, error, message):
    with pytest.raises(error, match=message):
        as_target(log_prob, 2).check(points())


def test_a_score_of_another_shape_is_refused():
    class Odd(Gauss):
        def score(self, x):
            return x.sum(-1)

    with pytest.raises(ValueError, match=r"target.score: got shape \(40,\), wants \(40, 2\)"):
        as_target(Odd()).check(points())


def test_a_potential_in_place_of_a_log_density_is_warned_of():
    with pytest.warns(UserWarning, match="sign of log_prob"):
        as_target(lambda x: 0.5 * x.square().sum(-1), 2).check(points())


@pytest.mark.parametrize("centre", [0.0, 30.0])
def test_no_warning_for_what_lies_far_away_or_has_heavy_tails(centre):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_target(lambda x: -2 * (x - centre).square().sum(-1), 2).check(points())
        as_target(lambda x: -2 * torch.log1p((x - centre).square().sum(-1)), 2).check(points())


def test_a_support_that_ends_within_the_base_is_warned_of():
    def half_normal(x):
        return torch.where(x[:, 0] > 0, -x.square().sum(-1), -torch.inf)

    outside = int((points()[:, 0] <= 0).sum())
    with pytest.warns(UserWarning, match=f"not finite at {outside} of 40 draws .* transform"):
        as_target(half_normal, 2).check(points())


@pytest.mark.parametrize("factor", [-1.0, 5.0, 0.2])
def test_a_score_that_is_not_the_gradient_of_the_log_density_is_warned_of(factor):
    class Wrong(Gauss):
        def score(self, x):
            return factor * super().score(x)

    target = as_target(Wrong())
    with pytest.warns(UserWarning, match=f"rises along it {1 / factor:.2g} times as fast"):
        target.check(points())
    assert (target.n_grad, target.n_logp) == (2, 2)


def test_rows_that_depend_on_one_another_are_warned_of():
    class Mixing(Gauss):
        def score(self, x):
            return super().score(x - x.mean(0))

    with pytest.warns(UserWarning, match="changes with the other points of the batch"):
        as_target(Mixing()).check(points())
    module = torch.nn.Sequential(
        torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1), torch.nn.Softplus(), torch.nn.Flatten(0)
    )
    with pytest.warns(UserWarning, match="modules in eval mode"):
        as_target(module, 2).check(points())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_target(lambda x: module.eval()(x) - x.square().sum(-1), 2).check(points())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("n", [1, 16, 40])
def test_no_warning_for_a_right_score_however_stiff_or_flat(scale, n):
    class Scaled(Gauss):
        def log_prob(self, x):
            return super().log_prob(x / scale)

        def score(self, x):
            return super().score(x / scale) / scale

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_target(Scaled()).check(points(n))


def test_inference_mode_does_not_stop_automatic_differentiation():
    weights = torch.nn.Parameter(torch.tensor([1.0, 4.0]))
    target = as_target(lambda x: -0.5 * (weights * x.square()).sum(-1), 2)
    with torch.inference_mode():
        x = torch.ones(3, 2)
        torch.testing.assert_close(target.score(x), -weights.expand(3, 2))
        target.check(x)
    assert weights.grad is None


def test_potential_of_a_pyro_model():
    pyro = pytest.importorskip("pyro")
    from pyro import distributions as dist
    from pyro.infer.mcmc.util import initialize_model

    inputs = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    labels = (inputs.sum(1) > 0).float()

    def model():
        weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        scale = pyro.sample("scale", dist.HalfCauchy(1.0))
        with pyro.plate("n", 30):
            pyro.sample("y", dist.Bernoulli(logits=inputs @ weight * scale), obs=labels)

    prototype, potential_fn, _, _ = initialize_model(model)
    target = from_pyro_potential(potential_fn, prototype)
    x = points(5, 4)
    assert target.dim == 4
    rows = torch.stack([-potential_fn(target.inner.unravel(row)) for row in x])
    torch.testing.assert_close(target.log_prob(x), rows)
    step = 1e-2 * torch.eye(4)
    slope = torch.stack([target.log_prob(x + s) - target.log_prob(x - s) for s in step], 1) / 2e-2
    torch.testing.assert_close(target.score(x), slope, atol=2e-2, rtol=2e-2)


def test_a_potential_without_pyro_and_bad_ones():
    target = from_pyro_potential(
        lambda p: 0.5 * p["a"].square().sum() + p["b"] ** 2,
        {"a": torch.zeros(2, 2), "b": torch.tensor(0.0)},
    )
    x = points(3, 5)
    torch.testing.assert_close(target.score(x), -x * torch.tensor([1, 1, 1, 1, 2.0]))
    with pytest.raises(TypeError, match=r"^potential_fn: got int"):
        from_pyro_potential(3, {"a": torch.zeros(2)})
    with pytest.raises(TypeError, match=r"^prototype: got"):
        from_pyro_potential(lambda p: p, {"a": 1.0})
    with pytest.raises(ValueError, match=r"^prototype: got an empty"):
        from_pyro_potential(lambda p: p, {})
