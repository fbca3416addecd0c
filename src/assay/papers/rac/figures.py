"""The figures of the study, drawn from its results alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from assay.papers.rac.claims import JUDGED_PUNISHMENT, MATRIX_BETA
from assay.papers.rac.tuning import CHOSEN
from assay.study import Figure, Result, Results, grouped
from assay.toolkits.drawing import legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

LEARNERS: Mapping[str, tuple[str, str, str]] = {
    "rac": ("RAC", "C0", "-"),
    "rac-fine": ("RAC, m = 20", "C0", ":"),
    "iql": ("IQL", "C1", "-"),
    "hysteretic": ("hysteretic, tuned", "C2", "--"),
    "lenient": ("lenient, tuned", "C3", "-."),
    "distributed": ("distributed Q", "C4", ":"),
    "i2q": ("I2Q", "C5", "-"),
    "vdn": ("VDN (centralized)", "C3", "-."),
    "qmix": ("QMIX (centralized)", "C4", ":"),
    "rac-marginal": ("RAC acting on phi", "C2", "-."),
    "rac-support": ("RAC, seen contexts only", "C3", ":"),
}
"""Name, colour and line of each learner in every figure."""

GAMES: Mapping[str, str] = {
    "matrix": "matrix game",
    "climbing": "climbing",
    "penalty-10": "penalty\nk = -10",
    "penalty-50": "penalty\nk = -50",
    "two-stage": "two\nstages",
    "climbing-partial": "climbing,\n7 by luck",
    "climbing-full": "climbing,\nall by luck",
}

_CONTEXTS = ("R < 0", "0 to 6", "6 to 8", "8 and up")


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale; those without data are left out."""
    if tabular := results.where(part="tabular"):
        yield Figure(
            "optimal-rates",
            "Share of runs that end on an optimal joint action, learners with tables",
            _rates_alt(tabular),
            partial(_rates, tabular),
            ("C3-i2q", "X1-fine", "X1-hysteretic", "X2"),
        )
    if matrix := results.where(part="matrix"):
        yield Figure(
            "matrix-curves",
            "Matrix game with networks: greedy return, median and quartiles",
            _finals_alt("Median return at the end", _judged_matrix(matrix)),
            partial(_matrix_curves, matrix),
            ("C1-rac", "C1-iql", "C3-hysteretic", "C7-vdn", "C7-qmix"),
        )
    judged = results.where(part="matrix", learner="rac", value=MATRIX_BETA)
    if values := [r for r in judged if _has_values(r)]:
        yield Figure(
            "contextual-values",
            "Matrix game: Q_C of the first agent in each context beside phi, mean over runs",
            _values_alt(values),
            partial(_values, values),
            ("C2",),
        )
    pursuit = results.where(part="pursuit")
    if len(pursuit.distinct("punishment")) > 1:
        yield Figure(
            "punishment",
            "Predator-prey with tables: share of greedy hunts that end in a catch, by punishment",
            _punishment_alt(pursuit),
            partial(_punishment, pursuit),
            ("C4-iql", "C4-hysteretic"),
        )
    panels = {
        "tables, punishment -10": pursuit.where(punishment=JUDGED_PUNISHMENT),
        "networks, 8 and 8, punishment -2": results.where(part="large-pursuit"),
    }
    panels = {name: found for name, found in panels.items() if found}
    if panels:
        yield Figure(
            "pursuit-curves",
            "Predator-prey: return in the course of training, median and quartiles",
            " ".join(
                _finals_alt(f"With {name}, median return at the end", found)
                for name, found in panels.items()
            ),
            partial(_curves, panels, "episode", "return"),
            ("C4-iql", "C4-hysteretic"),
        )
    sweep = {
        "m, predator-prey with tables": _means(results.where(part="bins"), "mean_return"),
        "beta, matrix game": _means(results.where(part="matrix", learner="rac"), "final_return"),
    }
    if all(len(rows) > 1 for rows in sweep.values()):
        yield Figure(
            "sweep",
            "Return of RAC by the number of contexts m, averaged over training, and by beta, at "
            "the end",
            _sweep_alt(sweep),
            partial(_sweep, sweep),
            ("C6-bins", "C6-beta"),
        )
    if foraging := results.where(part="foraging"):
        yield Figure(
            "foraging-curves",
            "Level-based foraging with a penalty: greedy return, median and quartiles",
            _finals_alt("Median return at the end", foraging),
            partial(_curves, {"": foraging}, "episode", "greedy return"),
            ("C5-foraging",),
        )
    times = [r for r in results.where(part="cost") if was_quiet(r)]
    if len({r.params["bins"] for r in times}) > 1:
        yield Figure(
            "cost",
            "Time of an update of RAC over one of IQL, by number of contexts",
            _cost_alt(times),
            partial(_cost, times),
            ("C8-growth", "C8-ratio"),
        )


def was_quiet(result: Result) -> bool:
    """False where the machine was too busy to time anything."""
    return math.isfinite(result.metrics["ratio"])


def name_of(learner: Any) -> str:
    """A learner in words."""
    return LEARNERS[str(learner)][0]


def by(found: Iterable[Result], name: str) -> dict[Any, Results]:
    """Results by the value of a parameter: learners in the order of `LEARNERS`, games in that of
    the tuning, punishments from mild to harsh, other values rising."""
    groups = grouped(found, name, {"learner": LEARNERS, "where": CHOSEN}.get(name, ()))
    return dict(reversed(groups.items())) if name == "punishment" else groups


# Optimal joint actions


def rate(tabular: Results, game: str, learner: Any) -> float | None:
    """Share of runs on an optimal joint action, None where there are none."""
    found = tabular.where(game=game, learner=learner).metric("optimal_rate")
    return fmean(found) if found else None


def _rates_alt(tabular: Results) -> str:
    rows = []
    for learner in by(tabular, "learner"):
        cells = [
            f"{name.replace(chr(10), ' ')} {value:.2f}"
            for game, name in GAMES.items()
            if (value := rate(tabular, game, learner)) is not None
        ]
        rows.append(f"{name_of(learner)}: {', '.join(cells)}")
    return f"Share of optimal runs. {'; '.join(rows)}."


def _rates(tabular: Results) -> MatplotlibFigure:
    import numpy as np
    from matplotlib import pyplot

    learners = list(by(tabular, "learner"))
    games = [game for game in GAMES if tabular.where(game=game)]
    cells = np.array(
        [[rate(tabular, game, learner) for game in games] for learner in learners], dtype=float
    )
    figure, axis = pyplot.subplots(figsize=(8.4, 0.5 * len(learners) + 1.6), layout="constrained")
    axis.imshow(cells, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for row, column in np.ndindex(cells.shape):
        value = cells[row, column]
        axis.text(
            column, row, f"{value:.2f}", ha="center", va="center",
            color="black" if value > 0.5 else "white",
        )  # fmt: skip
    axis.set_xticks(range(len(games)), [GAMES[game] for game in games], fontsize="small")
    axis.set_yticks(range(len(learners)), [name_of(learner) for learner in learners])
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return figure


# Curves


def _finals_alt(what: str, found: Iterable[Result]) -> str:
    parts = [
        f"{name_of(learner)} {median(members.metric('final_return')):.2f}"
        for learner, members in by(found, "learner").items()
    ]
    return f"{what}: {', '.join(parts)}."


def _quartiles(members: Sequence[Result], series: str) -> tuple[list[float], Any]:
    """Steps, and the quartiles ``(3, steps)`` over the runs at each."""
    import numpy as np

    steps = [step for step, _ in members[0].series[series]]
    rows = [[value for _, value in r.series[series]] for r in members]
    return steps, np.percentile(np.array(rows), (25, 50, 75), axis=0)


def _draw_curves(axis: Axes, found: Iterable[Result], series: str) -> None:
    # Later lines are thinner, so that those below them can be seen where they agree.
    widths = (3.4, 2.7, 2.1, 1.6, 1.2, 0.9)
    for width, (learner, members) in zip(widths, by(found, "learner").items(), strict=False):
        name, colour, line = LEARNERS[str(learner)]
        steps, (low, middle, high) = _quartiles(members, series)
        axis.plot(steps, middle, line, color=colour, label=name, linewidth=width)
        axis.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


def _curves(panels: Mapping[str, Results], x: str, y: str) -> MatplotlibFigure:
    from matplotlib import pyplot

    width = 4.6 * len(panels) + 0.6 if len(panels) > 1 else 7.0
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(width, 3.9), layout="constrained", squeeze=False, sharey=True
    )
    for axis, (title, found) in zip(axes[0], panels.items(), strict=True):
        _draw_curves(axis, found, "return")
        axis.set(title=title, xlabel=x)
    axes[0][0].set_ylabel(y)
    legend_below(figure, axes[0])
    return figure


def _judged_matrix(matrix: Results) -> list[Result]:
    """All but RAC with another beta than the paper's."""
    value = MATRIX_BETA
    return [r for r in matrix if r.params["learner"] != "rac" or r.params["value"] == value]


def _matrix_curves(matrix: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.4, 3.9), layout="constrained", sharey=True)
    ours = matrix.where(learner="rac", value=MATRIX_BETA)
    variants = [r for r in matrix if str(r.params["learner"]).startswith("rac-")]
    others = [r for r in matrix if not str(r.params["learner"]).startswith("rac")]
    _draw_curves(axes[0], [*ours, *others], "return")
    _draw_curves(axes[1], [*ours, *variants], "return")
    if weak := matrix.where(learner="rac", value=1.0):
        steps, (_, middle, _) = _quartiles(weak, "return")
        axes[1].plot(steps, middle, "--", color="C1", label="RAC, beta = 1")
    axes[0].set(xlabel="episode", ylabel="return of greedy actions", title="learners")
    axes[1].set(xlabel="episode", title="variants of RAC")
    for axis in axes:
        axis.axhline(8, linewidth=1, linestyle=":", color="0.5")
        axis.legend(fontsize="small", loc="lower right")
    return figure


# Values


def _has_values(result: Result) -> bool:
    return "phi" in result.series


def mean_values(found: Sequence[Result], name: str) -> list[list[float]]:
    """A table of the first agent ``(contexts, actions)``, averaged over runs.

    Args:
        found: Results of "rac" in the matrix game.
        name: "q_c" or "possible".
    """
    contexts = sum(series.startswith(f"{name}/") for series in found[0].series)
    return [_mean_row(found, f"{name}/{kappa}") for kappa in range(contexts)]


def _mean_row(found: Sequence[Result], series: str) -> list[float]:
    rows = [[value for _, value in r.series[series]] for r in found]
    return [fmean(column) for column in zip(*rows, strict=True)]


def _values_alt(found: Sequence[Result]) -> str:
    rows = "; ".join(
        f"{context}: {', '.join(f'{value:.2f}' for value in row)}"
        for context, row in zip(_CONTEXTS, mean_values(found, "q_c"), strict=True)
    )
    phi = ", ".join(f"{value:.2f}" for value in _mean_row(found, "phi"))
    return f"Values of the three actions by context of the return. {rows}; phi: {phi}."


def _values(found: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    from assay.papers.rac.drawing import draw_contextual_values

    figure = pyplot.figure(figsize=(7.0, 3.2), layout="constrained")
    possible = [[share > 0.5 for share in row] for row in mean_values(found, "possible")]
    draw_contextual_values(
        figure,
        mean_values(found, "q_c"),
        _mean_row(found, "phi"),
        contexts=_CONTEXTS,
        actions=("0 (best)", "1", "2"),
        seen=possible,
    )
    return figure


# Predator-prey


def _punishment_alt(pursuit: Results) -> str:
    parts = []
    for learner, members in by(pursuit, "learner").items():
        cells = [
            f"{fmean(group.metric('capture_rate')):.2f} at {punishment:g}"
            for punishment, group in by(members, "punishment").items()
        ]
        parts.append(f"{name_of(learner)} {', '.join(cells)}")
    return f"Mean share of hunts that end in a catch: {'; '.join(parts)}."


def _punishment(pursuit: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.6, 3.9), layout="constrained")
    punishments = list(by(pursuit, "punishment"))
    learners = by(pursuit, "learner")
    for i, (learner, members) in enumerate(learners.items()):
        name, colour, line = LEARNERS[str(learner)]
        # Learners that all succeed would hide one another: each stands a little aside.
        aside = 0.07 * (i - (len(learners) - 1) / 2)
        groups = {
            punishments.index(punishment) + aside: group.metric("capture_rate")
            for punishment, group in by(members, "punishment").items()
        }
        means = [fmean(rates) for rates in groups.values()]
        axis.plot(list(groups), means, line, color=colour, label=name, linewidth=1.2)
        for x, rates in groups.items():
            axis.plot([x] * len(rates), rates, ".", color=colour, alpha=0.5)
    axis.set_xticks(range(len(punishments)), [f"{p:g}" for p in punishments])
    axis.set(xlabel="reward of a lone attempt", ylabel="share of hunts that end in a catch")
    legend_below(figure, [axis])
    return figure


def _means(found: Results, metric: str) -> dict[float, list[float]]:
    """A metric by RAC's constant, in its order."""
    groups = by(found, "value")
    return {float(value): members.metric(metric) for value, members in groups.items()}


def _sweep_alt(sweep: Mapping[str, dict[float, list[float]]]) -> str:
    parts = []
    for name, rows in sweep.items():
        cells = [f"{fmean(row):.2f} at {x:g}" for x, row in rows.items()]
        parts.append(f"by {name}: {', '.join(cells)}")
    return f"Mean return {'; '.join(parts)}."


def _sweep(sweep: Mapping[str, dict[float, list[float]]]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    for axis, (label, rows) in zip(axes, sweep.items(), strict=True):
        for at, row in enumerate(rows.values()):
            axis.plot([at] * len(row), row, ".", color="C0", alpha=0.4)
        axis.plot(range(len(rows)), [fmean(row) for row in rows.values()], "o-", color="C0")
        axis.set_xticks(range(len(rows)), [f"{x:g}" for x in rows])
        axis.set(xlabel=label)
    axes[0].set_ylabel("return, mean over training")
    axes[1].set_ylabel("return at the end")
    return figure


# Time


def ratios(times: Iterable[Result], metric: str = "ratio") -> dict[int, list[float]]:
    """Time of an update over IQL's, by number of contexts."""
    return {int(bins): members.metric(metric) for bins, members in by(times, "bins").items()}


def _cost_alt(times: Sequence[Result]) -> str:
    cells = [f"{median(values):.2f} for m = {m}" for m, values in ratios(times).items()]
    return f"Time of a RAC update over IQL's: {', '.join(cells)}."


def _cost(times: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.4, 3.9), layout="constrained")
    arms = (
        ("ratio", "C0", "o-", "RAC, all contexts in one pass"),
        ("passes_ratio", "C1", "s--", "RAC, a pass for each context"),
    )
    for metric, colour, line, name in arms:
        found = ratios(times, metric)
        for m, values in found.items():
            axis.plot([m] * len(values), values, ".", color=colour, alpha=0.5)
        middle = [median(values) for values in found.values()]
        axis.plot(list(found), middle, line, color=colour, label=name)
    axis.axhline(2, linestyle=":", color="0.5", label="two updates of IQL")
    axis.set(xscale="log", yscale="log", xlabel="contexts m", ylabel="time over IQL's")
    axis.set_xticks(list(found), [str(m) for m in found])
    axis.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    axis.minorticks_off()
    legend_below(figure, [axis])
    return figure
