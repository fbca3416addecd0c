"""The tables of the study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean, median
from typing import Any

from assay.papers.multalmc.figures import BASES, TARGETS, by, hidden, name_of, nested
from assay.papers.multalmc.settings import METRICS, ORACLES
from assay.papers.multalmc.tuning import chosen
from assay.study import Result, Results, Table


def tables(results: Results) -> Iterable[Table]:
    """Those for which there are results."""
    for make in _MAKERS:
        if table := make(results):
            yield table


_COLUMNS: Mapping[str, str] = {
    "w2": "entropic W2",
    "sliced_w2": "sliced W2",
    "sliced_ks": "sliced KS",
    "weight_tv": "TV of the mode weights",
    "modes": "modes found",
    "spread": "spread around modes, relative",
}


def _distances(results: Results) -> Table | None:
    rows = []
    for (target, sampler), found in nested(results.where(part="compare"), "target", "sampler"):
        rows.append(
            (
                TARGETS[str(target)],
                name_of(sampler),
                *("" if hidden(sampler, m) else _mean(found, m) for m in _COLUMNS),
                *_costs(found),
            )
        )
    columns = ("target", "sampler", *_COLUMNS.values(), *_COSTS)
    title = (
        "Distance to exact samples, means over seeds; the rows of exact samples are what chance "
        "alone leaves"
    )
    return Table("distances", title, columns, tuple(rows)) if rows else None


_COSTS = ("gradients", "densities", "seconds")


def _costs(found: Results) -> tuple[Any, ...]:
    """Evaluations of each chain, and the time of all chains on a machine that was not idle."""
    return (
        round(fmean(found.metric("n_grad"))),
        round(fmean(found.metric("n_logp"))),
        round(median(found.metric("seconds")), 1),
    )


def _mean(found: Results, metric: str) -> str:
    values = [value for value in found.metric(metric) if value == value]
    return f"{fmean(values):.3g}" if values else ""


def _logistic(results: Results) -> Table | None:
    rows = []
    for (data, sampler), found in nested(results.where(part="logistic"), "target", "sampler"):
        rows.append(
            (
                data,
                name_of(sampler),
                f"{-fmean(found.metric('log_loss')):.3f}",
                f"{fmean(found.metric('behind_nuts')):+.4f}",
                _mean(found, "mean_error"),
                _mean(found, "sd_error"),
                *_costs(found),
            )
        )
    columns = (
        "data",
        "sampler",
        "log predictive likelihood",
        "difference to NUTS",
        "largest error of a mean, sd",
        "largest error of an sd, relative",
        *_COSTS,
    )
    title = "Logistic regression on the test part, means over splits"
    return Table("logistic", title, columns, tuple(rows)) if rows else None


def _field(results: Results) -> Table | None:
    rows = []
    for (h, sampler), found in nested(results.where(part="field"), "h", "sampler"):
        rows.append(
            (
                h,
                f"{found[0].metrics['upper_exact']:.4f}",
                name_of(sampler),
                _mean(found, "upper"),
                _mean(found, "weight_error"),
                *_costs(found),
            )
        )
    columns = ("h", "exact weight", "sampler", "weight", "mean error", *_COSTS)
    title = "phi^4: weight of the upper phase, means over seeds"
    return Table("field", title, columns, tuple(rows)) if rows else None


def _tails(results: Results) -> Table | None:
    rows = []
    for (dim, base), found in nested(results.where(part="tails"), "dim", "base"):
        rows.append(
            (
                dim,
                BASES[str(base)][0],
                _mean(found, "radius_log_ratio"),
                _mean(found, "radius_error"),
                _mean(found, "energy"),
                _mean(found, "dead"),
                *_costs(found),
            )
        )
    columns = (
        "d",
        "base",
        "log-ratio of the 99.9 % radius",
        "its size",
        "energy distance",
        "chains lost",
        *_COSTS,
    )
    title = "Ten Student-t with 2 degrees of freedom, means over seeds"
    return Table("tails", title, columns, tuple(rows)) if rows else None


def _reach(results: Results) -> Table | None:
    rows = []
    for sampler, found in by(results.where(part="reach"), "sampler").items():
        curves = [dict(r.series["weight_tv"]) for r in found]
        cells = [f"{fmean(c[at] for c in curves):.3f} after {at:g}" for at in curves[0]]
        rows.append((name_of(sampler), ", ".join(cells), _mean(found, "reached")))
    columns = ("sampler", "TV of the mode weights", "evaluations to reach 0.15")
    title = "Forty Gaussians in the plane, means over seeds"
    return Table("reach", title, columns, tuple(rows)) if rows else None


def _apart(results: Results) -> Table | None:
    rows = []
    for (distance, sampler, times), found in nested(
        results.where(part="apart"), "distance", "sampler", "times"
    ):
        cells = (_mean(found, "weight_tv"), _mean(found, "modes"))
        rows.append((f"{distance:g}", name_of(sampler), times, *cells, *_costs(found)))
    columns = (
        "distance",
        "sampler",
        "times as long",
        "TV of the mode weights",
        "modes found",
        *_COSTS,
    )
    title = "Three modes of weights 0.2, 0.5 and 0.3, so many sd apart, means over seeds"
    return Table("apart", title, columns, tuple(rows)) if rows else None


def _gate(results: Results) -> Table | None:
    rows = [
        (
            name_of(sampler),
            _mean(found, "mean_error"),
            _mean(found, "variance_error"),
            _mean(found, "weight_error"),
            *_costs(found),
        )
        for sampler, found in by(results.where(part="gate"), "sampler").items()
    ]
    columns = (
        "sampler",
        "error of the mean, sd",
        "error of the variance, relative",
        "error of a weight of two modes",
        *_COSTS,
    )
    title = "N(3, 1/4), and two Gaussians of weights 0.3 and 0.7, means over seeds"
    return Table("gate", title, columns, tuple(rows)) if rows else None


def _oracles(results: Results) -> Table | None:
    rows = []
    for result in results.where(part="oracle"):
        name = str(result.params["name"])
        oracle = ORACLES[name]
        error = f"{result.metrics['error']:.2g}"
        rows.append((name, oracle.what, oracle.origin, error, f"{oracle.limit:g}"))
    columns = ("oracle", "what is checked", "equation", "error", "limit")
    title = "Checks against independent answers, and where the equation comes from"
    return Table("oracles", title, columns, tuple(rows)) if rows else None


def _times(results: Results) -> Table | None:
    rows = []
    for part, names in _TIMED.items():
        found = [r for r in results.where(part=part) if was_quiet(r)]
        for metric, name in names.items():
            if values := [r.metrics[metric] for r in found if metric in r.metrics]:
                rows.append((name, f"{median(values):.3g}"))
    title = "Times, interleaved on an idle machine, medians"
    return Table("times", title, ("what", "found"), tuple(rows)) if rows else None


_TIMED: Mapping[str, Mapping[str, str]] = {
    "runtime": {
        "multalmc_s": "MultALMC, seconds for 1e6 evaluations of 300 chains",
        "pt_s": "parallel tempering, likewise",
        "rdmc_s": "RDMC, likewise",
    },
    "step": {
        "written_ratio": "MultALMC over its calls of the score alone, 4,096 chains, d = 50",
        "autograd_ratio": "the same, of the score by automatic differentiation",
        "compiled_ratio": "the same, both through torch.compile",
        "noise_ratio": "its random numbers over its calls of the score alone",
        "mala_ratio": "its time for each gradient over that of blackjax's MALA",
    },
}


def was_quiet(result: Result) -> bool:
    """False where the machine was too busy to time anything."""
    return all(value == value for value in result.metrics.values())


def _tuning(results: Results) -> Table | None:
    rows = []
    for (target, sampler), found in nested(results.where(part="tune"), "target", "sampler"):
        rows.append(
            (
                TARGETS.get(str(target), str(target)),
                name_of(sampler),
                METRICS.get(str(target), ""),
                "; ".join(_candidate(r) for r in found),
                _words(chosen(str(target), str(sampler))),
            )
        )
    title = "Search for constants on a seed apart: score of each candidate, the least is chosen"
    columns = ("target", "sampler", "score", "found", "chosen")
    return Table("tuning", title, columns, tuple(rows)) if rows else None


_FIXED = {"part", "target", "dim", "h", "sampler", "chains", "evaluations"}


def _candidate(result: Result) -> str:
    constants = {k: v for k, v in result.params.items() if k not in _FIXED}
    return f"{_words(constants)}: {result.metrics['score']:.3g}"


def _words(constants: Mapping[str, Any]) -> str:
    words = {k: v if isinstance(v, str) else f"{v:g}" for k, v in constants.items()}
    words.pop("schedule", None)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in words.items())


_MAKERS = (
    _distances,
    _logistic,
    _field,
    _apart,
    _tails,
    _reach,
    _gate,
    _oracles,
    _times,
    _tuning,
)
