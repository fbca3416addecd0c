"""SK-ROCK, the stabilised explicit integrator that drives the fast variable.

"Optimal explicit stabilized integrator of weak order 1 for stiff and ergodic stochastic
differential equations", Abdulle, Almuslimani and Vilmart, SIAM J. Sci. Comput. 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from assay.toolkits.checks import number, whole

DAMPING = 0.05
"""Damping eta: keeps the stability polynomial off +-1 inside its interval."""

MOST_STAGES = 11

Scalar: TypeAlias = float | Tensor
"""A number, or a tensor of no dimension: torch.compile takes a number for a constant."""

Euler = Callable[[Tensor, Any, Tensor | None], Tensor]


class Coefficients(NamedTuple):
    """Constants of a scheme; index i of a tuple belongs to stage i + 1."""

    omega0: float
    omega1: float
    drift: tuple[float, ...]
    last: tuple[float, ...]
    first_shift: float
    first_noise: float


def check_stages(name: str, stages: int) -> int:
    """A number of stages.

    Args:
        name: of the argument.
        stages: s, from 1 to 11.

    Raises:
        TypeError, ValueError: `stages` is no integer from 1 to 11.
    """
    if whole(name, stages) > MOST_STAGES:
        raise ValueError(f"{name}: got {stages}, wants an integer from 1 to {MOST_STAGES}")
    return stages


@cache
def coefficients(stages: int) -> Coefficients:
    """The constants mu_i (`drift`), nu_i (`last`), nu_1 (`first_shift`), kappa_1 (`first_noise`).

    Args:
        stages: s, from 1 to 11. One stage is the first stage's formula alone.

    Raises:
        TypeError, ValueError: `stages` is no integer from 1 to 11.
    """
    s = check_stages("stages", stages)
    omega0 = 1 + DAMPING / s**2
    t, slope = _chebyshev(s, omega0)
    omega1 = t[s] / slope[s]
    drift = [omega1 / omega0] + [2 * omega1 * t[i - 1] / t[i] for i in range(2, s + 1)]
    last = [1.0] + [2 * omega0 * t[i - 1] / t[i] for i in range(2, s + 1)]
    return Coefficients(
        omega0, omega1, tuple(drift), tuple(last), s * omega1 / 2, s * omega1 / omega0
    )


def _chebyshev(s: int, x: float) -> tuple[list[float], list[float]]:
    """T_0..T_s and their derivatives at x."""
    t, slope = [1.0, x], [0.0, 1.0]
    for _ in range(2, s + 1):
        slope.append(2 * t[-1] + 2 * x * slope[-1] - slope[-2])
        t.append(2 * x * t[-1] - t[-2])
    return t, slope


def stability_limit(stages: int) -> float:
    """The largest h k for which the drift -k y stays stable, 2 omega0 / omega1.

    About (2 - 4 eta / 3) s^2: 48 at five stages, against 2 for Euler's method.

    Args:
        stages: s, from 1 to 11.

    Raises:
        TypeError, ValueError: `stages` is no integer from 1 to 11.
    """
    c = coefficients(stages)
    return 2 * c.omega0 / c.omega1


def stability_polynomial(z: float | Tensor, stages: int) -> float | Tensor:
    """What one step without noise multiplies y by, T_s(omega0 - omega1 z) / T_s(omega0).

    Args:
        z: h k of the drift -k y; a number or a tensor of any shape.
        stages: s, from 1 to 11.

    Returns:
        The factor, of z's kind and shape: 1 - z + O(z^2), and at most 1 in size for z from 0 to
        `stability_limit(stages)`.

    Raises:
        TypeError, ValueError: `stages` is no integer from 1 to 11.
    """
    c = coefficients(stages)
    at = c.omega0 - c.omega1 * z
    before: float | Tensor = at * 0 + 1
    now = at
    for _ in range(2, stages + 1):
        before, now = now, 2 * at * now - before
    return now / _chebyshev(stages, c.omega0)[0][stages]


def srock_step(
    y: Tensor,
    drift: Callable[[Tensor], Tensor],
    diffusion: float | Tensor,
    h: float,
    stages: int,
    noise: Tensor,
) -> Tensor:
    """One step of dY = F(Y) dt + g dB with `stages` evaluations of F and one Gaussian draw.

    Args:
        y: where the step starts, (N, d).
        drift: F, from (N, d) to (N, d). What it returns is read, never written.
        diffusion: g, a number or a tensor that broadcasts to (N, d), as it is at the start.
        h: time step, > 0.
        stages: s, from 1 to 11.
        noise: standard normal, (N, d).

    Returns:
        Y at the end of the step, a new (N, d) tensor.

    Raises:
        TypeError, ValueError: `stages` or `h` is out of range, or `noise` has not y's shape.
    """
    number("h", h, above=0)
    if noise.shape != y.shape:
        raise ValueError(f"noise: got shape {tuple(noise.shape)}, wants y's, {tuple(y.shape)}")
    return integrate(y, euler_of(drift), diffusion, h, coefficients(stages), noise)


def euler_of(drift: Callable[[Tensor], Tensor]) -> Euler:
    """Euler's step of a drift, as `integrate` wants it."""

    def euler(at: Tensor, time: Scalar, out: Tensor | None) -> Tensor:
        return add_scaled(at, drift(at), time, out)

    return euler


def integrate(
    y: Tensor,
    euler: Euler,
    diffusion: float | Tensor,
    h: Scalar,
    c: Coefficients,
    noise: Tensor,
    work: Sequence[Tensor | None] = (None, None, None),
) -> Tensor:
    """`srock_step` without its checks, for loops and for torch.compile, which cannot trace them.

    Args:
        y, diffusion, noise: as of `srock_step`.
        euler: y + time F(y), from y, a time and the tensor to write it into, which is not y. A
            stage is such a step and a relaxation, which takes fewer passes than the sum of terms
            that it equals.
        h: time step.
        c: constants of the scheme.
        work: three tensors like y that are written, the result being one of them; new ones where
            None. Memory of this size comes from the system anew each time, at the price of
            several passes over it.
    """
    one, two, spare = work
    weight = h**0.5
    if isinstance(diffusion, Tensor):
        noise = noise * diffusion
    else:
        weight = weight * diffusion
    shifted = add_scaled(y, noise, c.first_shift * weight, out=one)
    now = euler(shifted, c.drift[0] * h, two)
    now = add_scaled(now, noise, (c.first_noise - c.first_shift) * weight, out=two)
    before, free, other = y, one, two
    for mu, nu in zip(c.drift[1:], c.last[1:], strict=True):
        moved = euler(now, mu / nu * h, spare)
        before, now = now, torch.lerp(before, moved, nu, out=free)
        free, other = other, free
    return now


def add_scaled(x: Tensor, y: Tensor, weight: Scalar, out: Tensor | None = None) -> Tensor:
    """x + weight y in one pass, for a number or, in compiled code, a tensor of no dimension."""
    if isinstance(weight, Tensor):
        return x + weight * y
    return torch.add(x, y, alpha=weight, out=out)
