"""The no-U-turn sampler of blackjax, for many chains at once and within a budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from assay.papers.multalmc.baselines.common import Run
from assay.papers.multalmc.baselines.jax_densities import jax_log_prob
from assay.papers.multalmc.sampler import SampleResult
from assay.toolkits.checks import number, whole


def nuts(
    target: Any,
    num_samples: int,
    *,
    n_evaluations: int,
    num_chains: int | None = None,
    warmup_transitions: int | None = None,
    target_acceptance: float = 0.8,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> SampleResult:
    """The no-U-turn sampler with Stan's window adaptation, from N(0, I); of blackjax.

    Each chain adapts its own step and diagonal mass matrix.

    Args:
        target: One that `jax_log_prob` knows.
        num_samples: Draws N.
        n_evaluations: Evaluations for each draw, the warm-up included; on average over chains, as
            the trajectories of NUTS have no fixed length. Only a warm-up can exceed it.
        num_chains: Default: N, each giving its last state. With fewer, each has N / num_chains
            times the evaluations and gives that many draws, spaced evenly after the warm-up.
        warmup_transitions: Of the adaptation. Default: 1000, or what about a third of the
            evaluations pays for where that is less, but at least 50.
        target_acceptance: That the steps are adapted to, > 0, < 1.
        generator: Its next number seeds jax.
        dtype: float32 or float64; torch's default if None.

    Returns:
        The draws, on the CPU. The trace has "step_sizes" ``(chains,)``, "warmup_evaluations",
        "transitions" after the warm-up and "evaluations_per_transition", of one chain, ``()``.

    Raises:
        ModuleNotFoundError: blackjax is not installed.
        TypeError, ValueError: An argument of the wrong kind or out of range.
    """
    import blackjax
    import jax
    import jax.numpy as jnp

    run = Run(target, num_samples, n_evaluations, None, generator, dtype)
    chains, draws, budget = run.chains(num_chains)
    target_acceptance = number("target_acceptance", target_acceptance, above=0, most=0.999)
    if warmup_transitions is None:
        warmup_transitions = min(1000, max(50, budget // 30))
    warmup_transitions = whole("warmup_transitions", warmup_transitions, 1)

    with jax.enable_x64(run.dtype == torch.float64):
        log_prob = jax_log_prob(target)
        keys = jax.random.split(run.jax_key(), chains + 1)
        adaptation = blackjax.window_adaptation(
            blackjax.nuts,
            log_prob,
            target_acceptance_rate=target_acceptance,
            adaptation_info_fn=lambda state, info, adaptation: info.num_integration_steps,
        )

        def warm_up(key: Any, x: Any) -> Any:
            found, steps = adaptation.run(key, x, warmup_transitions)
            return found.state, found.parameters, steps

        start = jnp.asarray(run.start(chains).cpu().numpy())
        states, parameters, steps = jax.jit(jax.vmap(warm_up))(keys[:-1], start)
        kernel = blackjax.nuts.build_kernel()

        @jax.jit
        def advance(key: Any, states: Any, transitions: Any) -> Any:
            def transition(key: Any, state: Any, parameters: Any) -> Any:
                state, info = kernel(key, state, log_prob, **parameters)
                return state, info.num_integration_steps

            def body(i: Any, carry: Any) -> Any:
                states, spent = carry
                keys = jax.random.split(jax.random.fold_in(key, i), chains)
                states, steps = jax.vmap(transition)(keys, states, parameters)
                return states, spent + steps.mean()

            return jax.lax.fori_loop(0, transitions, body, (states, jnp.zeros(())))

        warm = float(steps.sum(1).mean()) + 1  # and the gradient at the start
        cost = max(float(steps[:, warmup_transitions // 2 :].mean()), 1.0)
        spent, done, key, samples = warm, 0, keys[-1], []
        for draw in range(draws):
            goal = warm + (budget - warm) * (draw + 1) / draws
            # Short of the goal at first: the cost of a transition is known ever better.
            count = max(1, int(0.7 * (goal - spent) / cost))
            while count > 0:
                key, now = jax.random.split(key)
                states, new = advance(now, states, count)
                spent, done = spent + float(new), done + count
                cost = max((spent - warm) / done, 1.0)
                count = int((goal - spent) / cost)
            samples.append(np.asarray(states.position))
        found = torch.from_numpy(np.concatenate(samples)[: run.num_samples].copy())
        trace = {
            "step_sizes": torch.from_numpy(np.array(parameters["step_size"])),
            "warmup_evaluations": torch.tensor(warm),
            "transitions": torch.tensor(done),
            "evaluations_per_transition": torch.tensor((spent - warm) / done),
        }
    return run.result(found, round(spent * chains / run.num_samples), 0, trace)
