"""What one trial of the study measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.papers.multalmc import metrics, targets
from assay.papers.multalmc.arms import Params, draw, seeded
from assay.papers.multalmc.averaged import AveragedALMC
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.settings import LOST, METRICS, ORACLES, REACHED
from assay.papers.multalmc.tuning import chosen
from assay.study import Context

if TYPE_CHECKING:
    from assay.papers.multalmc.sampler import SampleResult
    from assay.papers.multalmc.targets import AnalyticTarget

Metrics = dict[str, float]

_MAKERS: Mapping[str, Callable[[int], AnalyticTarget]] = {
    "eight": lambda dim: targets.eight_gaussians(),
    "forty": targets.forty_gaussians,
    "plane": targets.forty_gaussians,
    "rings": lambda dim: targets.Rings(),
    "funnel": targets.Funnel,
    "wells": targets.DoubleWell,
    "three": lambda dim: _bumps(12.0),
}


def _bumps(distance: float, nearest: float = 0.2) -> AnalyticTarget:
    """Three modes about so many standard deviations apart, and the weight of that near 0."""
    means = torch.tensor([[4.0, 4.0], [16.0, 4.0], [10.0, 15.0]]) * distance / 12
    rest = 1 - nearest
    return targets.GaussianMixture(means, 1.0, [nearest, 0.625 * rest, 0.375 * rest])


_REFERENCE = 1_000_000
"""Added to a trial's seed where exact samples are drawn that others are compared with."""

_FOUND = 0.25
_BINS = 40


def _target(params: Params) -> Any:
    return _MAKERS[str(params["target"])](int(params["dim"]))


def _costs(result: SampleResult) -> Metrics:
    return {
        "n_grad": float(result.n_grad),
        "n_logp": float(result.n_logp),
        "seconds": result.seconds,
        "dead": float((~result.finite_mask).sum()),
    }


def _finite(result: SampleResult) -> Tensor:
    return result.samples[result.finite_mask].detach().cpu()


# Distances at equal evaluations


def _distances(samples: Tensor, target: Any, seed: int) -> Metrics:
    """Distances to as many exact samples, which are the same for all samplers of a seed."""
    exact = target.sample(len(samples), seeded(seed + _REFERENCE))
    found = {
        "w2": metrics.entropic_w2(samples, exact),
        "sliced_w2": metrics.sliced_w2(samples, exact),
        "sliced_ks": metrics.sliced_ks(samples, exact),
    }
    if target.modes is not None:
        found["spread"] = _spread(samples, target) / _spread(exact, target)
    return found | _modes(samples, target)


def _spread(samples: Tensor, target: AnalyticTarget) -> float:
    """Mean squared distance to the nearest mode."""
    assert target.modes is not None
    return float(torch.cdist(samples, target.modes.to(samples)).min(1).values.square().mean())


def _modes(samples: Tensor, target: AnalyticTarget) -> Metrics:
    if target.mode_weights is None:
        return {}
    share = _shares(samples, target)
    return {
        "weight_tv": metrics.mode_weight_tv(samples, target),
        "modes": float((share > _FOUND * target.mode_weights).sum()),
        "largest": float(share.max()),
    }


def _shares(samples: Tensor, target: AnalyticTarget) -> Tensor:
    assert target.mode_weights is not None
    counts = target.assign(samples).bincount(minlength=len(target.mode_weights))
    return counts.double() / len(samples)


def compare(params: Params, seed: int, context: Context) -> Metrics:
    """A sampler on a target: distances to exact samples, mode weights, evaluations."""
    target = _target(params)
    result = draw(target, params, seed, context.device)
    samples = _finite(result)
    if target.modes is not None and len(target.modes) <= _BINS:
        for mode, share in enumerate(_shares(samples, target)):
            context.record("weights", mode, float(share))
    if density := _first_density(str(params["target"]), target):
        _record_marginal(samples[:, 0], *density, context)
    return {**_distances(samples, target, seed), **_costs(result)}


def _first_density(
    name: str, target: AnalyticTarget
) -> tuple[tuple[float, float], Callable[[Tensor], Tensor]] | None:
    """Range and density of the first coordinate, where there is one to draw."""
    if isinstance(target, targets.GaussianMixture) and name == "eight":
        means, sd = target.means[:, 0], math.sqrt(float(target.variances[0]))
        return (-3, 23), lambda x: _normal((x[:, None] - means) / sd).mean(1) / sd
    if isinstance(target, targets.DoubleWell):
        return (-3, 3), lambda x: torch.from_numpy(target.well_density(x.numpy()))
    if isinstance(target, targets.Funnel):
        sd = math.sqrt(target.variance)
        return (-10, 10), lambda x: _normal(x / sd) / sd
    return None


def _normal(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)


def _record_marginal(
    sampled: Tensor,
    limits: tuple[float, float],
    density: Callable[[Tensor], Tensor],
    context: Context,
) -> None:
    """Keeps a histogram of one coordinate, and the density that it should have."""
    edges = torch.linspace(*limits, _BINS + 1, dtype=torch.float64)
    counts, _ = torch.histogram(sampled.double(), edges)
    width = float(edges[1] - edges[0])
    for place, count in zip((edges[1:] + edges[:-1]) / 2, counts, strict=True):
        context.record("sampled", float(place), float(count) / len(sampled) / width)
    line = torch.linspace(*limits, 4 * _BINS + 1, dtype=torch.float64)
    for place, height in zip(line, density(line), strict=True):
        context.record("exact", float(place), float(height))


def tune(params: Params, seed: int, context: Context) -> Metrics:
    """A candidate's score: what is judged on the target, or `LOST` where its chains are lost."""
    name = str(params["target"])
    measure = {"field": field, "ionosphere": logistic, "sonar": logistic, "gate": gate}
    try:
        found = measure.get(name, compare)(params, seed, context)
    except ValueError as error:  # such steps are beyond a sampler's stability
        print(f"{type(error).__name__}: {error}")
        return {"score": LOST}
    return {"score": found[METRICS[name]], **found}


def reach(params: Params, seed: int, context: Context) -> Metrics:
    """Error of the mode weights after more and more evaluations, and when it is small."""
    target = targets.forty_gaussians(int(params["dim"]))
    chains = int(params["chains"])
    curve = []
    for evaluations in _ladder(int(params["evaluations"]), int(params["more"])):
        result = draw(target, {**params, "evaluations": evaluations}, seed, context.device)
        error = metrics.mode_weight_tv(_finite(result), target)
        curve.append((evaluations, error))
        context.record("weight_tv", evaluations, error)
    exact = target.sample(chains, seeded(seed + _REFERENCE))
    reached = _reached(curve, REACHED)
    if params["sampler"] == "overdamped" and math.isnan(reached):
        reached = float(curve[-1][0])  # at least so many
    return {"reached": reached, "floor": metrics.mode_weight_tv(exact, target)}


def _ladder(most: int, more: int) -> list[int]:
    """Budgets that rise by a factor of four up to `more` times the largest, 1 or 4."""
    return [most * more // 4**k for k in reversed(range(4 if more == 1 else 5))]


def _reached(curve: list[tuple[int, float]], level: float) -> float:
    """Where a curve first crosses a level, interpolated between logarithms; NaN if it does not."""
    if curve[0][1] <= level:
        return float(curve[0][0])
    for (a, before), (b, after) in pairwise(curve):
        if after <= level < before:
            share = math.log(before / level) / math.log(before / after)
            return a * (b / a) ** share
    return math.nan


def stages(params: Params, seed: int, context: Context) -> Metrics:
    """MultALMC with so many stages, at equal steps or equal evaluations."""
    target = targets.forty_gaussians(int(params["dim"]))
    result = draw(target, params, seed, context.device)
    return {**_distances(_finite(result), target, seed), **_costs(result)}


def apart(params: Params, seed: int, context: Context) -> Metrics:
    """Error of the weights of three modes that are so far apart."""
    target = _bumps(float(params["distance"]), float(params.get("nearest", 0.2)))
    evaluations = int(params["evaluations"]) * int(params.get("times", 1))
    result = draw(target, {**params, "evaluations": evaluations}, seed, context.device)
    samples = _finite(result)
    nearest = float(_shares(samples, target)[0])
    return {"nearest": nearest, **_modes(samples, target), **_costs(result)}


# Posteriors


def logistic(params: Params, seed: int, context: Context) -> Metrics:
    """A sampler on a logistic regression, beside long chains of NUTS; the seed splits the data."""
    name = str(params["target"])
    target = _regression(name, seed)
    long = _long_nuts(name, seed)
    own, reference = _halves(long)
    if params["sampler"] == "nuts":
        result, samples = long, own
    else:
        result = draw(target, params, seed, context.device)
        samples = _finite(result).double()
    loss = -target.predictive_log_likelihood(samples)
    sd = reference.std(0)
    return {
        "log_loss": loss,
        "behind_nuts": -loss - target.predictive_log_likelihood(reference),
        "mean_error": float(((samples.mean(0) - reference.mean(0)) / sd).abs().max()),
        "sd_error": float((samples.std(0) / sd - 1).abs().max()),
        **_costs(result),
    }


@lru_cache(maxsize=1)
def _long_nuts(name: str, seed: int) -> SampleResult:
    """Four long chains, the same for all samplers of a data set and seed."""
    return draw(_regression(name, seed), _LONG_NUTS, seed + _REFERENCE)


def _halves(long: SampleResult) -> tuple[Tensor, Tensor]:
    """The draws of the first two chains, and those of the others that all are compared with."""
    chains = long.samples.double().unflatten(0, (-1, int(_LONG_NUTS["long"])))
    return chains[:, :2].flatten(0, 1), chains[:, 2:].flatten(0, 1)


_LONG_NUTS: Params = {"sampler": "nuts", "chains": 2000, "long": 4, "evaluations": 20}
"""Four chains of 10,000 evaluations, each giving 500 draws."""


def _regression(name: str, seed: int) -> targets.LogisticRegression:
    makers = {"ionosphere": targets.ionosphere, "sonar": targets.sonar}
    return makers[name](seed=seed)


def field(params: Params, seed: int, context: Context) -> Metrics:
    """The phi^4 field: the weight of its upper phase beside the exact one."""
    target = targets.PhiFour(int(params["dim"]), float(params["h"]))
    result = draw(target, params, seed, context.device)
    samples = _finite(result)
    middle = target.dim // 2
    grid, density = target.site_density(middle)
    limits = (-2.0, 2.0)
    _record_marginal(
        samples[:, middle],
        limits,
        lambda x: torch.from_numpy(_interpolated(x.numpy(), grid, density)),
        context,
    )
    upper, exact = float(_shares(samples, target)[1]), float(target.mode_weights[1])
    return {
        "upper": upper,
        "upper_exact": exact,
        "weight_error": abs(upper - exact),
        **_costs(result),
    }


def _interpolated(x: Any, grid: Any, density: Any) -> Any:
    import numpy as np

    return np.interp(x, grid, density)


def tails(params: Params, seed: int, context: Context) -> Metrics:
    """MultALMC with one of three bases on a mixture of Student-t."""
    target = targets.ten_students(int(params["dim"]))
    result = draw(target, params, seed, context.device)
    samples = _finite(result)
    exact = target.sample(100 * len(samples), seeded(seed + _REFERENCE))
    ratio = metrics.radius_quantile_log_ratio(samples, exact)
    return {
        "radius_log_ratio": ratio,
        "radius_error": abs(ratio),
        "energy": metrics.energy_distance(samples, exact[: len(samples)]),
        **_costs(result),
    }


# Averaging, and what is left of it


def inflation(params: Params, seed: int, context: Context) -> Metrics:
    """MultALMC on N(3, 1/4): how much larger the variance is."""
    result = draw(_GAUSSIAN, params, seed, context.device)
    samples = _finite(result)
    return {
        "variance_excess": float(samples.var() / _VARIANCE) - 1,
        "mean_error": abs(float(samples.mean()) - _MEAN) / math.sqrt(_VARIANCE),
        **_costs(result),
    }


_MEAN, _VARIANCE = 3.0, 0.25
_GAUSSIAN = targets.GaussianMixture(torch.tensor([[_MEAN]]), _VARIANCE)
_TWO = targets.GaussianMixture(torch.tensor([[-3.0, 0.0], [3.0, 0.0]]), 1.0, [0.3, 0.7])


def gate(params: Params, seed: int, context: Context) -> Metrics:
    """A sampler on the two simplest targets: a Gaussian, and two modes of unequal weight."""
    one = draw(_GAUSSIAN, params, seed, context.device)
    two = draw(_TWO, params, seed, context.device)
    samples = _finite(one)
    return {
        "mean_error": abs(float(samples.mean()) - _MEAN) / math.sqrt(_VARIANCE),
        "variance_error": abs(float(samples.var()) / _VARIANCE - 1),
        "weight_error": abs(float(_shares(_finite(two), _TWO)[0]) - 0.3),
        **_costs(two),
    }


def averaging(params: Params, seed: int, context: Context) -> Metrics:
    """The largest mean squared distance of the slow process to the averaged one along a run.

    Both are driven by the same noise. Steps are short, so that epsilon alone is seen, and the path
    is cut where one form of the estimate is of no use.
    """
    options: Mapping[str, Any] = {
        "n_steps": int(params["steps"]),
        "step_size": float(params["step"]),
        "eps": float(params["eps"]),
        "dynamics": "overdamped",
        "lambda_delta": 0.05,
    }
    ours, averaged = (
        kind(_GAUSSIAN, generator=seeded(seed), **options)
        .sample(int(params["chains"]), dtype=torch.float64, return_path=True)
        .trace
        for kind in (MultALMC, AveragedALMC)
    )
    assert ours is not None
    assert averaged is not None
    squares = (ours["path"] - averaged["path"]).square().sum(-1).mean(-1)
    return {"square_error": float(squares.max())}


def oracle(params: Params, seed: int, context: Context) -> Metrics:
    """An error beside its limit."""
    from assay.papers.multalmc.oracles import CHECKS

    name = str(params["name"])
    error = CHECKS[name]()
    return {"error": error, "over_limit": error / ORACLES[name].limit}


def path(params: Params, seed: int, context: Context) -> Metrics:
    """Particles on the way: some frames as series, all of them as a film."""
    from assay.papers.multalmc.film import film

    target = _target(params)
    result = draw(target, params, seed, context.device, return_path=True)
    assert result.trace is not None
    assert target.modes is not None
    frames, steps = result.trace["path"], result.trace["path_steps"]
    lambdas = [*result.trace["lambda"].tolist(), 1.0]
    at = [lambdas[int(step)] for step in steps]
    for x, y in target.modes.tolist():
        context.record("modes", x, y)
    for lam in _SHOWN:
        nearest = min(range(len(at)), key=lambda i: abs(at[i] - lam))
        for x, y in frames[nearest].tolist():
            context.record(f"at/{lam:g}", round(x, 2), round(y, 2))
    context.save("particles.gif", film(frames[:, :, :2].numpy(), at, target.modes.numpy()))
    return _costs(result)


_SHOWN = (0.0, 0.05, 0.2, 0.5, 0.8, 1.0)


def runtime(params: Params, seed: int, context: Context) -> Metrics:
    """Times of samplers on one target at equal evaluations, taken in turn."""
    from assay.toolkits.timing import interleave

    target = targets.forty_gaussians(int(params["dim"]))
    names = ("multalmc", "pt", "rdmc")

    def arm(sampler: str) -> Callable[[], Any]:
        constants = chosen("forty", sampler)
        return lambda: draw(target, {**params, "sampler": sampler, **constants}, seed, "cpu")

    found = interleave({name: arm(name) for name in names}, int(params["repeats"]))
    scale = 1e6 / int(params["evaluations"])
    times = {f"{name}_s": found[f"{name}_s"] * scale for name in names}
    return {**times, **{name: found[name] for name in ("spread", "foreign", "rounds")}}


def step(params: Params, seed: int, context: Context) -> Metrics:
    """What a step costs beside the calls of the score in it, and beside blackjax's MALA."""
    from assay.papers.multalmc.step_cost import step_cost

    return step_cost(int(params["chains"]), int(params["dim"]), int(params["repeats"]))


PARTS: Mapping[str, Callable[[Params, int, Context], Metrics]] = {
    "compare": compare,
    "tune": tune,
    "reach": reach,
    "stages": stages,
    "apart": apart,
    "far": apart,
    "logistic": logistic,
    "field": field,
    "tails": tails,
    "inflation": inflation,
    "gate": gate,
    "averaging": averaging,
    "oracle": oracle,
    "path": path,
    "runtime": runtime,
    "step": step,
}
