"""MultALMC against its equations, exact laws and its own reference."""

import math
from itertools import pairwise

import pytest
import torch

from assay.papers.multalmc.averaged import AveragedALMC
from assay.papers.multalmc.base import Normal, StudentT
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.reference import ReferenceStep
from assay.papers.multalmc.sampler import TooManyDead
from assay.papers.multalmc.schedule import frictions, lambdas
from assay.papers.multalmc.target import as_target
from assay.papers.multalmc.targets.mixtures import GaussianMixture, StudentMixture
from assay.papers.multalmc.targets.shapes import DoubleWell


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def work(n):
    return torch.empty(5, n, 2, dtype=torch.float64).unbind()


def mixture(dim=2):
    return GaussianMixture(torch.tensor([[-2.0] * dim, [3.0] * dim]), 0.5, [0.4, 0.6])


def gaussian(dim=1):
    return GaussianMixture(torch.full((1, dim), 3.0), 0.25)


@pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
@pytest.mark.parametrize("fast_scale", ["path", "target"])
@pytest.mark.parametrize(
    ("base", "fast"), [(Normal(), "langevin"), (StudentT(2.0), "langevin"), (StudentT(2.0), "ito")]
)
def test_every_step_is_that_of_the_reference(dynamics, base, fast, fast_scale):
    """All phases, draw for draw, in float64; the merged friction parts are split again."""
    n_steps, n, h, mass = 40, 5, 0.02, 1.3
    target = StudentMixture(torch.tensor([[-2.0, 1.0], [3.0, 0.0]]), 2.0)
    options = {"step_size": h, "eps": 0.3, "mass": mass, "lambda_delta": 0.05, "fast": fast}
    options["fast_scale"] = fast_scale
    sampler = MultALMC(
        target, n_steps=n_steps, base=base, dynamics=dynamics, friction=(0.2, 0.9), **options
    )
    reference = ReferenceStep(target.score, base, **options)
    generator, twin = seeded(), seeded()
    state = sampler.init(n, generator, dtype=torch.float64)
    twin.set_state(generator.get_state())
    x, v, y = state.x, state.v, state.y
    gammas = frictions((0.2, 0.9), n_steps)
    phases = set()
    for i, lam in enumerate(lambdas("linear", n_steps)):
        state, _ = sampler.step(generator, state)
        fast_lives = lam < 1 - 0.05
        phases.add((fast_lives, lam >= 0.6))
        shape = (2 if fast_lives else 1, *x.shape)
        draws = torch.randn(shape, generator=twin, dtype=torch.float64)
        fast_draw = draws[-1]
        if dynamics == "overdamped":
            x, y = reference.overdamped(x, y, lam, torch.stack([draws[0], fast_draw]))
        else:
            # xi of the merged part = (a xi2 + b xi1) with a^2 + b^2 = 1, and any draw across it
            across = torch.randn(x.shape, dtype=torch.float64, generator=seeded(i))
            keep = 1 - h * gammas[i] / (2 * mass)
            a = keep * math.sqrt(h * gammas[i - 1]) if i else 0.0
            b = math.sqrt(h * gammas[i])
            a, b = a / math.hypot(a, b), b / math.hypot(a, b)
            if i:
                second = a * draws[0] + b * across
                v = (1 - h * gammas[i - 1] / (2 * mass)) * v + math.sqrt(h * gammas[i - 1]) * second
            first = b * draws[0] - a * across
            nothing = torch.zeros_like(x)
            x, v_end, y = reference.underdamped(
                x, v, y, lam, gammas[i], torch.stack([first, fast_draw, nothing])
            )
            v = v_end / keep  # before its second half of friction, as the state keeps it
            torch.testing.assert_close(state.v, v, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(state.x, x, atol=1e-9, rtol=1e-9)
        if state.y is not None:
            torch.testing.assert_close(state.y, y, atol=1e-9, rtol=1e-9)
    assert phases == {(True, False), (True, True), (False, True)}
    assert state.y is None


def test_a_gaussian_target_is_sampled():
    """With the tolerance that the known inflation of a few per cent needs."""
    for dynamics in ("underdamped", "overdamped"):
        sampler = MultALMC(
            gaussian(), n_steps=3000, step_size=0.01, dynamics=dynamics, generator=seeded()
        )
        samples = sampler.sample(1500).samples
        assert abs(samples.mean().item() - 3) < 0.05
        assert 0.23 < samples.var().item() < 0.30


def test_a_stiff_target_is_sampled_on_its_own_scale():
    target = DoubleWell(2)
    options = {
        "schedule": "cosine",
        "n_steps": 2000,
        "step_size": 0.02,
        "eps": 0.4,
        "generator": seeded(),
    }
    with pytest.raises(TooManyDead):
        MultALMC(target, **options).sample(500)
    result = MultALMC(target, fast_scale="target", **options).sample(500)
    assert result.finite_mask.all()
    exact = target.sample(20_000, seeded(1)).abs()
    torch.testing.assert_close(result.samples.abs().mean(0), exact.mean(0), atol=0.03, rtol=0)
    torch.testing.assert_close(result.samples.abs().std(0), exact.std(0), atol=0, rtol=0.15)
    assert ((result.samples > 0).float().mean(0) - 0.5).abs().max() < 0.1


def test_exact_friction_agrees_with_the_first_order_one():
    runs = [
        MultALMC(gaussian(), n_steps=400, step_size=0.01, o_step=o, generator=seeded()).sample(200)
        for o in ("euler", "exact")
    ]
    gap = (runs[0].samples - runs[1].samples).abs().max()
    assert 0 < gap < 1e-2


def test_averaging_error_falls_with_eps():
    """Same slow noise, exact score known, the mean square gap shrinks."""
    options = {"n_steps": 1000, "step_size": 0.005, "friction": 0.5}
    exact = AveragedALMC(gaussian(), generator=seeded(), **options).sample(400)
    gaps = []
    for eps in (0.4, 0.1, 0.05):
        ours = MultALMC(gaussian(), eps=eps, generator=seeded(), **options).sample(400)
        gaps.append((ours.samples - exact.samples).square().sum(1).mean().item())
    slopes = [
        math.log(a / b) / math.log(r) for (a, b), r in zip(pairwise(gaps), (4, 2), strict=True)
    ]
    assert min(slopes) > 0.5


def test_averaged_dynamics_bound_a_mixture_from_above():
    """With the exact score, the weights of a mixture are met."""
    sampler = AveragedALMC(
        mixture(), n_steps=2000, step_size=0.02, friction=0.5, generator=seeded()
    )
    result = sampler.sample(1000)
    weights = mixture().mode_probabilities(result.samples).mean(0)
    torch.testing.assert_close(weights, torch.tensor([0.4, 0.6]), atol=0.06, rtol=0)
    assert result.n_grad < 50  # the polish and the look at the target alone
    with pytest.raises(TypeError, match=r"^path_score: got None"):
        AveragedALMC(lambda x: -x.square().sum(1), dim=2, n_steps=10, step_size=0.01)
    with pytest.raises(ValueError, match=r"^compile: got True"):
        AveragedALMC(mixture(), n_steps=10, step_size=0.01, compile=True)


@pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
def test_gradients_are_counted_as_a_target_sees_them(dynamics):
    sampler = MultALMC(mixture(), n_steps=200, step_size=0.01, srock_stages=3, dynamics=dynamics)
    result = sampler.sample(4)
    assert result.n_grad == sampler.target.n_grad
    assert result.n_logp == sampler.target.n_logp == 2, "both of the look at the target"
    kicks, polish = (2, 3) if dynamics == "underdamped" else (1, 2)
    look = 2  # of CountedTarget.check
    assert result.n_grad == 198 * 3 + (198 - 120) * kicks + polish + look


def test_chains_know_nothing_of_one_another():
    """Permuted chains with permuted draws end permuted; more chains change none."""
    sampler = MultALMC(mixture(), n_steps=20, step_size=0.01, generator=seeded())
    state = sampler.init(6, seeded(), dtype=torch.float64)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    noise = torch.randn(2, 6, 2, dtype=torch.float64, generator=seeded(1))
    row = sampler._rows[14]
    whole = sampler._move(state.x, state.v, state.y, noise, row, True, work(6))
    permuted = sampler._move(
        state.x[order], state.v[order], state.y[order], noise[:, order], row, True, work(6)
    )
    half = sampler._move(state.x[:3], state.v[:3], state.y[:3], noise[:, :3], row, True, work(3))
    for a, b, c in zip(whole, permuted, half, strict=True):
        torch.testing.assert_close(a[order], b)
        torch.testing.assert_close(a[:3], c)


def test_a_rotated_target_gives_rotated_chains():
    """The base is spherical: turning the target and all draws turns the result."""
    turn = torch.linalg.qr(torch.randn(2, 2, dtype=torch.float64, generator=seeded())).Q
    turned = GaussianMixture(mixture().means @ turn, 0.5, [0.4, 0.6])
    runs = []
    for target, rotation in ((mixture(), torch.eye(2, dtype=torch.float64)), (turned, turn)):
        sampler = MultALMC(target, n_steps=20, step_size=0.01)
        state = sampler.init(8, seeded(), dtype=torch.float64)
        x, v, y = (t @ rotation for t in (state.x, state.v, state.y))
        for step, late in ((4, False), (16, True)):
            noise = torch.randn(2, 8, 2, dtype=torch.float64, generator=seeded(2)) @ rotation
            x, v, y = sampler._move(x, v, y, noise, sampler._rows[step], late, work(8))
        runs.append(x)
    torch.testing.assert_close(runs[0] @ turn, runs[1])


def test_no_step_waits_for_the_device():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Waits(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.found = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.__name__.split(".")[0] in ("_local_scalar_dense", "nonzero", "equal"):
                self.found.append(func.__name__)
            return func(*args, **(kwargs or {}))

    sampler = MultALMC(mixture(), n_steps=300, step_size=0.01)
    generator = seeded()
    state = sampler.init(3, generator)
    with Waits() as waits:
        while state.step < 300:
            before = len(waits.found)
            state, _ = sampler.step(generator, state)
            looks = state.step % 64 == 0 or state.step == 300
            assert (len(waits.found) > before) == looks


GOOD = {"n_steps": 10, "step_size": 0.01}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_steps": 0}, r"^n_steps: got 0"),
        ({"n_steps": 11}, r"^n_steps: got 11, wants an even number"),
        ({"step_size": 0.0}, r"^step_size: got 0"),
        ({"eps": 0.0}, r"^eps: got 0"),
        ({"eps": -0.1}, r"^eps: got -0.1"),
        ({"mass": 0.0}, r"^mass: got 0"),
        ({"friction": 0.0}, r"^friction: got 0"),
        ({"friction": 300.0}, r"^friction: got 300, wants < 2 mass / step_size"),
        ({"lambda_delta": 0.0}, r"^lambda_delta: got 0"),
        ({"lambda_switch": 1.5}, r"^lambda_switch: got 1.5"),
        ({"srock_stages": 12}, r"^srock_stages: got 12"),
        ({"lambda_delta": 1e-300}, r"^lambda_delta: got 1e-300"),
        ({"fast_scale": "fast"}, r"^fast_scale: got 'fast'"),
        ({"schedule": "sine"}, r"^schedule: got 'sine'"),
        ({"schedule": lambda u: 1 - u}, r"^schedule: got"),
        ({"schedule": lambda u: u / 2}, r"^schedule: got"),
        ({"dynamics": "newton"}, r"^dynamics: got 'newton'"),
        ({"fast": "slow"}, r"^fast: got 'slow'"),
        ({"fast": "ito"}, r"^fast: got 'ito' with the base Normal"),
        ({"o_step": "heun"}, r"^o_step: got 'heun'"),
        ({"dim": 3}, r"^dim: got 3"),
        # h / (eps (1 - lambda)) = 9.9 at lambda = 0.99 - 1/1000: beyond two stages, not five
        (
            {"n_steps": 1000, "step_size": 0.0055, "eps": 0.05, "srock_stages": 2},
            r"^step_size: got",
        ),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        MultALMC(mixture(), **{**GOOD, **change})


def test_bad_kinds():
    for change, word in (
        ({"n_steps": 1.5}, "n_steps"),
        ({"base": "normal"}, "base"),
        ({"base": Normal}, "base"),
        ({"schedule": lambda u: None}, "schedule"),
        ({"schedule": lambda: 1.0}, "schedule"),
        ({"generator": 3}, "generator"),
        ({"compile": 1}, "compile"),
        ({"eps": "small"}, "eps"),
    ):
        with pytest.raises(TypeError, match=f"^{word}: got"):
            MultALMC(mixture(), **{**GOOD, **change})


def test_the_stability_number_that_five_stages_stand():
    MultALMC(mixture(), n_steps=1000, step_size=0.0055, eps=0.05, srock_stages=5)


def test_a_function_needs_its_dimension():
    def log_prob(x):
        return -x.square().sum(-1)

    assert MultALMC(log_prob, dim=3, **GOOD).sample(4).samples.shape == (4, 3)
    assert MultALMC(as_target(log_prob, 3), **GOOD).dim == 3
    with pytest.raises(ValueError, match=r"^dim: got None"):
        MultALMC(log_prob, **GOOD)


def test_torch_distributions_are_targets():
    from torch import distributions as td

    normal = td.MultivariateNormal(torch.tensor([1.0, -1.0]), 0.5 * torch.eye(2))
    samples = MultALMC(normal, n_steps=600, step_size=0.02, generator=seeded()).sample(1500).samples
    torch.testing.assert_close(samples.mean(0), normal.mean, atol=0.1, rtol=0)
