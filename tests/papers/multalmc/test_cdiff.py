from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from assay.papers.multalmc.cdiff import CriticallyDampedOU, OverdampedOU

TIMES = torch.tensor([0.0, 1e-6, 1e-3, 0.05, 0.3, 1.0, 2.7, 8.0, 20.0], dtype=torch.float64)
FRICTIONS = [0.07, 0.5, 2.0, 5.0]


def drift(friction, reverse=False):
    mass = friction**2 / 4
    sign = -1 if reverse else 1
    return torch.tensor(
        [[0, sign / mass], [-sign, -friction / mass]],
        dtype=torch.float64,
    )


def test_numbers_worked_out_by_hand_at_time_one():
    ou = CriticallyDampedOU(2.0)
    assert ou.mass == 1
    torch.testing.assert_close(
        ou.mean(1.0), torch.tensor([0.735759, -0.367879]).double(), atol=1e-6, rtol=0
    )
    expected = torch.tensor([[0.458659, 0.270671], [0.270671, 0.864665]]).double()
    torch.testing.assert_close(ou.covariance(1.0), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("friction", FRICTIONS)
def test_the_transition_is_the_matrix_exponential(friction):
    ou = CriticallyDampedOU(friction)
    times = TIMES[TIMES * 2 / friction < 40]
    forward = torch.linalg.matrix_exp(times[:, None, None] * drift(friction))
    backward = torch.linalg.matrix_exp(times[:, None, None] * drift(friction, reverse=True))
    size = forward.abs().max()
    assert (ou.matrix(times) - forward).abs().max() < 1e-12 * size
    assert (ou.reverse_matrix(times) - backward).abs().max() < 1e-12 * size


@pytest.mark.parametrize("friction", FRICTIONS)
@pytest.mark.parametrize("reverse", [False, True])
def test_covariances_solve_the_lyapunov_equation(friction, reverse):
    ou = CriticallyDampedOU(friction)
    a = drift(friction, reverse).numpy()
    noise = np.diag([0, 2 * friction])

    def slope(_, flat):
        c = flat.reshape(2, 2)
        return (a @ c + c @ a.T + noise).ravel()

    # Backwards the noise of a step is known exactly; forwards the velocity's own start counts too.
    start = np.zeros((2, 2)) if reverse else np.diag([0, ou.mass])
    for units in (0.02, 0.4, 1.5):
        t = units * friction
        solved = solve_ivp(
            slope, (0, t), start.ravel(), method="DOP853", rtol=1e-12, atol=1e-15
        ).y[:, -1].reshape(2, 2)  # fmt: skip
        if reverse:
            factor = ou.reverse_noise(t)
            closed = factor @ factor.T
        else:
            closed = ou.covariance(t)
        np.testing.assert_allclose(closed.numpy(), solved, rtol=1e-8, atol=1e-12)


def test_the_noise_of_a_short_step_keeps_its_digits():
    # By series: Cxx = 4u^3/3, Cxv = -2u^2, Cvv = 4u with u = t at Γ = 2, M = 1. As a difference of
    # matrices Cxx would be lost to rounding from t = 1e-5 on.
    ou = CriticallyDampedOU(2.0)
    t = torch.tensor([1e-9, 1e-7, 1e-5], dtype=torch.float64)
    factor = ou.reverse_noise(t)
    closed = factor @ factor.mT
    torch.testing.assert_close(closed[:, 0, 0], 4 * t**3 / 3, rtol=1e-4, atol=0)
    torch.testing.assert_close(closed[:, 1, 0], -2 * t**2, rtol=1e-4, atol=0)
    torch.testing.assert_close(closed[:, 1, 1], 4 * t, rtol=1e-4, atol=0)
    assert torch.linalg.det(ou.covariance(t)).isfinite().all()
    assert (ou.conditional(t)[2] > 0).all()


@pytest.mark.parametrize("ou", [CriticallyDampedOU(0.5), CriticallyDampedOU(2.0), OverdampedOU()])
def test_limits_of_long_and_of_no_time(ou):
    scales = torch.tensor(ou.scales, dtype=torch.float64)
    factor = ou.reverse_noise(60.0)
    torch.testing.assert_close(factor @ factor.mT, torch.diag(scales))
    assert ou.noise(60.0) == 1
    assert ou.mean(60.0).abs().max() < 1e-20
    assert torch.equal(ou.reverse_matrix(0.0), torch.eye(len(scales), dtype=torch.float64))
    assert ou.reverse_noise(0.0).abs().max() == 0
    assert ou.noise(0.0) == 0


@pytest.mark.parametrize("ou", [CriticallyDampedOU(0.5), CriticallyDampedOU(2.0), OverdampedOU()])
def test_a_reversed_step_keeps_the_equilibrium(ou):
    scales = torch.diag(torch.tensor(ou.scales, dtype=torch.float64))
    for t in (1e-8, 0.01, 0.7, 3.0):
        step, factor = ou.reverse_matrix(t), ou.reverse_noise(t)
        after = step @ scales @ step.mT + factor @ factor.mT
        torch.testing.assert_close(after, scales, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("ou", [CriticallyDampedOU(0.5), CriticallyDampedOU(2.0), OverdampedOU()])
def test_one_reading_holds_all_that_the_state_says(ou):
    scales = torch.tensor(ou.scales, dtype=torch.float64)
    t = torch.tensor([0.05, 0.4, 2.0], dtype=torch.float64)
    mean, noise = ou.mean(t), ou.noise(t)
    covariance = torch.diag(scales) - mean[:, :, None] * mean[:, None, :]
    solved = torch.linalg.solve(covariance, mean)
    torch.testing.assert_close(solved, mean / scales / noise[:, None], rtol=1e-8, atol=1e-10)


def test_the_conditional_is_that_of_the_joint_law():
    ou = CriticallyDampedOU(1.3)
    mean, gain, variance = ou.conditional(0.8)
    c = ou.covariance(0.8)
    torch.testing.assert_close(gain, c[0, 1] / c[0, 0])
    torch.testing.assert_close(variance, c[1, 1] - c[0, 1] ** 2 / c[0, 0])
    torch.testing.assert_close(mean, ou.mean(0.8))


def test_friction_is_a_unit_of_time():
    slow, fast = CriticallyDampedOU(0.2), CriticallyDampedOU(2.0)
    u = torch.tensor([0.1, 1.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(slow.noise(u * 0.1), fast.noise(u))
    ratio = torch.tensor([1.0, math.sqrt(slow.mass)], dtype=torch.float64)
    torch.testing.assert_close(slow.mean(u * 0.1), fast.mean(u) * ratio)
    torch.testing.assert_close(slow.reverse_noise(u * 0.1), ratio[:, None] * fast.reverse_noise(u))


@pytest.mark.parametrize("friction", [0.0, -1.0, math.nan, math.inf])
def test_a_friction_that_is_none_is_refused(friction):
    with pytest.raises(ValueError, match="friction"):
        CriticallyDampedOU(friction)


@pytest.mark.parametrize("t", [-0.1, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(t):
    with pytest.raises(ValueError, match="t: got"):
        CriticallyDampedOU().noise(t)
    with pytest.raises(ValueError, match="t: got"):
        OverdampedOU().mean(t)
    with pytest.raises(ValueError, match="t: got"):
        CriticallyDampedOU().conditional(0.0)
