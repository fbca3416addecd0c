"""The figures of the study."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import TYPE_CHECKING

from assay.study import Figure, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_NAMES = {
    "claude-3-7-sonnet-20250219": "Claude 3.7 Sonnet",
    "deepseek-chat": "DeepSeek V3",
    "deepseek-reasoner": "DeepSeek R1",
    "gemini-2.0-flash": "Gemini 2.0 Flash",
    "gemma3-27b": "Gemma 3 27B",
    "gpt-4o-mini": "GPT-4o mini",
    "mistral-small3.1": "Mistral Small 3.1",
    "qwen3-32b": "Qwen3 32B",
    "qwq": "QwQ",
}


def figures(results: Results) -> Iterable[Figure]:
    """Those for which there are results."""
    for make in (_leaderboard, _heat_map, _thresholds, _damage):
        if figure := make(results):
            yield figure


def _name(model: object) -> str:
    return _NAMES.get(str(model), str(model))


def _leaderboard(results: Results) -> Figure | None:
    found = sorted(
        results.where(part="model", metric="official"), key=lambda r: r.metrics["state_f1"]
    )
    if not found:
        return None
    strict = {r.params["model"]: r for r in results.where(part="model", metric="strict")}
    best, worst = found[-1], found[0]

    def draw() -> MatplotlibFigure:
        from matplotlib import pyplot as plt

        figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
        for index, r in enumerate(found):
            other = strict.get(r.params["model"])
            for offset, kind, colour in ((0.2, "state", "C0"), (-0.2, "transition", "C1")):
                value = right = r.metrics[f"{kind}_f1"]
                y = index + offset
                axes.barh(y, value, 0.36, color=colour, label=f"{kind}s" if not index else None)
                if other:
                    repaired = other.metrics[f"{kind}_f1"]
                    right = max(right, repaired)
                    label = "strict metric" if not index and kind == "state" else None
                    axes.plot(repaired, y, "D", color="C2", markersize=4, label=label)
                axes.text(right + 0.015, y, f"{value:.3f}", va="center", fontsize=8)
        axes.set_yticks(range(len(found)), [_name(r.params["model"]) for r in found])
        axes.set_xlabel("F1, counts added over 14 protocols")
        axes.set_xlim(0, 1)
        axes.axvline(0.82, linestyle=":", color="C0", linewidth=1)
        axes.axvline(0.38, linestyle=":", color="C1", linewidth=1)
        top = len(found) - 0.1
        axes.set_ylim(-0.6, len(found) + 0.3)
        for value in (0.82, 0.38):
            axes.text(
                value,
                top,
                f"paper: {value}",
                fontsize=8,
                ha="center",
                va="center",
                backgroundcolor=axes.get_facecolor(),
            )
        axes.legend(loc="lower right")
        return figure

    return Figure(
        "leaderboard",
        "States are found, transitions much less so",
        f"F1 of {len(found)} models on states and transitions. Best on states: "
        f"{_name(best.params['model'])} with {best.metrics['state_f1']:.3f} against "
        f"{best.metrics['transition_f1']:.3f} on transitions; last: "
        f"{_name(worst.params['model'])} with {worst.metrics['state_f1']:.3f} and "
        f"{worst.metrics['transition_f1']:.3f}.",
        draw,
        ("C2-micro", "C3-micro", "C4-micro"),
    )


def _heat_map(results: Results) -> Figure | None:
    cells = {
        (r.params["protocol"], r.params["model"]): r.metrics
        for r in results.where(part="cell", metric="official")
    }
    if not cells:
        return None

    def mean(axis: int, value: object, kind: str = "state_f1") -> float:
        return fmean(m[kind] for key, m in cells.items() if key[axis] == value)

    protocols = sorted({p for p, _ in cells}, key=lambda p: -mean(0, p))
    models = sorted({m for _, m in cells}, key=lambda m: -mean(1, m))

    def draw() -> MatplotlibFigure:
        from matplotlib import pyplot as plt

        figure, panels = plt.subplots(1, 2, figsize=(9, 5.4), layout="constrained", sharey=True)
        for axes, kind in zip(panels, ("state", "transition"), strict=True):
            grid = [
                [cells[p, m][f"{kind}_f1"] if (p, m) in cells else float("nan") for m in models]
                for p in protocols
            ]
            image = axes.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
            for i, row in enumerate(grid):
                for j, value in enumerate(row):
                    axes.text(
                        j,
                        i,
                        f"{value:.2f}".removeprefix("0"),
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="black" if value > 0.6 else "white",
                    )
            axes.set_title(f"{kind}s")
            axes.set_xticks(
                range(len(models)), [_name(m) for m in models], rotation=60, ha="right", fontsize=8
            )
            axes.set_yticks(range(len(protocols)), [str(p) for p in protocols])
            axes.tick_params(length=0)
            axes.grid(visible=False)
        figure.colorbar(image, ax=panels, label="F1", shrink=0.7)
        return figure

    best, worst = protocols[0], protocols[-1]
    return Figure(
        "heat-map",
        "F1 by protocol and model, official metric",
        f"F1 of {len(models)} models on {len(protocols)} protocols. Mean F1 on states runs from "
        f"{mean(0, best):.2f} ({best}) to {mean(0, worst):.2f} ({worst}), on transitions the same "
        f"two have {mean(0, best, 'transition_f1'):.2f} and "
        f"{mean(0, worst, 'transition_f1'):.2f}.",
        draw,
        ("C4-macro",),
    )


def _thresholds(results: Results) -> Figure | None:
    curves = {
        (metric, r.params["model"]): dict(r.series["state_f1"])
        for metric in ("official", "strict")
        for r in results.where(part="model", metric=metric)
        if "state_f1" in r.series
    }
    models = [m for metric, m in curves if metric == "official" and ("strict", m) in curves]
    if not models:
        return None
    models.sort(key=lambda m: -curves["official", m].get(0.5, 0.0))
    thresholds = sorted(curves["official", models[0]])

    def leader(threshold: float) -> str:
        return _name(max(models, key=lambda m: curves["official", m][threshold]))

    def draw() -> MatplotlibFigure:
        from matplotlib import pyplot as plt

        figure, panels = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained", sharex=True)
        for column, metric in enumerate(("official", "strict")):
            for index, model in enumerate(models):
                style = "-" if index < 5 else "--"
                values = [curves[metric, model][t] for t in thresholds]
                ranks = [
                    1 + sum(curves[metric, m][t] > curves[metric, model][t] for m in models)
                    for t in thresholds
                ]
                colour = f"C{index % 5}"
                panels[0, column].plot(thresholds, values, style, color=colour, label=_name(model))
                panels[1, column].plot(
                    thresholds, ranks, style, color=colour, marker="o", markersize=3
                )
            panels[0, column].set_title(f"{metric} metric")
            panels[1, column].invert_yaxis()
            panels[1, column].set_xlabel("cosine threshold")
        panels[0, 0].set_ylabel("F1 on states")
        panels[1, 0].set_ylabel("rank")
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8
        )
        return figure

    low, high = thresholds[0], thresholds[-1]
    first = models[0]
    return Figure(
        "thresholds",
        "F1 on states and the models' ranks by threshold",
        f"F1 on states over cosine thresholds {low} to {high}. {_name(first)} falls from "
        f"{curves['official', first][low]:.2f} to {curves['official', first][high]:.2f} under the "
        f"official metric; the leader is {leader(low)} at {low} and {leader(high)} at {high}.",
        draw,
        ("C2-micro", "C6-states", "C6-transitions"),
    )


def _damage(results: Results) -> Figure | None:
    found = results.where(part="damage")
    operations = [str(o) for o in found.distinct("operation")]
    if not operations:
        return None
    kind = {"delete": "transition_f1", "shuffle": "transition_f1", "rename": "state_f1"}
    titles = {
        "delete": "transitions deleted",
        "shuffle": "targets exchanged",
        "rename": "states renamed",
    }

    def curve(operation: str, prefix: str) -> dict[float, float]:
        chosen = found.where(operation=operation)
        return {
            float(level): fmean(chosen.where(level=level).metric(prefix + kind[operation]))
            for level in chosen.distinct("level")
        }

    def draw() -> MatplotlibFigure:
        from matplotlib import pyplot as plt

        count = len(operations)
        figure, panels = plt.subplots(
            1, count, figsize=(3.1 * count, 3.3), layout="constrained", sharey=True, squeeze=False
        )
        metrics = (("", "official"), ("strict_", "strict"), ("exact_", "exact names"))
        for axes, operation in zip(panels[0], operations, strict=True):
            for (prefix, label), style in zip(metrics, ("-", "--", ":"), strict=True):
                values = curve(operation, prefix)
                axes.plot(list(values), list(values.values()), style, label=label)
            axes.set_title(titles[operation])
            axes.set_xlabel("share")
        panels[0, 0].set_ylabel("F1 (states for renaming)")
        panels[0, 0].legend()
        return figure

    parts = []
    for operation in operations:
        values = curve(operation, "")
        middle = min(values, key=lambda level: abs(level - 0.5))
        parts.append(f"{titles[operation]}: {values[middle]:.2f} at {middle}")
    return Figure(
        "damage",
        "How the score falls as a true machine is damaged",
        f"Mean F1 of the official metric over share damaged; {'; '.join(parts)}.",
        draw,
        tuple(f"C5-{operation}" for operation in operations),
    )
