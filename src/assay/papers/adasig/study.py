"""The experiments behind the claims: private training, frozen gradients, rates, costs, audits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from assay.papers.adasig.arms import ARMS, BASELINES, ROUNDS, TUNING_SEEDS
from assay.papers.adasig.claims import CLAIMS
from assay.study import Context, Figure, Need, Param, Results, Scale, Study, Table, Trial

if TYPE_CHECKING:
    from assay.papers.adasig.frozen import Curve
    from assay.papers.adasig.training import Recipe, Run, Setting

TEST_SEEDS = 30
_FULL = ("mnist", "fashion")
_SMOKE_CLAIMS_OF = {"synthetic": "rt"}

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "synthetic": {"model": "mlp", "batch": 100, "epochs": 2, "delta": 1e-6},
    "rt": {"model": "mlp", "hidden": 8, "batch": 256, "epochs": 5, "delta": 1 / (2 * 5971)},
    "mnist5k": {"model": "pooled", "batch": 256, "epochs": 8},
    "mnist": {"model": "cnn", "batch": 512, "epochs": 40, "bound": 0.1},
    "fashion": {"model": "cnn", "batch": 2048, "epochs": 40, "bound": 0.1},
}
"""Budget epsilon 3; delta 1e-5, and 1 / (2 N) for sentences, as in the paper."""

CHOSEN: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "synthetic": {
        "flat": (1.0, 0.4),
        "adaptive": (0.3, 0.4),
        "auto_s": (0.1, 0.4),
        "psac": (0.1, 0.4),
        "adasig": (1.0, 0.4),
        "joint": (1.0, 0.4),
    },
    "rt": {
        "flat": (1.0, 0.8),
        "adaptive": (0.3, 1.6),
        "auto_s": (0.1, 0.8),
        "psac": (0.1, 0.8),
        "adasig": (5.0, 0.8),
        "joint": (5.0, 0.8),
    },
    "mnist5k": {
        "flat": (1.0, 0.4),
        "adaptive": (0.7, 0.2),
        "auto_s": (0.1, 0.4),
        "psac": (0.1, 0.4),
        "adasig": (5.0, 0.4),
        "joint": (5.0, 0.4),
    },
    "mnist": {
        "flat": (0.1, 0.05),
        "adaptive": (0.5, 0.05),
        "auto_s": (0.01, 0.05),
        "psac": (0.1, 0.05),
        "adasig": (5.0, 0.05),
    },
    "fashion": {
        "flat": (0.1, 0.4),
        "adaptive": (0.5, 0.4),
        "auto_s": (0.01, 0.4),
        "psac": (0.1, 0.4),
        "adasig": (1.0, 0.4),
    },
}
"""Each arm's own parameter and learning rate times C: the best of the tuning trials by mean
validation accuracy; for the full image sets the paper's; not tuned for synthetic data."""

FIXED_RATES: Mapping[str, Mapping[float, float]] = {
    "synthetic": {1.0: 0.4, 5.0: 0.4},
    "rt": {1.0: 0.4, 5.0: 0.8},
    "mnist5k": {1.0: 0.4, 5.0: 0.4},
}
"""The best learning rate of each fixed slope, likewise."""

_AUDIT_HINT = "pip install 'assay[adasig-audit]'"
_DATA_HINT = (
    "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz and the t10k pair in "
    "ASSAY_DATA/adasig/{}/"
)
_FEATURES_TIMEOUT = 1800.0
"""The first trial on sentences embeds them all."""

_GRADIENT_SEEDS = 10
_REPEATS = {"mlp_20k": 20, "cnn_26k": 20, "mlp_500k": 7}
_RATE_SIZES = (200, 400, 800, 1600, 3200)
_RATE_STEPS = {Scale.SMOKE: 50, Scale.LAPTOP: 1000}
_AUDIT_SEEDS = 5
_AUDIT_SIGNIFICANCE = 0.05 / (2 * _AUDIT_SEEDS)
_AUDIT_DELTA = 1e-6
"""Smaller than elsewhere: with m canaries the bounds lose up to 2 m delta of significance."""

_CANARIES = {Scale.SMOKE: 1000, Scale.LAPTOP: 2000}


class AdaSigStudy(Study):
    """Claims of the paper and ours, with trials told apart by the parameter `what`."""

    version = 1
    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        if scale is Scale.SMOKE:
            yield from _bounds_trials()
            yield from _tuning_trials("synthetic", seeds or (0,), arms=("adasig",))
            yield from _duel_trials("synthetic", seeds or (0, 1))
            yield from _gradient_trials("synthetic", seeds or (0, 1))
            yield from _rate_trials(seeds or (0,), cost=1.0)
            yield from _audit_trials("synthetic", seeds or (0,), ("adasig",), cost=1.0)
            yield from _cost_trials(("mlp_20k",), seeds or (0,), cost=1.0, fresh=False)
        elif scale is Scale.LAPTOP:
            yield from _bounds_trials()
            for data in ("rt", "mnist5k"):
                yield from _tuning_trials(data, seeds or range(TUNING_SEEDS))
                yield from _duel_trials(data, seeds or range(TEST_SEEDS))
                yield from _gradient_trials(data, seeds or range(_GRADIENT_SEEDS))
            yield from _rate_trials(seeds or range(5), cost=4.0)
            arms = ("flat", "adasig", "joint")
            yield from _audit_trials("rt", seeds or range(_AUDIT_SEEDS), arms, cost=3.0)
            yield from _cost_trials(tuple(_REPEATS), seeds or range(6), cost=15.0)
        elif scale is Scale.GPU:
            yield from _duel_trials("mnist", seeds or range(3))
        else:
            for data in _FULL:
                yield from _duel_trials(data, seeds or range(5))

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        runners: dict[str, Callable[[Mapping[str, Any], Context], Mapping[str, float]]] = {
            "bounds": _bounds,
            "tune": _tune,
            "duel": _duel,
            "sweep": _sweep,
            "matched": _matched,
            "rate": _rate,
            "audit": _audit,
            "cost": _cost,
        }
        return runners[str(trial.params["what"])](trial.params, context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.adasig import figures

        return figures.figures(results)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.adasig import figures

        return figures.tables(results)


# Trials


def _bounds_trials() -> Iterator[Trial]:
    yield Trial({"what": "bounds"}, claims=("A6-sensitivity", "A6-mechanism", "J3"), cost=2.0)


def _tuning_trials(
    data: str, seeds: Sequence[int], arms: Sequence[str] = tuple(ARMS)
) -> Iterator[Trial]:
    for arm in arms:
        for value in ARMS[arm].values:
            params: dict[str, Param] = {"what": "tune", "arm": arm, "value": value}
            for seed in seeds:
                yield _on(data, params, seed, len(ROUNDS[0]))
                yield _on(data, {**params, "round": 2}, seed, len(ROUNDS[1]))


def _duel_trials(data: str, seeds: Sequence[int]) -> Iterator[Trial]:
    """By seed, so that trials which share an arm follow one another."""
    named = _SMOKE_CLAIMS_OF.get(data, data)
    small = data not in _FULL
    a1 = (f"A1-{named}", *(f"A4-{kind}-{named}" for kind in ("cosine", "snr") if small))
    for seed in seeds:
        ours = ("adasig", *CHOSEN[data]["adasig"])
        for against in BASELINES:
            yield _duel_trial(data, seed, ours, (against, *CHOSEN[data][against]), a1)
        if not small:
            continue
        for fixed in FIXED_RATES[data].items():
            yield _duel_trial(data, seed, ours, ("sigmoid", *fixed), (f"A3-{named}",))
        joint = ("joint", *CHOSEN[data]["joint"])
        yield _duel_trial(data, seed, joint, ours, (f"J1-{named}", f"J2-{named}"))


def _duel_trial(
    data: str,
    seed: int,
    ours: tuple[str, float, float],
    against: tuple[str, float, float],
    claims: tuple[str, ...],
) -> Trial:
    params: dict[str, Param] = {"what": "duel"}
    for side, setting in (("ours", ours), ("against", against)):
        params[side], params[f"{side}_value"], params[f"{side}_rate"] = setting
    return _on(data, params, seed, 1.5, claims)


def _gradient_trials(data: str, seeds: Sequence[int]) -> Iterator[Trial]:
    named = _SMOKE_CLAIMS_OF.get(data, data)
    value, rate = CHOSEN[data]["flat"]
    params: dict[str, Param] = {"arm": "flat", "value": value, "rate": rate}
    for seed in seeds:
        claims = (f"A5-cosine-{named}", f"A5-snr-{named}")
        yield _on(data, {"what": "sweep", **params}, seed, 3, claims)
        for against in ("flat", "auto_s", "psac"):
            yield _on(
                data,
                {"what": "matched", "against": against, **params},
                seed,
                1,
                (f"A4-matched-{named}",),
            )


def _rate_trials(seeds: Sequence[int], cost: float) -> Iterator[Trial]:
    for problem, tag in (("convex", "convex"), ("non-convex", "nonconvex")):
        for clipping in ("adasig", "flat"):
            both = (f"A7-{tag}-flat",)
            claims = (f"A7-{tag}", *both) if clipping == "adasig" else both
            for seed in seeds:
                params = {"what": "rate", "problem": problem, "clipping": clipping}
                yield Trial(params, seed, claims, cost)


def _audit_trials(
    data: str, seeds: Sequence[int], arms: Sequence[str], cost: float
) -> Iterator[Trial]:
    needs = (Need.package("jax_privacy", _AUDIT_HINT),)
    kinds = [(arm, 1.0, f"M1-{arm}") for arm in arms] + [("adasig", 0.1, "M1-broken")]
    for arm, factor, claim in kinds:
        for seed in seeds:
            yield Trial(
                {"what": "audit", "data": data, "arm": arm, "noise_factor": factor},
                seed,
                (claim,) if any(claim == c.id for c in CLAIMS) else (),
                cost,
                timeout=_FEATURES_TIMEOUT,
                needs=needs,
            )


def _cost_trials(
    models: Sequence[str], seeds: Sequence[int], cost: float, fresh: bool = True
) -> Iterator[Trial]:
    for model in models:
        for seed in seeds:
            yield Trial(
                {"what": "cost", "model": model},
                seed,
                ("A8-seconds", "A8-megabytes"),
                cost,
                timeout=900,
                fresh_process=fresh,
                exclusive=True,
            )


def _on(
    data: str,
    params: Mapping[str, Param],
    seed: int,
    runs: float,
    claims: tuple[str, ...] = (),
) -> Trial:
    """A trial that costs so many training runs on a data set."""
    full = data in _FULL
    return Trial(
        {**params, "data": data},
        seed,
        claims,
        cost=runs * {"synthetic": 0.1, "rt": 0.6, "mnist5k": 0.4}.get(data, 30.0),
        gpus=int(full),
        timeout=_FEATURES_TIMEOUT,
        needs=(Need.gpu(), Need.data(data, _DATA_HINT.format(data))) if full else (),
    )


# Running them


def _bounds(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.bounds import measured_bounds

    return measured_bounds(100_000 if context.scale is Scale.SMOKE else 1_000_000)


def _tune(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.training import Setting, train

    splits, recipe = _task(params["data"], tuning_seed(context.seed), context)
    found = {}
    for rate in ROUNDS[params.get("round", 1) - 1]:
        setting = Setting(params["arm"], params["value"], rate)
        run = train(setting, recipe, splits, tuning_seed(context.seed), context.device)
        found[rate] = run.validation
        context.record("validation", rate, run.validation)
    return {"best_validation": max(found.values()), "best_rate": max(found, key=found.__getitem__)}


def tuning_seed(seed: int) -> int:
    """A seed whose splits, weights, batches and noise no test run draws.

    Args:
        seed: of the trial.
    """
    import numpy as np

    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])


def _duel(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.training import Setting

    metrics: dict[str, float] = {}
    for side in ("ours", "against"):
        setting = Setting(params[side], params[f"{side}_value"], params[f"{side}_rate"])
        run = _trained(
            setting, params["data"], _folder(params["data"], context), context.seed, context.device
        )
        names = ("accuracy", "cosine", "snr", "agreement", "epsilon")
        values = (run.test, run.cosine, run.snr, run.agreement, run.epsilon)
        metrics |= {f"{side}_{name}": value for name, value in zip(names, values, strict=True)}
        if params["ours"] == "joint":
            for step, slope in enumerate(run.slopes):
                if step % 4 == 0:
                    context.record(f"{side}_slope", step, slope)
    return metrics


@lru_cache(maxsize=4)
def _trained(setting: Setting, data: str, folder: Path, seed: int, device: str) -> Run:
    """One arm's run, which several duels of a seed share."""
    from assay.papers.adasig.data import load
    from assay.papers.adasig.training import train

    return train(setting, _recipe(data), load(data, seed, folder), seed, device, diagnose=True)


def _sweep(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from scipy.stats import spearmanr

    from assay.papers.adasig.frozen import SLOPES

    cosine_ranks, norm_ranks = [], []
    for stage, (curves, slopes) in enumerate(_trade_offs(params, context)):
        cosine_ranks.append(float(spearmanr(SLOPES, slopes.cosines).statistic))
        norm_ranks.append(float(spearmanr(SLOPES, slopes.norms).statistic))
        for rule, curve in curves.items():
            for norm, cosine in list(zip(curve.norms, curve.cosines, strict=True))[::4]:
                context.record(f"{rule}/{stage}", norm, cosine)
    # All stages but the worst one.
    return {"cosine_rank": sorted(cosine_ranks)[-2], "norm_rank": sorted(norm_ranks)[1]}


def _matched(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.frozen import common_norms

    ours, against = [], []
    for curves, _ in _trade_offs(params, context):
        for norm in common_norms(curves):
            ours.append(curves["adasig"].best_cosine(norm))
            against.append(curves[params["against"]].best_cosine(norm))
    if not ours:
        return {"ours_cosine": math.nan, "against_cosine": math.nan}
    return {"ours_cosine": fmean(ours), "against_cosine": fmean(against)}


def _trade_offs(
    params: Mapping[str, Any], context: Context
) -> list[tuple[dict[str, Curve], Curve]]:
    from assay.papers.adasig.training import Setting

    setting = Setting(params["arm"], params["value"], params["rate"])
    return _traced(setting, params["data"], _folder(params["data"], context), context.seed)


@lru_cache(maxsize=1)
def _traced(
    setting: Setting, data: str, folder: Path, seed: int
) -> list[tuple[dict[str, Curve], Curve]]:
    """For each stage the rules' curves, and AdaSig's at a few slopes, for all trials of a seed."""
    from assay.papers.adasig.data import load
    from assay.papers.adasig.frozen import PARAMETERS, RULES, SLOPES, along_training, trace

    return [
        (
            {rule: trace(gradients, rule, PARAMETERS) for rule in RULES},
            trace(gradients, "adasig", SLOPES),
        )
        for gradients in along_training(setting, _recipe(data), load(data, seed, folder), seed)
    ]


def _rate(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.convergence import exponent, mean_squared_gradient

    found = []
    for n in _RATE_SIZES:
        value = mean_squared_gradient(
            params["problem"], params["clipping"], n, _RATE_STEPS[context.scale], context.seed
        )
        context.record("mean_squared_gradient", n, value)
        found.append(value)
    return {"exponent": exponent(_RATE_SIZES, found)}


def _audit(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.audit import audit
    from assay.papers.adasig.training import Setting

    splits, recipe = _task(params["data"], context.seed, context)
    recipe = replace(recipe, delta=_AUDIT_DELTA)
    found = audit(
        Setting(params["arm"], 1.0, 0.4),
        recipe,
        splits.train,
        context.seed,
        _CANARIES[context.scale],
        params["noise_factor"],
        _AUDIT_SIGNIFICANCE,
    )
    bounds = {"excess": "epsilon_lower", "excess_fdp": "epsilon_lower_fdp"}
    return found | {name: found[bound] - found["epsilon"] for name, bound in bounds.items()}


def _cost(params: Mapping[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.adasig.step_cost import step_cost

    model = params["model"]
    found = step_cost((model,), repeats=3 if context.scale is Scale.SMOKE else _REPEATS[model])
    units = {"s": "seconds", "peak_mb": "megabytes"}
    metrics = {
        f"{arm}_{name}": found[f"{model}_{arm}_{unit}"]
        for arm in ("flat", "sigmoid", "adasig")
        for unit, name in units.items()
    }
    return metrics | {name: found[f"{model}_{name}"] for name in ("spread", "foreign")}


def _task(data: str, seed: int, context: Context) -> tuple[Any, Recipe]:
    from assay.papers.adasig.data import load

    return load(data, seed, _folder(data, context)), _recipe(data)


def _folder(data: str, context: Context) -> Path:
    return context.data(data) if data in _FULL else context.cache()


def _recipe(data: str) -> Recipe:
    from assay.papers.adasig.training import Recipe

    return Recipe(**RECIPES[data])


study = AdaSigStudy()
