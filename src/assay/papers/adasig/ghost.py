"""Clipping by a weight of the norm without per-sample gradients: fast gradient ("ghost") clipping.

Opacus finds the norms in a first backward pass and the sum of clipped gradients in a second one,
of the weighted losses. A slope that adapts takes a third, with the slope's weights.

Norms are as exact as Opacus finds them here. Of a layer that is used at every place of a sequence
it adds up products of activations in float32: where the gradients at two places all but cancel
out, the norm comes out too small and the sample is clipped too little, as in Opacus' own ghost
clipping. `grad_sample_mode="hooks"` has no such case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import (
    DPLossFastGradientClipping,
    DPTensorFastGradientClipping,
)
from torch import Tensor

from assay.papers.adasig.clipping import ROUNDING
from assay.papers.adasig.optimizer import AdaSigDPOptimizer, NormWeightedDPOptimizer


class NormWeightedDPOptimizerFastGradientClipping(
    NormWeightedDPOptimizer,
    DPOptimizerFastGradientClipping,
):
    """`NormWeightedDPOptimizer` for ghost clipping; its loss is `NormWeightedLoss`.

    Args:
        *args: as `NormWeightedDPOptimizer`.
        **options: as `NormWeightedDPOptimizer`, without `diagnostics` and `nonfinite`, which need
            per-sample gradients.

    Raises:
        TypeError, ValueError: an argument outside its range; parameters of less than 32 bits,
            whose sums are rounded before noise could be added.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if options.get("diagnostics"):
            raise ValueError("diagnostics: got True, wants False in ghost mode")
        if options.get("nonfinite", "raise") != "raise":
            raise ValueError(
                f'nonfinite: got {options["nonfinite"]!r}, wants "raise" in ghost mode'
            )
        super().__init__(*args, **options)
        check_precision(self.params)
        self._pending: list[list[Tensor]] = []

    def receive(self, sums: list[list[Tensor]]) -> None:
        """Takes a physical batch's sums from the loss; they count at the next `step`.

        Args:
            sums: for each row of `weights`, one tensor per parameter.

        Raises:
            ValueError: there was no `step` or `zero_grad` since the last sums.
        """
        if self._pending:
            raise ValueError(
                "loss.backward: got a second call before optimizer.step(), wants one for each; "
                "for batches larger than memory use BatchMemoryManager"
            )
        # What the pass for the norms left in p.grad was not clipped; and sums of a step that is
        # over must not be released twice where nobody calls zero_grad, as Opacus allows here.
        self.zero_grad()
        self._pending = sums

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clears gradients; the sums too, unless the logical batch goes on."""
        super().zero_grad(set_to_none)
        self._pending = []

    def accumulate(self) -> None:
        """Adds the sums of this batch to those of the logical batch.

        Raises:
            ValueError: no loss was run backward since the last step.
        """
        if not self._pending:
            raise ValueError("step: got no gradients, wants loss.backward() before each step")
        self._accumulate(self._pending)
        self._pending = []


class AdaSigDPOptimizerFastGradientClipping(
    AdaSigDPOptimizer, NormWeightedDPOptimizerFastGradientClipping
):
    """`AdaSigDPOptimizer` for ghost clipping; its loss is `NormWeightedLoss`.

    Args:
        *args: as `AdaSigDPOptimizer`.
        **options: as `AdaSigDPOptimizer`, without `diagnostics` and `nonfinite`.

    Raises:
        TypeError, ValueError: as `NormWeightedDPOptimizerFastGradientClipping`.
    """


class NormWeightedLoss(DPLossFastGradientClipping):
    """A criterion whose losses run backward once for the norms and once for each sum.

    Args:
        module: the model, wrapped for ghost clipping by Opacus.
        optimizer: a `NormWeightedDPOptimizerFastGradientClipping`.
        criterion: the loss, whose `reduction` is that of module and optimizer.
        loss_reduction: "mean" or "sum".
    """

    def __call__(self, *args: Any, **kwargs: Any) -> NormWeightedLossTensor:
        """The criterion's losses, to be run backward; arguments are the criterion's.

        Raises:
            ValueError: the criterion gives more or fewer losses than one per sample.
        """
        losses = _rewrapped(super().__call__(*args, **kwargs))
        values = losses.loss_per_sample
        if values.dim() and values.numel() == len(values):
            losses.loss_per_sample = values.flatten()  # (b, 1) times weights (b,) would be (b, b)
        _check_shape(losses.loss_per_sample)
        return losses


class NormWeightedLossTensor(DPTensorFastGradientClipping):
    """The losses of a batch; arithmetic on them gives losses of the same kind."""

    def backward(self) -> None:
        """Leaves the weighted sums of the gradients with the optimizer.

        Raises:
            ValueError: there is not one loss per sample, a gradient is not finite, or its norm is
                not known as the layer runs in low precision or was frozen at first.
        """
        optimizer: NormWeightedDPOptimizerFastGradientClipping = self.optimizer
        losses = self.loss_per_sample
        _check_shape(losses)
        _check_known(optimizer.params, self.module.trainable_parameters)
        total = losses.mean(0) if self.loss_reduction == "mean" else losses.sum(0)
        total.backward(retain_graph=True)
        norms = self.module.get_norm_sample().double() * (1 + ROUNDING)
        _check_shape(losses, len(norms))
        for p in self.module.trainable_parameters:
            # Autocast rounds activations, and with them norms and sums.
            check_precision([p._norm_sample], "norms")
        optimizer.check_finite(norms)
        rows = optimizer.weights(norms)
        sums = []
        with _no_hooks(self.module):
            for i, weights in enumerate(rows, 1):
                weighted = (weights.to(losses.device, losses.dtype) * losses).sum()
                sums.append(
                    torch.autograd.grad(
                        weighted,
                        optimizer.params,
                        retain_graph=i < len(rows),
                        allow_unused=True,
                        materialize_grads=True,
                    )
                )
        optimizer.receive([list(gradients) for gradients in sums])


def _rewrapped(plain: DPTensorFastGradientClipping) -> NormWeightedLossTensor:
    return NormWeightedLossTensor(
        plain.module, plain.optimizer, plain.loss_per_sample, plain.loss_reduction
    )


def _arithmetic(name: str) -> Any:
    operation = getattr(DPTensorFastGradientClipping, name)

    def operate(self: NormWeightedLossTensor, *others: Any) -> NormWeightedLossTensor:
        return _rewrapped(operation(self, *others))

    return operate


for _name in ("__truediv__", "__mul__", "__add__", "__sub__", "__rsub__", "__neg__"):
    # Opacus' own give losses that would be clipped by a constant.
    setattr(NormWeightedLossTensor, _name, _arithmetic(_name))


def check_precision(tensors: list[Any], name: str = "parameters") -> None:
    """Raises ValueError where a tensor has less than 32 bits.

    Args:
        tensors: parameters of the model, or what is computed with them.
        name: what they are, for the message.
    """
    for x in tensors:
        if x.dtype.itemsize < 4:
            raise ValueError(f"{name}: got {x.dtype}, wants float32 or float64 in this mode")


def _check_shape(losses: Tensor, samples: int | None = None) -> None:
    if losses.dim() != 1 or samples not in (None, len(losses)):
        raise ValueError(
            f"criterion: got losses of shape {tuple(losses.shape)} where its reduction is "
            f'"none", wants one per sample, ({"b" if samples is None else samples},)'
        )


def _check_known(parameters: list[Any], known: list[Any]) -> None:
    names = {id(p) for p in known}
    late = [tuple(p.shape) for p in parameters if id(p) not in names]
    if late:
        raise ValueError(
            f"parameters: got {len(late)} of shapes {late} that were frozen at make_private, "
            "wants them frozen still: their gradients would not be clipped"
        )


@contextmanager
def _no_hooks(module: Any) -> Iterator[None]:
    module.disable_hooks()
    try:
        yield
    finally:  # without hooks the norms of the next batch would be those of this one
        module.enable_hooks()
