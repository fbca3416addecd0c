"""What a step of MultALMC costs beside a bare loop of the same score calls, and beside MALA.

python -m assay.papers.multalmc.step_cost
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.sampler import State
from assay.papers.multalmc.targets.mixtures import GaussianMixture, forty_gaussians
from assay.toolkits.checks import whole
from assay.toolkits.timing import interleave

STEPS = 8
"""Steps in each timing."""

EARLY, LATE = 0.3, 0.8
"""lambda of the two kinds of step that are timed, before and after the switch."""


def step_cost(n_chains: int = 4096, dim: int = 50, repeats: int = 15) -> dict[str, float]:
    """Times steps, the score calls in them alone, their random numbers alone, and MALA's steps.

    The target is the mixture of 40 Gaussians, its score written out.

    Args:
        n_chains: N.
        dim: d.
        repeats: timings of each arm, interleaved.

    Returns:
        "early_s" and "late_s" for eight steps before and after the switch of the score's form,
        "early_scores_s" and "late_scores_s" for the score calls in them, "noise_s" for their
        normal numbers, "mala_s" for eight steps of blackjax's vmapped MALA kernel where it is
        installed; "early_ratio" and "late_ratio" to the score calls, "run_ratio" over a run
        with a linear schedule; "noise_share" of the early steps' time; "mala_ratio" of the
        early steps' time for each gradient to MALA's; "spread", "foreign" and "rounds" of
        `assay.toolkits.timing.interleave`, whose times are NaN where the machine was busy.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or below 1.
    """
    for name, value in (("n_chains", n_chains), ("dim", dim), ("repeats", repeats)):
        whole(name, value)
    target = forty_gaussians(dim)
    sampler = MultALMC(target, n_steps=1000, step_size=0.001, eps=0.05)
    generator = torch.Generator().manual_seed(0)
    start = sampler.init(n_chains, generator)
    stages = len(sampler.srock.drift)
    calls = {"early": stages * STEPS, "late": (stages + 2) * STEPS}
    arms: dict[str, Callable[[], Any]] = {}
    for name, lam in (("early", EARLY), ("late", LATE)):
        state = _at(start, round(lam * sampler.n_steps))
        arms[name] = _steps(sampler, generator, state)
        arms[f"{name}_scores"] = _scores(target, start.x, calls[name])
    draws = start.x.new_empty((2, *start.x.shape))
    arms["noise"] = lambda: [draws.normal_(generator=generator) for _ in range(STEPS)]
    mala = _mala(target, start.x)
    if mala is not None:
        arms["mala"] = mala

    found = interleave(arms, repeats)
    for name in ("early", "late"):
        found[f"{name}_ratio"] = found[f"{name}_s"] / found[f"{name}_scores_s"]
    switch = sampler.lambda_switch
    whole_run = [
        switch * found[f"early{part}_s"] + (1 - switch) * found[f"late{part}_s"]
        for part in ("", "_scores")
    ]
    found["run_ratio"] = whole_run[0] / whole_run[1]
    found["noise_share"] = found["noise_s"] / found["early_s"]
    if mala is not None:
        found["mala_ratio"] = (found["early_s"] / calls["early"]) / (found["mala_s"] / STEPS)
    return found


def _at(state: State, step: int) -> State:
    return State(step, state.x, state.v, state.y, None, state.alive)


def _steps(sampler: MultALMC, generator: torch.Generator, state: State) -> Callable[[], State]:
    def run() -> State:
        now = state
        for _ in range(STEPS):
            now, _ = sampler.step(generator, now)
        return now

    return run


def _scores(target: GaussianMixture, x: Tensor, calls: int) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            for _ in range(calls):
                target.score(x)

    return run


def _mala(target: GaussianMixture, x: Tensor) -> Callable[[], Any] | None:
    """Eight steps of blackjax's MALA over all chains, compiled; None where it is not installed."""
    try:
        import blackjax
        import jax
    except ImportError:
        return None
    jnp = jax.numpy
    means = jnp.asarray(target.means.numpy(), dtype=jnp.float32)
    squares = (means * means).sum(1)

    def log_density(x: Any) -> Any:
        return jax.nn.logsumexp(means @ x - 0.5 * squares) - 0.5 * (x @ x)

    kernel = blackjax.mala(log_density, 1e-3)
    state = jax.vmap(kernel.init)(jnp.asarray(x.numpy()))
    key = jax.random.key(0)

    @jax.jit
    def run(key: Any, state: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, None]:
            return jax.vmap(kernel.step)(jax.random.split(key, len(x)), state)[0], None

        return jax.lax.scan(step, state, jax.random.split(key, STEPS))[0]

    return lambda: jax.block_until_ready(run(key, state))


if __name__ == "__main__":
    print(json.dumps(step_cost(), indent=2))
