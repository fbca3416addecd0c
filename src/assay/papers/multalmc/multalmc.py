"""MultALMC: annealed Langevin dynamics whose score is averaged on the fly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from assay.papers.multalmc import srock
from assay.papers.multalmc.base import Base, Normal, StudentT
from assay.papers.multalmc.sampler import Sampler, State
from assay.papers.multalmc.schedule import Schedule, frictions, lambdas
from assay.papers.multalmc.score_identity import langevin_euler, scaled_ito
from assay.papers.multalmc.srock import Scalar, add_scaled
from assay.toolkits.checks import number, one_of

DYNAMICS = ("underdamped", "overdamped")
FAST = ("langevin", "ito")
FAST_SCALES = ("path", "target")
O_STEPS = ("euler", "exact")

Work: TypeAlias = Sequence[Tensor | None]


class Row(NamedTuple):
    """The numbers of one step.

    Attributes:
        lam: lambda, within its cut.
        root, near: sqrt(lambda) and 1 / sqrt(1 - lambda).
        tau: time step of z = y / sqrt(lambda).
        kick, drift: time step of the score's estimate, and what it moves x by for each v.
        keep, spread: of v, or of x if overdamped, what is left of it and the noise added.
    """

    lam: Scalar
    root: Scalar
    near: Scalar
    tau: Scalar
    kick: Scalar
    drift: Scalar
    keep: Scalar
    spread: Scalar


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
        lambda_delta: from 1e-6 to below 0.5; the path is cut off that near to its two ends.
        lambda_switch: lambda from which the target's gradient replaces the base's as estimate of
            the score, from 0 to 1.
        srock_stages: s, from 1 to 11.
        base: `Normal()`, or `StudentT(df)` for heavy tails.
        dynamics: "underdamped" (the paper's "accelerated") or "overdamped".
        fast: "langevin", or "ito" with a `StudentT` base: the modified Ito diffusion, whose steps
            grow with the distance and are stable only on targets with heavy tails.
        fast_scale: whose units the fast variable starts and moves in. "path": Y starts at N(0, I),
            and its steps of step_size / eps are, to the target, 1 / lambda times as long, which
            carries it from mode to mode early on. "target": Y / sqrt(lambda) starts at N(0, I) and
            moves with equal steps at every lambda, for targets with near modes that are stiff or
            grow faster than a Gaussian, where the others are unstable; far modes are lost on it.
            Both have the same laws to average over.
        o_step: friction and noise of the velocity to first order, "euler", as the paper writes
            it, or "exact".
        dim: d, where the target is a function alone.
        generator: of the random numbers, on the device that is sampled on; by default a new one,
            seeded from torch's global one.
        compile: see `Sampler`.

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
        fast_scale: str = "path",
        o_step: str = "euler",
        dim: int | None = None,
        generator: torch.Generator | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__(target, n_steps=n_steps, dim=dim, generator=generator, compile=compile)
        self.step_size = number("step_size", step_size, above=0)
        self.eps = number("eps", eps, above=0)
        self.mass = number("mass", mass, above=0)
        self.lambda_delta = number("lambda_delta", lambda_delta, least=1e-6, most=0.499)
        self.lambda_switch = number("lambda_switch", lambda_switch, least=0, most=1)
        self.srock_stages = srock.check_stages("srock_stages", srock_stages)
        self.srock = srock.coefficients(srock_stages)
        self.base: Base = Normal() if base is None else base
        parts = ("sample", "score", "pull")
        if isinstance(base, type) or not all(hasattr(self.base, name) for name in parts):
            raise TypeError(f"base: got {base!r}, wants Normal() or StudentT(df)")
        self.dynamics = one_of("dynamics", dynamics, DYNAMICS)
        self.fast = one_of("fast", fast, FAST)
        if fast == "ito" and not isinstance(self.base, StudentT):
            raise ValueError(f"fast: got 'ito' with the base {self.base}, wants StudentT(df)")
        self.fast_scale = one_of("fast_scale", fast_scale, FAST_SCALES)
        self.o_step = one_of("o_step", o_step, O_STEPS)
        self.lambdas = [max(lam, self.lambda_delta) for lam in lambdas(schedule, n_steps)]
        self._path_steps = sum(lam < 1 - self.lambda_delta for lam in self.lambdas)
        self._check_stability()
        gammas = frictions(friction, n_steps)
        self.friction = (gammas[0], gammas[-1])
        halves = [self._half_friction(gamma) for gamma in gammas]
        joined = [halves[0], *(_compose(a, b) for a, b in pairwise(halves))]
        self._rows = [
            self._row_of(lam, *pair) for lam, pair in zip(self.lambdas, joined, strict=True)
        ]
        if dynamics == "underdamped":
            self._move = self._compiled(self._move_underdamped)
            self._polish = self._compiled(self._polish_underdamped)
        else:
            self._move = self._compiled(self._move_overdamped)
            self._polish = self._compiled(self._polish_overdamped)

    def _check_stability(self) -> None:
        if not self._path_steps:
            return
        lam, limit = self.lambdas[self._path_steps - 1], srock.stability_limit(self.srock_stages)
        stiffness = self.fast_time(lam) * lam / (1 - lam)
        if stiffness > limit:
            raise ValueError(
                f"step_size: got {self.step_size:g} with eps {self.eps:g}, whose stability number "
                f"reaches {stiffness:.3g} at lambda = {lam:.3g}; {self.srock_stages} SROCK stages "
                f"want it <= {limit:.3g}"
            )

    def fast_time(self, lam: float) -> float:
        """Time step of z = y / sqrt(lambda), whose drift has the target's own score in it.

        Args:
            lam: lambda, within its cut.
        """
        time = self.step_size / self.eps
        return time if self.fast_scale == "target" else time / lam

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

    def _row_of(self, lam: float, keep: float, spread: float) -> Row:
        h, near = self.step_size, 1 / math.sqrt(max(1 - lam, self.lambda_delta))
        tau = self.fast_time(lam)
        if self.dynamics == "overdamped":
            return Row(lam, math.sqrt(lam), near, tau, h, 0.0, 1.0, math.sqrt(2 * h))
        return Row(lam, math.sqrt(lam), near, tau, h / 2, h / self.mass, keep, spread)

    def _start(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> State:
        x = self.base.sample(n, self.dim, generator, dtype)
        y, v = torch.randn(2, n, self.dim, generator=generator, dtype=dtype, device=x.device)
        if self.fast_scale == "target":
            y = y * math.sqrt(self.lambdas[0])
        alive = torch.ones(n, dtype=torch.bool, device=x.device)
        velocity = v * math.sqrt(self.mass) if self.dynamics == "underdamped" else None
        # A view of the draws, which y would be, has guards in compiled code that later ys fail.
        return State(0, x, velocity, y.clone(), None, alive)

    def _advance(self, generator: torch.Generator, state: State) -> State:
        row, work = self._row(state.step, state.x), self._workspace(7, state.x)
        lam, step = self.lambdas[state.step], state.step + 1
        on_path, late = lam < 1 - self.lambda_delta, lam >= self.lambda_switch
        noise = work[: 2 if on_path else 1].normal_(generator=generator)
        if on_path:
            scratch = (None,) * 5 if self.compile else work[2:].unbind()
            x, v, y = self._move(state.x, state.v, state.y, noise, row, late, scratch)
            n_grad = state.n_grad + self._gradients(late)
            return replace(state, step=step, x=x, v=v, y=y, n_grad=n_grad)
        n_grad, gradient = state.n_grad + 1, state.gradient
        if gradient is None:
            gradient = self.target.score(state.x)
            n_grad += state.v is not None
        x, v, gradient = self._polish(state.x, state.v, gradient, noise[0], row)
        return replace(state, step=step, x=x, v=v, y=None, gradient=gradient, n_grad=n_grad)

    def _gradients(self, late: bool) -> int:
        """Of a step on the path; counted here, as compiled code does not count."""
        kicks = 2 if self.dynamics == "underdamped" else 1
        return self.srock_stages + (kicks if late else 0)

    def _move_underdamped(
        self, x: Tensor, v: Tensor, y: Tensor, noise: Tensor, row: Row, late: bool, work: Work
    ) -> tuple[Tensor, Tensor, Tensor]:
        row, (z, *work) = Row(*row), work
        # The last part of a step and the first of the next both act on the velocity alone, with
        # nothing between them: they are one part here, with one draw.
        v = row.keep * v
        v = add_scaled(v, noise[0], row.spread, out=v)
        z = torch.div(y, row.root, out=z)
        v = self._kick(v, x, y, z, row, late, work[0], out=v)
        x = add_scaled(x, v, row.drift)
        z = self._fast_step(x, z, noise[1], row, work)
        y = z * row.root
        return x, self._kick(v, x, y, z, row, late, work[0], out=v), y

    def _move_overdamped(
        self, x: Tensor, v: None, y: Tensor, noise: Tensor, row: Row, late: bool, work: Work
    ) -> tuple[Tensor, None, Tensor]:
        row, (z, *work) = Row(*row), work
        z = torch.div(y, row.root, out=z)
        x = self._kick(x, x, y, z, row, late, work[0])
        x = add_scaled(x, noise[0], row.spread, out=x)
        z = self._fast_step(x, z, noise[1], row, work)
        return x, None, z * row.root

    def _kick(
        self,
        v: Tensor,
        x: Tensor,
        y: Tensor,
        z: Tensor,
        row: Row,
        late: bool,
        gap: Tensor | None,
        out: Tensor | None = None,
    ) -> Tensor:
        """v + time * b, with the score's estimate b by form B late and by form A before."""
        if late:
            return add_scaled(v, self.target.score(z), row.kick / row.root, out)
        return self.base.pull(v, torch.sub(y, x, out=gap), row.near, row.kick, out)

    def _fast_step(self, x: Tensor, z: Tensor, noise: Tensor, row: Row, work: Work) -> Tensor:
        """The fast variable's step, of z = y / sqrt(lambda)."""
        centre, *stages = work
        diffusion: float | Tensor = math.sqrt(2)
        if self.fast == "ito":
            assert isinstance(self.base, StudentT)
            drift, diffusion = scaled_ito(self.target.score, self.base, row.lam, x, z)
            euler = srock.euler_of(drift)
        else:
            centre = torch.div(x, row.root, out=centre)
            euler = langevin_euler(self.target.score, self.base, centre, row.root * row.near)
        return srock.integrate(z, euler, diffusion, row.tau, self.srock, noise, stages)

    def _polish_underdamped(
        self, x: Tensor, v: Tensor, gradient: Tensor, noise: Tensor, row: Row
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A step of Langevin dynamics on the target itself."""
        row = Row(*row)
        v = row.keep * v
        v = add_scaled(v, noise, row.spread, out=v)
        v = add_scaled(v, gradient, row.kick, out=v)
        x = add_scaled(x, v, row.drift)
        gradient = self.target.score(x)
        return x, add_scaled(v, gradient, row.kick, out=v), gradient

    def _polish_overdamped(
        self, x: Tensor, v: None, gradient: Tensor, noise: Tensor, row: Row
    ) -> tuple[Tensor, None, None]:
        row = Row(*row)
        x = add_scaled(x, gradient, row.kick)
        return add_scaled(x, noise, row.spread, out=x), None, None


def _compose(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Two parts v <- keep v + spread xi after one another, as one."""
    keep = first[0] * second[0]
    return keep, math.hypot(second[0] * first[1], second[1])
