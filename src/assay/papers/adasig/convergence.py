"""How fast the gradient shrinks as the data grow: the rate of the paper's theorem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from assay.papers.adasig.optimizer import AdaSigDPOptimizer

EPSILON, DELTA = 1.0, 1e-5
DIMENSION = 16
_STEP = 4.0
"""The theorem's step size grows with sqrt((L0 - L*) / beta); 4 is about twice that root here."""


PROBLEMS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "convex": lambda p, y: p - y,
    "non-convex": lambda p, y: 4 * (p - y) * p * (1 - p),
}
"""Binary linear models: derivatives of the loss with respect to the logit, from probabilities and
labels. The losses are the logistic one, and twice the squared error of the probability."""


def mean_squared_gradient(problem: str, clipping: str, n: int, steps: int, seed: int) -> float:
    """Mean of ``||grad L||^2`` over a private run of full-batch gradient descent.

    With T steps the noise multiplier is sqrt(T) times that of one step, and the learning rate is
    4 N / (sigma_1 sqrt(d)) / T, as the theorem's optimum grows for large T. Its bound then is
    O(sqrt(d) / (N epsilon)).

    Args:
        problem: a key of `PROBLEMS`.
        clipping: "flat" or "adasig" (slope 1 at first, slope_lr 1 / T), both with C = 1.
        n: number of examples, N.
        steps: T.
        seed: of the examples and the noise.

    Raises:
        ValueError: no such problem or clipping.
    """
    from dp_accounting import get_sigma_gaussian
    from opacus.optimizers import DPOptimizer

    if problem not in PROBLEMS or clipping not in ("flat", "adasig"):
        raise ValueError(
            f"problem, clipping: got {problem!r}, {clipping!r}, wants convex or non-convex, flat "
            "or adasig"
        )
    slope = PROBLEMS[problem]
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(n, DIMENSION, generator=generator) / math.sqrt(DIMENSION)
    teacher = 2 * torch.randn(DIMENSION, generator=generator)
    y = (torch.rand(n, generator=generator) < torch.sigmoid(x @ teacher)).float()

    one_step = get_sigma_gaussian(EPSILON, DELTA)
    weight = nn.Parameter(torch.zeros(DIMENSION))
    lr = _STEP * n / (one_step * math.sqrt(DIMENSION)) / steps
    shared = {
        "noise_multiplier": one_step * math.sqrt(steps),
        "max_grad_norm": 1.0,
        "expected_batch_size": n,
        "generator": generator,
    }
    sgd = torch.optim.SGD([weight], lr=lr)
    optimizer = (
        DPOptimizer(sgd, **shared)
        if clipping == "flat"
        else AdaSigDPOptimizer(sgd, slope_lr=1 / steps, **shared)
    )
    total = 0.0
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.no_grad():
            gradients = slope(torch.sigmoid(x @ weight), y).unsqueeze(1) * x
        total += gradients.mean(0).square().sum().item()
        weight.grad_sample = gradients  # type: ignore[attr-defined]
        optimizer.step()
    return total / steps


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Least-squares slope of log values over log sizes.

    Args:
        sizes: at least two.
        values: > 0, one for each.
    """
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
