"""Parallel tempering as it is done today: non-reversible, with a ladder and steps that adapt."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.papers.multalmc.baselines.common import Run
from assay.papers.multalmc.sampler import SampleResult
from assay.toolkits.checks import number, whole


@torch.no_grad()
def parallel_tempering(
    target: Any,
    num_samples: int,
    *,
    n_evaluations: int,
    num_chains: int | None = None,
    n_temperatures: int = 10,
    reference_scale: float = 10.0,
    leapfrog_steps: int = 5,
    warmup: float = 0.3,
    dim: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SampleResult:
    """Parallel tempering along ``log p_beta = beta log pi + (1 - beta) log N(0, scale^2 I)``.

    Replicas move by Hamiltonian Monte Carlo (by MALA with one leapfrog step), then even and odd
    neighbours swap in turn, which is faster than swaps at random. The replica at beta = 0 is drawn
    anew each time. During the warm-up the step of each temperature comes to its best acceptance
    rate, and the ladder to equal rejection of swaps; both are fixed from then on. All chains share
    them.

    Args:
        target: What `as_target` accepts.
        num_samples: Draws N.
        n_evaluations: Evaluations for each draw, over all temperatures and the warm-up.
        num_chains: Independent ensembles of replicas. Default: N, each giving its last state. With
            fewer, each has N / num_chains times the evaluations and gives that many draws, evenly
            spaced after the warm-up.
        n_temperatures: Replicas of an ensemble, that at beta = 0 included, >= 2. The best number
            is about twice the sum of swap rejections, which the trace has, plus 1.
        reference_scale: Standard deviation of the reference, > 0: it should cover the target.
        leapfrog_steps: Of a move, >= 1.
        warmup: Share of the evaluations that goes into adaptation, 0 to 0.9.
        dim: Of the target, where it is a function alone.
        generator: Of the random numbers, on the device that is sampled on.
        dtype: Floating-point; torch's default if None.

    Returns:
        The draws at beta = 1; the trace has "betas" ``(K,)``, "swap_rejections" ``(K - 1,)``,
        "acceptance" and "step_sizes" ``(K - 1,)`` of the time after the warm-up.

    Raises:
        TypeError, ValueError: An argument of the wrong kind or out of range.

    Source: Syed, Bouchard-Cote, Deligiannidis and Doucet, "Non-reversible parallel tempering: a
    scalable highly parallel MCMC scheme", 2022.
    """
    run = Run(target, num_samples, n_evaluations, dim, generator, dtype)
    chains, draws, budget = run.chains(num_chains)
    replicas = whole("n_temperatures", n_temperatures, 2) - 1
    leapfrog_steps = whole("leapfrog_steps", leapfrog_steps)
    scale = number("reference_scale", reference_scale, above=0)
    warmup = number("warmup", warmup, least=0, most=0.9)
    # A round trip of even and odd swaps asks for one state of the reference.
    iterations = int((budget - replicas) / (replicas * leapfrog_steps + 0.5))
    adapting = int(warmup * iterations)
    if iterations - adapting < draws:
        least = replicas + math.ceil(2 * draws * (replicas * leapfrog_steps + 1) / (1 - warmup))
        least = math.ceil(least * chains / run.num_samples)
        raise ValueError(f"n_evaluations: got {n_evaluations}, wants >= {least} for this ladder")

    ensemble = _Ensemble(run, chains, replicas, scale, leapfrog_steps)
    rounds = _round_ends(adapting)
    kept = {adapting + round((i + 1) * (iterations - adapting) / draws) - 1 for i in range(draws)}
    samples = []
    for i in range(iterations):
        ensemble.move(gain=min(1.0, 4 * (i + 1) ** -0.6) if i < adapting else 0.0)
        ensemble.swap(i % 2)
        if i in rounds:
            ensemble.adapt_ladder()
        if i == adapting - 1:
            ensemble.forget()
        if i in kept:
            samples.append(ensemble.x[0].clone())
    found = torch.cat(samples)[: run.num_samples]
    spent = ensemble.n_grad * chains
    trace = {
        "betas": torch.cat([ensemble.betas, ensemble.betas.new_zeros(1)]),
        "swap_rejections": ensemble.rejections(),
        "acceptance": ensemble.acceptance / max(ensemble.moves, 1),
        "step_sizes": ensemble.log_steps.exp(),
    }
    return run.result(found, -(-spent // run.num_samples), 0, trace)


def _round_ends(adapting: int) -> set[int]:
    """Last iterations of rounds after which the ladder moves, each twice as long as the last."""
    ends, length = set(), max(4, adapting // 64)
    end = length - 1
    while end < adapting - 1:
        ends.add(end)
        length *= 2
        end += length
    return ends


class _Ensemble:
    """Replicas at all temperatures but that of the reference, ``(R, C, d)``, coldest first."""

    def __init__(self, run: Run, chains: int, replicas: int, scale: float, leapfrogs: int) -> None:
        self.run, self.precision, self.leapfrogs = run, scale**-2, leapfrogs
        self.scale = scale
        self.n_grad = 0
        # Starts as everywhere else; the reference reaches all replicas by swaps.
        self.x = run.start(replicas * chains).reshape(replicas, chains, run.dim)
        self.log_pi, self.score = self._evaluate(self.x)
        device = self.x.device
        self.betas = torch.linspace(1, 0, replicas + 1, dtype=run.dtype, device=device)[:-1] ** 3
        # As if the target's own width were 1; hotter replicas are wider, up to the reference.
        self.log_steps = (0.2 / self.betas.sqrt()).clamp_max(0.5 * scale).log()
        self.goal = 0.574 if leapfrogs == 1 else 0.8
        self.forget()

    def forget(self) -> None:
        """Starts the statistics of acceptance and swaps anew."""
        self.acceptance = torch.zeros_like(self.betas)
        self.moves = 0
        self._rejected = torch.zeros_like(self.betas)
        self._swaps = [0, 0]

    def rejections(self) -> Tensor:
        """Mean rejection of swaps of each replica with the next hotter one, ``(R,)``."""
        pairs = torch.arange(len(self.betas), device=self.x.device) % 2
        counts = torch.tensor(self._swaps, device=self.x.device).clamp_min(1)
        return self._rejected / counts[pairs]

    def _evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.reshape(-1, x.shape[-1])
        self.n_grad += len(x)
        log_pi, score = self.run.target.log_prob(flat), self.run.target.score(flat)
        return log_pi.reshape(x.shape[:-1]), score.reshape(x.shape)

    def _gradient(self, x: Tensor, score: Tensor) -> Tensor:
        betas = self.betas[:, None, None]
        return betas * score - (1 - betas) * self.precision * x

    def _log_density(self, x: Tensor, log_pi: Tensor) -> Tensor:
        betas = self.betas[:, None]
        return betas * log_pi - (1 - betas) * 0.5 * self.precision * (x * x).sum(-1)

    def move(self, gain: float) -> None:
        """One Hamiltonian move of all replicas; with a gain above 0 their steps adapt."""
        x, score = self.x, self.score
        # Steps of random length, as trajectories of one length can come back to their start.
        steps = (self.log_steps.exp() * (0.8 + 0.4 * self.run.uniform(1)))[:, None, None]
        momentum = self.run.normal(*x.shape)
        before = self._log_density(x, self.log_pi) - 0.5 * (momentum**2).sum(-1)
        momentum = momentum + 0.5 * steps * self._gradient(x, score)
        flat = (-1, x.shape[-1])
        for leap in range(self.leapfrogs):
            x = x + steps * momentum
            score = self.run.target.score(x.reshape(flat)).reshape(x.shape)
            last = leap == self.leapfrogs - 1
            momentum = momentum + (0.5 if last else 1.0) * steps * self._gradient(x, score)
        self.n_grad += self.leapfrogs * len(x)
        log_pi = self.run.target.log_prob(x.reshape(flat)).reshape(x.shape[:-1])
        after = self._log_density(x, log_pi) - 0.5 * (momentum**2).sum(-1)
        probability = (after - before).nan_to_num(nan=-torch.inf).clamp_max(0).exp()
        accept = self.run.uniform(*probability.shape) < probability
        self.x = torch.where(accept[..., None], x, self.x)
        self.score = torch.where(accept[..., None], score, self.score)
        self.log_pi = torch.where(accept, log_pi, self.log_pi)
        rate = probability.mean(1)
        self.acceptance += rate
        self.moves += 1
        if gain:
            self.log_steps = self.log_steps + gain * (rate - self.goal)

    def swap(self, parity: int) -> None:
        """Swaps replicas of this parity with the next hotter ones."""
        replicas, chains = len(self.x), self.x.shape[1]
        work = self._work(self.x, self.log_pi)
        cold = torch.arange(parity, replicas - 1, 2, device=self.x.device)
        if len(cold):
            gap = (self.betas[cold] - self.betas[cold + 1])[:, None]
            accept = self._decide(cold, gap * (work[cold + 1] - work[cold]))
            for values in (self.x, self.score, self.log_pi):
                mask = accept[..., None] if values.ndim == 3 else accept
                low, high = values[cold], values[cold + 1]
                values[cold] = torch.where(mask, high, low)
                values[cold + 1] = torch.where(mask, low, high)
        if (replicas - 1) % 2 == parity:
            x = self.scale * self.run.normal(1, chains, self.run.dim)
            log_pi, score = self._evaluate(x)
            last = torch.tensor([replicas - 1], device=self.x.device)
            accept = self._decide(last, self.betas[-1] * (self._work(x, log_pi) - work[-1:]))
            self.x[-1:] = torch.where(accept[..., None], x, self.x[-1:])
            self.score[-1:] = torch.where(accept[..., None], score, self.score[-1:])
            self.log_pi[-1:] = torch.where(accept, log_pi, self.log_pi[-1:])
        self._swaps[parity] += 1

    def _work(self, x: Tensor, log_pi: Tensor) -> Tensor:
        return log_pi + 0.5 * self.precision * (x * x).sum(-1)

    def _decide(self, cold: Tensor, log_ratio: Tensor) -> Tensor:
        probability = log_ratio.nan_to_num(nan=-torch.inf).clamp_max(0).exp()
        self._rejected[cold] += 1 - probability.mean(1)
        return self.run.uniform(*probability.shape) < probability

    def adapt_ladder(self) -> None:
        """Moves the temperatures to where swaps between neighbours are rejected equally often."""
        rejected = self.rejections().double().clamp_min(1e-3).cpu().numpy()
        barrier = np.concatenate([[0.0], np.cumsum(rejected)])
        old = np.append(self.betas.double().cpu().numpy(), 0.0)
        betas = np.interp(np.linspace(0, barrier[-1], len(old)), barrier, old)
        # Steps belong to temperatures, not to places on the ladder.
        steps = np.interp(-betas[:-1], -old[:-1], self.log_steps.double().cpu().numpy())
        self.betas = torch.from_numpy(betas[:-1]).to(self.betas)
        self.log_steps = torch.from_numpy(steps).to(self.log_steps)
        self.forget()
