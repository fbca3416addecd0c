"""What the slope's adaptation costs in privacy, and how the noise is split to pay for it.

A step releases two sums over one batch: the clipped gradients, with sensitivity C, and the slope
direction, with sensitivity ``0.4477433 / alpha``. Noise multipliers sigma_s and sigma_r are
relative to these. Both releases together cost what one Gaussian mechanism of the equivalent
multiplier sigma costs, which is what an accountant is told.
"""

from __future__ import annotations

import math

import numpy as np

from assay.toolkits.checks import number, one_of

SENSITIVITY = 0.4477433
"""max_z (z / 2) sech^2(z / 2), reached where z tanh(z / 2) = 1; rounded up from 0.44774320."""

WORST_Z = 1.5434046
"""The z = alpha x of a gradient that moves the slope direction most."""

JOINT_RATIO = 1.4801865
"""Least sigma_r / sigma at which sigma_s = sigma is enough; rounded up from 1.48018644."""

ACCOUNTINGS = ("paper", "joint")


def sensitivity(slope: float) -> float:
    """How far one sample moves the slope direction: ``0.4477433 / alpha``.

    Args:
        slope: alpha, > 0.

    Returns:
        The L2 sensitivity of the sum of slope gradients at C = 1.

    Raises:
        TypeError, ValueError: a slope that is no finite number > 0.

    Source: the paper's lemma 5.1, where the constant is rounded to 0.448.
    """
    return SENSITIVITY / number("slope", slope, above=0)


def split_noise(sigma: float, ratio: float | str = 1.01) -> tuple[float, float]:
    """Splits a noise multiplier between the clipped sum and the slope direction.

    Args:
        sigma: the equivalent noise multiplier, >= 0; 0 gives no noise at all.
        ratio: sigma_s / sigma, > 1 (the paper's is 1.01), for
            ``1 / sigma^2 = 1 / sigma_s^2 + 1 / sigma_r^2``; or "joint" for sigma_s = sigma and
            sigma_r = `JOINT_RATIO` sigma, see `equivalent_multiplier`.

    Returns:
        (sigma_s, sigma_r).

    Raises:
        TypeError, ValueError: `sigma` or `ratio` is outside its range.

    Source: the paper's proposition 6.1.
    """
    number("sigma", sigma, least=0)
    if isinstance(ratio, str):
        one_of("ratio", ratio, ["joint"])
        return sigma, JOINT_RATIO * sigma
    number("ratio", ratio, above=1)
    # (1 - 1 / ratio)(1 + 1 / ratio) keeps its digits where 1 - 1 / ratio^2 loses them.
    return ratio * sigma, sigma / math.sqrt((1 - 1 / ratio) * (1 + 1 / ratio))


def equivalent_multiplier(sigma_s: float, sigma_r: float, accounting: str = "paper") -> float:
    """Noise multiplier of the one Gaussian mechanism that a step's two releases amount to.

    "paper" adds the two worst cases: ``1 / sigma^2 = 1 / sigma_s^2 + 1 / sigma_r^2``. But no
    sample is the worst for both: with z = alpha x it moves the clipped sum by tanh(z / 2) and
    the slope direction by h(z) = (z / 2) sech^2(z / 2), which vanishes where the first saturates.
    "joint" takes the worst sample for both together:
    ``1 / sigma^2 = max_z tanh^2(z / 2) / sigma_s^2 + (h(z) / 0.4477433)^2 / sigma_r^2``.

    Proof: both sums, each divided by its noise's standard deviation, are one vector with standard
    normal noise. A sample shifts it by the two terms above along one direction of gradients, and
    what Gaussian noise hides, under Poisson sampling too, depends on the length of the shift
    alone. It is at most 1 / sigma, as in a step of DP-SGD; that the slope depends on earlier
    releases is adaptive composition. For sigma_s = sigma and u = z / 2 the length is within that
    if ``tanh^2 u + (u sech^2 u / (0.4477433 k))^2 <= 1`` with k = sigma_r / sigma. As
    ``1 - tanh^2 u = sech^2 u``, that is ``u sech u <= 0.4477433 k`` for all u. The left side is
    largest where ``u tanh u = 1``, 0.66274, which makes k at least `JOINT_RATIO`.

    Args:
        sigma_s: noise multiplier of the clipped sum, > 0.
        sigma_r: noise multiplier of the slope direction, > 0.
        accounting: "paper" or "joint".

    Returns:
        The equivalent multiplier sigma.

    Raises:
        TypeError, ValueError: an argument outside its range.

    Source: "paper" is proposition 6.1; "joint" is not in the paper.
    """
    number("sigma_s", sigma_s, above=0)
    number("sigma_r", sigma_r, above=0)
    if one_of("accounting", accounting, ACCOUNTINGS) == "paper":
        return (sigma_s**-2 + sigma_r**-2) ** -0.5
    # With t = tanh(z / 2), h = artanh(t) (1 - t^2), and t = 1 is the limit z -> inf.
    t = np.linspace(0, 1, 1_000_001)[1:-1]
    losses = (t / sigma_s) ** 2 + (np.arctanh(t) * (1 - t**2) / SENSITIVITY / sigma_r) ** 2
    return float(max(losses.max(), sigma_s**-2) ** -0.5)
