from __future__ import annotations

import math

import pytest
import torch

from assay.papers.multalmc.cdiff import CriticallyDampedOU, OverdampedOU
from assay.papers.multalmc.multcdiff import MultCDiff, time_grid
from assay.papers.multalmc.sampler import TooManyDead
from assay.papers.multalmc.srock import srock_step
from assay.papers.multalmc.targets import GaussianMixture, eight_gaussians

BOTH = pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
GAUSSIAN = GaussianMixture(torch.tensor([[3.0, 3.0]]), 0.25)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(target, n=500, seed=0, **settings):
    sampler = MultCDiff(target, generator=seeded(seed), **settings)
    return sampler.sample(n, dtype=torch.float64)


class Averaged(MultCDiff):
    """With the exact E[Y | z] of a standard normal target, whose precision given r is 1/p."""

    def _fast(self, y, centre, noise, rate, tau, spare):
        p = 1 / (1 + rate)
        return (rate * centre) / (1 / p)


@BOTH
def test_a_gaussian_keeps_its_mean_and_variance(dynamics):
    samples = draw(GAUSSIAN, 4000, n_steps=300, dynamics=dynamics).samples
    assert (samples.mean(0) - 3).abs().max() < 0.05
    assert samples.var(0).min() > 0.23
    assert samples.var(0).max() < 0.28


@BOTH
def test_two_modes_keep_their_weights_where_langevin_crosses_between_them(dynamics):
    target = GaussianMixture(torch.tensor([[-2.0, 0.0], [2.0, 0.0]]), 0.7, [0.8, 0.2])
    samples = draw(target, 2000, n_steps=500, eps=0.03, T=6, dynamics=dynamics).samples
    # Four standard errors are .036.
    assert (samples[:, 0] < 0).double().mean() == pytest.approx(0.8, abs=0.045)


@BOTH
def test_the_exact_score_of_a_standard_normal_leaves_the_equilibrium_alone(dynamics):
    sampler = Averaged(lambda x: -0.5 * x.square().sum(-1), dim=2, n_steps=60, dynamics=dynamics)
    process, generator, twin = sampler.process, seeded(), seeded()

    def z_of(state):
        return torch.stack([state.x] if state.v is None else [state.x, state.v])

    state = sampler.init(20_000, generator, dtype=torch.float64)
    while state.step < 59:
        twin.set_state(generator.get_state())
        before, state = state, sampler.step(generator, state)[0]
    # The kick is zero: the last step moved z by the linear part alone.
    span = sampler.times[57] - sampler.times[58]
    draws = torch.randn(z_of(before).shape, generator=twin, dtype=torch.float64)
    moved = torch.einsum("ij,jnd->ind", process.reverse_matrix(span), z_of(before))
    moved += torch.einsum("ij,jnd->ind", process.reverse_noise(span), draws)
    torch.testing.assert_close(z_of(state), moved, rtol=1e-10, atol=1e-10)
    covariance = torch.einsum("ind,jnd->ij", z_of(state), z_of(state)) / 40_000
    expected = torch.diag(torch.tensor(process.scales, dtype=torch.float64))
    assert (covariance - expected).abs().max() < 0.03  # four standard errors


@pytest.mark.parametrize("friction", [0.5, 2.0])
def test_the_score_of_a_gaussian_is_the_one_of_its_joint_law(friction):
    ou = CriticallyDampedOU(friction)
    mu, variance = 3.0, 0.25
    z = torch.randn(50, 2, generator=seeded(), dtype=torch.float64)
    scales = torch.tensor(ou.scales, dtype=torch.float64)
    for t in (0.1, 0.7, 3.0):
        m, p = ou.mean(t), ou.noise(t)
        law = torch.diag(scales) - (1 - variance) * torch.outer(m, m)
        exact = -torch.linalg.solve(law, (z - mu * m).T).T[:, 1]
        r = z @ (m / scales)
        average = (mu / variance + r / p) / (1 / variance + (1 - p) / p)
        score = -z[:, 1] / ou.mass + m[1] / (ou.mass * p) * (average - r)
        torch.testing.assert_close(score, exact, rtol=1e-8, atol=1e-8)


def test_a_step_is_the_one_of_the_conditional_law():
    sampler = MultCDiff(GAUSSIAN, n_steps=40, eps=0.3, friction=1.4, T=5)
    generator = seeded()
    state = sampler.init(6, generator, dtype=torch.float64)
    for _ in range(20):
        state, _ = sampler.step(generator, state)
    twin = seeded()
    twin.set_state(generator.get_state())
    after, info = sampler.step(generator, state)

    ou, step = sampler.process, state.step
    before, t = sampler.times[step - 1], sampler.times[step]
    move, factor = ou.reverse_matrix(before - t), ou.reverse_noise(before - t)
    z = torch.stack([state.x, state.v])
    draws = torch.randn(z.shape, generator=twin, dtype=z.dtype)
    x, v = torch.einsum("ij,jnd->ind", move, z) + torch.einsum("ij,jnd->ind", factor, draws)
    mean, gain, variance = ou.conditional(t)
    m1, m3 = mean
    inverse = torch.linalg.inv(ou.covariance(t))

    def drift(y):
        pull = m1 * (inverse[0, 0] * (x - m1 * y) + inverse[0, 1] * (v - m3 * y))
        pull += m3 * (inverse[1, 0] * (x - m1 * y) + inverse[1, 1] * (v - m3 * y))
        return (GAUSSIAN.score(y) + pull) / 0.3

    nodes = time_grid(ou, 5, ou.time_of_noise(0.01), 40, "stiffness")
    h = float(nodes[step] - nodes[step + 1])
    noise = torch.randn(x.shape, generator=twin, dtype=z.dtype)
    y = srock_step(state.y, drift, math.sqrt(2 / 0.3), h, 5, noise)
    score = -(v - (m3 * y + gain * (x - m1 * y))) / variance
    v = v + 2 * 1.4 * h * (score + v / ou.mass)

    torch.testing.assert_close(after.x, x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(after.v, v, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(after.y, y, rtol=1e-9, atol=1e-9)
    assert info.n_grad == 5


def test_friction_is_a_unit_of_time():
    # T and ε scale with it, and with the same draws so does nothing else.
    one = draw(GAUSSIAN, n_steps=60, T=8, eps=0.2, friction=2.0).samples
    other = draw(GAUSSIAN, n_steps=60, T=0.8, eps=0.02, friction=0.2).samples
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@BOTH
def test_a_loop_of_steps_is_what_sample_does(dynamics):
    sampler = MultCDiff(GAUSSIAN, n_steps=70, dynamics=dynamics)
    generator = seeded(3)
    state = sampler.init(8, generator, dtype=torch.float64)
    for _ in range(70):
        kept = (state.x.clone(), state.y.clone())
        new, _ = sampler.step(generator, state)
        assert torch.equal(state.x, kept[0])
        assert torch.equal(state.y, kept[1])
        state = new
    result = draw(GAUSSIAN, 8, seed=3, n_steps=70, dynamics=dynamics)
    assert torch.equal(state.x, result.samples)
    assert result.n_grad == 70 * 5 + 3  # to look at the target, and at the draws


@BOTH
def test_a_run_goes_on_bitwise_from_the_middle(dynamics):
    class Stop(Exception):
        pass

    def stop(state, _):
        if state.step == 33:
            raise Stop

    settings = {"n_steps": 70, "dynamics": dynamics}
    whole = draw(GAUSSIAN, 8, seed=5, **settings)
    broken = MultCDiff(GAUSSIAN, generator=seeded(5), **settings)
    with pytest.raises(Stop):
        broken.sample(8, dtype=torch.float64, callback=stop)
    saved = broken.state_dict()
    resumed = MultCDiff(GAUSSIAN, generator=seeded(99), **settings)
    resumed.load_state_dict(saved)
    result = resumed.sample(8)
    assert torch.equal(result.samples, whole.samples)
    assert result.n_grad == whole.n_grad


def test_the_path_ends_in_the_draws():
    result = MultCDiff(GAUSSIAN, n_steps=20, generator=seeded()).sample(5, return_path=True)
    assert torch.equal(result.trace["path"][-1], result.samples)
    assert result.samples.dtype == torch.float32
    lambdas = result.trace["lambda"]
    assert (lambdas.diff() > 0).all()
    assert 0.98 < lambdas[-1] < 0.99 + 1e-6


@BOTH
def test_stiffness_is_that_of_the_stiffest_step(dynamics):
    sampler = MultCDiff(GAUSSIAN, n_steps=2000, eps=0.2, dynamics=dynamics)
    steps = (sampler.times[:-1] - sampler.times[1:]) / sampler.process.noise(sampler.times[1:])
    assert sampler.stiffness == pytest.approx(float(steps.max()) / 0.2, rel=0.01)


@pytest.mark.parametrize("process", [CriticallyDampedOU(), OverdampedOU()])
def test_steps_of_the_grid_are_equally_stiff(process):
    end = process.time_of_noise(0.01)
    assert process.noise(end) == pytest.approx(0.01)
    nodes = time_grid(process, 8, end, 2000, "stiffness")
    assert nodes[0] == pytest.approx(8)
    assert nodes[-1] == pytest.approx(end)
    steps = (nodes[:-1] - nodes[1:]) / process.noise((nodes[:-1] + nodes[1:]) / 2)
    torch.testing.assert_close(steps, steps.mean().expand_as(steps), rtol=1e-3, atol=0)


def test_steps_of_the_papers_grid_are_equal_in_its_schedule():
    nodes = time_grid(CriticallyDampedOU(), 8, 0.2, 50, "ou")
    schedule = (-2 * nodes).exp()
    expected = torch.linspace(math.exp(-16), math.exp(-0.4), 51, dtype=torch.float64)
    torch.testing.assert_close(schedule, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": 0}, "n_steps"),
        ({"T": 0.0}, "T: got 0"),
        ({"T": 0.1}, "T: got 0.1, wants > 0.218"),
        ({"T": math.nan}, "T: got nan"),
        ({"friction": 0.0}, "friction"),
        ({"eps": 0.0}, "eps: got 0"),
        ({"eps": 1e-5}, "eps: got 1e-05, wants >= "),
        ({"lambda_delta": 0.0}, "lambda_delta"),
        ({"lambda_delta": 1.0}, "lambda_delta"),
        ({"srock_stages": 12}, "stages"),
        ({"grid": "linear"}, "grid"),
        ({"start_scale": -1.0}, "start_scale"),
        ({"dynamics": "damped"}, "dynamics"),
    ],
)
def test_arguments_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MultCDiff(GAUSSIAN, **{"n_steps": 100, **settings})


@pytest.mark.parametrize("name", ["T", "friction", "eps", "lambda_delta", "start_scale"])
def test_arguments_that_are_no_numbers_are_refused(name):
    with pytest.raises(TypeError, match=name):
        MultCDiff(GAUSSIAN, n_steps=100, **{name: "1"})


def test_a_run_whose_fast_variable_escapes_is_refused():
    narrow = GaussianMixture(torch.zeros(1, 2), 1e-4)
    with pytest.raises(TooManyDead, match="no longer finite"):
        draw(narrow, 20, n_steps=200, eps=0.05)


def test_draws_that_are_numbers_but_nowhere_near_the_target_are_refused():
    with pytest.raises(TooManyDead, match="start_scale"):
        draw(eight_gaussians(), 100, n_steps=200, eps=0.0025)
    # The paper's first step, from t = 8 to 3.5, is too long for this target.
    with pytest.raises(TooManyDead, match="nowhere near"):
        draw(GAUSSIAN, 100, n_steps=500, grid="ou", eps=0.1)


@pytest.mark.parametrize("width", [1.0, 0.02])
def test_narrow_modes_far_apart_are_not_taken_for_escape(width):
    means = torch.tensor([[40.0, 0.0], [0.0, 40.0], [40.0, 40.0]])
    for seed in range(3):
        draw(GaussianMixture(means, width**2), 60, seed, n_steps=200, eps=8.0, start_scale=40.0)
