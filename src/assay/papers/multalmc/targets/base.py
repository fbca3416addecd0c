"""What all targets here share: dimension, modes, and constants that follow the dtype of points."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.toolkits.checks import whole


class AnalyticTarget:
    """A density with its score written out.

    Args:
        dim: Dimension, >= 1.

    Attributes:
        dim: Dimension d.
        modes: Points ``(K, d)``, float64, or None where modes are no points or there is one.
        mode_weights: Probability of each mode's region, ``(K,)``, float64, or None.

    Raises:
        TypeError, ValueError: `dim` is no integer >= 1.
    """

    modes: Tensor | None = None
    mode_weights: Tensor | None = None

    def __init__(self, dim: int) -> None:
        self.dim = whole("dim", dim)
        self._constants: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density up to a constant, ``(N,)``.

        Args:
            x: Points, ``(N, d)``.
        """
        raise NotImplementedError

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Points, ``(N, d)``.
        """
        raise NotImplementedError

    def assign(self, x: Tensor) -> Tensor:
        """Index of the nearest mode, ``(N,)``.

        Args:
            x: Points, ``(N, d)``.

        Raises:
            ValueError: This target has no modes.
        """
        if self.modes is None:
            raise ValueError(f"{type(self).__name__}: it has no modes to assign points to")
        return torch.cdist(x, self._like("modes", x)).argmin(1)

    def mode_probabilities(self, x: Tensor) -> Tensor:
        """Probability that each point belongs to each mode, ``(N, K)``; its mean estimates weights.

        Args:
            x: Points, ``(N, d)``.

        Raises:
            ValueError: This target has no modes.
        """
        indices = self.assign(x)
        assert self.mode_weights is not None
        return torch.nn.functional.one_hot(indices, len(self.mode_weights)).to(x.dtype)

    def _like(self, name: str, x: Tensor) -> Tensor:
        # Kept per dtype and device: a sampler asks for them at every one of its steps.
        key = (name, x.dtype, x.device)
        if key not in self._constants:
            self._constants[key] = getattr(self, name).to(x)
        return self._constants[key]


def randn(n: int, dim: int, generator: torch.Generator | None, dtype: torch.dtype | None) -> Tensor:
    """Standard normal draws ``(n, dim)`` on the generator's device.

    Args:
        n: Number of draws, >= 1.
        dim: Columns.
        generator: Source; None is torch's own, on the CPU.
        dtype: Default: torch's default.

    Raises:
        TypeError, ValueError: `n` is no integer >= 1.
    """
    device = None if generator is None else generator.device
    return torch.randn(whole("n", n), dim, generator=generator, dtype=dtype, device=device)


def rand(n: int, generator: torch.Generator | None, dtype: torch.dtype | None) -> Tensor:
    """Uniform draws ``(n,)`` on the generator's device.

    Args:
        n: Number of draws, >= 1.
        generator: Source; None is torch's own, on the CPU.
        dtype: Default: torch's default.

    Raises:
        TypeError, ValueError: `n` is no integer >= 1.
    """
    device = None if generator is None else generator.device
    return torch.rand(whole("n", n), generator=generator, dtype=dtype, device=device)
