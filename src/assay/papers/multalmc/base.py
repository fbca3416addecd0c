"""Base distributions nu of the diffusion path: what the sampler starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from assay.papers.multalmc.srock import Scalar, add_scaled
from assay.toolkits.checks import number


class Base(Protocol):
    """A spherical distribution around 0 whose density and score are known."""

    def sample(self, n: int, dim: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Exact draws, (n, dim), on the generator's device."""
        ...

    def score(self, x: Tensor) -> Tensor:
        """grad log nu at x, (N, d)."""
        ...

    def pull(
        self, total: Tensor, gap: Tensor, rate: Scalar, weight: Scalar, out: Tensor | None = None
    ) -> Tensor:
        """total - weight * rate * score(rate * gap), (N, d), in as few passes as there can be.

        Written into `out` if given, which may be `total` or `gap`.
        """
        ...

    def approach(
        self, at: Tensor, centre: Tensor, rate: Scalar, weight: Scalar, out: Tensor | None = None
    ) -> Tensor:
        """pull(at, centre - at, rate, weight), written into `out` if given, which is neither."""
        ...


@dataclass(frozen=True)
class Normal:
    """The standard normal, the paper's default."""

    def sample(self, n: int, dim: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        return torch.randn(n, dim, generator=generator, dtype=dtype, device=generator.device)

    def score(self, x: Tensor) -> Tensor:
        return -x

    def log_prob(self, x: Tensor) -> Tensor:
        """log nu up to a constant, (N,)."""
        return -0.5 * x.square().sum(-1)

    def pull(
        self, total: Tensor, gap: Tensor, rate: Scalar, weight: Scalar, out: Tensor | None = None
    ) -> Tensor:
        return add_scaled(total, gap, weight * rate * rate, out)

    def approach(
        self, at: Tensor, centre: Tensor, rate: Scalar, weight: Scalar, out: Tensor | None = None
    ) -> Tensor:
        return torch.lerp(at, centre, weight * rate * rate, out=out)


@dataclass(frozen=True)
class StudentT:
    """The multivariate t, density (1 + |x|^2 / df)^(-(df + d) / 2), for heavy-tailed targets.

    Args:
        df: degrees of freedom alpha, > 0; the smaller, the heavier the tails.

    Raises:
        TypeError, ValueError: `df` is no number > 0.
    """

    df: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", number("df", self.df, above=0))

    def sample(self, n: int, dim: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        normal = torch.randn(n, dim, generator=generator, dtype=dtype, device=generator.device)
        half = torch.full((n, 1), self.df / 2, dtype=dtype, device=generator.device)
        # torch's own chi-square takes no generator.
        chi2 = 2 * torch._standard_gamma(half, generator=generator)
        return normal * (self.df / chi2).sqrt_()

    def score(self, x: Tensor) -> Tensor:
        return -(self.df + x.shape[-1]) * x / (self.df + x.square().sum(-1, keepdim=True))

    def log_prob(self, x: Tensor) -> Tensor:
        """log nu up to a constant, (N,)."""
        return -0.5 * (self.df + x.shape[-1]) * torch.log1p(x.square().sum(-1) / self.df)

    def pull(
        self, total: Tensor, gap: Tensor, rate: Scalar, weight: Scalar, out: Tensor | None = None
    ) -> Tensor:
        r2 = torch.linalg.vector_norm(gap, dim=-1, keepdim=True).square_()
        scale = weight * rate * rate * (self.df + gap.shape[-1])
        return torch.addcmul(total, gap, scale / (self.df + rate * rate * r2), out=out)

    def approach(
        self, at: Tensor, centre: Tensor, rate: Scalar, weight: Scalar, out: Tensor | None = None
    ) -> Tensor:
        return self.pull(at, torch.sub(centre, at, out=out), rate, weight, out)
