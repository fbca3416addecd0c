"""Unadjusted Langevin dynamics, over- and underdamped."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.papers.multalmc.baselines.common import Run
from assay.papers.multalmc.sampler import SampleResult
from assay.toolkits.checks import number


@torch.no_grad()
def ula(
    target: Any,
    num_samples: int,
    *,
    n_evaluations: int,
    step_size: float = 0.05,
    dim: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SampleResult:
    """Unadjusted Langevin algorithm, ``x <- x + h score(x) + sqrt(2 h) xi``, from N(0, I).

    Args:
        target: What `as_target` accepts.
        num_samples: Chains N, one draw each.
        n_evaluations: Steps, as each asks for one gradient.
        step_size: h, > 0. Tune it: it is unstable above 2 over the largest curvature, biased below
            that, and slow where it is small.
        dim: Of the target, where it is a function alone.
        generator: Of the random numbers, on the device that is sampled on.
        dtype: Floating-point; torch's default if None.

    Raises:
        TypeError, ValueError: An argument of the wrong kind or out of range.
    """
    run = Run(target, num_samples, n_evaluations, dim, generator, dtype)
    step_size = number("step_size", step_size, above=0)
    x, noise = run.start(run.num_samples), math.sqrt(2 * step_size)
    for _ in range(run.n_evaluations):
        x = x + step_size * run.target.score(x) + noise * run.normal(*x.shape)
    return run.result(x, run.n_evaluations, 0)


@torch.no_grad()
def ulmc(
    target: Any,
    num_samples: int,
    *,
    n_evaluations: int,
    step_size: float = 0.1,
    friction: float = 1.0,
    dim: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SampleResult:
    """Unadjusted underdamped Langevin Monte Carlo by the BAOAB splitting, from N(0, I).

    Args:
        target: What `as_target` accepts.
        num_samples: Chains N, one draw each.
        n_evaluations: Gradients of each chain; all but the first are a step each.
        step_size: h, > 0. Tune it; unstable above 2 over the root of the largest curvature.
        friction: Gamma of unit mass, > 0. Tune it to the width of the target, 1 over its scale.
        dim: Of the target, where it is a function alone.
        generator: Of the random numbers, on the device that is sampled on.
        dtype: Floating-point; torch's default if None.

    Raises:
        TypeError, ValueError: An argument of the wrong kind or out of range.

    Source: Leimkuhler and Matthews, "Rational construction of stochastic numerical methods for
    molecular sampling", 2013.
    """
    run = Run(target, num_samples, n_evaluations, dim, generator, dtype)
    step_size = number("step_size", step_size, above=0)
    keep = math.exp(-number("friction", friction, above=0) * step_size)
    refresh, half = math.sqrt(1 - keep**2), step_size / 2
    x = run.start(run.num_samples)
    v, score = run.normal(*x.shape), run.target.score(x)
    for _ in range(run.n_evaluations - 1):
        v = v + half * score
        x = x + half * v
        v = keep * v + refresh * run.normal(*x.shape)
        x = x + half * v
        score = run.target.score(x)
        v = v + half * score
    return run.result(x, run.n_evaluations, 0)
