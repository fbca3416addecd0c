"""MultALMC step by step as its equations say: short and slow.

The fast version is tested against it, draw for draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.papers.multalmc import srock
from assay.papers.multalmc.base import Base, StudentT
from assay.papers.multalmc.score_identity import Score, fast_score, form_a, form_b


@dataclass(frozen=True)
class ReferenceStep:
    """One step of MultALMC with Euler's friction, from explicit draws.

    Args:
        score: grad log pi, (N, d) to (N, d).
        base: nu.
        step_size, eps, mass, lambda_delta, lambda_switch, srock_stages, fast, fast_scale: as of
            `MultALMC`.
    """

    score: Score
    base: Base
    step_size: float
    eps: float = 0.1
    mass: float = 1.0
    lambda_delta: float = 0.01
    lambda_switch: float = 0.6
    srock_stages: int = 5
    fast: str = "langevin"
    fast_scale: str = "path"

    def underdamped(
        self, x: Tensor, v: Tensor, y: Tensor, lam: float, gamma: float, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """X, V and Y after a whole step, its two halves of friction included.

        Args:
            x, v, y: where it starts, (N, d) each.
            lam: lambda, unclamped.
            gamma: friction Gamma.
            noise: standard normal (3, N, d), of the first half, Y, and the second half.
        """
        h = self.step_size
        v = self._half_friction(v, gamma, noise[0])
        v = v + h / 2 * self.slow_score(x, y, lam)
        x = x + h * v / self.mass
        y = self.fast_step(x, y, lam, noise[1])
        v = v + h / 2 * self.slow_score(x, y, lam)
        return x, self._half_friction(v, gamma, noise[2]), y

    def overdamped(self, x: Tensor, y: Tensor, lam: float, noise: Tensor) -> tuple[Tensor, Tensor]:
        """X and Y after a step.

        Args:
            x, y: where it starts, (N, d) each.
            lam: lambda, unclamped.
            noise: standard normal (2, N, d), of X and Y.
        """
        h = self.step_size
        x = x + h * self.slow_score(x, y, lam) + math.sqrt(2 * h) * noise[0]
        return x, self.fast_step(x, y, lam, noise[1])

    def _half_friction(self, v: Tensor, gamma: float, noise: Tensor) -> Tensor:
        h = self.step_size
        return (1 - h / 2 * gamma / self.mass) * v + math.sqrt(h * gamma) * noise

    def slow_score(self, x: Tensor, y: Tensor, lam: float) -> Tensor:
        """The estimate b of the path's score; the target's own score at the path's end."""
        if lam >= 1 - self.lambda_delta:
            return self.score(x)
        lam = max(lam, self.lambda_delta)
        if lam < self.lambda_switch:
            return form_a(self.base, lam, x, y)
        return form_b(self.score, lam, y)

    def fast_step(self, x: Tensor, y: Tensor, lam: float, noise: Tensor) -> Tensor:
        """Y after a step; as it was at the path's end, where nothing reads it."""
        if lam >= 1 - self.lambda_delta:
            return y
        lam = max(lam, self.lambda_delta)
        eps = self.eps / lam if self.fast_scale == "target" else self.eps

        def weight(y: Tensor) -> Tensor:
            if self.fast == "langevin":
                return torch.ones_like(y[:, :1])
            assert isinstance(self.base, StudentT)
            return 1 + (y - x).square().sum(-1, keepdim=True) / self.base.df

        def drift(y: Tensor) -> Tensor:
            slope = 2 * (y - x) / self.base.df if isinstance(self.base, StudentT) else 0.0
            slope = 0.0 if self.fast == "langevin" else slope
            return (weight(y) * fast_score(self.score, self.base, lam, x, y) + slope) / eps

        diffusion = (2 * weight(y) / eps).sqrt()
        return srock.srock_step(y, drift, diffusion, self.step_size, self.srock_stages, noise)
