"""Every sampler of the study behind one call, and how many steps a budget buys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from assay.papers.multalmc import baselines
from assay.papers.multalmc.averaged import AveragedALMC
from assay.papers.multalmc.base import Normal, StudentT
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.multcdiff import MultCDiff
from assay.papers.multalmc.sampler import SampleResult
from assay.papers.multalmc.schedule import lambdas
from assay.study import Param

Params = Mapping[str, Param]

_STAGES = 5
_SWITCH = 0.6
_FRICTION = (0.1, 0.5)
_DF = 2.0
_LOOK = 2  # gradients with which a sampler looks at the target first


_BASELINES: Mapping[str, tuple[Callable[..., SampleResult], Mapping[str, str]]] = {
    "ula": (baselines.ula, {"step_size": "step"}),
    "ulmc": (baselines.ulmc, {"step_size": "step", "friction": "friction"}),
    "pt": (
        baselines.parallel_tempering,
        {"n_temperatures": "temperatures", "reference_scale": "scale"},
    ),
    "rdmc": (baselines.rdmc, {"horizon": "horizon", "inner_chains": "inner"}),
    "smc": (baselines.tempered_smc, {"reference_scale": "scale", "target_ess": "ess"}),
    "nuts": (baselines.nuts, {"num_chains": "long"}),
}
"""Each with the names that its arguments have among a trial's parameters."""


def seeded(seed: int, device: str = "cpu") -> torch.Generator:
    """A generator of its own for a seed."""
    return torch.Generator(device).manual_seed(seed)


def steps_within(evaluations: int, schedule: str, stages: int, late: int, delta: float) -> int:
    """The largest even number of steps of MultALMC that evaluates at most so many gradients.

    Args:
        evaluations: the budget of a chain.
        schedule: "linear" or "cosine".
        stages: gradients of each step on the path.
        late: what a step evaluates more once the score is estimated by form B.
        delta: what is cut off the path's ends.
    """

    def count(steps: int) -> int:
        path = lambdas(schedule, steps)
        on_path = sum(lam < 1 - delta for lam in path)
        switched = sum(_SWITCH <= lam < 1 - delta for lam in path)
        return stages * on_path + late * switched + (steps - on_path) + 1 + _LOOK

    low, high = 1, evaluations // 2 + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(2 * middle) <= evaluations else (low, middle)
    return 2 * low


def draw(
    target: Any, params: Params, seed: int, device: str = "cpu", *, return_path: bool = False
) -> SampleResult:
    """Samples a target.

    Args:
        target: of `targets`.
        params: a trial's: "sampler" ("multalmc" where there is none), "chains", "evaluations" (or
            "steps"), and the sampler's constants.
        seed: of the random numbers.
        device: to sample on.
        return_path: keep frames of the run, for MultALMC.
    """
    name = str(params.get("sampler", "multalmc"))
    chains, evaluations = int(params["chains"]), int(params["evaluations"])
    generator = seeded(seed, device)
    if name in ("multalmc", "overdamped", "averaged"):
        sampler = _multalmc(target, params, generator)
        return sampler.sample(chains, device=device, return_path=return_path)
    if name == "multcdiff":
        # The draws that it looks at the target with are part of the budget.
        steps = (evaluations - _LOOK) // _STAGES
        reverse = MultCDiff(
            target,
            n_steps=steps,
            eps=float(params["eps"]),
            start_scale=float(params["start"]),
            srock_stages=_STAGES,
            generator=generator,
        )
        return reverse.sample(chains, device=device)
    if name == "exact":
        samples = target.sample(chains, generator)
        return SampleResult(samples, 0, 0, 0.0, samples.isfinite().all(1))
    if name not in _BASELINES:
        raise ValueError(f"sampler: got {name!r}, wants one of the study's")
    baseline, names = _BASELINES[name]
    constants = {argument: params[one] for argument, one in names.items() if one in params}
    return baseline(target, chains, n_evaluations=evaluations, generator=generator, **constants)


def _multalmc(target: Any, params: Params, generator: torch.Generator) -> MultALMC:
    overdamped = params.get("sampler") == "overdamped"
    schedule, stages = str(params["schedule"]), int(params.get("stages", _STAGES))
    delta, base = float(params["delta"]), str(params.get("base", "normal"))
    steps = params.get("steps") or steps_within(
        int(params["evaluations"]), schedule, stages, 1 if overdamped else 2, delta
    )
    # The same run with the path's own score: what epsilon -> 0 would give.
    kind = AveragedALMC if params.get("sampler") == "averaged" else MultALMC
    return kind(
        target,
        schedule=schedule,
        n_steps=int(steps),
        step_size=float(params["step"]),
        eps=float(params["eps"]),
        friction=_FRICTION,
        lambda_delta=delta,
        lambda_switch=_SWITCH,
        srock_stages=stages,
        base=Normal() if base == "normal" else StudentT(_DF),
        fast="ito" if base == "ito" else "langevin",
        fast_scale=str(params.get("fast_scale", "path")),
        dynamics="overdamped" if overdamped else "underdamped",
        generator=generator,
    )
