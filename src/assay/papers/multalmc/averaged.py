"""The averaged dynamics: what MultALMC tends to as eps goes to 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc.multalmc import MultALMC, Row, Work


class AveragedALMC(MultALMC):
    """MultALMC with the exact score of the path in place of its estimate; an upper bound.

    It takes the same random numbers for the slow variables, so that a run from a generator of the
    same seed is MultALMC's run but for the averaging error.

    Args:
        target: as of `MultALMC`.
        path_score: (lambda, x) to grad log mu(x), (N, d); by default target.marginal(lambda).score.
        options: as of `MultALMC`. What concerns the fast variable is of no effect.

    Raises:
        TypeError: no `path_score`, and no method `marginal` of the target.
    """

    def __init__(
        self,
        target: Any,
        path_score: Callable[[float, Tensor], Tensor] | None = None,
        **options: Any,
    ) -> None:
        if options.get("compile"):
            raise ValueError(
                "compile: got True, wants False, as the exact score is another function each step"
            )
        super().__init__(target, **options)
        if path_score is None and not hasattr(self.target.inner, "marginal"):
            raise TypeError(
                "path_score: got None and a target without marginal(), wants a function of "
                "(lambda, x)"
            )
        self._path_score = path_score or self._of_marginal

    def _of_marginal(self, lam: float, x: Tensor) -> Tensor:
        return self.target.inner.marginal(lam).score(x)

    def _gradients(self, late: bool) -> int:
        return 0

    def _kick(
        self,
        v: Tensor,
        x: Tensor,
        y: Tensor,
        z: Tensor,
        row: Row,
        late: bool,
        gap: Tensor | None,
        out: Tensor | None = None,
    ) -> Tensor:
        return torch.add(v, self._path_score(float(row.lam), x), alpha=float(row.kick), out=out)

    def _fast_step(self, x: Tensor, z: Tensor, noise: Tensor, row: Row, work: Work) -> Tensor:
        return z
