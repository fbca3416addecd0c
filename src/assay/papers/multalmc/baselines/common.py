"""What the baselines share: how evaluations are counted and how a budget is cut into chains."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc.sampler import SampleResult
from assay.papers.multalmc.target import CountedTarget, as_target
from assay.toolkits.checks import whole


class Run:
    """A run of a baseline: its checked arguments, its clock, and the result at its end.

    An evaluation is a point at which the log-density, its gradient or both are asked for: a
    gradient brings its log-density along, as it does in automatic differentiation, so that
    `n_logp` of a result counts only log-densities that come alone. The check of the target before
    the run, at 16 points, is not counted.

    Args:
        target: What `as_target` accepts.
        num_samples: Draws N, >= 1.
        n_evaluations: Evaluations that may be spent on each draw, >= 1.
        dim: Of the target, where it is a function alone.
        generator: Of the random numbers, on the device that is sampled on; by default a new one,
            seeded from torch's global one.
        dtype: Floating-point; torch's default if None.

    Raises:
        TypeError, ValueError: An argument of the wrong kind or out of range.
    """

    def __init__(
        self,
        target: Any,
        num_samples: int,
        n_evaluations: int,
        dim: int | None,
        generator: torch.Generator | None,
        dtype: torch.dtype | None,
    ) -> None:
        self.started = time.perf_counter()
        self.target: CountedTarget = as_target(target, dim)
        self.dim = self.target.dim
        self.num_samples = whole("num_samples", num_samples)
        self.n_evaluations = whole("n_evaluations", n_evaluations)
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        elif not isinstance(generator, torch.Generator):
            raise TypeError(f"generator: got {type(generator).__name__}, wants a torch.Generator")
        self.generator = generator
        self.dtype = torch.get_default_dtype() if dtype is None else dtype

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers of this shape."""
        options: dict[str, Any] = {"dtype": self.dtype, "device": self.generator.device}
        return torch.randn(*shape, generator=self.generator, **options)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers of this shape."""
        options: dict[str, Any] = {"dtype": self.dtype, "device": self.generator.device}
        return torch.rand(*shape, generator=self.generator, **options)

    def start(self, chains: int) -> Tensor:
        """Starts, standard normal as for every other sampler here, ``(chains, d)``.

        Raises:
            TypeError, ValueError: What `CountedTarget.check` finds.
        """
        x = self.normal(max(chains, 16), self.dim)
        self.target.check(x[:16])
        return x[:chains]

    def jax_key(self) -> Any:
        """A key of jax, by the next number of the generator."""
        import jax

        device = self.generator.device
        seed = torch.randint(2**31, (), generator=self.generator, device=device)
        return jax.random.key(int(seed))

    def chains(self, num_chains: int | None) -> tuple[int, int, int]:
        """Chains C, draws of each, and evaluations of each.

        Args:
            num_chains: C, from 1 to N; None is N.

        Raises:
            TypeError, ValueError: C is no such number.
        """
        count = self.num_samples if num_chains is None else whole("num_chains", num_chains)
        if count > self.num_samples:
            raise ValueError(f"num_chains: got {count}, wants <= num_samples, {self.num_samples}")
        draws = -(-self.num_samples // count)
        return count, draws, self.n_evaluations * self.num_samples // count

    def result(
        self, samples: Tensor, n_grad: int, n_logp: int, trace: dict[str, Tensor] | None = None
    ) -> SampleResult:
        """The result; draws that are not finite become NaN.

        Args:
            samples: ``(N, d)``.
            n_grad, n_logp: Evaluations per draw.
            trace: What there is to say about the run.
        """
        finite = samples.isfinite().all(1)
        samples = torch.where(finite[:, None], samples, torch.nan)
        if samples.is_cuda:
            torch.cuda.synchronize(samples.device)
        seconds = time.perf_counter() - self.started
        return SampleResult(samples, n_grad, n_logp, seconds, finite, trace)
