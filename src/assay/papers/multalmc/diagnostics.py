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
        number: the largest (step_size / eps) (curvature / lambda + 1 / (1 - lambda)), or lambda
            times that with the fast scale "target".
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
        curvature: largest eigenvalue of the Hessian of V wherever the fast variable goes, >= 0;
            see `largest_curvature`. That is where the target's mass is and at its start,
            N(0, I / lambda_delta) on the path's scale and N(0, I) on the target's. With 0 it says
            no more than MultALMC does when it is made. The number is that of a `Normal` base.

    Raises:
        TypeError, ValueError: no MultALMC, a curvature < 0, or no step on the path.
    """
    if not isinstance(sampler, MultALMC):
        raise TypeError(f"sampler: got {type(sampler).__name__}, wants MultALMC")
    number("curvature", curvature, least=0)
    path = [lam for lam in sampler.lambdas if lam < 1 - sampler.lambda_delta]
    if not path:
        raise ValueError("sampler: got none with steps on the path, wants smaller lambdas")
    stiffness, lam = max(
        (sampler.fast_time(lam) * (curvature + lam / (1 - lam)), lam) for lam in path
    )
    return Stability(stiffness, srock.stability_limit(sampler.srock_stages), lam)


@torch.no_grad()
def largest_curvature(
    target: Any, x: Tensor, *, n_iterations: int = 20, width: float = 1e-3, dim: int | None = None
) -> float:
    """Largest eigenvalue in size of the Hessian of V over some points, by power iteration.

    Args:
        target: what `as_target` accepts.
        x: points where the target's mass is, (N, d), in the floating-point type to evaluate it in;
            single precision leaves about two digits.
        n_iterations: of the power iteration, >= 1; each takes two gradients at all points.
        width: of the finite differences of the score, > 0.
        dim: d, where the target is a function alone.

    Raises:
        TypeError, ValueError: a wrong argument.
    """
    whole("n_iterations", n_iterations)
    number("width", width, above=0)
    counted = as_target(target, dim)
    _check_points("x", x, counted.dim)
    score = counted.score
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
    samples = _finite(samples, sampler.dim)
    distance = math.sqrt(float(samples.double().square().sum(1).mean()))
    return distance / (sampler.n_steps * sampler.step_size)


class Virial(NamedTuple):
    """How wide draws are for the target's own slopes.

    Attributes:
        value: mean of (mean(x) - x) . grad log pi(x) / d over the draws, 1 for the target itself
            whatever its shape; about the factor by which each mode's variance is too large.
        error: standard error of it.
    """

    value: float
    error: float


@torch.no_grad()
def virial(target: Any, samples: Tensor, *, dim: int | None = None) -> Virial:
    """Asks after a run whether the fast variable's noise has heated the draws.

    By Stein's identity the mean is exactly 1 for the target: so it finds steps beyond stability and
    an epsilon too large, whose draws are finite and look like draws. It cannot find missing or
    wrongly weighted modes, as it looks at each from within. Where modes are far apart `error`
    falls below a tenth only with more than a thousand draws.

    Args:
        target: what `as_target` accepts; one gradient of each draw is evaluated.
        samples: draws, (N, d); those that are not finite are left out.
        dim: d, where the target is a function alone.

    Raises:
        TypeError, ValueError: samples of another shape, or fewer than two finite ones.
    """
    counted = as_target(target, dim)
    samples = _finite(samples, counted.dim, least=2)
    pulls = (samples.mean(0) - samples) * counted.score(samples)
    each = pulls.double().sum(1) / counted.dim
    return Virial(float(each.mean()), float(each.std()) / math.sqrt(len(each)))


def _check_points(name: str, x: Tensor, dim: int) -> None:
    if x.ndim != 2 or x.shape[1] != dim:
        raise ValueError(f"{name}: got {tuple(x.shape)}, wants (N, {dim})")


def _finite(samples: Tensor, dim: int, least: int = 1) -> Tensor:
    _check_points("samples", samples, dim)
    samples = samples[samples.isfinite().all(1)]
    if len(samples) < least:
        raise ValueError(f"samples: got {len(samples)} that are finite, wants >= {least}")
    return samples


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
