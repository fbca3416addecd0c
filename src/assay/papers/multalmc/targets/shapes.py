"""Densities known for their shapes: concentric rings, Neal's funnel, products of double wells."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from assay.papers.multalmc.targets.base import AnalyticTarget, rand, randn
from assay.toolkits.checks import number, whole


class Rings(AnalyticTarget):
    """Concentric rings in the plane: the radius is a mixture of Gaussians, the angle uniform.

    In Cartesian coordinates ``log p = log sum_k N(r; k, width^2) - log r`` up to a constant. Modes
    are the rings themselves, so that `modes` is None; `assign` and `mode_weights` are by ring.

    Args:
        rings: Their number, >= 1; radii are 1, 2, ...
        width: Standard deviation of the radius around each ring, > 0; far below 1, as a radius
            below 0 is taken to be impossible.

    Raises:
        TypeError, ValueError: An argument outside its range.
    """

    def __init__(self, rings: int = 4, width: float = 0.15) -> None:
        super().__init__(2)
        self.radii = torch.arange(1, whole("rings", rings) + 1, dtype=torch.float64)
        self.width = number("width", width, above=0, most=0.25)
        self.mode_weights = torch.full((rings,), 1 / rings, dtype=torch.float64)

    def _gaps(self, radius: Tensor) -> Tensor:
        """From each radius to each ring, ``(K, N)``, in widths."""
        return (self._like("radii", radius)[:, None] - radius) / self.width

    def log_prob(self, x: Tensor) -> Tensor:
        """Normalised log-density, ``(N,)``.

        Args:
            x: Points, ``(N, 2)``.
        """
        radius = x.norm(dim=1)
        constant = 1.5 * math.log(2 * math.pi) + math.log(self.width * len(self.radii))
        logits = -0.5 * self._gaps(radius).square()
        return logits.logsumexp(0) - radius.log() - constant

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, 2)``.

        Args:
            x: Points, ``(N, 2)``.
        """
        radius = x.norm(dim=1)
        gaps = self._gaps(radius)
        gap = ((-0.5 * gaps.square()).softmax(0) * gaps).sum(0)
        return x * ((gap / self.width - 1 / radius) / radius)[:, None]

    def assign(self, x: Tensor) -> Tensor:
        """Index of the nearest ring, ``(N,)``.

        Args:
            x: Points, ``(N, 2)``.
        """
        return (x.norm(dim=1) - 0.5).floor().long().clamp(0, len(self.radii) - 1)

    def sample(
        self, n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Exact draws, ``(n, 2)``, on the generator's device.

        Args:
            n: How many, >= 1.
            generator: Source; None is torch's own.
            dtype: Default: torch's default.
        """
        angle = 2 * math.pi * rand(n, generator, dtype)
        ring = 1 + (len(self.radii) * rand(n, generator, dtype)).floor()
        radius = (ring + self.width * randn(n, 1, generator, dtype)[:, 0]).abs()
        return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


class Funnel(AnalyticTarget):
    """Neal's funnel: ``x_1 ~ N(0, variance)``, ``x_i | x_1 ~ N(0, exp(x_1))``.

    Args:
        dim: Dimension, >= 2.
        variance: Of the first coordinate, > 0: 9 in Neal's paper and here, 3 in the code of SLIPS.

    Raises:
        TypeError, ValueError: An argument outside its range.
    """

    def __init__(self, dim: int = 10, variance: float = 9.0) -> None:
        super().__init__(whole("dim", dim, 2))
        self.variance = number("variance", variance, above=0)

    def log_prob(self, x: Tensor) -> Tensor:
        """Normalised log-density, ``(N,)``; float32 overflows where ``x_1 < -88``.

        Args:
            x: Points, ``(N, d)``.
        """
        first, squares = x[:, 0], (x[:, 1:] ** 2).sum(1)
        constant = self.dim * math.log(2 * math.pi) + math.log(self.variance)
        quadratic = first**2 / self.variance + squares * (-first).exp()
        return -0.5 * (quadratic + (self.dim - 1) * first + constant)

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Points, ``(N, d)``.
        """
        first, others = x[:, :1], x[:, 1:]
        precision = (-first).exp()
        pull = 0.5 * (precision * (others**2).sum(1, keepdim=True) - (self.dim - 1))
        return torch.cat([pull - first / self.variance, -precision * others], 1)

    def sample(
        self, n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Exact draws, ``(n, d)``, on the generator's device.

        Args:
            n: How many, >= 1.
            generator: Source; None is torch's own.
            dtype: Default: torch's default.
        """
        normal = randn(n, self.dim, generator, dtype)
        first = math.sqrt(self.variance) * normal[:, :1]
        return torch.cat([first, (first / 2).exp() * normal[:, 1:]], 1)


class DoubleWell(AnalyticTarget):
    """Independent double wells: ``V(x) = sum_{i<=m} (x_i^2 - delta)^2 + sum_{i>m} x_i^2 / 2``.

    The ``2^m`` modes are the sign patterns of the first m coordinates, all of equal weight.

    Args:
        dim: Dimension, >= 1.
        wells: m, the number of coordinates with two wells, 1 to 16. Default: 5, or `dim` where
            that is less.
        delta: Square of the place of a well, > 0; the barrier between two is ``delta^2``.

    Raises:
        TypeError, ValueError: An argument outside its range.
    """

    def __init__(self, dim: int = 5, wells: int | None = None, delta: float = 4.0) -> None:
        super().__init__(dim)
        self.wells = whole("wells", min(5, dim) if wells is None else wells)
        if self.wells > min(16, dim):
            raise ValueError(f"wells: got {wells}, wants <= {min(16, dim)}")
        self.delta = number("delta", delta, above=0)
        count = 2**self.wells
        bits = (torch.arange(count)[:, None] >> torch.arange(self.wells)) & 1
        self.modes = torch.zeros(count, dim, dtype=torch.float64)
        self.modes[:, : self.wells] = (2 * bits - 1) * math.sqrt(self.delta)
        self.mode_weights = torch.full((count,), 1 / count, dtype=torch.float64)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density up to a constant, ``(N,)``.

        Args:
            x: Points, ``(N, d)``.
        """
        wells, rest = x[:, : self.wells], x[:, self.wells :]
        return -((wells**2 - self.delta) ** 2).sum(1) - 0.5 * (rest**2).sum(1)

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Points, ``(N, d)``.
        """
        wells, rest = x[:, : self.wells], x[:, self.wells :]
        return torch.cat([-4 * wells * (wells**2 - self.delta), -rest], 1)

    def assign(self, x: Tensor) -> Tensor:
        """Index of the sign pattern of the first m coordinates, ``(N,)``.

        Args:
            x: Points, ``(N, d)``.
        """
        powers = 2 ** torch.arange(self.wells, device=x.device)
        return ((x[:, : self.wells] > 0) * powers).sum(1)

    @cached_property
    def normaliser(self) -> float:
        """Integral of ``exp(-(x^2 - delta)^2)`` over the line, by quadrature."""
        from scipy.integrate import quad

        place = math.sqrt(self.delta)
        half, _ = quad(
            lambda x: math.exp(-((x * x - self.delta) ** 2)), 0, place + 5, points=[place]
        )
        return 2 * half

    def well_density(self, x: np.ndarray) -> np.ndarray:
        """Marginal density of any of the first m coordinates, of the shape of `x`.

        Args:
            x: Points on the line.
        """
        return np.exp(-((np.square(x) - self.delta) ** 2)) / self.normaliser

    @cached_property
    def _quantiles(self) -> tuple[np.ndarray, np.ndarray]:
        # The positive half only: signs are exactly even. The cut tails hold less than 1e-16.
        place = math.sqrt(self.delta)
        grid = np.linspace(0, place + 4 / max(place, 1), 20001)
        density = self.well_density(grid)
        cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
        return cdf / cdf[-1], grid

    def sample(
        self, n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Exact draws, ``(n, d)``, by the inverse distribution function.

        Args:
            n: How many, >= 1.
            generator: Source; None is torch's own.
            dtype: Default: torch's default.
        """
        x = randn(n, self.dim, generator, dtype)
        uniform = rand(2 * n * self.wells, generator, torch.float64).cpu().numpy()
        size, sign = uniform.reshape(2, n, self.wells)
        wells = np.interp(size, *self._quantiles) * np.where(sign < 0.5, -1, 1)
        x[:, : self.wells] = torch.from_numpy(wells).to(x)
        return x
