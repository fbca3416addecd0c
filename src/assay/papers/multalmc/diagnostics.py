"""What can be known of a run that has no R-hat: before it, its stability; after it, its agreement.

Draws are one of each chain, so that nothing that looks within a chain applies. The sign of a
log-density is looked at by `CountedTarget.check`; `SampleResult.finite_mask` says which chains
were lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.papers.multalmc import srock
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.sampler import Sampler, SampleResult
from assay.papers.multalmc.target import as_target
from assay.toolkits.checks import number, whole


class Stability(NamedTuple):
    """How stiff the fast variable's steps are.

    Attributes:
        number: the largest (step_size / eps) (curvature / lambda + 1 / (1 - lambda)).
        limit: up to which SROCK's stages are stable.
        lam: lambda where it is reached.
    """

    number: float
    limit: float
    lam: float


def stability_number(sampler: MultALMC, curvature: float = 0.0) -> Stability:
    """The stability number of a run before it begins.

    MultALMC refuses at once what is unstable for a flat target; of the target's own curvature
    it knows nothing.

    Args:
        sampler: whose steps are looked at.
        curvature: largest eigenvalue of the Hessian of V where the target's mass is, >= 0; see
            `largest_curvature`.

    Raises:
        TypeError, ValueError: no MultALMC, a curvature < 0, or no step on the path.
    """
    if not isinstance(sampler, MultALMC):
        raise TypeError(f"sampler: got {type(sampler).__name__}, wants MultALMC")
    number("curvature", curvature, least=0)
    path = [lam for lam in sampler.lambdas if lam < 1 - sampler.lambda_delta]
    if not path:
        raise ValueError("sampler: got none with steps on the path, wants smaller lambdas")
    rate = sampler.step_size / sampler.eps
    stiffness, lam = max((rate * (curvature / lam + 1 / (1 - lam)), lam) for lam in path)
    return Stability(stiffness, srock.stability_limit(len(sampler.srock.drift)), lam)


def largest_curvature(
    target: Any, x: Tensor, *, n_iterations: int = 20, width: float = 1e-3, dim: int | None = None
) -> float:
    """Largest eigenvalue in size of the Hessian of V over some points, by power iteration.

    Args:
        target: what `as_target` accepts.
        x: points where the target's mass is, (N, d).
        n_iterations: of the power iteration, >= 1; each takes two gradients at all points.
        width: of the finite differences of the score, > 0.
        dim: d, where the target is a function alone.

    Raises:
        TypeError, ValueError: a wrong argument.
    """
    whole("n_iterations", n_iterations)
    number("width", width, above=0)
    score = as_target(target, dim).score
    x = x.double()
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    along = along.to(x.device)
    size = along.new_zeros(len(x))
    for _ in range(n_iterations):
        along = along / torch.linalg.vector_norm(along, dim=1, keepdim=True).clamp_min(1e-30)
        along = (score(x - width * along) - score(x + width * along)) / (2 * width)
        size = torch.linalg.vector_norm(along, dim=1)
    return float(size.max())


def effective_displacement(sampler: MultALMC, samples: Tensor) -> float:
    """How far chains travel in a unit of time, in standard deviations of the base.

    A chain lags behind the moving path by about that much times its relaxation time, which near
    the base is 1. Well below 1 it follows; from about 1 on it cannot, and `n_steps` times
    `step_size` has to be larger, or the target brought nearer to the base.

    Args:
        sampler: whose run time is looked at.
        samples: draws, or before a run a guess of where the target's mass is, (N, d).

    Raises:
        TypeError, ValueError: no MultALMC, or samples of another shape or without finite ones.
    """
    if not isinstance(sampler, MultALMC):
        raise TypeError(f"sampler: got {type(sampler).__name__}, wants MultALMC")
    if samples.ndim != 2 or samples.shape[1] != sampler.dim:
        raise ValueError(f"samples: got {tuple(samples.shape)}, wants (N, {sampler.dim})")
    samples = samples[samples.isfinite().all(1)]
    if not len(samples):
        raise ValueError("samples: got none that is finite, wants one or more")
    distance = math.sqrt(float(samples.double().square().sum(1).mean()))
    return distance / (sampler.n_steps * sampler.step_size)


class Agreement(NamedTuple):
    """Whether twice the steps give other draws.

    Attributes:
        distance: sliced Wasserstein-2 distance between the draws of L and of 2 L steps.
        floor: the largest of 19 such distances between random halves of all draws together:
            exceeded by chance once in 20.
        short, long: both runs.
    """

    distance: float
    floor: float
    short: SampleResult
    long: SampleResult

    @property
    def agrees(self) -> bool:
        """Whether the distance is one that chance explains."""
        return self.distance <= self.floor


def two_budget_agreement(
    make: Callable[[int], Sampler], n_steps: int, num_samples: int, *, seed: int = 0, **options: Any
) -> Agreement:
    """Runs L and 2 L steps and asks whether the draws differ.

    Agreement proves nothing, as both runs may lack the same mode; disagreement proves that L
    steps are too few.

    Args:
        make: the sampler of a number of steps, each with a generator of its own.
        n_steps: L, >= 1.
        num_samples: chains of each run, >= 2.
        seed: of the random halves and directions.
        options: of `Sampler.sample`.

    Raises:
        TypeError, ValueError: a wrong argument, or what `Sampler.sample` raises.
        ModuleNotFoundError: POT is not installed.
    """
    from assay.papers.multalmc.metrics import sliced_w2

    whole("n_steps", n_steps)
    whole("num_samples", num_samples, least=2)
    short, long = (make(steps).sample(num_samples, **options) for steps in (n_steps, 2 * n_steps))
    one, two = (run.samples[run.finite_mask].cpu() for run in (short, long))
    distance = sliced_w2(one, two, seed=seed)
    generator, pooled, floor = torch.Generator().manual_seed(seed), torch.cat([one, two]), 0.0
    for _ in range(19):
        order = pooled[torch.randperm(len(pooled), generator=generator)]
        floor = max(floor, sliced_w2(order[: len(one)], order[len(one) :], seed=seed))
    return Agreement(distance, floor, short, long)
