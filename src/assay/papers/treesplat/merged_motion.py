"""The motion that is left of a tree when it is merged: coefficients and a basis."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from assay.papers.treesplat.basis import MotionBasis, TabulatedBasis, combine
from assay.papers.treesplat.motion import Motion, Rows


class MergedMotion(Motion):
    """dmu_i(t) = sum_j c_mu_ij b_mu_j(t), and the same for quaternions: two small products.

    It plays, can be fine-tuned, pruned and reordered, but has no tree to grow.

    Args:
        c_mu: Coefficients of means ``(N, B)``.
        c_quat: Coefficients of quaternions ``(N, B)``; None: they are those of means.
        basis: The basis of B functions that they belong to.

    Raises:
        ValueError: Coefficients of shapes that do not fit.
    """

    kind = "merged"
    rows = ("c_mu", "c_quat")
    c_quat: nn.Parameter | None

    def __init__(
        self, c_mu: Tensor, c_quat: Tensor | None, basis: MotionBasis | TabulatedBasis
    ) -> None:
        super().__init__()
        shapes = {tuple(c.shape) for c in (c_mu, c_quat) if c is not None}
        if shapes != {(*c_mu.shape[:1], basis.n_basis)}:
            raise ValueError(
                f"c_mu, c_quat: got shapes {sorted(shapes)}, wants both (N, {basis.n_basis})"
            )
        self.c_mu = nn.Parameter(c_mu.detach().clone())
        self.register_parameter(
            "c_quat", None if c_quat is None else nn.Parameter(c_quat.detach().clone())
        )
        self.basis = basis

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        b_mu, b_quat = self.basis(t)
        c_quat = self.c_mu if self.c_quat is None else self.c_quat
        return combine(self.c_mu, b_mu), combine(c_quat, b_quat)

    def merge(self, frames: int | None = None) -> MergedMotion:
        """A copy of it.

        Args:
            frames: Tabulate the basis at so many equally spaced times; None leaves it as it is.

        Raises:
            TypeError, ValueError: `frames` is no integer of at least 2.
        """
        basis = copy.deepcopy(self.basis) if frames is None else self.basis.tabulate(frames)
        return MergedMotion(self.c_mu, self.c_quat, basis)

    def options(self) -> dict[str, Any]:
        return {"basis": self.basis.options(), "shared_field": self.c_quat is None}

    def expand(self, idx: Any) -> dict[str, Rows]:
        raise RuntimeError("merged model has no tree")

    def extra_repr(self) -> str:
        return f"{self.n} Gaussians"
