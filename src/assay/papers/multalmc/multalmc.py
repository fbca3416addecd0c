"""MultALMC: annealed Langevin dynamics whose score is averaged on the fly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc import srock
from assay.papers.multalmc.base import Base, Normal, StudentT
from assay.papers.multalmc.sampler import Sampler, State
from assay.papers.multalmc.schedule import Schedule, frictions, lambdas
from assay.papers.multalmc.score_identity import scaled_ito, scaled_langevin
from assay.toolkits.checks import number, one_of

DYNAMICS = ("underdamped", "overdamped")
FAST = ("langevin", "ito")
O_STEPS = ("euler", "exact")


class MultALMC(Sampler):
    """Moves N chains from the base to the target along the diffusion path, without training.

    Beside each chain's position X runs a fast variable Y, whose law given X is such that a simple
    function of Y has the path's score as its mean; it is used in place of the score as it comes.
    Each step takes `srock_stages` gradients of the target, and one or two more from lambda =
    `lambda_switch` on. The last steps, from lambda = 1 - `lambda_delta` on, are plain Langevin
    dynamics on the target.

    Args:
        target: what `as_target` accepts.
        schedule: lambda along the run: "linear", "cosine", or a function that rises from [0, 1]
            to 1.
        n_steps: L; even where the friction rises. More steps, slower change, smaller error.
        step_size: h, > 0, of the slow variables; the fast one's is step_size / eps.
        eps: scale separation, > 0. Smaller is closer to the averaged dynamics, until SROCK's
            stability ends.
        friction: (smallest, largest) Gamma, or one number; smallest for half the run, then rising
            linearly.
        mass: m of M = m I, > 0.
        lambda_delta: 0 < lambda_delta < 0.5; the path is cut off that near to its two ends.
        lambda_switch: lambda from which the target's gradient replaces the base's as estimate of
            the score, from 0 to 1.
        srock_stages: s, from 1 to 11.
        base: `Normal()`, or `StudentT(df)` for heavy tails.
        dynamics: "underdamped" (the paper's "accelerated") or "overdamped".
        fast: "langevin", or "ito" with a `StudentT` base: the modified Ito diffusion, whose steps
            grow with the distance and are stable only on targets with heavy tails.
        o_step: friction and noise of the velocity to first order, "euler", as the paper writes
            it, or "exact".
        dim: d, where the target is a function alone.
        generator: of the random numbers, on the device that is sampled on; by default a new one,
            seeded from torch's global one.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range, or a fast step that
            is beyond SROCK's stability.
    """

    def __init__(
        self,
        target: Any,
        *,
        schedule: str | Schedule = "linear",
        n_steps: int,
        step_size: float,
        eps: float = 0.1,
        friction: float | tuple[float, float] = (0.1, 0.5),
        mass: float = 1.0,
        lambda_delta: float = 0.01,
        lambda_switch: float = 0.6,
        srock_stages: int = 5,
        base: Base | None = None,
        dynamics: str = "underdamped",
        fast: str = "langevin",
        o_step: str = "euler",
        dim: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(target, n_steps=n_steps, dim=dim, generator=generator)
        self.step_size = number("step_size", step_size, above=0)
        self.eps = number("eps", eps, above=0)
        self.mass = number("mass", mass, above=0)
        self.lambda_delta = number("lambda_delta", lambda_delta, above=0, most=0.499)
        self.lambda_switch = number("lambda_switch", lambda_switch, least=0, most=1)
        self.srock = srock.coefficients(srock_stages)
        self.base: Base = Normal() if base is None else base
        if not all(hasattr(self.base, name) for name in ("sample", "score", "pull")):
            raise TypeError(f"base: got {base!r}, wants Normal() or StudentT(df)")
        self.dynamics = one_of("dynamics", dynamics, DYNAMICS)
        self.fast = one_of("fast", fast, FAST)
        if fast == "ito" and not isinstance(self.base, StudentT):
            raise ValueError(f"fast: got 'ito' with the base {self.base}, wants StudentT(df)")
        self.o_step = one_of("o_step", o_step, O_STEPS)
        self.lambdas = [max(lam, self.lambda_delta) for lam in lambdas(schedule, n_steps)]
        self._path_steps = sum(lam < 1 - self.lambda_delta for lam in self.lambdas)
        self._check_stability(srock_stages)
        halves = [self._half_friction(gamma) for gamma in frictions(friction, n_steps)]
        self._friction = [
            halves[0],
            *(_compose(a, b) for a, b in pairwise(halves)),
        ]
        self._work: Tensor | None = None
        self._move: Callable[..., tuple[Tensor, Tensor | None, Tensor]] = (
            self._underdamped if dynamics == "underdamped" else self._overdamped
        )

    def _check_stability(self, stages: int) -> None:
        if not self._path_steps:
            return
        lam, limit = self.lambdas[self._path_steps - 1], srock.stability_limit(stages)
        stiffness = self.step_size / (self.eps * (1 - lam))
        if stiffness > limit:
            raise ValueError(
                f"step_size: got {self.step_size:g} with eps {self.eps:g}, whose stability number "
                f"step_size / (eps (1 - lambda)) reaches {stiffness:.3g} at lambda = {lam:.3g}; "
                f"{stages} SROCK stages want it <= {limit:.3g}"
            )

    def _half_friction(self, gamma: float) -> tuple[float, float]:
        """What half a step's friction leaves of the velocity, and the noise it adds."""
        decay = self.step_size * gamma / (2 * self.mass)
        if self.o_step == "exact":
            keep = math.exp(-decay)
            return keep, math.sqrt(self.mass * (1 - keep * keep))
        if decay >= 1:
            raise ValueError(
                f"friction: got {gamma:g}, wants < 2 mass / step_size = "
                f"{2 * self.mass / self.step_size:g}, or o_step='exact'"
            )
        return 1 - decay, math.sqrt(self.step_size * gamma)

    def _start(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> State:
        x = self.base.sample(n, self.dim, generator, dtype)
        y, v = torch.randn(2, n, self.dim, generator=generator, dtype=dtype, device=x.device)
        alive = torch.ones(n, dtype=torch.bool, device=x.device)
        velocity = v * math.sqrt(self.mass) if self.dynamics == "underdamped" else None
        return State(0, x, velocity, y, None, alive)

    def _advance(self, generator: torch.Generator, state: State) -> State:
        lam = self.lambdas[state.step]
        keep, spread = self._friction[state.step]
        on_path, late = lam < 1 - self.lambda_delta, lam >= self.lambda_switch
        count, work = 2 if on_path else 1, self._workspace(state.x)
        noise = work[:count].normal_(generator=generator)
        if not on_path:
            return self._polish(state, noise[0], keep, spread)
        assert state.y is not None
        x, v, y = self._move(
            state.x, state.v, state.y, noise, work[2:].unbind(), keep, spread, lam, late
        )
        n_grad = state.n_grad + self._gradients(late)
        return replace(state, step=state.step + 1, x=x, v=v, y=y, n_grad=n_grad)

    def _workspace(self, like: Tensor) -> Tensor:
        """Memory of a step, (7, N, d): two draws and five intermediate results."""
        work = self._work
        if work is None or work[0].shape != like.shape or work.dtype != like.dtype:
            work = None
        if work is None or work.device != like.device:
            work = self._work = like.new_empty((7, *like.shape))
        return work

    def _gradients(self, late: bool) -> int:
        """Of a step on the path; counted here, as traced code does not count."""
        kicks = 2 if self.dynamics == "underdamped" else 1
        return len(self.srock.drift) + (kicks if late else 0)

    def _underdamped(
        self,
        x: Tensor,
        v: Tensor,
        y: Tensor,
        noise: Tensor,
        work: Sequence[Tensor],
        keep: float,
        spread: float,
        lam: float,
        late: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        h, root, (z, gap, *work) = self.step_size, math.sqrt(lam), work
        # The last part of a step and the first of the next both act on the velocity alone, with
        # nothing between them: they are one part here, with one draw.
        v = (keep * v).add_(noise[0], alpha=spread)
        z = torch.div(y, root, out=z)
        v = self._kick(v, x, y, z, lam, late, h / 2, gap, out=v)
        x = torch.add(x, v, alpha=h / self.mass)
        z = self._fast_step(x, z, noise[1], lam, gap, work)
        y = z * root
        return x, self._kick(v, x, y, z, lam, late, h / 2, gap, out=v), y

    def _overdamped(
        self,
        x: Tensor,
        v: None,
        y: Tensor,
        noise: Tensor,
        work: Sequence[Tensor],
        keep: float,
        spread: float,
        lam: float,
        late: bool,
    ) -> tuple[Tensor, None, Tensor]:
        h, root, (z, gap, *work) = self.step_size, math.sqrt(lam), work
        z = torch.div(y, root, out=z)
        x = self._kick(x, x, y, z, lam, late, h, gap).add_(noise[0], alpha=math.sqrt(2 * h))
        z = self._fast_step(x, z, noise[1], lam, gap, work)
        return x, None, z * root

    def _kick(
        self,
        v: Tensor,
        x: Tensor,
        y: Tensor,
        z: Tensor,
        lam: float,
        late: bool,
        time: float,
        gap: Tensor,
        out: Tensor | None = None,
    ) -> Tensor:
        """v + time * b, with the score's estimate b by form B late and by form A before."""
        if late:
            return torch.add(v, self.target.score(z), alpha=time / math.sqrt(lam), out=out)
        gap = torch.sub(y, x, out=gap)
        return self.base.pull(v, gap, 1 / math.sqrt(1 - lam), time, out=out)

    def _fast_step(
        self, x: Tensor, z: Tensor, noise: Tensor, lam: float, gap: Tensor, work: Sequence[Tensor]
    ) -> Tensor:
        """The fast variable's step, of z = y / sqrt(lambda)."""
        centre, *stages = work
        diffusion: float | Tensor
        if self.fast == "ito":
            assert isinstance(self.base, StudentT)
            drift, diffusion = scaled_ito(self.target.score, self.base, lam, x, z)
        else:
            drift, diffusion = scaled_langevin(self.target.score, self.base, lam, x, (centre, gap))
        tau = self.step_size / (self.eps * lam)
        return srock.integrate(z, drift, diffusion, tau, self.srock, noise, stages)

    def _polish(self, state: State, noise: Tensor, keep: float, spread: float) -> State:
        """Langevin dynamics on the target itself."""
        h, x, n_grad = self.step_size, state.x, state.n_grad + 1
        gradient = state.gradient
        if gradient is None:
            gradient = self.target.score(x)
        if state.v is None:
            x = torch.add(x, gradient, alpha=h).add_(noise, alpha=math.sqrt(2 * h))
            return replace(state, step=state.step + 1, x=x, y=None, n_grad=n_grad)
        if state.gradient is None:
            n_grad += 1
        v = (keep * state.v).add_(noise, alpha=spread).add_(gradient, alpha=h / 2)
        x = torch.add(x, v, alpha=h / self.mass)
        gradient = self.target.score(x)
        v.add_(gradient, alpha=h / 2)
        return replace(
            state, step=state.step + 1, x=x, v=v, y=None, gradient=gradient, n_grad=n_grad
        )


def _compose(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Two parts v <- keep v + spread xi after one another, as one."""
    keep = first[0] * second[0]
    return keep, math.hypot(second[0] * first[1], second[1])
