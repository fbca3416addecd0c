"""Figures and tables of the study, drawn from its results alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.papers.adasig.arms import ARMS, RATES
from assay.study import Figure, Param, Result, Results, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

NAMES = {
    "synthetic": "Synthetic mixture",
    "rt": "Rotten Tomatoes",
    "mnist5k": "MNIST, 5,000 digits",
    "mnist": "MNIST",
    "fashion": "FashionMNIST",
}
_RULES = {"adasig": "sigmoid", "flat": "constant", "auto_s": "AUTO-S", "psac": "PSAC"}
_STAGE = 2
_SHOWN = 12
"""Points below the best accuracy at which the tuning curves are cut off."""

_STYLES = ("-", "--", "-.", ":")


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale; those without data are left out."""
    done = results.ok
    tuned = {data: found for data, found in _by_data(done.where(what="tune")) if _curves(found)}
    if tuned:
        yield Figure(
            "tuning",
            "Validation accuracy over the learning rate, with 95 % intervals of two arms",
            _tuning_alt(tuned),
            partial(_tuning, tuned),
            tuple(f"A1-{data}" for data in tuned if data in ("rt", "mnist5k")),
        )
    duels = dict(_by_data(done.where(what="duel")))
    differences = {data: rows for data, found in duels.items() if (rows := _differences(found))}
    if differences:
        yield Figure(
            "differences",
            "Test accuracy against each other arm, paired by seed, with 95 % intervals",
            _differences_alt(differences),
            partial(_forest, differences),
            _claims(differences, "A1", "A3", "J2"),
        )
        yield Figure(
            "mismatch",
            "Direction and magnitude mismatch in training, each arm at its best setting",
            "Mean cosine of the clipped sum with the batch's gradient against mean "
            "signal-to-noise ratio: " + "; ".join(map(_mismatch_alt, duels.items())) + ".",
            partial(_mismatches, duels),
            _claims(duels, "A4-cosine", "A4-snr"),
        )
    sweeps = dict(_by_data(done.where(what="sweep")))
    if sweeps:
        yield Figure(
            "trade-off",
            "Direction against magnitude on the same gradients, halfway through training",
            "One curve a clipping rule, its parameter running from constant weights, at a cosine "
            "of 1 and no magnitude, to normalisation; at equal magnitude the higher curve keeps "
            "the direction better.",
            partial(_trade_offs, sweeps),
            _claims(sweeps, "A4-matched", "A5-cosine", "A5-snr"),
        )
    slopes = {
        data: moving
        for data, found in duels.items()
        if (moving := [r for r in found.where(ours="joint") if "ours_slope" in r.series])
    }
    if slopes:
        yield Figure(
            "slopes",
            "The slope during training, under the paper's and under joint accounting",
            _slopes_alt(slopes),
            partial(_slopes, slopes),
            _claims(slopes, "J1"),
        )
    rates = done.where(what="rate")
    if rates:
        yield Figure(
            "convergence",
            "Mean squared gradient over the number of examples",
            "Log-log lines with fitted exponents: "
            + "; ".join(
                f"{problem}, {ARMS[str(clipping)].name} {_mean(found, 'exponent'):.2f}"
                for (problem, clipping), found in _groups(rates, "problem", "clipping").items()
            )
            + ". The theorem says -1.",
            partial(_convergence, rates),
            ("A7-convex", "A7-convex-flat", "A7-nonconvex", "A7-nonconvex-flat"),
        )


def tables(results: Results) -> Iterable[Table]:
    """Tables of one scale; those without data are left out."""
    done = results.ok
    if rows := tuple(_tuning_rows(done.where(what="tune"))):
        yield Table(
            "tuning",
            "Settings chosen on validation data; rates are learning rate times C",
            ("data", "arm", "own parameter", "value", "rate", "validation %"),
            rows,
        )
    if rows := tuple(_accuracy_rows(done.where(what="duel"))):
        yield Table(
            "accuracy",
            "At the chosen setting, on test data (mean over seeds, standard deviation)",
            ("data", "arm", "value", "rate", "test %", "sd", "cosine", "SNR", "slope steps right"),
            rows,
        )
    if rows := tuple(_audit_rows(done.where(what="audit"))):
        yield Table(
            "audits",
            "Lower bounds of epsilon from one run each, at a claim of 3 and delta 1e-6 (mean)",
            ("arm", "noise", "bound", "bound for Gaussian mechanisms", "AUROC", "runs"),
            rows,
        )
    if rows := tuple(_cost_rows(done.where(what="cost"))):
        yield Table(
            "cost",
            "A training step over Opacus' constant clipping, batch 512",
            ("model", "fixed slope, time", "AdaSig, time", "memory", "constant, ms", "MB"),
            rows,
        )


# Reading


def _by_data(results: Results) -> Iterator[tuple[str, Results]]:
    for data in NAMES:
        if found := results.where(data=data):
            yield data, found


def _claims(of: Iterable[str], *kinds: str) -> tuple[str, ...]:
    return tuple(f"{kind}-{data}" for data in of if data in ("rt", "mnist5k") for kind in kinds)


def _groups(found: Iterable[Result], *names: str) -> dict[tuple[Param, ...], list[Result]]:
    groups: dict[tuple[Param, ...], list[Result]] = {}
    for result in found:
        groups.setdefault(tuple(result.params[n] for n in names), []).append(result)
    return groups


def _mean(found: Iterable[Result], metric: str) -> float:
    return statistics.fmean(r.metrics[metric] for r in found)


def validation_curves(
    results: Results,
) -> dict[tuple[Param, ...], dict[float, list[float]]]:
    """Validation accuracies of every arm and value, by learning rate, over the tuning seeds.

    Args:
        results: tuning trials of one data set.
    """
    curves: dict[tuple[Param, ...], dict[float, list[float]]] = {}
    for key, found in _groups(results, "arm", "value").items():
        curves[key] = {}
        for result in found:
            for rate, accuracy in result.series.get("validation", ()):
                curves[key].setdefault(rate, []).append(accuracy)
    return curves


def best(curves: Mapping[tuple[Param, ...], Mapping[float, Sequence[float]]], arm: str) -> Any:
    """(mean accuracy, value, rate) where an arm did best.

    Args:
        curves: as `validation_curves` returns them.
        arm: its key.
    """
    return max(
        (statistics.fmean(found), value, rate)
        for (name, value), line in curves.items()
        if name == arm
        for rate, found in line.items()
    )


def _curves(results: Results) -> dict[str, tuple[float, dict[float, list[float]]]]:
    """For each arm its better value and the curve there."""
    curves = validation_curves(results)
    found = {}
    for arm in ARMS:
        if any(name == arm and line for (name, _), line in curves.items()):
            _, value, _ = best(curves, arm)
            found[arm] = (value, curves[arm, value])
    return found


def _interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % t interval of the mean; NaN for a single value."""
    from scipy import stats

    if len(values) < 2:
        return math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * error


def _differences(duels: Results) -> list[tuple[str, float, float]]:
    """(pair, mean difference, half interval), in percentage points."""
    rows = []
    groups = _groups(duels, "ours", "against", "against_value")
    order = list(ARMS).index
    for (ours, against, value), found in sorted(
        groups.items(),
        key=lambda item: (order(str(item[0][0])), order(str(item[0][1])), item[0][2]),
    ):
        name = f"fixed slope {value:g}" if against == "sigmoid" else ARMS[str(against)].name
        if ours == "joint":
            name = "joint - paper's accounting"
        values = [r.metrics["ours_accuracy"] - r.metrics["against_accuracy"] for r in found]
        rows.append((name, statistics.fmean(values), _interval(values)))
    return rows


def _arms_of(duels: Results) -> dict[tuple[str, float, float], dict[str, list[float]]]:
    """Metrics of every (arm, value, rate) over the seeds, each seed once."""
    found: dict[tuple[str, float, float], dict[int, Mapping[str, float]]] = {}
    for result in duels:
        for side in ("ours", "against"):
            key = tuple(result.params[f"{side}{end}"] for end in ("", "_value", "_rate"))
            found.setdefault(key, {})[result.seed] = {  # type: ignore[arg-type]
                name: result.metrics[f"{side}_{name}"]
                for name in ("accuracy", "cosine", "snr", "agreement")
            }
    return {
        key: {name: [run[name] for run in runs.values()] for name in next(iter(runs.values()))}
        for key, runs in found.items()
    }


# Words


def _tuning_alt(tuned: Mapping[str, Results]) -> str:
    parts = []
    for data, found in tuned.items():
        curves = validation_curves(found)
        tops = (f"{ARMS[arm].name} {best(curves, arm)[0]:.1f}" for arm in _curves(found))
        parts.append(f"{NAMES[data]}: " + ", ".join(tops))
    return "Best mean validation accuracy in percent. " + "; ".join(parts) + "."


def _differences_alt(differences: Mapping[str, Sequence[tuple[str, float, float]]]) -> str:
    parts = [
        f"{NAMES[data]}: "
        + ", ".join(f"{name} {mean:+.2f} +- {half:.2f}" for name, mean, half in rows)
        for data, rows in differences.items()
    ]
    return "Difference in percentage points. " + "; ".join(parts) + "."


def _mismatch_alt(item: tuple[str, Results]) -> str:
    data, duels = item
    points = (
        f"{_arm_name(arm, value)} {statistics.fmean(run['cosine']):.2f} at "
        f"{statistics.fmean(run['snr']):.1f}"
        for (arm, value, _), run in _arms_of(duels).items()
    )
    return f"{NAMES[data]}: " + ", ".join(points)


def _slopes_alt(slopes: Mapping[str, Sequence[Result]]) -> str:
    parts = [
        f"{NAMES[data]}: {100 * _mean(found, 'against_agreement'):.0f} % under the paper's, "
        f"{100 * _mean(found, 'ours_agreement'):.0f} % under joint accounting"
        for data, found in slopes.items()
    ]
    return "Share of slope steps that go as they would without noise. " + "; ".join(parts) + "."


def _arm_name(arm: str, value: float) -> str:
    return f"fixed slope {value:g}" if arm == "sigmoid" else ARMS[arm].name


# Drawing


def _panels(names: Sequence[str], height: float = 3.8) -> tuple[MatplotlibFigure, list[Any]]:
    from matplotlib import pyplot

    width = 8 if len(names) > 1 else 5.6
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(width, height), layout="constrained", squeeze=False
    )
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
    return figure, list(axes[0])


def _quiet() -> str:
    """The colour of axes, for lines that are no data."""
    from matplotlib import rcParams

    return str(rcParams["axes.edgecolor"])


def _legend_below(figure: MatplotlibFigure, axis: Any, columns: int) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _tuning(tuned: Mapping[str, Results]) -> MatplotlibFigure:
    figure, axes = _panels([NAMES[data] for data in tuned], 4.4)
    for axis, found in zip(axes, tuned.values(), strict=True):
        for i, (arm, (_, line)) in enumerate(_curves(found).items()):
            rates = sorted(line)
            means = [statistics.fmean(line[rate]) for rate in rates]
            half = [_interval(line[rate]) for rate in rates]
            style = _STYLES[i // 6]
            axis.plot(rates, means, style, marker=".", color=f"C{i % 6}", label=ARMS[arm].name)
            low = [m - h for m, h in zip(means, half, strict=True)]
            high = [m + h for m, h in zip(means, half, strict=True)]
            if arm in ("flat", "adasig"):
                axis.fill_between(rates, low, high, color=f"C{i % 6}", alpha=0.15, linewidth=0)
        top = max(best(validation_curves(found), arm)[0] for arm in _curves(found))
        axis.set(xscale="log", xlabel="learning rate times C", ylim=(top - _SHOWN, top + 2))
        axis.set_xticks(RATES, [f"{rate:g}" for rate in RATES])
        axis.minorticks_off()
    axes[0].set_ylabel("validation accuracy, %")
    _legend_below(figure, axes[0], 4)
    return figure


def _forest(differences: Mapping[str, Sequence[tuple[str, float, float]]]) -> MatplotlibFigure:
    figure, axes = _panels([NAMES[data] for data in differences], 3.6)
    for axis, rows in zip(axes, differences.values(), strict=True):
        for i, (name, mean, half) in enumerate(rows):
            colour = "C1" if name.startswith("joint") else "C2" if "fixed" in name else "C0"
            axis.errorbar(mean, i, xerr=half, fmt="o", capsize=4, color=colour)
        axis.axvline(0, linewidth=1, color=_quiet())
        labels = [n if n.startswith("joint") else f"AdaSig - {n}" for n, _, _ in rows]
        axis.set_yticks(range(len(rows)), labels if axis is axes[0] else [""] * len(rows))
        axis.invert_yaxis()
        axis.set_xlabel("percentage points")
    return figure


def _mismatches(duels: Mapping[str, Results]) -> MatplotlibFigure:
    figure, axes = _panels([NAMES[data] for data in duels], 4.2)
    for axis, found in zip(axes, duels.values(), strict=True):
        for i, ((arm, value, _), run) in enumerate(sorted(_arms_of(found).items(), key=_order)):
            axis.plot(
                statistics.fmean(run["snr"]),
                statistics.fmean(run["cosine"]),
                "osD^"[i // 6],
                markersize=8,
                color=f"C{i % 6}",
                label=_arm_name(arm, value),
            )
        axis.set(xlabel="signal-to-noise ratio")
    axes[0].set_ylabel("cosine")
    _legend_below(figure, axes[0], 4)
    return figure


def _order(item: tuple[tuple[str, float, float], Any]) -> tuple[int, float]:
    (arm, value, _), _ = item
    return list(ARMS).index(arm), value


def _trade_offs(sweeps: Mapping[str, Results]) -> MatplotlibFigure:
    figure, axes = _panels([NAMES[data] for data in sweeps], 4.0)
    for axis, found in zip(axes, sweeps.values(), strict=True):
        for i, (rule, name) in enumerate(_RULES.items()):
            curves = [r.series[f"{rule}/{_STAGE}"] for r in found]
            points = [
                (statistics.fmean(n for n, _ in at), statistics.fmean(c for _, c in at))
                for at in zip(*curves, strict=True)
            ]
            axis.plot(*zip(*points, strict=True), _STYLES[i], label=name)
        axis.set(xlabel="norm of the clipped sum over n C")
    axes[0].set_ylabel("cosine with the gradient")
    _legend_below(figure, axes[0], 4)
    return figure


def _slopes(slopes: Mapping[str, Sequence[Result]]) -> MatplotlibFigure:
    figure, axes = _panels([NAMES[data] for data in slopes])
    for axis, found in zip(axes, slopes.values(), strict=True):
        for colour, side, label in (
            ("C0", "against", "the paper's accounting"),
            ("C1", "ours", "joint accounting"),
        ):
            lines = [r.series[f"{side}_slope"] for r in found]
            for line in lines:
                axis.plot(*zip(*line, strict=True), linewidth=0.6, alpha=0.35, color=colour)
            means = [
                math.exp(statistics.fmean(math.log(slope) for _, slope in at))
                for at in zip(*lines, strict=True)
            ]
            axis.plot([step for step, _ in lines[0]], means, color=colour, label=label)
        axis.set(xlabel="step")
    axes[0].set_ylabel("slope")
    _legend_below(figure, axes[0], 2)
    return figure


def _convergence(rates: Results) -> MatplotlibFigure:
    problems = [str(p) for p in rates.distinct("problem")]
    figure, axes = _panels([p.capitalize() for p in problems])
    for axis, problem in zip(axes, problems, strict=True):
        for i, (clipping, name) in enumerate((("adasig", "AdaSig"), ("flat", "constant clipping"))):
            found = rates.where(problem=problem, clipping=clipping)
            lines = [r.series["mean_squared_gradient"] for r in found]
            if not lines:
                continue
            sizes = [n for n, _ in lines[0]]
            means = [
                math.exp(statistics.fmean(math.log(value) for _, value in at))
                for at in zip(*lines, strict=True)
            ]
            axis.plot(sizes, means, marker="o", color=f"C{i}", label=name)
            if clipping == "adasig":
                guide = [1.3 * means[0] * sizes[0] / n for n in sizes]
                axis.plot(sizes, guide, "--", linewidth=1, color=_quiet(), label="exponent -1")
        axis.set(xscale="log", yscale="log", xlabel="examples N")
        axis.set_xticks(sizes, [f"{n:g}" for n in sizes])
        axis.minorticks_off()
    axes[0].set_ylabel("mean squared gradient")
    _legend_below(figure, axes[0], 3)
    return figure


# Tables


def _tuning_rows(tuning: Results) -> Iterator[tuple[Any, ...]]:
    for data, found in _by_data(tuning):
        curves = validation_curves(found)
        for arm in _curves(found):
            accuracy, value, rate = best(curves, arm)
            yield NAMES[data], ARMS[arm].name, ARMS[arm].knob, value, rate, f"{accuracy:.2f}"


def _accuracy_rows(duels: Results) -> Iterator[tuple[Any, ...]]:
    for data, found in _by_data(duels):
        for (arm, value, rate), run in sorted(_arms_of(found).items(), key=_order):
            sd = statistics.stdev(run["accuracy"]) if len(run["accuracy"]) > 1 else math.nan
            agreement = statistics.fmean(run["agreement"])
            yield (
                NAMES[data],
                ARMS[arm].name,
                value,
                rate,
                f"{statistics.fmean(run['accuracy']):.2f}",
                f"{sd:.2f}",
                f"{statistics.fmean(run['cosine']):.3f}",
                f"{statistics.fmean(run['snr']):.1f}",
                "" if math.isnan(agreement) else f"{100 * agreement:.0f} %",
            )


def _audit_rows(audits: Results) -> Iterator[tuple[Any, ...]]:
    groups = _groups(audits, "arm", "noise_factor")
    for arm, factor in sorted(
        groups, key=lambda key: (-float(key[1]), list(ARMS).index(str(key[0])))
    ):
        found = groups[arm, factor]
        yield (
            ARMS[str(arm)].name,
            "as claimed" if factor == 1 else f"{factor:g} of it",
            *(f"{_mean(found, m):.2f}" for m in ("epsilon_lower", "epsilon_lower_fdp", "auroc")),
            len(found),
        )


def _cost_rows(costs: Results) -> Iterator[tuple[Any, ...]]:
    for (model,), every in sorted(_groups(costs, "model").items(), key=lambda item: str(item[0])):
        found = [r for r in every if math.isfinite(r.metrics["flat_seconds"])]
        ratios = (
            f"{statistics.geometric_mean(_ratios(found, arm, 'seconds')):.2f}" if found else "busy"
            for arm in ("sigmoid", "adasig")
        )
        memory = statistics.geometric_mean(_ratios(every, "adasig", "megabytes"))
        seconds = f"{1e3 * _mean(found, 'flat_seconds'):.1f}" if found else "machine busy"
        yield model, *ratios, f"{memory:.3f}", seconds, f"{_mean(every, 'flat_megabytes'):.0f}"


def _ratios(found: Iterable[Result], arm: str, metric: str) -> list[float]:
    return [r.metrics[f"{arm}_{metric}"] / r.metrics[f"flat_{metric}"] for r in found]
