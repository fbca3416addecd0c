"""The algorithm as the paper states it, one sample at a time: short, obviously right, slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SENSITIVITY = 0.4477433


@dataclass
class SlopeState:
    """What a step of the slope needs of the steps before.

    Attributes:
        slope: alpha.
        direction: the noisy slope direction of the previous step; None before the first.
    """

    slope: float
    direction: list[Tensor] | None = None


def clipped_sums(
    losses: Iterable[Tensor], parameters: Sequence[Tensor], slope: float, max_grad_norm: float = 1.0
) -> tuple[list[Tensor], list[Tensor]]:
    """Sum of clipped gradients, and sum of their derivatives by the slope at C = 1.

    Args:
        losses: one scalar for each sample.
        parameters: what to differentiate by.
        slope: alpha.
        max_grad_norm: C.

    Returns:
        Two lists of tensors, each shaped like the parameters.

    Source: the paper's sections 5.1 and 5.2.
    """
    clipped = [torch.zeros_like(p) for p in parameters]
    derivative = [torch.zeros_like(p) for p in parameters]
    for loss in losses:
        gradient = torch.autograd.grad(loss, list(parameters), retain_graph=True)
        x = math.sqrt(sum(float(g.double().square().sum()) for g in gradient))
        if x == 0:
            continue
        e = math.exp(-slope * x)
        for s, r, g in zip(clipped, derivative, gradient, strict=True):
            s += max_grad_norm * (2 / (1 + e) - 1) / x * g
            r += 2 * e / (1 + e) ** 2 * g
    return clipped, derivative


@torch.no_grad()
def sgd_step(
    sums: tuple[list[Tensor], list[Tensor]],
    parameters: Sequence[Tensor],
    state: SlopeState,
    *,
    lr: float,
    slope_lr: float,
    batch_size: int,
    sigma_s: float,
    sigma_r: float,
    noise: Callable[[float, Tensor], Tensor],
    max_grad_norm: float = 1.0,
) -> None:
    """One step of the paper's algorithm 1 with plain SGD; changes parameters and state in place.

    Args:
        sums: of `clipped_sums` at the state's slope.
        parameters: of the model.
        state: slope and previous direction.
        lr: learning rate lambda.
        slope_lr: learning rate lambda_a of the slope.
        batch_size: the expected batch size B.
        sigma_s: noise multiplier of the clipped sum.
        sigma_r: noise multiplier of the slope direction.
        noise: from a standard deviation and a tensor to noise of that tensor's shape.
        max_grad_norm: C.
    """
    clipped = [s + noise(max_grad_norm * sigma_s, s) for s in sums[0]]
    direction = [r + noise(SENSITIVITY / state.slope * sigma_r, r) for r in sums[1]]
    for p, s in zip(parameters, clipped, strict=True):
        p -= lr / batch_size * s
    if state.direction is not None:
        product = sum(
            float((s.double() * r.double()).sum())
            for s, r in zip(clipped, state.direction, strict=True)
        )
        state.slope *= math.exp(slope_lr * ((product > 0) - (product < 0)))
    state.direction = direction
