"""The score of the diffusion path as an average, and the fast process it is an average over.

X_t on the path is sqrt(lambda) X + sqrt(1 - lambda) Z with X ~ pi and Z ~ nu. With
rho(y) ~ nu((x - y) / sqrt(1 - lambda)) exp(-V(y / sqrt(lambda))), the score of X_t's law at x is
the mean over Y ~ rho of either form below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from assay.papers.multalmc.base import Base, StudentT
from assay.papers.multalmc.srock import Euler, Scalar, add_scaled

Score = Callable[[Tensor], Tensor]


def form_a(base: Base, lam: float, x: Tensor, y: Tensor) -> Tensor:
    """grad log nu((x - y) / sqrt(1 - lambda)) / sqrt(1 - lambda), of no use as lambda nears 1.

    Args:
        base: nu.
        lam: lambda, from 0 to below 1.
        x: position, (N, d).
        y: fast variable, (N, d).

    Returns:
        (N, d), of mean grad log mu(x).
    """
    root = math.sqrt(1 - lam)
    return base.score((x - y) / root) / root


def form_b(score: Score, lam: float, y: Tensor) -> Tensor:
    """-grad V(y / sqrt(lambda)) / sqrt(lambda), of no use as lambda nears 0.

    Args:
        score: grad log pi, (N, d) to (N, d).
        lam: lambda, from above 0 to 1.
        y: fast variable, (N, d).

    Returns:
        (N, d), of mean grad log mu(x).
    """
    root = math.sqrt(lam)
    return score(y / root) / root


def fast_score(score: Score, base: Base, lam: float, x: Tensor, y: Tensor) -> Tensor:
    """f, the gradient of log rho at y: the drift of the fast process.

    Args:
        score: grad log pi, (N, d) to (N, d).
        base: nu.
        lam: lambda, from above 0 to below 1.
        x: position, (N, d).
        y: fast variable, (N, d).
    """
    return form_b(score, lam, y) - form_a(base, lam, x, y)


def scaled_langevin(score: Score, base: Base, lam: Scalar, x: Tensor) -> tuple[Score, float]:
    """Langevin dynamics of rho in the variable z = y / sqrt(lambda).

    In it, with time counted in units of lambda, dZ = [grad log pi(Z) + ...] dt + sqrt(2) dB, which
    takes fewer operations at a stage than the same in y.

    Args:
        score: grad log pi, (N, d) to (N, d).
        base: nu.
        lam: lambda, from above 0 to below 1.
        x: position, (N, d).

    Returns:
        Drift, from z to (N, d), and diffusion.
    """
    centre, rate = x / lam**0.5, (lam / (1 - lam)) ** 0.5

    def drift(z: Tensor) -> Tensor:
        return base.pull(score(z), centre - z, rate, 1.0)

    return drift, math.sqrt(2)


def langevin_euler(score: Score, base: Base, centre: Tensor, rate: Scalar) -> Euler:
    """The Euler step of `scaled_langevin`'s drift, in fewer passes over memory.

    Args:
        score: grad log pi, (N, d) to (N, d).
        base: nu.
        centre: x / sqrt(lambda), (N, d).
        rate: sqrt(lambda / (1 - lambda)).
    """

    def euler(z: Tensor, time: Scalar, out: Tensor | None) -> Tensor:
        moved = base.approach(z, centre, rate, time, out)
        return add_scaled(moved, score(z), time, out=moved)

    return euler


def scaled_ito(
    score: Score, base: StudentT, lam: Scalar, x: Tensor, z: Tensor
) -> tuple[Score, Tensor]:
    """A diffusion that leaves rho as it is and moves faster the further out y is.

    dY = [w f + grad w] dt + sqrt(2 w) dB with w(y) = 1 + |y - x|^2 / df, written in z and time as
    `scaled_langevin` is.

    Args:
        score: grad log pi, (N, d) to (N, d).
        base: nu; w has its degrees of freedom.
        lam: lambda, from above 0 to below 1.
        x: position, (N, d).
        z: where the diffusion is evaluated, (N, d).

    Returns:
        Drift, from z to (N, d), and diffusion at z, (N, 1).
    """
    langevin, _ = scaled_langevin(score, base, lam, x)
    centre, curvature = x / lam**0.5, lam / base.df

    def weight(gap: Tensor) -> Tensor:
        return 1 + curvature * gap.square().sum(-1, keepdim=True)

    def drift(z: Tensor) -> Tensor:
        gap = centre - z
        return torch.addcmul(-2 * curvature * gap, weight(gap), langevin(z))

    return drift, (2 * weight(centre - z)).sqrt()
