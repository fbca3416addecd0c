"""The motions that the tree is compared with, under the same protocol."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from assay.papers.treesplat.basis import (
    MotionBasis,
    check_time,
    combine,
    make_basis,
    sinusoids,
)
from assay.papers.treesplat.merged_motion import MergedMotion
from assay.papers.treesplat.motion import Motion, Rows
from assay.toolkits.checks import number, whole


class _Rowless(Motion):
    """A motion without parameters of each Gaussian; it only has to know how many there are."""

    indices = ("_rows",)
    not_stored = ("_rows",)
    _rows: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("_rows", torch.zeros(whole("n", n), 0))

    @property
    def n(self) -> int:
        """Number of Gaussians N."""
        return len(self._rows)

    def _take(self, rows: Rows) -> dict[str, Rows]:
        self._rows = self._rows[rows.source]
        return {}

    def extra_repr(self) -> str:
        return f"{self.n} Gaussians"


class StaticMotion(_Rowless):
    """No motion at all.

    Args:
        n: Number of Gaussians N.

    Raises:
        TypeError, ValueError: `n` is no positive integer.
    """

    kind = "none"

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_time(t)
        return self._rows.new_zeros(self.n, 3), self._rows.new_zeros(self.n, 4)


class FlatMotion(Motion):
    """A shared basis, and coefficients of its own for each Gaussian: a tree of depth 1.

    Args:
        n: Number of Gaussians N.
        n_basis: Number of basis functions B; of `basis`, if that is given.
        basis: The basis; None makes ``MotionBasis(n_basis)``.

    Attributes:
        coef_mu, coef_quat: Coefficients ``(N, B)``, zero at the start.

    Raises:
        TypeError, ValueError: `n` or `n_basis` is no positive integer.
    """

    kind = "flat"
    rows = ("coef_mu", "coef_quat")

    def __init__(self, n: int, n_basis: int = 10, basis: MotionBasis | None = None) -> None:
        super().__init__()
        self.basis = make_basis(n_basis, basis)
        shape = (whole("n", n), self.basis.n_basis)
        self.coef_mu = nn.Parameter(torch.zeros(shape))
        self.coef_quat = nn.Parameter(torch.zeros(shape))

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        b_mu, b_quat = self.basis(t)
        return combine(self.coef_mu, b_mu), combine(self.coef_quat, b_quat)

    def merge(self, frames: int | None = None) -> MergedMotion:
        """As `MotionTree.merge`: the coefficients as they are.

        Args:
            frames: As in `MotionTree.merge`.

        Raises:
            TypeError, ValueError: As `MotionTree.merge`.
        """
        basis = copy.deepcopy(self.basis) if frames is None else self.basis.tabulate(frames)
        return MergedMotion(self.coef_mu, self.coef_quat, basis)

    def options(self) -> dict[str, Any]:
        return {"basis": self.basis.options()}

    def extra_repr(self) -> str:
        return f"{self.n} Gaussians"


class PolynomialMotion(Motion):
    """Polynomials of (t - 1/2) for each Gaussian: cubic means, linear quaternions.

    Args:
        n: Number of Gaussians N.
        degree: Of the polynomial of means.
        quat_degree: Of the polynomial of quaternions.

    Attributes:
        poly_mu, poly_quat: Coefficients ``(N, degree, 3)`` and ``(N, quat_degree, 4)``, without
            constant terms, zero at the start.

    Raises:
        TypeError, ValueError: An argument is no positive integer.

    Source: SpacetimeGaussians (Li et al., 2024), whose centres are learnt for the sake of a
    temporal opacity that this room does not have.
    """

    kind = "polynomial"
    rows = ("poly_mu", "poly_quat")

    def __init__(self, n: int, degree: int = 3, quat_degree: int = 1) -> None:
        super().__init__()
        whole("n", n)
        self.poly_mu = nn.Parameter(torch.zeros(n, whole("degree", degree), 3))
        self.poly_quat = nn.Parameter(torch.zeros(n, whole("quat_degree", quat_degree), 4))

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        s = check_time(t) - 0.5
        return self._evaluate(self.poly_mu, s), self._evaluate(self.poly_quat, s)

    def options(self) -> dict[str, Any]:
        return {"degree": self.poly_mu.shape[1], "quat_degree": self.poly_quat.shape[1]}

    @staticmethod
    def _evaluate(poly: Tensor, s: float) -> Tensor:
        powers = poly.new_tensor([s ** (k + 1) for k in range(poly.shape[1])])
        return (poly * powers[:, None]).sum(1)

    def extra_repr(self) -> str:
        return f"{self.n} Gaussians, degrees {self.poly_mu.shape[1]} and {self.poly_quat.shape[1]}"


class MLPDeformation(_Rowless):
    """An MLP of encoded position and time gives every Gaussian's displacement at every time.

    Eight layers of 256 with the input again after the fifth. Unlike the released network the last
    layer starts at zero, so that training starts without motion, scales stay as they are and time
    has no network of its own; as there, positions are not trained through the MLP.

    Args:
        n: Number of Gaussians N.
        scale: Positions are divided by it before they are encoded; the extent of the scene.
        width: Of the hidden layers.
        layers: Number of hidden layers.
        octaves: Frequencies of the encoding of positions.
        time_octaves: Frequencies of the encoding of time; 6 for synthetic scenes, 10 for real ones.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.

    Source: Deformable-3DGS (Yang et al., 2024).
    """

    kind = "mlp"

    def __init__(
        self,
        n: int,
        scale: float = 1.0,
        width: int = 256,
        layers: int = 8,
        octaves: int = 10,
        time_octaves: int = 6,
    ) -> None:
        super().__init__(n)
        self.scale = number("scale", scale, above=0.0)
        self.width, self.layers = whole("width", width), whole("layers", layers)
        self.octaves = whole("octaves", octaves)
        self.time_octaves = whole("time_octaves", time_octaves)
        inputs = 3 * (1 + 2 * octaves) + 1 + 2 * time_octaves
        self._skip = layers // 2 + 1
        self.hidden = nn.ModuleList(
            nn.Linear(inputs if i == 0 else width + inputs * (i == self._skip), width)
            for i in range(layers)
        )
        self.head = nn.Linear(width, 7)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if means is None:
            raise ValueError("means: got None, wants the means (N, 3) that the MLP deforms")
        time = sinusoids(means.new_full((1,), check_time(t)), self.time_octaves, 1.0)
        place = sinusoids(means.detach() / self.scale, self.octaves, 1.0)
        x = inputs = torch.cat([place, time.expand(len(place), -1)], 1)
        for i, layer in enumerate(self.hidden):
            if i == self._skip:
                x = torch.cat([inputs, x], 1)
            x = torch.relu(layer(x))
        dmu, dq = self.head(x).split([3, 4], 1)
        return dmu, dq

    def options(self) -> dict[str, Any]:
        names = ("scale", "width", "layers", "octaves", "time_octaves")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return f"{self.n} Gaussians, scale={self.scale:g}"
