"""Mixtures: of Gaussians, where even the law of the diffusion path is exact, and of Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.papers.multalmc.targets.base import AnalyticTarget, rand, randn
from assay.toolkits.checks import number, whole


class _Mixture(AnalyticTarget):
    """Components of equal shape around their means, each with a weight."""

    def __init__(self, means: Tensor, weights: Tensor | Sequence[float] | None) -> None:
        means = torch.as_tensor(means, dtype=torch.float64)
        if means.ndim != 2 or not means.isfinite().all():
            raise ValueError(f"means: got shape {tuple(means.shape)}, wants finite numbers (K, d)")
        super().__init__(means.shape[1])
        count = len(means)
        if weights is None:
            weights = torch.ones(count)
        weights = torch.as_tensor(weights, dtype=torch.float64)
        if weights.shape != (count,) or not ((weights > 0) & weights.isfinite()).all():
            raise ValueError(f"weights: got {weights.tolist()}, wants {count} numbers > 0")
        self.means = means
        self.modes = means
        self.mode_weights = weights / weights.sum()

    def _component(self, x: Tensor) -> Tensor:
        """Log of weight times density of each component, ``(K, N)``."""
        # Components first: a softmax over a short last dimension takes several times as long.
        raise NotImplementedError

    def _squared_distances(self, x: Tensor) -> Tensor:
        # By products, as (K, N, d) differences would not fit; centred, to lose fewer digits.
        centred = x - self._like("_centre", x)
        means = self._like("_centred", x)
        squares = (means * means).sum(1, keepdim=True) + (centred * centred).sum(1)
        return torch.addmm(squares, means, centred.T, alpha=-2).clamp_min(0)

    @property
    def _centre(self) -> Tensor:
        return self.means.mean(0)

    @property
    def _centred(self) -> Tensor:
        return self.means - self._centre

    @property
    def _log_weights(self) -> Tensor:
        assert self.mode_weights is not None
        return self.mode_weights.log()

    def log_prob(self, x: Tensor) -> Tensor:
        """Normalised log-density, ``(N,)``.

        Args:
            x: Points, ``(N, d)``.
        """
        return self._component(x).logsumexp(0)

    def mode_probabilities(self, x: Tensor) -> Tensor:
        """Posterior probability of each component, ``(N, K)``: its mean is an unbiased weight.

        Args:
            x: Points, ``(N, d)``.
        """
        return self._component(x).softmax(0).T

    def assign(self, x: Tensor) -> Tensor:
        """Index of the most probable component, ``(N,)``.

        Args:
            x: Points, ``(N, d)``.
        """
        return self._component(x).argmax(0)

    def _draw_means(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype | None
    ) -> tuple[Tensor, Tensor]:
        uniform = rand(n, generator, torch.float64)
        assert self.mode_weights is not None
        edges = self.mode_weights.cumsum(0)[:-1].to(uniform.device)
        index = torch.bucketize(uniform, edges, right=True)
        means = self.means.to(uniform.device, dtype or torch.get_default_dtype())
        return index, means[index]


class GaussianMixture(_Mixture):
    """Mixture of isotropic Gaussians, ``sum_k w_k N(m_k, v_k I)``.

    Args:
        means: ``(K, d)``.
        variance: One number > 0 for all components, or ``(K,)`` of them.
        weights: ``(K,)``, > 0, normalised here. Default: equal.

    Attributes:
        means, variances: ``(K, d)`` and ``(K,)``, float64.
        modes, mode_weights: The means and weights of the components.

    Raises:
        ValueError: Shapes that disagree, a variance or weight that is not > 0.
    """

    def __init__(
        self,
        means: Tensor,
        variance: float | Tensor = 1.0,
        weights: Tensor | Sequence[float] | None = None,
    ) -> None:
        super().__init__(means, weights)
        variances = torch.as_tensor(variance, dtype=torch.float64).expand(len(self.means)).clone()
        if not ((variances > 0) & variances.isfinite()).all():
            raise ValueError(f"variance: got {variances.tolist()}, wants finite numbers > 0")
        self.variances = variances
        self._equal = bool((variances == variances[0]).all())

    @property
    def _precisions(self) -> Tensor:
        return 1 / self.variances

    @property
    def _offsets(self) -> Tensor:
        return self._log_weights - 0.5 * self.dim * (2 * math.pi * self.variances).log()

    @property
    def _weighted_means(self) -> Tensor:
        return self._centred * self._precisions[:, None]

    @property
    def _biases(self) -> Tensor:
        return self._offsets - 0.5 * (self._centred * self._weighted_means).sum(1)

    def _component(self, x: Tensor) -> Tensor:
        squares = self._squared_distances(x)
        precisions = self._like("_precisions", x)[:, None]
        return self._like("_offsets", x)[:, None] - 0.5 * precisions * squares

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Points, ``(N, d)``.
        """
        centred = x - self._like("_centre", x)
        means, precisions = self._like("_weighted_means", x), self._like("_precisions", x)
        logits = torch.addmm(self._like("_biases", x)[:, None], means, centred.T)
        if self._equal:  # |x|^2 is the same for all components and drops out
            return torch.addcmul(logits.softmax(0).T @ means, centred, precisions[:1], value=-1)
        squares = (centred * centred).sum(1)
        share = torch.addcmul(logits, squares, precisions[:, None], value=-0.5).softmax(0).T
        return share @ means - centred * (share @ precisions)[:, None]

    def sample(
        self, n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Exact draws, ``(n, d)``, on the generator's device.

        Args:
            n: How many, >= 1.
            generator: Source; None is torch's own.
            dtype: Default: torch's default.
        """
        index, means = self._draw_means(n, generator, dtype)
        scale = self.variances.sqrt().to(means)[index, None]
        return means + scale * randn(n, self.dim, generator, dtype)

    def marginal(self, lam: float) -> GaussianMixture:
        """The law of ``sqrt(lam) X + sqrt(1 - lam) Z`` with Z standard normal, again a mixture.

        Args:
            lam: Place on the diffusion path, 0 to 1.

        Raises:
            ValueError: `lam` is outside 0 to 1.
        """
        lam = number("lam", lam, least=0, most=1)
        variances = lam * self.variances + 1 - lam
        return GaussianMixture(math.sqrt(lam) * self.means, variances, self.mode_weights)


class StudentMixture(_Mixture):
    """Mixture of multivariate Student's t with `df` degrees of freedom and scale 1.

    Each component is proportional to ``(1 + |x - m|^2 / df)^(-(df + d) / 2)``.

    Args:
        means: ``(K, d)``.
        df: Degrees of freedom, > 0. With 2, as in the paper, there is no variance.
        weights: ``(K,)``, > 0, normalised here. Default: equal.

    Attributes:
        means: ``(K, d)``, float64.
        modes, mode_weights: The means and weights of the components.

    Raises:
        ValueError: Shapes that disagree, a weight or `df` that is not > 0.
    """

    def __init__(
        self,
        means: Tensor,
        df: float = 2.0,
        weights: Tensor | Sequence[float] | None = None,
    ) -> None:
        super().__init__(means, weights)
        self.df = number("df", df, above=0)

    @property
    def _offsets(self) -> Tensor:
        norm = math.lgamma((self.df + self.dim) / 2) - math.lgamma(self.df / 2)
        return self._log_weights + norm - 0.5 * self.dim * math.log(math.pi * self.df)

    def _component(self, x: Tensor) -> Tensor:
        tails = torch.log1p(self._squared_distances(x) / self.df)
        return self._like("_offsets", x)[:, None] - 0.5 * (self.df + self.dim) * tails

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Points, ``(N, d)``.
        """
        squares = self._squared_distances(x)
        tails = torch.log1p(squares / self.df)
        logits = self._like("_offsets", x)[:, None] - 0.5 * (self.df + self.dim) * tails
        pull = (logits.softmax(0) * ((self.df + self.dim) / (self.df + squares))).T
        centred = x - self._like("_centre", x)
        return pull @ self._like("_centred", x) - centred * pull.sum(1, keepdim=True)

    def sample(
        self, n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Exact draws, ``(n, d)``, on the generator's device.

        Args:
            n: How many, >= 1.
            generator: Source; None is torch's own.
            dtype: Default: torch's default.
        """
        _, means = self._draw_means(n, generator, dtype)
        shape = torch.full((n, 1), self.df / 2, dtype=torch.float64, device=means.device)
        chi = 2 * torch._standard_gamma(shape, generator=generator)
        scale = (self.df / chi).sqrt().to(means.dtype)
        return means + scale * randn(n, self.dim, generator, dtype)


def eight_gaussians() -> GaussianMixture:
    """The paper's 8-MoG: means on a circle of radius 10 around (10, 10), covariance 0.7 I."""
    angles = 2 * math.pi * torch.arange(8, dtype=torch.float64) / 8
    return GaussianMixture(10 + 10 * torch.stack([angles.cos(), angles.sin()], 1), 0.7)


def forty_gaussians(dim: int = 2, *, seed: int = 0) -> GaussianMixture:
    """The paper's 40-MoG: means uniform in ``[-20, 20]^d``, covariance I.

    Args:
        dim: Dimension d, >= 1.
        seed: Of the means. They are part of the target: keep it fixed across samplers.

    Raises:
        TypeError, ValueError: `dim` is no integer >= 1.
    """
    return GaussianMixture(_cube(40, dim, 20.0, seed))


def ten_students(dim: int = 2, *, df: float = 2.0, seed: int = 0) -> StudentMixture:
    """The paper's 10-MoS: Student's t with means uniform in ``[-5, 5]^d``.

    Args:
        dim: Dimension d, >= 1.
        df: Degrees of freedom, > 0.
        seed: Of the means. They are part of the target: keep it fixed across samplers.

    Raises:
        TypeError, ValueError: `dim` is no integer >= 1, or `df` is not > 0.
    """
    return StudentMixture(_cube(10, dim, 5.0, seed), df)


def _cube(count: int, dim: int, half_side: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(count, whole("dim", dim), generator=generator, dtype=torch.float64)
    return half_side * (2 * uniform - 1)
