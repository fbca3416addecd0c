"""Adaptive tempered sequential Monte Carlo of blackjax, within a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from assay.papers.multalmc.baselines.common import Run
from assay.papers.multalmc.baselines.jax_densities import jax_log_prob
from assay.papers.multalmc.sampler import SampleResult
from assay.toolkits.checks import number, whole

_PILOT_MOVES = 2
_ALONE = 2  # log-densities of each stage that come alone: for its temperature, for its weights


def tempered_smc(
    target: Any,
    num_samples: int,
    *,
    n_evaluations: int,
    reference_scale: float = 10.0,
    leapfrog_steps: int = 5,
    target_ess: float = 0.8,
    target_acceptance: float = 0.8,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SampleResult:
    """Tempered SMC from ``N(0, scale^2 I)`` to the target, with N particles; of blackjax.

    Each temperature follows from the effective sample size. Particles move by Hamiltonian Monte
    Carlo, whose mass matrix comes from their variances and whose steps from their acceptance. A
    pilot run with few moves finds how many stages there are, so that the run proper can divide
    the budget among them; what is left is spent on moves at the target.

    Args:
        target: One that `jax_log_prob` knows.
        num_samples: Particles N, one draw each.
        n_evaluations: Evaluations for each particle, all moves and the pilot run included.
        reference_scale: Standard deviation of the first distribution, > 0: it should cover the
            target.
        leapfrog_steps: Of a move, >= 1.
        target_ess: Effective sample size that a step of temperature keeps, as a share of N, > 0,
            < 1.
        target_acceptance: That the steps are adapted to, > 0, < 1.
        generator: Its next number seeds jax.
        dtype: float32 or float64; torch's default if None.

    Returns:
        The particles, on the CPU. The trace has "temperatures" and "acceptance" of the stages of
        the run proper, and "moves", those of each particle at each stage.

    Raises:
        ModuleNotFoundError: blackjax is not installed.
        TypeError, ValueError: An argument of the wrong kind or out of range, or too few
            evaluations for one move at each stage.
    """
    import jax

    run = Run(target, num_samples, n_evaluations, None, generator, dtype)
    scale = number("reference_scale", reference_scale, above=0)
    leapfrog_steps = whole("leapfrog_steps", leapfrog_steps)
    target_ess = number("target_ess", target_ess, above=0, most=0.999)
    target_acceptance = number("target_acceptance", target_acceptance, above=0, most=0.999)

    with jax.enable_x64(run.dtype == torch.float64):
        anneal = _annealer(target, scale, leapfrog_steps, target_ess, target_acceptance)
        key, pilot_key = jax.random.split(run.jax_key())
        start = jax.numpy.asarray((scale * run.start(run.num_samples)).cpu().numpy())
        cost = _PILOT_MOVES * leapfrog_steps + _ALONE + 1
        _, pilot = anneal(_PILOT_MOVES, pilot_key, start, run.n_evaluations // cost, False)
        used = len(pilot) * cost
        # One stage is for the target itself, one to spare where the run proper has one more.
        stages = len(pilot) + 2
        moves = ((run.n_evaluations - used) // stages - _ALONE - 1) // leapfrog_steps
        if moves < 1 or not pilot or pilot[-1][0] < 1:
            least = used + stages * (leapfrog_steps + _ALONE + 1)
            raise ValueError(f"n_evaluations: got {n_evaluations}, wants >= {least} or more here")
        cost = moves * leapfrog_steps + _ALONE + 1
        particles, path = anneal(moves, key, start, (run.n_evaluations - used) // cost, True)
        used += len(path) * cost
        found = torch.from_numpy(np.array(particles))
    if path[-2][0] < 1:
        raise ValueError(
            f"n_evaluations: got {n_evaluations}, wants more: the run proper stopped "
            f"at temperature {path[-2][0]:.3g} on its way to 1"
        )
    trace = {
        "temperatures": torch.tensor([temperature for temperature, _ in path]),
        "acceptance": torch.tensor([rate for _, rate in path]),
        "moves": torch.tensor(moves),
    }
    alone = _ALONE * (len(pilot) + len(path))
    return run.result(found, used - alone, alone, trace)


Path = list[tuple[float, float]]
"""Temperature reached and acceptance rate of each stage."""


def _annealer(
    target: Any, scale: float, leapfrogs: int, target_ess: float, target_acceptance: float
) -> Callable[[int, Any, Any, int, bool], tuple[Any, Path]]:
    import blackjax
    import blackjax.smc.resampling
    import jax
    import jax.numpy as jnp
    from blackjax.smc import extend_params
    from blackjax.smc.tuning.from_kernel_info import update_scale_from_acceptance_rate
    from blackjax.smc.tuning.from_particles import particles_stds

    log_prob, hmc = jax_log_prob(target), blackjax.hmc.build_kernel()

    def log_reference(x: Any) -> Any:
        return -0.5 * (x**2).sum() / scale**2

    def move(key: Any, state: Any, density: Any, step_size: Any, inverse_mass_matrix: Any) -> Any:
        # Steps of random length, as trajectories of one length can come back to their start.
        key, jitter = jax.random.split(key)
        step_size = step_size * jax.random.uniform(jitter, minval=0.8, maxval=1.2)
        state, info = hmc(key, state, density, step_size, inverse_mass_matrix, leapfrogs)
        return state, info.acceptance_rate

    def parameters(step_size: Any, particles: Any) -> Any:
        spread = particles_stds(particles) ** 2
        return extend_params({"step_size": step_size, "inverse_mass_matrix": spread})

    def anneal(moves: int, key: Any, start: Any, most: int, to_the_end: bool) -> tuple[Any, Path]:
        @jax.jit
        def stage(key: Any, state: Any, step_size: Any) -> Any:
            algorithm = blackjax.adaptive_tempered_smc(
                log_reference,
                lambda x: log_prob(x) - log_reference(x),
                move,
                blackjax.hmc.init,
                parameters(step_size, state.particles),
                blackjax.smc.resampling.systematic,
                target_ess,
                num_mcmc_steps=moves,
            )
            state, info = algorithm.step(key, state)
            rate = jnp.nan_to_num(info.update_info).mean()
            step_size = update_scale_from_acceptance_rate(
                step_size[None], rate[None], target_acceptance
            )[0]
            return state, step_size, rate

        state = blackjax.smc.tempered.init(start)
        state = state._replace(tempering_param=jnp.zeros((), start.dtype))
        step_size, path = jnp.asarray(0.5, start.dtype), []
        for _ in range(most):
            key, now = jax.random.split(key)
            state, step_size, rate = stage(now, state, step_size)
            path.append((float(state.tempering_param), float(rate)))
            if path[-1][0] >= 1 and not to_the_end:
                break
        return state.particles, path

    return anneal
