"""Basis functions of time that all Gaussians share (section on the motion model)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from assay.toolkits.checks import number, whole


def check_time(t: Any) -> float:
    """The time as a Python float.

    Args:
        t: A number, or a tensor of one number, in [0, 1].

    Raises:
        TypeError: It is no number.
        ValueError: It is NaN or outside [0, 1].
    """
    if isinstance(t, Tensor):
        if t.numel() != 1:
            raise TypeError(f"t: got a tensor of shape {tuple(t.shape)}, wants one number")
        t = t.item()
    return number("t", t, least=0.0, most=1.0)


def sinusoids(x: Tensor, octaves: int, lowest: float = math.pi) -> Tensor:
    """Positional encoding gamma(x) = (x, sin(2^k w x), cos(2^k w x)), k < octaves.

    Args:
        x: ``(..., d)``.
        octaves: Number of frequencies L.
        lowest: Lowest angular frequency w.

    Returns:
        ``(..., d (1 + 2 L))``.
    """
    angles = x.unsqueeze(-2) * (lowest * 2.0 ** torch.arange(octaves).to(x)).unsqueeze(-1)
    return torch.cat([x, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)


def combine(c: Tensor, b: Tensor) -> Tensor:
    """sum_j c_ij b_j: the product c b, ``(N, d)``, of ``(N, B)`` and ``(B, d)``.

    Args:
        c: Coefficients.
        b: Values of the basis.
    """
    # Forward and backward are two to seven times faster on a CPU with few rows than few columns.
    return (b.mT @ c.mT).mT


class MotionBasis(nn.Module):
    """b_j(t): a small MLP of the encoded time, run once for each timestamp.

    Args:
        n_basis: Number of basis functions B.
        octaves: Frequencies of the encoding of time: 6 for short synthetic motions, 10 for takes.
        width: Of the hidden layers.
        layers: Number of hidden layers, each with a ReLU.

    Raises:
        TypeError, ValueError: A size that is no positive integer.
    """

    def __init__(
        self, n_basis: int = 10, octaves: int = 6, width: int = 64, layers: int = 2
    ) -> None:
        super().__init__()
        self.n_basis = whole("n_basis", n_basis)
        self.octaves = whole("octaves", octaves)
        self.width = whole("width", width)
        self.layers = whole("layers", layers)
        sizes = [1 + 2 * octaves, *[width] * layers]
        hidden: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            hidden += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.mlp = nn.Sequential(*hidden, nn.Linear(width, n_basis * 7))

    def forward(self, t: float) -> tuple[Tensor, Tensor]:
        """b_mu (B, 3), in scene units per unit of coefficient, and b_quat (B, 4).

        Args:
            t: Time in [0, 1].

        Raises:
            TypeError, ValueError: A time that is no number in [0, 1].
        """
        x = next(self.mlp.parameters()).new_full((1,), check_time(t))
        mu, quat = self.mlp(sinusoids(x, self.octaves)).view(self.n_basis, 7).split([3, 4], -1)
        return mu, quat

    def tabulate(self, frames: int) -> TabulatedBasis:
        """This basis at `frames` times, equally spaced from 0 to 1, for playback without the MLP.

        Args:
            frames: Number of times, at least 2.

        Raises:
            TypeError, ValueError: No integer of at least 2.
        """
        return _tabulate(self, frames)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("n_basis", "octaves", "width", "layers")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return f"n_basis={self.n_basis}, octaves={self.octaves}"


def make_basis(n_basis: int, basis: Any = None) -> MotionBasis:
    """The basis that was given, or a new one.

    Args:
        n_basis: Number of functions of the new one.
        basis: A basis, or None.

    Raises:
        TypeError: `basis` is something else.
    """
    if basis is None:
        return MotionBasis(n_basis)
    if not isinstance(basis, MotionBasis):
        raise TypeError(f"basis: got {basis!r}, wants a MotionBasis or None")
    return basis


class TabulatedBasis(nn.Module):
    """b_j(t) read from a table and interpolated linearly: exact at its own times, no MLP.

    Args:
        table: ``(T, B, 7)``, mean (3) and quaternion (4) parts at T >= 2 equally spaced times.

    Raises:
        ValueError: A table of another shape.
    """

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        if table.dim() != 3 or table.shape[0] < 2 or table.shape[2] != 7:
            raise ValueError(f"table: got shape {tuple(table.shape)}, wants (T >= 2, B, 7)")
        self.register_buffer("table", table.detach().clone())

    @property
    def n_basis(self) -> int:
        """Number of basis functions B."""
        return self.table.shape[1]

    def forward(self, t: float) -> tuple[Tensor, Tensor]:
        """b_mu (B, 3) and b_quat (B, 4).

        Args:
            t: Time in [0, 1].

        Raises:
            TypeError, ValueError: A time that is no number in [0, 1].
        """
        place = check_time(t) * (len(self.table) - 1)
        # Rounding of t = i / (T - 1) must not blend two rows.
        before = min(int(place + 1e-9), len(self.table) - 2)
        row = torch.lerp(self.table[before], self.table[before + 1], max(place - before, 0.0))
        mu, quat = row.split([3, 4], -1)
        return mu, quat

    def tabulate(self, frames: int) -> TabulatedBasis:
        """As `MotionBasis.tabulate`; interpolated where the times are others.

        Args:
            frames: Number of times, at least 2.

        Raises:
            TypeError, ValueError: No integer of at least 2.
        """
        return _tabulate(self, frames)

    def options(self) -> dict[str, Any]:
        """Sizes of the table."""
        return {"frames": len(self.table), "n_basis": self.n_basis}

    def extra_repr(self) -> str:
        return f"frames={len(self.table)}, n_basis={self.n_basis}"


def _tabulate(basis: nn.Module, frames: int) -> TabulatedBasis:
    times = torch.linspace(0, 1, whole("frames", frames, 2), dtype=torch.float64).tolist()
    with torch.no_grad():
        return TabulatedBasis(torch.stack([torch.cat(basis(t), -1) for t in times]))
