"""SROCK: coefficients, stability, consistency, order."""

import math
from itertools import pairwise

import pytest
import torch

from assay.papers.multalmc import srock
from assay.papers.multalmc.srock import srock_step, stability_limit, stability_polynomial

EVERY = range(1, 12)


def test_coefficients_of_two_stages():
    c = srock.coefficients(2)
    assert c.omega0 == 1.0125
    assert c.omega1 == pytest.approx(0.259336, abs=1e-6)
    assert c.drift[0] == pytest.approx(0.256134, abs=1e-6)
    assert c.first_noise == pytest.approx(0.512268, abs=2e-6)
    assert c.first_shift == pytest.approx(0.259336, abs=1e-6)


@pytest.mark.parametrize("stages", EVERY)
def test_polynomial_is_consistent_and_bounded_up_to_the_limit(stages):
    z = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    value = stability_polynomial(z, stages)
    value.backward()
    assert value.item() == pytest.approx(1, abs=1e-12)
    assert z.grad.item() == pytest.approx(-1, abs=1e-12)
    limit = stability_limit(stages)
    inside = torch.linspace(0, limit, 4001, dtype=torch.float64)
    assert stability_polynomial(inside, stages).abs().max() <= 1 + 1e-12
    assert abs(stability_polynomial(1.02 * limit, stages)) > 1
    if stages > 1:
        assert limit == pytest.approx((2 - 4 * srock.DAMPING / 3) * stages**2, rel=0.02)


@pytest.mark.parametrize("stages", EVERY)
def test_without_noise_a_step_multiplies_by_the_polynomial(stages):
    y = torch.tensor([[1.3, -0.4]], dtype=torch.float64)
    z = 0.7 * stability_limit(stages)
    new = srock_step(y, lambda u: -u, 1.0, z, stages, torch.zeros_like(y))
    torch.testing.assert_close(new, stability_polynomial(z, stages) * y)


def stationary_variance(z, stages):
    """Of dY = -Y dt + sqrt(2) dB, from the linear map that a step is."""
    one = torch.ones(1, 1, dtype=torch.float64)
    noise = srock_step(0 * one, lambda u: -u, math.sqrt(2), z, stages, one).item()
    return noise**2 / (1 - float(stability_polynomial(z, stages)) ** 2)


@pytest.mark.parametrize("stages", [1, 2, 5, 11])
def test_stationary_variance_of_an_ou_process_converges(stages):
    errors = [abs(stationary_variance(z, stages) - 1) for z in (0.04, 0.02, 0.01)]
    assert errors[2] < 0.01
    for coarse, fine in pairwise(errors):
        assert 1.7 < coarse / fine < 2.3  # first order


def test_simulated_variance_and_stiff_steps_stay_bounded():
    generator = torch.Generator().manual_seed(0)
    y, k = torch.zeros(20_000, 1), 4.0
    for _ in range(400):
        noise = torch.randn(y.shape, generator=generator)
        y = srock_step(y, lambda u: -k * u, math.sqrt(2), 0.02, 5, noise)
    assert y.var().item() == pytest.approx(1 / k, rel=0.05)

    euler = stiff = torch.ones(1000, 1)
    for _ in range(200):
        noise = torch.randn(stiff.shape, generator=generator)
        stiff = srock_step(stiff, lambda u: -40 * u, math.sqrt(2), 1.0, 5, noise)
        euler = euler - 40 * euler + math.sqrt(2) * noise
    assert stiff.abs().max() < 10
    assert not euler.isfinite().all()


def test_one_stage_is_a_postprocessed_euler_step():
    y, noise = torch.randn(2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    h, g = 0.3, 1.2
    shifted = y + srock.coefficients(1).first_shift * math.sqrt(h) * g * noise
    euler = y + h * torch.sin(shifted) + math.sqrt(h) * g * noise
    torch.testing.assert_close(srock_step(y, torch.sin, g, h, 1, noise), euler)


@pytest.mark.parametrize("stages", [1, 3, 5])
def test_weak_order_one_for_a_drift_that_is_not_linear(stages):
    """E[Y^2] at time 1 of dY = -Y^3 dt + dB, by quadrature over every step's noise."""
    nodes = torch.linspace(-4, 4, 1601, dtype=torch.float64)
    z = torch.linspace(-6, 6, 41, dtype=torch.float64)
    weights = torch.softmax(-z.square() / 2, 0)

    def second_moment(steps):
        value = nodes.square()
        for _ in range(steps):
            y, noise = (t.reshape(-1, 1) for t in torch.meshgrid(nodes, z, indexing="ij"))
            new = srock_step(y, lambda u: -(u**3), 1.0, 1 / steps, stages, noise).clamp(-4, 4)
            at = (new.reshape(len(nodes), len(z)) + 4) / 0.005
            low = at.floor().clamp(0, 1599).long()
            value = ((value[low] + (at - low) * (value[low + 1] - value[low])) * weights).sum(1)
        return value[800].item()  # from Y = 0

    fine = second_moment(128)
    coarse, half = (abs(second_moment(n) - fine) for n in (8, 16))
    assert coarse < 0.1
    assert coarse / half > 1.7


def test_stages_and_diffusion_may_vary_by_place():
    y, noise = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(2))
    g = torch.rand(5, 1, generator=torch.Generator().manual_seed(3)) + 0.5
    whole = srock_step(y, lambda u: -u, g, 0.1, 4, noise)
    rows = [
        srock_step(y[i : i + 1], lambda u: -u, g[i].item(), 0.1, 4, noise[i : i + 1])
        for i in range(5)
    ]
    torch.testing.assert_close(whole, torch.cat(rows))


def test_the_drifts_result_is_not_written():
    kept = torch.ones(3, 2)
    srock_step(torch.zeros(3, 2), lambda u: kept, 1.0, 0.1, 5, torch.ones(3, 2))
    assert (kept == 1).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"stages": 0}, "stages"),
        ({"stages": 12}, "stages"),
        ({"h": 0.0}, "h"),
        ({"noise": torch.zeros(2)}, "noise"),
    ],
)
def test_bad_arguments(change, word):
    good = {
        "y": torch.zeros(2, 1),
        "drift": torch.sin,
        "diffusion": 1.0,
        "h": 0.1,
        "stages": 2,
        "noise": torch.zeros(2, 1),
    }
    with pytest.raises(ValueError, match=f"^{word}: got"):
        srock_step(**{**good, **change})
