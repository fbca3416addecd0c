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

KINDS = ("written", "autograd", "compiled")
"""A target with its score written out, the same as a log-density alone, whose score torch
differentiates, and the first with its score and the sampler's steps through torch.compile."""


def step_cost(n_chains: int = 4096, dim: int = 50, repeats: int = 15) -> dict[str, float]:
    """Times steps, the score calls in them alone, their random numbers alone, and MALA's steps.

    The target is the mixture of 40 Gaussians in three `KINDS`, each beside a loop of its own score.

    Args:
        n_chains: N.
        dim: d.
        repeats: timings of each arm, interleaved.

    Returns:
        For each kind "<kind>_early_s" and "<kind>_late_s" for eight steps before and after the
        switch of the score's form, "<kind>_early_scores_s" and "<kind>_late_scores_s" for the
        score calls in them, and "<kind>_ratio" of both over a run with a linear schedule;
        "noise_s" for the steps' normal numbers and "noise_ratio" to the written score's calls;
        where blackjax is installed "mala_s" for eight steps of its vmapped MALA kernel and
        "mala_ratio" of the written early steps' time for each gradient to MALA's; "spread",
        "foreign" and "rounds" of `assay.toolkits.timing.interleave`, whose times are NaN where the
        machine was busy.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or below 1.
    """
    for name, value in (("n_chains", n_chains), ("dim", dim), ("repeats", repeats)):
        whole(name, value)
    target = forty_gaussians(dim)
    generator = torch.Generator().manual_seed(0)
    arms: dict[str, Callable[[], Any]] = {}
    for kind in KINDS:
        compiled = kind == "compiled"
        sampler = MultALMC(
            target.log_prob if kind == "autograd" else target,
            dim=dim,
            n_steps=1000,
            step_size=0.001,
            eps=0.05,
            compile=compiled,
        )
        start = sampler.init(n_chains, generator)
        score = torch.compile(target.score) if compiled else sampler.target.score
        for part, lam in (("early", EARLY), ("late", LATE)):
            state = _at(start, round(lam * sampler.n_steps))
            arms[f"{kind}_{part}"] = _steps(sampler, generator, state)
            arms[f"{kind}_{part}_scores"] = _scores(score, start.x, _calls(sampler, part))
    draws = start.x.new_empty((2, *start.x.shape))
    arms["noise"] = lambda: [draws.normal_(generator=generator) for _ in range(STEPS)]
    mala = _mala(target, start.x)
    if mala is not None:
        arms["mala"] = mala

    found = interleave(arms, repeats)
    for kind in KINDS:
        steps, scores = (_of_run(found, kind, part, sampler) for part in ("", "_scores"))
        found[f"{kind}_ratio"] = steps / scores
    found["noise_ratio"] = found["noise_s"] / _of_run(found, "written", "_scores", sampler)
    if mala is not None:
        gradient = found["written_early_s"] / _calls(sampler, "early")
        found["mala_ratio"] = gradient / (found["mala_s"] / STEPS)
    return found


def _calls(sampler: MultALMC, part: str) -> int:
    return (sampler.srock_stages + 2 * (part == "late")) * STEPS


def _of_run(found: dict[str, float], kind: str, what: str, sampler: MultALMC) -> float:
    """Mean time over a run, whose steps are early ones up to the switch."""
    switch = sampler.lambda_switch
    early, late = (found[f"{kind}_{part}{what}_s"] for part in ("early", "late"))
    return switch * early + (1 - switch) * late


def _at(state: State, step: int) -> State:
    return State(step, state.x, state.v, state.y, None, state.alive)


def _steps(sampler: MultALMC, generator: torch.Generator, state: State) -> Callable[[], State]:
    def run() -> State:
        now = state
        for _ in range(STEPS):
            now, _ = sampler.step(generator, now)
        return now

    return run


def _scores(score: Callable[[Tensor], Tensor], x: Tensor, calls: int) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            for _ in range(calls):
                score(x)

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
