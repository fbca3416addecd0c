"""Clipping by a weight of the norm under distributed data parallel, as Opacus has it.

Every rank sums over its own samples, rank 0 alone adds noise, and what all ranks then hold is the
sum over ranks. The slope is rank 0's. Give every rank the same initial slope and load a state on
every rank: the noise is made for the slope of rank 0.
"""

from __future__ import annotations

from typing import Any

import torch
from opacus.optimizers import DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping
from torch import Tensor
from torch import distributed as dist

from assay.papers.adasig.ghost import (
    AdaSigDPOptimizerFastGradientClipping,
    NormWeightedDPOptimizerFastGradientClipping,
    check_precision,
)
from assay.papers.adasig.optimizer import AdaSigDPOptimizer, NormWeightedDPOptimizer


class _NoiseOnRankZero:
    rank: int
    params: list[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        if options.get("diagnostics"):
            raise ValueError("diagnostics: got True, wants False with several processes")
        super().__init__(*args, **options)
        check_precision(self.params)

    def _noisy(self, total: Tensor, std: float) -> Tensor:
        return super()._noisy(total, std) if self.rank == 0 else total.clone()  # type: ignore[misc]


class _SharedSlope(_NoiseOnRankZero):
    slope: float
    _slope_direction: list[Tensor] | None

    def _product(self) -> float:
        # Gradients are not yet summed over ranks: their products are.
        own = super()._product()  # type: ignore[misc]
        total = torch.tensor(own or 0.0, dtype=torch.float64, device=self.params[0].device)
        dist.all_reduce(total)
        return float(total)

    def _step_slope(self) -> None:
        for r in self._slope_direction or ():
            dist.all_reduce(r)
        super()._step_slope()  # type: ignore[misc]
        # Sums of other orders may differ in the last bit, and with it in the sign.
        slope = torch.tensor(self.slope, dtype=torch.float64, device=self.params[0].device)
        dist.broadcast(slope, src=0)
        self.slope = float(slope)


class DistributedNormWeightedDPOptimizer(
    _NoiseOnRankZero,
    NormWeightedDPOptimizer,
    DistributedDPOptimizer,
):
    """`NormWeightedDPOptimizer` with several processes.

    Args:
        *args: as `NormWeightedDPOptimizer`.
        **options: as `NormWeightedDPOptimizer`, without `diagnostics`.

    Raises:
        TypeError, ValueError: an argument outside its range; parameters of less than 32 bits.
    """


class DistributedAdaSigDPOptimizer(_SharedSlope, AdaSigDPOptimizer, DistributedDPOptimizer):
    """`AdaSigDPOptimizer` with several processes.

    Args:
        *args: as `AdaSigDPOptimizer`.
        **options: as `AdaSigDPOptimizer`, without `diagnostics`.

    Raises:
        TypeError, ValueError: an argument outside its range; parameters of less than 32 bits.
    """


class DistributedNormWeightedDPOptimizerFastGradientClipping(
    _NoiseOnRankZero,
    NormWeightedDPOptimizerFastGradientClipping,
    DistributedDPOptimizerFastGradientClipping,
):
    """`NormWeightedDPOptimizerFastGradientClipping` with several processes.

    Args:
        *args: as `NormWeightedDPOptimizerFastGradientClipping`.
        **options: as `NormWeightedDPOptimizerFastGradientClipping`.

    Raises:
        TypeError, ValueError: as `NormWeightedDPOptimizerFastGradientClipping`.
    """


class DistributedAdaSigDPOptimizerFastGradientClipping(
    _SharedSlope,
    AdaSigDPOptimizerFastGradientClipping,
    DistributedDPOptimizerFastGradientClipping,
):
    """`AdaSigDPOptimizerFastGradientClipping` with several processes.

    Args:
        *args: as `AdaSigDPOptimizerFastGradientClipping`.
        **options: as `AdaSigDPOptimizerFastGradientClipping`.

    Raises:
        TypeError, ValueError: as `AdaSigDPOptimizerFastGradientClipping`.
    """
