"""What a step costs in privacy: constants, splits and both accountings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

pytest.importorskip("torch")
pytest.importorskip("opacus")

from assay.papers.adasig import equivalent_multiplier, sensitivity, split_noise
from assay.papers.adasig.privacy import JOINT_RATIO, SENSITIVITY, WORST_Z

Z = np.concatenate([np.linspace(1e-6, 8, 2_000_001), np.linspace(8, 600, 100_001)])
SPLITS = {"paper": split_noise(1.0), "joint": split_noise(1.0, "joint")}


def moved(z):
    """How far a gradient of norm z / alpha moves both sums, in units of their sensitivity."""
    return np.tanh(z / 2), z / 2 / np.cosh(z / 2) ** 2 / SENSITIVITY


def test_the_sensitivity_is_the_largest_slope_gradient_rounded_up():
    z = np.logspace(-4, 2.8, 1_000_000)
    largest = (z / 2 / np.cosh(z / 2) ** 2).max()
    assert largest <= SENSITIVITY < largest + 1e-6
    assert brentq(lambda z: z * math.tanh(z / 2) - 1, 1, 2) == pytest.approx(WORST_Z, abs=1e-7)
    assert sensitivity(4.0) == SENSITIVITY / 4


def test_the_papers_split():
    for ratio in (1.000001, 1.01, 1.5, 40.0):
        for sigma in (0.3, 1.0, 5.0):
            s, r = split_noise(sigma, ratio)
            assert s == ratio * sigma
            assert 1 / s**2 + 1 / r**2 == pytest.approx(1 / sigma**2, rel=1e-12)
            assert equivalent_multiplier(s, r) == pytest.approx(sigma, rel=1e-12)
    assert split_noise(1.0)[1] == pytest.approx(7.12399, abs=1e-5)
    assert split_noise(0.0) == (0.0, 0.0)


def test_the_joint_ratio_is_the_least_and_rounded_up():
    u = brentq(lambda u: u * math.tanh(u) - 1, 1, 2)
    exact = u / math.cosh(u) / (WORST_Z / 2 / math.cosh(WORST_Z / 2) ** 2)
    assert exact <= JOINT_RATIO < exact + 1e-7
    assert split_noise(2.0, "joint") == (2.0, 2.0 * JOINT_RATIO)


def test_joint_noise_covers_every_sample_and_less_does_not():
    s, r = moved(Z)
    assert (s**2 + (r / JOINT_RATIO) ** 2).max() <= 1
    assert (s**2 + (r / 1.479) ** 2).max() > 1
    assert equivalent_multiplier(1.0, JOINT_RATIO, "joint") == 1
    assert equivalent_multiplier(1.0, 1.479, "joint") < 1
    assert equivalent_multiplier(3.0, 3 * JOINT_RATIO, "joint") == 3


def test_jointly_the_papers_split_is_worth_more_than_it_claims():
    assert equivalent_multiplier(*SPLITS["paper"], "joint") == pytest.approx(1.01, rel=1e-9)
    for s, r in ((1.0, 1.0), (1.0, 0.3), (2.0, 5.0)):
        joint = equivalent_multiplier(s, r, "joint")
        a, b = moved(Z)
        assert joint == pytest.approx(((a / s) ** 2 + (b / r) ** 2).max() ** -0.5, rel=1e-9)
        assert joint >= equivalent_multiplier(s, r)


@pytest.mark.parametrize("accounting", SPLITS)
@pytest.mark.parametrize("sampling", [1.0, 0.05])
def test_no_sample_loses_more_than_one_gaussian_mechanism(accounting, sampling):
    """Both releases as a mechanism in the plane, integrated on a grid, for the worst z.

    Its hockey-stick divergence is compared with that of the Gaussian mechanism of multiplier
    sigma, with and without Poisson sampling, for removing and for adding a record.
    """
    sigma = 1.2
    noise = np.array(split_noise(sigma, 1.01 if accounting == "paper" else "joint"))
    axis = np.linspace(-9, 9, 721)
    weight = np.outer(norm.pdf(axis), norm.pdf(axis)) * (axis[1] - axis[0]) ** 2
    assert weight.sum() == pytest.approx(1, abs=1e-12)
    for z in (0.3, 1.0, WORST_Z, 2.0, 2.4, 3.0, 5.0, 20.0):
        shift = np.array(moved(z)) / noise
        # Log ratio of the shifted density to that at 0, on the grid of outcomes at 0.
        log_ratio = axis[:, None] * shift[0] + axis[None, :] * shift[1] - shift @ shift / 2
        ratio = 1 - sampling + sampling * np.exp(log_ratio)
        for epsilon in (0.05, 0.3, 1.0, 2.0):
            removed = (weight * np.maximum(ratio - math.exp(epsilon), 0)).sum()
            added = (weight * np.maximum(1 - math.exp(epsilon) * ratio, 0)).sum()
            bound = _gaussian_delta(sigma, sampling, epsilon)
            assert removed <= bound[0] + 1e-5
            assert added <= bound[1] + 1e-5


def _gaussian_delta(sigma, q, epsilon):
    """(remove, add) of the sampled Gaussian mechanism, in closed form."""
    level = math.exp(epsilon)

    def tail(threshold):  # integral of max(0, exp(log ratio) - threshold) at 0
        if threshold <= 0:
            return 1 - threshold
        a = math.log(threshold)
        return norm.cdf(0.5 / sigma - a * sigma) - threshold * norm.cdf(-0.5 / sigma - a * sigma)

    remove = q * tail(1 + (level - 1) / q)
    # max(0, 1 - e^eps (1 - q + q L)) = e^eps q max(0, c - L)
    c = (1 / level - 1 + q) / q
    add = level * q * (tail(c) - 1 + c) if c > 0 else 0.0
    return remove, add


@pytest.mark.parametrize("sampling", [1.0, 0.05])
def test_the_closed_form_is_dp_accountings(sampling):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    sigma = 1.2
    loss = from_gaussian_mechanism(
        sigma, sampling_prob=sampling, value_discretization_interval=1e-4
    )
    for epsilon in (0.05, 0.3, 1.0, 2.0):
        ours = max(_gaussian_delta(sigma, sampling, epsilon))
        assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(ours, rel=1e-3, abs=1e-9)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"slope: got -1.0, wants a finite number > 0"):
        sensitivity(-1.0)
    with pytest.raises(ValueError, match=r"sigma: got -1.0, wants a finite number >= 0"):
        split_noise(-1.0)
    with pytest.raises(ValueError, match=r"ratio: got 1.0, wants a finite number > 1"):
        split_noise(1.0, 1.0)
    with pytest.raises(ValueError, match=r"ratio: got 'best', wants one of joint"):
        split_noise(1.0, "best")
    with pytest.raises(ValueError, match=r"sigma_r: got 0.0, wants a finite number > 0"):
        equivalent_multiplier(1.0, 0.0)
    with pytest.raises(ValueError, match=r"accounting: got 'rdp', wants one of paper, joint"):
        equivalent_multiplier(1.0, 1.0, "rdp")
