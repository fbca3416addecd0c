"""The figures of the study, drawn from its results alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from assay.papers.multalmc.settings import METRICS, REACHED
from assay.study import Figure, Result, Results, grouped
from assay.toolkits.drawing import legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

SAMPLERS: Mapping[str, tuple[str, str, str]] = {
    "multalmc": ("MultALMC", "C0", "o-"),
    "overdamped": ("MultALMC, overdamped", "C0", "o:"),
    "averaged": ("MultALMC, exact score", "C0", "d:"),
    "multcdiff": ("MultCDiff", "C1", "s-"),
    "smc": ("tempered SMC", "C2", "^--"),
    "pt": ("parallel tempering", "C3", "v--"),
    "rdmc": ("RDMC", "C4", "D-."),
    "ulmc": ("underdamped Langevin", "C5", "P:"),
    "ula": ("Langevin (ULA)", "C5", "X:"),
    "nuts": ("NUTS", "0.5", "*:"),
    "exact": ("exact samples", "0.5", "--"),
}
"""Name, colour and line of each sampler in every figure."""

TARGETS: Mapping[str, str] = {
    "eight": "eight Gaussians",
    "forty": "forty Gaussians",
    "rings": "rings",
    "funnel": "funnel",
    "wells": "double wells",
    "three": "three bumps",
}

BASES: Mapping[str, tuple[str, str]] = {
    "normal": ("Gaussian", "C3"),
    "student": ("Student-t", "C2"),
    "ito": ("Student-t, Ito", "C0"),
    "exact": ("exact samples", "0.5"),
}


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale; those without data are left out."""
    if frames := [r for r in results.where(part="path") if r.series]:
        yield Figure(
            "particles",
            "Particles of MultALMC on the way from N(0, I) to eight Gaussians",
            _particles_alt(frames[0]),
            partial(_particles, frames[0]),
            ("C1-pt", "X2-modes"),
        )
    compared = Results(
        [
            r
            for r in results.where(part="compare")
            if r.params["target"] in _DRAWN and not hidden(r.params["sampler"], "w2")
        ]
    )
    if compared:
        yield Figure(
            "distances",
            "Distance to exact samples at equal evaluations, each seed",
            _distances_alt(compared),
            partial(_distances, compared),
            tuple(id for id in _JUDGED if id[0] == "C"),
        )
    eight = results.where(part="compare", target="eight")
    if eight := Results([r for r in eight if "weights" in r.series]):
        yield Figure(
            "mode-weights",
            "Eight Gaussians: share of the chains in each mode, mean and range over seeds",
            _weights_alt(eight),
            partial(_weights, eight),
            ("X1-ula", "X1-smc", "X1-bias", "X2-modes", "X2-nuts"),
        )
    marginals = {
        "eight Gaussians, first coordinate": compared.where(target="eight", sampler="multalmc"),
        "double wells, first coordinate": compared.where(target="wells", sampler="multalmc"),
        "funnel, first coordinate": compared.where(target="funnel", sampler="multalmc"),
        "phi^4, middle site": results.where(part="field", sampler="multalmc"),
    }
    drawn = {name: found[0] for name, found in marginals.items() if found and found[0].series}
    if drawn:
        yield Figure(
            "marginals",
            "Marginals of MultALMC's samples and the exact ones",
            _marginals_alt(drawn),
            partial(_marginals, drawn),
            ("C1-pt", "C3-funnel", "C4", "C6"),
        )
    if reach := results.where(part="reach"):
        yield Figure(
            "evaluations",
            "Forty Gaussians in the plane: error of the mode weights by evaluations, mean over "
            "seeds",
            _reach_alt(reach),
            partial(_reach, reach),
            ("C8",),
        )
    if len((field := results.where(part="field")).distinct("h")) > 1:
        yield Figure(
            "field",
            "phi^4: weight of the upper phase by external field, each seed",
            _field_alt(field),
            partial(_field, field),
            ("C6",),
        )
    sweep = results.where(part="averaging"), results.where(part="inflation")
    if all(len(found.distinct("eps")) > 2 for found in sweep):
        yield Figure(
            "epsilon",
            "Error by scale separation epsilon, on Gaussian targets, each seed",
            _epsilon_alt(*sweep),
            partial(_epsilon, *sweep),
            ("C10", "X4"),
        )
    if len((stages := results.where(part="stages")).distinct("stages")) > 2:
        yield Figure(
            "stages",
            "Forty Gaussians: distance by stages of the integrator, each seed",
            _stages_alt(stages),
            partial(_stages, stages),
            ("C9", "X5"),
        )
    if len((apart := results.where(part="apart")).distinct("distance")) > 2:
        yield Figure(
            "apart",
            "Three modes of weights 0.2, 0.5 and 0.3: error of the weights by their distance, mean "
            "and range over seeds",
            _apart_alt(apart),
            partial(_apart, apart),
            ("X8-apart", "X8-longer"),
        )
    if tails := results.where(part="tails"):
        yield Figure(
            "tails",
            "Ten Student-t: log-ratio of the 99.9 % quantile of the radius to the exact one",
            _tails_alt(tails),
            partial(_tails, tails),
            ("C7-normal", "C7-student"),
        )


_JUDGED = (
    "C1-smc", "C1-pt", "C1-rdmc", "C1-ulmc", "C1-cdiff", "C2-smc", "C2-pt", "C3-rings",
    "C3-funnel", "C4",
)  # fmt: skip


def by(found: Iterable[Result], name: str) -> dict[Any, Results]:
    """Results by the value of a parameter: names in the order of this module, numbers rising."""
    order = {"sampler": SAMPLERS, "target": TARGETS, "base": BASES}
    return grouped(found, name, order.get(name, ()))


def nested(found: Results, name: str, *more: str) -> Iterator[tuple[tuple[Any, ...], Results]]:
    """Results by the values of several parameters, with those values, ordered as by `by`."""
    for value, members in by(found, name).items():
        if not more:
            yield (value,), members
            continue
        for values, group in nested(members, *more):
            yield (value, *values), group


def hidden(sampler: Any, metric: str) -> bool:
    """Distances of NUTS: it has too few chains for the others' floor."""
    return bool(sampler == "nuts") and metric in ("w2", "sliced_w2", "sliced_ks")


def name_of(sampler: Any) -> str:
    """A sampler in words."""
    return SAMPLERS[str(sampler)][0]


# Particles


def _frames(result: Result) -> dict[float, Sequence[tuple[float, float]]]:
    """Positions by lambda."""
    found = {
        float(name.removeprefix("at/")): points
        for name, points in result.series.items()
        if name.startswith("at/")
    }
    return dict(sorted(found.items()))


def _particles_alt(result: Result) -> str:
    frames = _frames(result)
    return (
        f"{len(next(iter(frames.values())))} particles at lambda = "
        f"{', '.join(f'{lam:g}' for lam in frames)}: a cloud at the origin moves out and splits "
        "into eight."
    )


def _particles(result: Result) -> MatplotlibFigure:
    from matplotlib import pyplot

    frames = _frames(result)
    figure, axes = pyplot.subplots(
        1, len(frames), figsize=(1.9 * len(frames) + 0.4, 2.4), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for axis, (lam, points) in zip(axes[0], frames.items(), strict=True):
        axis.scatter(*zip(*points, strict=True), s=3, color="C0", alpha=0.6, linewidths=0)
        axis.scatter(
            *zip(*result.series["modes"], strict=True), marker="+", s=30, color="C1", linewidths=1
        )
        axis.set(title=f"λ = {lam:.2g}", aspect="equal")
        axis.grid(visible=False)
    return figure


# Distances


def _distances_alt(compared: Results) -> str:
    parts = []
    for target, members in by(compared, "target").items():
        metric = METRICS[str(target)]
        cells = [
            f"{name_of(sampler)} {fmean(found.metric(metric)):.3g}"
            for sampler, found in by(members, "sampler").items()
        ]
        parts.append(f"{TARGETS[str(target)]}: {', '.join(cells)}")
    return f"Mean distance to exact samples. {'; '.join(parts)}."


def _distances(compared: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    targets = by(compared, "target")
    samplers = list(by(compared, "sampler"))
    figure, axes = pyplot.subplots(
        1, len(targets), figsize=(1.9 * len(targets) + 1.6, 0.3 * len(samplers) + 1.3),
        layout="constrained", sharey=True, squeeze=False,
    )  # fmt: skip
    for axis, (target, members) in zip(axes[0], targets.items(), strict=True):
        metric = METRICS[str(target)]
        for row, sampler in enumerate(samplers):
            found = members.where(sampler=sampler).metric(metric)
            _, colour, line = SAMPLERS[str(sampler)]
            marker = "|" if sampler == "exact" else line[0]
            axis.plot(found, [row] * len(found), marker, color=colour, alpha=0.75)
        if floor := members.where(sampler="exact"):
            axis.axvline(fmean(floor.metric(metric)), color="0.5", linestyle="--", linewidth=1)
        axis.set(title=TARGETS[str(target)], xscale="log", xlabel=_METRIC_NAMES[metric])
        _few_ticks(axis, members.metric(metric))
    axes[0][0].set_yticks(range(len(samplers)), [name_of(s) for s in samplers])
    axes[0][0].invert_yaxis()
    return figure


_DRAWN = ("eight", "forty", "rings", "funnel", "wells")
_METRIC_NAMES = {"w2": "entropic W2", "sliced_ks": "sliced KS"}


def _few_ticks(axis: Axes, values: Sequence[float]) -> None:
    """Two or three round numbers on a logarithmic axis that spans little more than a decade."""
    low, high = min(values), max(values)
    steps = [digit * 10.0**power for power in range(-3, 4) for digit in (1, 1.5, 2, 3, 5, 7)]
    shown = [step for step in steps if low * 0.9 <= step <= high * 1.1]
    shown = shown[:: max(1, len(shown) // 3)]
    axis.set_xticks(shown, [f"{step:g}" for step in shown])
    axis.minorticks_off()


# Mode weights


def _shares(found: Sequence[Result]) -> list[list[float]]:
    """Share of the chains in each mode, a row for each seed."""
    return [[share for _, share in r.series["weights"]] for r in found]


def _weights_alt(eight: Sequence[Result]) -> str:
    parts = []
    for sampler, found in by(eight, "sampler").items():
        means = [fmean(column) for column in zip(*_shares(found), strict=True)]
        parts.append(f"{name_of(sampler)} {', '.join(f'{mean:.2f}' for mean in means)}")
    return f"Mean share of each mode, where 0.125 is right: {'; '.join(parts)}."


def _weights(eight: Sequence[Result]) -> MatplotlibFigure:
    import numpy as np
    from matplotlib import pyplot

    groups = by(eight, "sampler")
    columns = (len(groups) + 1) // 2
    figure, axes = pyplot.subplots(
        2, columns, figsize=(2.1 * columns + 0.6, 4.4), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (sampler, found) in zip(axes.flat, groups.items(), strict=False):
        shares = np.array(_shares(found))
        middle = shares.mean(0)
        spread = np.stack([middle - shares.min(0), shares.max(0) - middle])
        places = range(shares.shape[1])
        colour = SAMPLERS[str(sampler)][1]
        axis.bar(places, middle, color=colour, yerr=spread, error_kw={"linewidth": 1})
        axis.axhline(1 / shares.shape[1], color="0.5", linestyle="--", linewidth=1)
        axis.set_title(name_of(sampler), fontsize="medium")
        axis.set_xticks(places)
    figure.supxlabel("mode", fontsize="medium")
    figure.supylabel("share of the chains", fontsize="medium")
    return figure


# Marginals


def _marginals_alt(drawn: Mapping[str, Result]) -> str:
    return (
        f"Histograms of the samples under the exact density, one seed: {'; '.join(drawn)}. "
        "Distances are in the tables."
    )


def _marginals(drawn: Mapping[str, Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(drawn), figsize=(2.7 * len(drawn) + 0.4, 2.9), layout="constrained", squeeze=False
    )
    for axis, (title, result) in zip(axes[0], drawn.items(), strict=True):
        places, heights = zip(*result.series["sampled"], strict=True)
        axis.bar(places, heights, width=places[1] - places[0], color="C0", alpha=0.5, linewidth=0)
        axis.plot(*zip(*result.series["exact"], strict=True), color="C1", linewidth=1.5)
        axis.set_title(title.replace(", ", ",\n"), fontsize="medium")
    axes[0][0].set_ylabel("density")
    labels = ["MultALMC", "exact"]
    place: Any = "outside lower center"
    handles = [axes[0][0].patches[0], axes[0][0].lines[0]]
    figure.legend(handles, labels, loc=place, ncols=2)
    return figure


# Evaluations


def _curve(found: Sequence[Result]) -> tuple[list[float], list[float]]:
    """Evaluations, and the mean over seeds of the error at each."""
    steps = [step for step, _ in found[0].series["weight_tv"]]
    rows = [[value for _, value in r.series["weight_tv"]] for r in found]
    return steps, [fmean(column) for column in zip(*rows, strict=True)]


def _reach_alt(reach: Results) -> str:
    parts = []
    for sampler, found in by(reach, "sampler").items():
        steps, errors = _curve(found)
        parts.append(
            f"{name_of(sampler)} {errors[0]:.2f} after {steps[0]:g} and {errors[-1]:.2f} after "
            f"{steps[-1]:g}"
        )
    return f"Mean total variation of the mode weights: {'; '.join(parts)}."


def _reach(reach: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.8, 4.4), layout="constrained")
    for sampler, found in by(reach, "sampler").items():
        name, colour, line = SAMPLERS[str(sampler)]
        steps, errors = _curve(found)
        axis.plot(steps, errors, line, color=colour, label=name)
    floor = fmean(reach.metric("floor"))
    axis.axhline(REACHED, color="0.5", linestyle=":", linewidth=1, label="reached (C8)")
    axis.axhline(floor, color="0.5", linestyle="--", linewidth=1, label="exact samples")
    axis.set(
        xscale="log", yscale="log",
        xlabel="gradients and densities evaluated by each chain",
        ylabel="total variation of the mode weights",
    )  # fmt: skip
    axis.set_yticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    axis.minorticks_off()
    legend_below(figure, [axis], columns=3)
    return figure


# phi^4


def _field_alt(field: Results) -> str:
    parts = []
    for h, members in by(field, "h").items():
        cells = [
            f"{name_of(sampler)} {fmean(found.metric('upper')):.3f}"
            for sampler, found in by(members, "sampler").items()
        ]
        exact = members[0].metrics["upper_exact"]
        parts.append(f"h = {h:g}, exactly {exact:.3f}: {', '.join(cells)}")
    return f"Mean weight of the upper phase. {'; '.join(parts)}."


def _field(field: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.0, 3.8), layout="constrained")
    groups = by(field, "sampler")
    for i, (sampler, members) in enumerate(groups.items()):
        name, colour, line = SAMPLERS[str(sampler)]
        aside = 1e-4 * (i - (len(groups) - 1) / 2)
        for k, (h, found) in enumerate(by(members, "h").items()):
            upper = found.metric("upper")
            axis.plot(
                [h + aside] * len(upper), upper, line[0] if sampler != "exact" else "|",
                color=colour, alpha=0.7, label=name if k == 0 else None,
            )  # fmt: skip
    exact = {h: found[0].metrics["upper_exact"] for h, found in by(field, "h").items()}
    axis.plot(list(exact), list(exact.values()), color="0.5", linewidth=1, label="transfer matrix")
    axis.set(xlabel="external field h", ylabel="weight of the upper phase", ylim=(0, 1))
    legend_below(figure, [axis], columns=3)
    return figure


# Epsilon


def _means(found: Results, metric: str) -> dict[float, list[float]]:
    return {eps: members.metric(metric) for eps, members in by(found, "eps").items()}


def _epsilon_alt(averaging: Results, inflation: Results) -> str:
    parts = []
    for what, found, metric in (
        ("squared distance to the averaged process", averaging, "square_error"),
        ("relative excess of the variance", inflation, "variance_excess"),
    ):
        cells = [f"{fmean(v):.3g} at {eps:g}" for eps, v in _means(found, metric).items()]
        parts.append(f"{what}: {', '.join(cells)}")
    return f"Means over seeds by epsilon. {'; '.join(parts)}."


def _epsilon(averaging: Results, inflation: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8.6, 3.5), layout="constrained")
    panels = (
        (axes[0], averaging, "square_error", "mean squared distance\nto the averaged process"),
        (axes[1], inflation, "variance_excess", "excess of the variance, relative"),
    )
    for axis, found, metric, label in panels:
        groups = _means(found, metric)
        for eps, values in groups.items():
            axis.plot([eps] * len(values), values, ".", color="C0", alpha=0.5)
        axis.plot(list(groups), [fmean(v) for v in groups.values()], "o-", color="C0")
        axis.set(xlabel="epsilon", ylabel=label)
    axes[0].set(xscale="log", yscale="log")
    axes[0].set_yticks([0.005, 0.01, 0.02, 0.05], ["0.005", "0.01", "0.02", "0.05"])
    ticks = list(_means(averaging, "square_error"))
    axes[0].set_xticks(ticks, [f"{eps:g}" for eps in ticks])
    axes[0].minorticks_off()
    axes[1].axhline(0, color="0.5", linestyle="--", linewidth=1)
    return figure


# Stages


def _stages_alt(stages: Results) -> str:
    parts = []
    for fixed in ("steps", "evaluations"):
        found = stages.where(fixed=fixed)
        cells = [f"{fmean(m.metric('w2')):.3g} for {s}" for s, m in by(found, "stages").items()]
        parts.append(f"equal {fixed}: {', '.join(cells)}")
    return f"Mean entropic W2 by stages. {'; '.join(parts)}."


def _stages(stages: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8.0, 3.4), layout="constrained", sharey=True)
    for axis, fixed in zip(axes, ("steps", "evaluations"), strict=True):
        groups = by(stages.where(fixed=fixed), "stages")
        for s, members in groups.items():
            found = members.metric("w2")
            axis.plot([s] * len(found), found, ".", color="C0", alpha=0.5)
        axis.plot(list(groups), [fmean(m.metric("w2")) for m in groups.values()], "o-", color="C0")
        axis.set(title=f"equal {fixed}", xlabel="stages")
        axis.set_xticks(list(groups))
    axes[0].set_ylabel("entropic W2")
    return figure


# Distance of modes


def _arms_apart(apart: Results) -> Mapping[str, Results]:
    arms = {}
    for (sampler, times), found in nested(apart, "sampler", "times"):
        longer = f", {times} times as long" if times > 1 else ""
        arms[f"{name_of(sampler)}{longer}"] = found
    return arms


def _apart_alt(apart: Results) -> str:
    parts = []
    for name, found in _arms_apart(apart).items():
        cells = [
            f"{fmean(members.metric('weight_tv')):.2f} at {distance:g}"
            for distance, members in by(found, "distance").items()
        ]
        parts.append(f"{name} {', '.join(cells)}")
    return f"Mean total variation of the weights by distance. {'; '.join(parts)}."


def _apart(apart: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.8, 4.2), layout="constrained")
    for name, found in _arms_apart(apart).items():
        _, colour, line = SAMPLERS[str(found[0].params["sampler"])]
        line = line if found[0].params["times"] == 1 else "o:"
        groups = {d: members.metric("weight_tv") for d, members in by(found, "distance").items()}
        means = [fmean(values) for values in groups.values()]
        axis.plot(list(groups), means, line, color=colour, label=name)
        low, high = zip(*((min(v), max(v)) for v in groups.values()), strict=True)
        axis.fill_between(list(groups), low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set(
        xlabel="distance of the modes, standard deviations",
        ylabel="total variation of the mode weights",
        ylim=(0, None),
    )
    legend_below(figure, [axis], columns=2)
    return figure


# Tails


def _tails_alt(tails: Results) -> str:
    parts = []
    for dim, members in by(tails, "dim").items():
        cells = [
            f"{BASES[str(base)][0]} {fmean(found.metric('radius_log_ratio')):.2f}"
            for base, found in by(members, "base").items()
        ]
        parts.append(f"d = {dim}: {', '.join(cells)}")
    return f"Mean log-ratio by base. {'; '.join(parts)}."


def _tails(tails: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    dims = by(tails, "dim")
    figure, axes = pyplot.subplots(
        1, len(dims), figsize=(3.6 * len(dims) + 1.4, 2.6), layout="constrained",
        sharey=True, squeeze=False,
    )  # fmt: skip
    names = list(by(tails, "base"))
    for axis, (dim, members) in zip(axes[0], dims.items(), strict=True):
        for row, base in enumerate(names):
            values = members.where(base=base).metric("radius_log_ratio")
            axis.plot(values, [row] * len(values), "o", color=BASES[base][1], alpha=0.7)
        axis.axvline(0, color="0.5", linestyle="--", linewidth=1)
        axis.set(title=f"d = {dim}", xlabel="log-ratio of the quantile")
    axes[0][0].set_yticks(range(len(names)), [BASES[base][0] for base in names])
    axes[0][0].invert_yaxis()
    return figure
