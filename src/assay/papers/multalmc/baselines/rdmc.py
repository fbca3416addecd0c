"""Reverse diffusion Monte Carlo: the score of the noised target, by sampling at each step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc.baselines.common import Run
from assay.papers.multalmc.sampler import SampleResult
from assay.toolkits.checks import number, whole


@torch.no_grad()
def rdmc(
    target: Any,
    num_samples: int,
    *,
    n_evaluations: int,
    horizon: float = 3.0,
    n_steps: int = 60,
    warm_steps: int = 10,
    inner_chains: int = 4,
    proposals: int = 8,
    dim: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SampleResult:
    """Reverse diffusion Monte Carlo, from N(0, I) at time `horizon` back to the target at 0.

    The Ornstein-Uhlenbeck process ``X_t = e^-t X_0 + sqrt(1 - e^-2t) Z`` is run backwards. Its
    score needs ``E[X_0 | X_t]``, which chains at each step estimate: first one choice among fresh
    importance samples and the state before (which leaves the posterior as it is), then MALA with
    a step that adapts. The inner loop of the original is unadjusted and starts anew each time.

    Args:
        target: What `as_target` accepts.
        num_samples: Draws N.
        n_evaluations: Evaluations for each draw, over all steps and inner chains.
        horizon: T, > 0: large for a start near N(0, I), small for easy posteriors. Tune it.
        n_steps: Steps from T to 0, even in the log of the signal-to-noise ratio, >= 1.
        warm_steps: Langevin steps at T before them, >= 0.
        inner_chains: For each draw, >= 1.
        proposals: Importance samples at each step for each inner chain, >= 1.
        dim: Of the target, where it is a function alone.
        generator: Of the random numbers, on the device that is sampled on.
        dtype: Floating-point; torch's default if None.

    Returns:
        The last state of one inner chain of each draw. The trace has "times" ``(n_steps,)`` and
        "acceptance" ``(n_steps,)``, that of the inner chains.

    Raises:
        TypeError, ValueError: An argument of the wrong kind or out of range, or too few
            evaluations for so many steps and chains.

    Source: Huang, Dong, Hao, Ma and Zhang, "Reverse diffusion Monte Carlo", ICLR 2024; the choice
    among proposals is i-SIR of Andrieu, Lee and Vihola, 2018.
    """
    run = Run(target, num_samples, n_evaluations, dim, generator, dtype)
    horizon = number("horizon", horizon, above=0)
    n_steps, warm_steps = whole("n_steps", n_steps), whole("warm_steps", warm_steps, 0)
    inner_chains, proposals = whole("inner_chains", inner_chains), whole("proposals", proposals)
    rounds = n_steps + warm_steps
    moves = run.n_evaluations // (rounds * inner_chains) - proposals - 2
    if moves < 1:
        least = rounds * inner_chains * (proposals + 3)
        raise ValueError(f"n_evaluations: got {n_evaluations}, wants >= {least} for these loops")

    x = run.start(run.num_samples)
    inner = _Posterior(run, inner_chains, proposals, moves)
    ends = math.log(math.expm1(2 * horizon)), math.log(math.expm1(2 * min(5e-3, horizon / 2)))
    ratios = torch.linspace(*ends, n_steps, dtype=torch.float64)
    times = (ratios.exp().log1p() / 2).tolist()
    for _ in range(warm_steps):
        noise = -math.expm1(-2 * horizon)
        score = (math.exp(-horizon) * inner.mean(x, horizon) - x) / noise
        x = x + 0.25 * noise * score + math.sqrt(0.5 * noise) * run.normal(*x.shape)
    acceptance = []
    for time, later in zip(times, [*times[1:], None], strict=True):
        mean = inner.mean(x, time)
        acceptance.append(inner.acceptance)
        if later is not None:
            x = _bridge(x, mean, time, later, run.normal(*x.shape))
    trace = {
        "times": torch.tensor(times, dtype=torch.float64),
        "acceptance": torch.stack(acceptance),
    }
    inner_runs = rounds * inner_chains
    assert inner.x is not None
    return run.result(inner.x[:, 0], inner_runs * (moves + 1), inner_runs * (proposals + 1), trace)


def _bridge(x: Tensor, origin: Tensor, time: float, later: float, noise: Tensor) -> Tensor:
    """A draw of ``X_later`` given ``X_time = x`` and ``X_0 = origin``, later < time."""
    variance, new = -math.expm1(-2 * time), -math.expm1(-2 * later)
    decay = math.exp(later - time)
    rest = -math.expm1(2 * (later - time))
    mean = (decay * new * x + math.exp(-later) * rest * origin) / variance
    return mean + math.sqrt(rest * new / variance) * noise


class _Posterior:
    """Chains on ``q(y | x) ~ pi(y) N(x; e^-t y, (1 - e^-2t) I)``, ``(N, inner chains, d)``."""

    def __init__(self, run: Run, chains: int, proposals: int, moves: int) -> None:
        self.run, self.chains, self.proposals, self.moves = run, chains, proposals, moves
        self.x: Tensor | None = None
        self.log_step = torch.zeros((), dtype=run.dtype, device=run.generator.device)

    def mean(self, x: Tensor, time: float) -> Tensor:
        """Estimate of ``E[X_0 | X_time = x]``, ``(N, d)``."""
        y, run, dim = self._choose(x, time), self.run, self.run.dim
        decay, noise = math.exp(-time), -math.expm1(-2 * time)

        def evaluate(y: Tensor) -> tuple[Tensor, Tensor]:
            flat = y.reshape(-1, dim)
            gap = x[:, None] - decay * y
            log_q = run.target.log_prob(flat).reshape(y.shape[:-1])
            log_q = log_q - 0.5 / noise * (gap * gap).sum(-1)
            return log_q, run.target.score(flat).reshape(y.shape) + decay / noise * gap

        log_q, score = evaluate(y)
        width = 1 / (1 + decay**2 / noise)
        total, rate = torch.zeros_like(x), torch.zeros_like(self.log_step)
        counted = range(self.moves // 2, self.moves)
        for i in range(self.moves):
            step = width * self.log_step.exp()
            forward = run.normal(*y.shape)
            proposal = y + step * score + (2 * step).sqrt() * forward
            new_log_q, new_score = evaluate(proposal)
            back = (y - proposal - step * new_score) / (2 * step).sqrt()
            log_ratio = new_log_q - log_q + 0.5 * ((forward**2).sum(-1) - (back**2).sum(-1))
            probability = log_ratio.nan_to_num(nan=-torch.inf).clamp_max(0).exp()
            accept = run.uniform(*probability.shape) < probability
            y = torch.where(accept[..., None], proposal, y)
            score = torch.where(accept[..., None], new_score, score)
            log_q = torch.where(accept, new_log_q, log_q)
            rate += probability.mean()
            self.log_step = self.log_step + 0.2 * (probability.mean() - 0.574)
            if i in counted:
                total += y.mean(1)
        self.x, self.acceptance = y, rate / self.moves
        return total / len(counted)

    def _choose(self, x: Tensor, time: float) -> Tensor:
        """Each chain goes to one of its proposals or stays, by their importance weights."""
        n, run = len(x), self.run
        spread = math.sqrt(math.expm1(2 * time))
        count = self.proposals + (self.x is None)
        fresh = run.normal(n, self.chains, count, run.dim)
        pool = math.exp(time) * x[:, None, None] + spread * fresh
        if self.x is not None:
            pool = torch.cat([pool, self.x[:, :, None]], 2)
        log_pi = run.target.log_prob(pool.reshape(-1, run.dim)).reshape(pool.shape[:-1])
        weights = log_pi.nan_to_num(nan=-1e30, neginf=-1e30).softmax(-1)
        chosen = torch.multinomial(weights.reshape(n * self.chains, -1), 1, generator=run.generator)
        index = chosen.reshape(n, self.chains, 1, 1).expand(-1, -1, -1, run.dim)
        return pool.gather(2, index)[:, :, 0]
