"""The packed layer by ordinary matrix products: any device, any dtype, any number of tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from assay.papers.mglu.activation import ACTIVATIONS
from assay.papers.mglu.packing import unpack_mask


def mglu_hidden(
    x: Tensor,
    weight: Tensor,
    mask_bits: Tensor,
    scale: Tensor | None,
    n_masks: int,
    layout: str,
    activation: str,
) -> Tensor:
    """``(b, d)``; masks are unpacked one at a time, so memory stays near one matrix more."""
    g = ACTIVATIONS[activation]
    total = _wide(F.linear(x, weight))
    hidden = total.new_zeros(total.shape)
    for i in range(n_masks):
        gate = _wide(F.linear(x, weight * unpack_mask(mask_bits, i, weight.shape[1], layout)))
        term = g(gate) * (total - gate)
        hidden += term if scale is None else term * scale[i, :, None]
    return hidden.to(x.dtype)


def glu_hidden(x: Tensor, weight: Tensor, activation: str) -> Tensor:
    """``(b, d)`` of a plain GLU."""
    gate, value = _wide(F.linear(x, weight)).chunk(2, dim=-1)
    return (ACTIVATIONS[activation](gate) * value).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.itemsize < 4 else x
