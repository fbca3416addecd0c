"""MultCDiff: a reversed Ornstein-Uhlenbeck process whose score is averaged on the fly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc.cdiff import CriticallyDampedOU, OverdampedOU
from assay.papers.multalmc.sampler import Sampler, State, TooManyDead
from assay.papers.multalmc.srock import (
    Scalar,
    add_scaled,
    check_stages,
    coefficients,
    integrate,
    stability_limit,
)
from assay.toolkits.checks import number, one_of

GRIDS = ("stiffness", "ou")
DYNAMICS = ("underdamped", "overdamped")


class MultCDiff(Sampler):
    """Samples by running an Ornstein-Uhlenbeck process backwards from its equilibrium.

    At time t of the forward process all that the state z says of its start is the reading
    `r = m^T S^-1 z` (`cdiff`), and the score it needs is

        grad log q_t(z) = -v/M + (m3 / (M p)) (E[Y | z] - r),

    for the last coordinate of z; Y given z has density proportional to
    `exp(-V(y) - ((1 - p) |y|^2 - 2 r.y) / (2 p))`. The fast variable follows it:

        dX = -V/M dt,   dV = (X - (Γ/M) V + 2Γ m3/(M p) (Y - r)) dt + sqrt(2Γ) dB,
        dY = (-grad V(Y) + (r - (1 - p) Y) / p) dt/ε + sqrt(2/ε) dB'.

    The part without Y is linear and moved exactly, Y by SK-ROCK. The draw that is returned is Y,
    whose law is the target's at every t, and not X, which is blurred and shrunk until t = 0.

    Y has to cross the target's own barriers while p is near 1, as the Langevin diffusion does in a
    time T/ε. Where it does not, a chain ends in the mode that its Y fell into at the start, and
    the weights of the modes tell of the start and not of the target. `multcdiff_probe` measures
    it.

    Args:
        target: what `as_target` accepts.
        n_steps: L, >= 1.
        T: time of the start, > 0; what is left of the target's mean there is about
            `e^{-2T/Γ} (1 + 2T/Γ)` of it, or `e^{-T}` for the overdamped process.
        friction: Γ > 0, constant, of the underdamped process. Only a unit of time: what counts
            are `T/Γ` and `ε/Γ`.
        eps: ε > 0. A smaller one gives Y more time, T/ε. SK-ROCK follows Y well while `stiffness`
            times the curvature of V is a few at most, wherever Y goes, and fails above
            `stability_limit(srock_stages)`.
        lambda_delta: stops where p is this small, between 0 and 1.
        srock_stages: s, from 1 to 11; gradients of each step.
        grid: "stiffness", steps proportional to p, equally stiff for Y from first to last; or
            "ou", the paper's, equal steps of `e^{-2t}`, whose first one leaps over most of T.
        start_scale: Y starts at N(0, start_scale^2 I), > 0. It should reach all modes, but not
            where V is much steeper than around them. By default as wide as MultALMC's start.
        dynamics: "underdamped" or "overdamped".
        dim: d, where the target is a function alone.
        generator, compile: see `Sampler`.

    Attributes:
        process: the forward process.
        times: where Y and its kick are evaluated, (L,), float64, falling.
        lambdas: `1 - p` at those times: the share of the signal, MultALMC's lambda.
        stiffness: largest of `h / (ε p)` over the steps, what SK-ROCK sees of a target of unit
            curvature.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range; a T that ends before
            `lambda_delta`; steps too long for ε, even for a flat target. `TooManyDead` at the end
            of a run whose draws are nowhere near the target, as ε was too small for it.
    """

    def __init__(
        self,
        target: Any,
        *,
        n_steps: int,
        T: float = 8.0,
        friction: float = 2.0,
        eps: float = 0.1,
        lambda_delta: float = 0.01,
        srock_stages: int = 5,
        grid: str = "stiffness",
        start_scale: float = 10.0,
        dynamics: str = "underdamped",
        dim: int | None = None,
        generator: torch.Generator | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__(target, n_steps=n_steps, dim=dim, generator=generator, compile=compile)
        one_of("dynamics", dynamics, DYNAMICS)
        self.process = CriticallyDampedOU(friction) if dynamics == "underdamped" else OverdampedOU()
        self.start_scale = number("start_scale", start_scale, above=0)
        self.srock_stages = check_stages("srock_stages", srock_stages)
        self._srock = coefficients(srock_stages)

        delta = number("lambda_delta", lambda_delta, above=0)
        if delta >= 1:
            raise ValueError(f"lambda_delta: got {lambda_delta}, wants a number > 0, < 1")
        end = self.process.time_of_noise(delta)
        if number("T", T, above=0) <= end:
            raise ValueError(f"T: got {T}, wants > {end:.3g}, where p is lambda_delta")
        nodes = time_grid(self.process, T, end, self.n_steps, grid)
        h = nodes[:-1] - nodes[1:]
        self.times = (nodes[:-1] + nodes[1:]) / 2
        noise = self.process.noise(self.times)
        self.lambdas = (1 - noise).tolist()

        longest = float((h / noise).max())
        self.eps = number("eps", eps, above=0)
        self.stiffness = longest / self.eps
        flat = float((h * (1 - noise) / noise).max()) / stability_limit(srock_stages)
        if self.eps < flat:
            raise ValueError(
                f"eps: got {eps}, wants >= {flat:.3g} at {n_steps} steps of {srock_stages} stages, "
                "or more of them"
            )

        # The start is the equilibrium, which the first half-step would leave as it is, and the
        # last half-step moves z alone, after Y is drawn. Those in between come in pairs.
        between = torch.cat([self.times[:1], self.times[:-1]]) - self.times
        scales = torch.tensor(self.process.scales, dtype=torch.float64)
        readings = self.process.mean(self.times) / scales
        kicks = 2 * self.process.friction * h * readings[:, -1] / noise
        # Far from the end z says nothing of Y, to the last digit.
        signal = (1 - noise).clamp_min(1e-12)
        columns = [
            self.process.reverse_matrix(between).flatten(1),
            self.process.reverse_noise(between).flatten(1),
            readings / signal[:, None],
            torch.stack([signal, signal / noise, h / self.eps, kicks], 1),
        ]
        self._rows = torch.cat(columns, 1).tolist()
        self._move = self._compiled(self._whole_step)

    def _start(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> State:
        def normal(scale: float) -> Tensor:
            shape = (n, self.dim)
            draws = torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
            return scale * draws

        x, *v = (normal(math.sqrt(scale)) for scale in self.process.scales)
        y = normal(self.start_scale)
        alive = torch.ones(n, dtype=torch.bool, device=generator.device)
        return State(0, x, v[0] if v else None, y, None, alive)

    def _advance(self, generator: torch.Generator, state: State) -> State:
        assert state.y is not None
        row = self._row(state.step, state.x)
        work = self._workspace(len(self.process.scales) + 3, state.x)
        noise, scratch = work[:-2], (None, None) if self.compile else work[-2:].unbind()
        if state.step:
            noise[:-1].normal_(generator=generator)
        else:
            noise[:-1].zero_()
        noise[-1].normal_(generator=generator)
        x, v, y = self._move(state.x, state.v, state.y, noise, row, scratch)
        state = replace(state, step=state.step + 1, n_grad=state.n_grad + self.srock_stages)
        if state.step == self.n_steps:
            self._check_draws(y)
            return replace(state, x=y, v=None, y=None, n_grad=state.n_grad + 1)
        return replace(state, x=x, v=v, y=y)

    def _whole_step(
        self,
        x: Tensor,
        v: Tensor | None,
        y: Tensor,
        noise: Tensor,
        row: Sequence[Scalar],
        work: Sequence[Tensor | None],
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        *linear, signal, rate, tau, kick = row
        centre, spare = work
        if v is None:
            keep, spread, reading = linear
            x = kicked = _sum((keep, x), (spread, noise[0]))
            centre = torch.mul(x, reading, out=centre)
        else:
            xx, xv, vx, vv, noise_xx, _, noise_vx, noise_vv, *readings = linear
            x, v = (
                _sum((xx, x), (xv, v), (noise_xx, noise[0])),
                _sum((vx, x), (vv, v), (noise_vx, noise[0]), (noise_vv, noise[1])),
            )
            kicked = v
            centre = torch.mul(x, readings[0], out=centre)
            centre = add_scaled(centre, v, readings[1], out=centre)
        # Y first: kicked by the Y of the step before, a Gaussian target of variance .25 came out
        # with 8 % less of it at 150 steps, and so with 3 % more.
        y = self._fast(y, centre, noise[-1], rate, tau, spare)
        kicked = add_scaled(kicked, y, kick, out=kicked)
        kicked = add_scaled(kicked, centre, -kick * signal, out=kicked)
        return (kicked, None, y) if v is None else (x, kicked, y)

    def _fast(
        self,
        y: Tensor,
        centre: Tensor,
        noise: Tensor,
        rate: Scalar,
        tau: Scalar,
        spare: Tensor | None,
    ) -> Tensor:
        """Y at the end of a step; centre is r / (1 - p), rate (1 - p) / p and tau h / eps."""

        def euler(at: Tensor, time: Scalar, out: Tensor | None) -> Tensor:
            moved = torch.lerp(at, centre, time * rate, out=out)
            return add_scaled(moved, self.target.score(at), time, out=moved)

        return integrate(y, euler, math.sqrt(2), tau, self._srock, noise, (None, None, spare))

    def _check_draws(self, y: Tensor) -> None:
        # Whatever the target, E[Y . grad log pi(Y)] = -d. Where SK-ROCK was unstable Y may be a
        # number again at the end, but so far out that nearly all chains are pulled back harder.
        y = y[y.isfinite().all(1)]
        pulls = (y * self.target.score(y)).sum(1)
        if (pulls < -100 * self.dim).sum() > 0.9 * len(pulls):
            raise TooManyDead(self._refusal("draws are nowhere near the target"))

    def _look(self, state: State) -> State:
        try:
            return super()._look(state)
        except TooManyDead as error:
            found = f"chains were no longer finite after {state.step} steps"
            raise TooManyDead(self._refusal(found)) from error

    def _refusal(self, found: str) -> str:
        return (
            f"eps: got {self.eps:g}, at which SROCK sees a stiffness of {self.stiffness:.3g} times "
            f"the target's curvature, and {found}; wants a larger eps, more steps or srock_stages, "
            "or a start_scale nearer the target's own"
        )


def _sum(first: tuple[Scalar, Tensor], *more: tuple[Scalar, Tensor]) -> Tensor:
    total = first[0] * first[1]
    for weight, term in more:
        total = add_scaled(total, term, weight, out=total)
    return total


def time_grid(
    process: CriticallyDampedOU | OverdampedOU, start: float, end: float, n_steps: int, grid: str
) -> Tensor:
    """The nodes of the steps, from `start` down to `end`.

    Args:
        process: the forward process.
        start, end: times, start > end > 0.
        n_steps: L, >= 1.
        grid: "stiffness", equal steps of the integral of dt/p, or "ou", equal steps of `e^{-2t}`.

    Returns:
        float64 (L + 1,).

    Raises:
        ValueError: `grid` is none of them.
    """
    u = torch.linspace(0, 1, n_steps + 1, dtype=torch.float64)
    if one_of("grid", grid, GRIDS) == "ou":
        first, last = math.exp(-2 * start), math.exp(-2 * end)
        return torch.lerp(torch.full_like(u, first), torch.full_like(u, last), u).log() / -2
    fine = torch.logspace(math.log(end), math.log(start), 20_001, math.e, dtype=torch.float64)
    area = torch.cumulative_trapezoid(1 / process.noise(fine), fine)
    area = torch.cat([area.new_zeros(1), area])
    at = (1 - u) * area[-1]
    right = torch.searchsorted(area, at).clamp(1, len(area) - 1)
    share = (at - area[right - 1]) / (area[right] - area[right - 1])
    return torch.lerp(fine[right - 1], fine[right], share)
