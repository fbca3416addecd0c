"""Ornstein-Uhlenbeck diffusions in closed form: the critically damped one and the overdamped one.

Both are written for one coordinate; coordinates are independent. With `z = (x, v)` the critically
damped one is `dX = V/M dt, dV = -X dt - (Γ/M) V dt + sqrt(2Γ) dB` with `Γ^2 = 4M`, and leaves
`N(0, S)`, `S = diag(1, M)`, invariant. The overdamped one has `z = x`, `dX = -X dt + sqrt(2) dB`
and `S = 1`. Started at `x = y` (and `v` from `N(0, M)`) the law at time t is
`N(m y, S - m m^T)`, where `m` is the first column of the transition matrix.

Two facts keep every formula exact for short times. The variance that is left when all coordinates
of z are used, `p = 1 - m^T S^-1 m`, is a regularised incomplete gamma function, so nothing is a
difference of nearly equal numbers. And by Sherman-Morrison `(S - m m^T)^-1 m = S^-1 m / p`: all
that z says of y is the one number `r = m^T S^-1 z`, a reading of y at signal-to-noise ratio
`(1 - p) / p`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.toolkits.checks import number


def _times(t: float | Tensor) -> Tensor:
    """The times as float64, whatever they came as: these are computed once for a run."""
    times = torch.as_tensor(t, dtype=torch.float64)
    if not bool((torch.isfinite(times) & (times >= 0)).all()):
        raise ValueError(f"t: got {t}, wants finite times >= 0")
    return times


def _matrix(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.stack([torch.stack([a, b], -1), torch.stack([c, d], -1)], -2)


_REVERSED = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)


class CriticallyDampedOU:
    """The critically damped Ornstein-Uhlenbeck process of position and velocity.

    The friction only sets the unit of time: at `u = 2t/Γ` and velocities in units of `Γ/2` the
    process is the same for every Γ.

    Args:
        friction: Γ > 0. The mass is `Γ^2 / 4`.
    """

    def __init__(self, friction: float = 2.0) -> None:
        self.friction = number("friction", friction, above=0)

    @property
    def mass(self) -> float:
        """M, the variance of the velocity in equilibrium."""
        return self.friction**2 / 4

    @property
    def scales(self) -> tuple[float, ...]:
        """The diagonal of S."""
        return 1.0, self.mass

    def matrix(self, t: float | Tensor) -> Tensor:
        """`e^{At}`, what the process makes of the mean of z in a time t.

        Args:
            t: times >= 0, of any shape.

        Returns:
            float64 `(*t.shape, 2, 2)`.
        """
        times = _times(t)
        u = 2 * times / self.friction
        return u.neg().exp()[..., None, None] * _matrix(1 + u, 2 * u / self.friction, -times, 1 - u)

    def reverse_matrix(self, t: float | Tensor) -> Tensor:
        """The same for the process run backwards in equilibrium, `dX = -V/M dt, dV = X dt - ...`.

        Args:
            t: times >= 0, of any shape.

        Returns:
            float64 `(*t.shape, 2, 2)`.
        """
        return self.matrix(t) * _REVERSED

    def reverse_noise(self, t: float | Tensor) -> Tensor:
        """The lower Cholesky factor of the noise that the reversed process gathers in a time t.

        Args:
            t: times >= 0, of any shape.

        Returns:
            float64 `(*t.shape, 2, 2)`, a factor of `S - e^{Bt} S e^{Bt}^T` for `B` reversed. Zero
            at t = 0.
        """
        times = _times(t)
        u = 2 * times / self.friction
        decay = (-2 * u).exp()
        xx = self.noise(times)
        xv = -2 * u**2 * decay
        across = torch.where(xx > 0, xv / xx.clamp_min(1e-300).sqrt(), 0.0)
        vv = xx + 4 * u * decay - across**2
        root = math.sqrt(self.mass)
        return _matrix(xx.sqrt(), torch.zeros_like(xx), root * across, root * vv.sqrt())

    def mean(self, t: float | Tensor) -> Tensor:
        """m: the mean of z at time t for a start at y = 1 is `(m1, m3)`.

        Args:
            t: times >= 0, of any shape.

        Returns:
            float64 `(*t.shape, 2)`.
        """
        return self.matrix(t)[..., 0]

    def noise(self, t: float | Tensor) -> Tensor:
        """`p = 1 - m^T S^-1 m`, which grows from 0 (z tells y) to 1 (z tells nothing).

        Args:
            t: times >= 0, of any shape.

        Returns:
            float64 of t's shape.
        """
        x = 4 * _times(t) / self.friction
        return torch.special.gammainc(torch.full_like(x, 3.0), x)

    def time_of_noise(self, noise: float) -> float:
        """The time at which p has a given value.

        Args:
            noise: p, > 0, < 1.
        """
        from scipy.special import gammaincinv

        return float(gammaincinv(3, noise)) * self.friction / 4

    def covariance(self, t: float | Tensor) -> Tensor:
        """`S - m m^T`, the covariance of z at time t given the start y.

        Args:
            t: times >= 0, of any shape.

        Returns:
            float64 `(*t.shape, 2, 2)`.
        """
        position, velocity = self.mean(t).unbind(-1)
        across = -position * velocity
        # 1 - m1^2 = p + m3^2/M, without the difference.
        return _matrix(
            self.noise(t) + velocity**2 / self.mass, across, across, self.mass - velocity**2
        )

    def conditional(self, t: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The law of v given x and the start y: `N(m3 y + gain (x - m1 y), variance)`.

        Args:
            t: times > 0, of any shape.

        Returns:
            `m = (m1, m3)` as in `mean`, the gain and the variance, float64 of t's shape.

        Raises:
            ValueError: a time is 0, when x is y and says nothing of v.
        """
        times = _times(t)
        if bool((times == 0).any()):
            raise ValueError(f"t: got {t}, wants times > 0")
        covariance = self.covariance(times)
        xx, xv = covariance[..., 0, 0], covariance[..., 0, 1]
        # The determinant of the covariance is M p.
        return self.mean(times), xv / xx, self.mass * self.noise(times) / xx


class OverdampedOU:
    """The Ornstein-Uhlenbeck process of a position alone, with the same methods."""

    friction = 1.0
    scales = (1.0,)

    def matrix(self, t: float | Tensor) -> Tensor:
        """`e^{-t}` as float64 `(*t.shape, 1, 1)`."""
        return _times(t).neg().exp()[..., None, None]

    # In equilibrium it is reversible.
    reverse_matrix = matrix

    def reverse_noise(self, t: float | Tensor) -> Tensor:
        """`sqrt(1 - e^{-2t})` as float64 `(*t.shape, 1, 1)`."""
        return self.noise(t).sqrt()[..., None, None]

    def mean(self, t: float | Tensor) -> Tensor:
        """m = `e^{-t}` as float64 `(*t.shape, 1)`."""
        return self.matrix(t)[..., 0]

    def noise(self, t: float | Tensor) -> Tensor:
        """`p = 1 - e^{-2t}` as float64 of t's shape."""
        return -(-2 * _times(t)).expm1()

    def time_of_noise(self, noise: float) -> float:
        """The time at which p has a given value, > 0 and < 1."""
        return -math.log1p(-noise) / 2
