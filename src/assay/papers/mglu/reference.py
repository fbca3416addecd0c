"""The layer as the paper defines it: short, obviously right, slow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.papers.mglu.activation import check_input


def straight_through(mask_logits: Tensor) -> Tensor:
    """Masks that are 1 where a logit is strictly positive; the backward pass is the identity.

    Args:
        mask_logits: any shape, any floating dtype.

    Returns:
        Zeros and ones, up to rounding, of the same shape and dtype.

    Source: arXiv 2506.23225, appendix D.
    """
    hard = (mask_logits > 0).to(mask_logits.dtype)
    return mask_logits + (hard - mask_logits).detach()


def mglu_terms(
    x: Tensor, weight: Tensor, mask_logits: Tensor, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    """``activation(x (M_i * W)) * (x ((1 - M_i) * W))`` for every mask, two products each.

    Args:
        x: ``(..., h)``.
        weight: ``(d, h)``, shared by gate and value.
        mask_logits: ``(n, d, h)``.
        activation: element-wise.

    Returns:
        ``(n, ..., d)``; their sum over n is the hidden activation of equation 3.

    Raises:
        TypeError, ValueError: `x` is no floating tensor, or its last axis is not h.
    """
    check_input("x", x, weight.shape[1])
    terms = []
    for logits in mask_logits:
        mask = straight_through(logits).to(weight.dtype)
        gate = x @ (mask * weight).T
        value = x @ ((1 - mask) * weight).T
        terms.append(activation(gate) * value)
    return torch.stack(terms)
