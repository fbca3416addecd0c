"""The figures of the study, drawn from its results alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from assay.papers.treesplat.claims import PAR
from assay.papers.treesplat.tuning import BASIS, setting
from assay.study import Figure, Result, Results, grouped
from assay.toolkits.drawing import legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

ARMS: Mapping[str, tuple[str, str, str]] = {
    "none": ("static", "0.5", ":"),
    "flat": ("flat basis", "C1", "--"),
    "tree": ("motion tree", "C0", "-"),
    "polynomial": ("polynomial", "C3", "-."),
    "mlp": ("MLP", "C2", "-"),
}
"""Name, colour and line of each arm in every figure."""

SCENES: Mapping[str, str] = {
    "fox-run": "running fox",
    "engine": "two-cylinder engine",
    "jumper": "jumping body",
    "pendulum": "pendulum of four links",
}

ROWS = ("ground truth", "flat basis", "motion tree", "merged")
STRIP_TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The rows of a strip from top to bottom, and its columns."""

MOVERS: Mapping[str, tuple[str, str]] = {
    "merged": ("merged", "C0"),
    "tree": ("before merging", "C1"),
    "mlp": ("MLP, 8 x 256", "C2"),
}
"""What moves the Gaussians in the timings: name and colour."""


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale; those without data are left out."""
    compared = results.where(part="compare")
    many = compared.where(views="many")
    for result in many:
        if "strip.png" in result.files:
            scene = str(result.params["scene"])
            yield Figure(
                f"strip-{file_word(scene)}",
                f"{name_of_scene(scene)}: five times from one side, seen in no training view",
                _strip_alt(result),
                partial(_strip, result),
                ("C1-motion", "C1-par", "C1-better", "C4-pixels"),
            )
    curves = {scene: found for scene, found in by(many, "scene").items() if _has_curves(found)}
    if curves:
        yield Figure(
            "psnr-curves",
            "PSNR on validation views in the course of training, mean over seeds",
            _curves_alt(curves),
            partial(_curves, curves, by(results.where(part="mlp"), "scene")),
            ("C1-motion", "C1-par", "C1-better", "C1-polynomial", "C1-mlp"),
        )
    if gaps := [r for r in compared if "gap" in r.metrics]:
        yield Figure(
            "gaps",
            "PSNR on test views of the motion tree less that of the flat basis, seed by seed",
            _gaps_alt(gaps),
            partial(_gaps, gaps),
            ("C1-par", "C1-better", "C1-rigid", "C1-few", "C1-few-better"),
        )
    depths = results.where(part="depth")
    if len(depths.distinct("depth")) > 1:
        yield Figure(
            "depths",
            "PSNR on test views by the largest depth of the tree",
            _depths_alt(depths),
            partial(_depths, depths),
            ("C5-pendulum", "C5-fox", "C6-quality"),
        )
    shaped = _deepest(depths)
    if shaped:
        yield Figure(
            "tree-shape",
            "Where the leaves of the deepest trees hang, and how much motion each level carries",
            _shape_alt(shaped),
            partial(_shape, shaped),
            ("C5-pendulum", "C5-fox"),
        )
    if traced := [r for r in shaped if any(name.startswith("path/") for name in r.series)]:
        yield Figure(
            "trajectories",
            "Paths of the Gaussians of the largest trees of the forest, coloured by their root",
            _paths_alt(traced),
            partial(_paths, traced),
            ("X3",),
        )
    if times := [r for r in results.where(part="motion-time") if was_quiet(r, "merged_s")]:
        yield Figure(
            "motion-times",
            "Time to move all Gaussians to an instant",
            _times_alt(times),
            partial(_times, times),
            ("C3-unmerged", "C3-mlp"),
        )
    if tuned := results.where(part="tuning"):
        yield Figure(
            "tuning",
            "Search for each arm's rate: PSNR on validation views, one seed apart",
            _tuning_alt(tuned),
            partial(_tuning, tuned),
            ("C1-par", "C1-better", "C1-mlp", "C1-polynomial"),
        )


def was_quiet(result: Result, metric: str) -> bool:
    """False where the machine was too busy to time anything."""
    return math.isfinite(result.metrics.get(metric, math.nan))


def name_of_scene(scene: Any) -> str:
    """A scene in words."""
    return SCENES.get(str(scene), str(scene))


def file_word(scene: str) -> str:
    """A scene as part of a file's name."""
    return scene.replace("/", "-")


def by(found: Iterable[Result], name: str) -> dict[Any, Results]:
    """Results by the value of a parameter: arms and scenes in the order of `ARMS` and `SCENES`,
    other values rising."""
    return grouped(found, name, {"arm": ARMS, "scene": SCENES}.get(name, ()))


def arms_of(result: Result) -> list[str]:
    """The arms that a comparison trained."""
    return str(result.params["arms"]).split()


# Strips

_TALLEST = 6.5  # inches


def _strip_alt(result: Result) -> str:
    cells = [
        f"{ARMS[arm][0]} {result.metrics[f'psnr_{arm}']:.1f}"
        for arm in arms_of(result)
        if arm in ("none", "flat", "tree")
    ]
    return (
        f"Rows: {', '.join(ROWS)}; columns: time from 0 to 1. PSNR on all test views in dB: "
        f"{', '.join(cells)}."
    )


def _strip(result: Result) -> MatplotlibFigure:
    import numpy as np
    from matplotlib import pyplot
    from PIL import Image

    with Image.open(result.files["strip.png"]) as image:
        picture = np.asarray(image.convert("RGB"))
    high, wide = picture.shape[0] // len(ROWS), picture.shape[1] // len(STRIP_TIMES)
    tallness = picture.shape[0] / picture.shape[1]
    width = min(7.5, _TALLEST / tallness)
    height = width * tallness
    figure, axis = pyplot.subplots(figsize=(width + 0.9, height + 0.3), layout="constrained")
    axis.imshow(picture, interpolation="lanczos")
    axis.set_yticks([high * (row + 0.5) for row in range(len(ROWS))], ROWS)
    axis.set_xticks(
        [wide * (i + 0.5) for i in range(len(STRIP_TIMES))], [f"t = {t:g}" for t in STRIP_TIMES]
    )
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    return figure


# Curves


def _has_curves(found: Iterable[Result]) -> bool:
    return any(name.startswith("psnr/") for r in found for name in r.series)


def _curve(found: Sequence[Result], arm: str) -> tuple[list[float], list[list[float]]]:
    """Steps, and a row of values for each seed."""
    rows = [r.series[f"psnr/{arm}"] for r in found if f"psnr/{arm}" in r.series]
    return [step for step, _ in rows[0]], [[value for _, value in row] for row in rows]


def _curves_alt(curves: Mapping[Any, Results]) -> str:
    parts = []
    for scene, found in curves.items():
        cells = []
        for arm in arms_of(found[0]):
            _, rows = _curve(found, arm)
            cells.append(f"{ARMS[arm][0]} {fmean(row[-1] for row in rows):.2f}")
        parts.append(f"{name_of_scene(scene)}: {', '.join(cells)}")
    return f"Mean PSNR at the end. {'; '.join(parts)}."


def _curves(curves: Mapping[Any, Results], mlp: Mapping[Any, Results]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(curves), figsize=(3.4 * len(curves) + 0.8, 3.6), layout="constrained", squeeze=False
    )
    for axis, (scene, found) in zip(axes[0], curves.items(), strict=True):
        arms = [(arm, found) for arm in arms_of(found[0])]
        if "mlp" not in arms_of(found[0]) and _has_curves(mlp.get(scene, [])):
            arms.append(("mlp", mlp[scene]))
        for arm, members in arms:
            steps, rows = _curve(members, arm)
            name, colour, line = ARMS[arm]
            means = [fmean(column) for column in zip(*rows, strict=True)]
            axis.plot(steps, means, line, color=colour, label=name)
        axis.set(title=name_of_scene(scene), xlabel="step")
    axes[0][0].set_ylabel("PSNR on validation views, dB")
    legend_below(figure, axes[0], in_a_row=5)
    return figure


# The tree against the flat basis


_VIEWS = {"many": ("all views", "o", "C0"), "few": ("a quarter of the views", "D", "C4")}


def _gaps_alt(gaps: Sequence[Result]) -> str:
    parts = []
    for scene, members in by(gaps, "scene").items():
        cells = [
            f"{fmean(found.metric('gap')):+.2f} with {_VIEWS[str(views)][0]}"
            for views, found in by(members, "views").items()
        ]
        parts.append(f"{name_of_scene(scene)}: {', '.join(cells)}")
    return f"Mean gain of the tree in dB. {'; '.join(parts)}."


def _gaps(gaps: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    scenes = by(gaps, "scene")
    figure, axis = pyplot.subplots(figsize=(6.8, 0.8 * len(scenes) + 1.6), layout="constrained")
    labelled: set[str] = set()
    for row, members in enumerate(scenes.values()):
        for views, found in by(members, "views").items():
            name, marker, colour = _VIEWS[str(views)]
            values = found.metric("gap")
            place = row + (0.16 if views == "few" else -0.16)
            label = None if name in labelled else name
            axis.plot(values, [place] * len(values), marker, color=colour, alpha=0.6, label=label)
            axis.plot([fmean(values)], [place], "|", color=colour, markersize=18)
            labelled.add(name)
    axis.axvline(0, color="0.5", linewidth=1, label="equal")
    axis.axvline(PAR, color="0.5", linewidth=1, linestyle="--", label="on par down to here")
    axis.set_yticks(range(len(scenes)), [name_of_scene(scene) for scene in scenes])
    axis.set_ylim(len(scenes) - 0.5, -0.5)
    axis.set_xlabel("PSNR of the tree less PSNR of the flat basis, dB")
    legend_below(figure, [axis], in_a_row=5)
    return figure


# Depths


def _by_depth(found: Iterable[Result], decay: bool) -> dict[int, list[float]]:
    members = [r for r in found if r.params["decay"] is decay]
    return {int(depth): group.metric("psnr") for depth, group in by(members, "depth").items()}


def _depths_alt(depths: Results) -> str:
    parts = []
    for scene, found in by(depths, "scene").items():
        cells = [f"{fmean(v):.2f} at {depth}" for depth, v in _by_depth(found, True).items()]
        cells += [
            f"{fmean(v):.2f} at {depth} without decay"
            for depth, v in _by_depth(found, False).items()
        ]
        parts.append(f"{name_of_scene(scene)}: {', '.join(cells)}")
    return f"Mean PSNR in dB by largest depth. {'; '.join(parts)}."


def _depths(depths: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    scenes = by(depths, "scene")
    figure, axes = pyplot.subplots(
        1, len(scenes), figsize=(3.6 * len(scenes) + 0.6, 3.4), layout="constrained", squeeze=False
    )
    for axis, (scene, found) in zip(axes[0], scenes.items(), strict=True):
        groups = _by_depth(found, True)
        places = {depth: place for place, depth in enumerate(groups)}
        for depth, values in groups.items():
            axis.plot([places[depth]] * len(values), values, ".", color="C0", alpha=0.5)
        axis.plot(
            list(places.values()), [fmean(v) for v in groups.values()], "o-", color="C0",
            label="with decay",
        )  # fmt: skip
        for depth, values in _by_depth(found, False).items():
            aside = places[depth] + 0.12
            axis.plot([aside] * len(values), values, "s", color="C1", label="without decay")
        axis.set_xticks(list(places.values()), [str(depth) for depth in places])
        axis.set(title=name_of_scene(scene), xlabel="largest depth")
    axes[0][0].set_ylabel("PSNR on test views, dB")
    legend_below(figure, axes[0], in_a_row=5)
    return figure


def _deepest(depths: Results) -> list[Result]:
    """Of each scene the first seed's deepest tree with decay."""
    found = []
    for members in by(depths.where(decay=True), "scene").values():
        shaped = [r for r in members if "leaves_at" in r.series]
        if shaped:
            found.append(max(shaped, key=lambda r: (int(r.params["depth"]), -r.seed)))
    return found


def _shape_alt(shaped: Sequence[Result]) -> str:
    parts = []
    for r in shaped:
        cells = [f"{count:.0f} at {depth:g}" for depth, count in r.series["leaves_at"]]
        parts.append(f"{name_of_scene(r.params['scene'])}: {', '.join(cells)}")
    return f"Leaves by depth. {'; '.join(parts)}."


def _shape(shaped: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    width = 0.8 / len(shaped)
    for i, r in enumerate(shaped):
        name, colour = name_of_scene(r.params["scene"]), f"C{i}"
        depths, counts = zip(*r.series["leaves_at"], strict=True)
        aside = width * (i - (len(shaped) - 1) / 2)
        left.bar([d + aside for d in depths], counts, width, color=colour, label=name)
        levels, norms = zip(*r.series["norm_at"], strict=True)
        right.plot(levels, norms, "o-", color=colour)
    left.set(xlabel="steps from leaf to root", ylabel="Gaussians")
    right.set(xlabel="steps from root", ylabel="mean norm of a node's field", ylim=(0, None))
    legend_below(figure, [left], in_a_row=5)
    return figure


# Trajectories


def paths_of(result: Result) -> dict[str, list[list[tuple[float, float]]]]:
    """The paths that a trial recorded, in pixels, by their root."""
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for name, points in result.series.items():
        if name.startswith("path/"):
            found.setdefault(name.split("/")[1], []).append([(x, y) for x, y in points])
    return found


def _paths_alt(traced: Sequence[Result]) -> str:
    parts = []
    for r in traced:
        families = paths_of(r)
        count = sum(map(len, families.values()))
        scene = name_of_scene(r.params["scene"])
        parts.append(f"{scene}: {count} Gaussians of {len(families)} trees")
    return f"{'; '.join(parts)}. Paths of one colour share a root."


def _paths(traced: Sequence[Result]) -> MatplotlibFigure:
    import numpy as np
    from matplotlib import pyplot
    from PIL import Image

    figure, axes = pyplot.subplots(
        1, len(traced), figsize=(4.2 * len(traced) + 0.3, 4.1), layout="constrained", squeeze=False
    )
    for axis, r in zip(axes[0], traced, strict=True):
        places = [place for family in paths_of(r).values() for path in family for place in path]
        if "rest.png" in r.files:
            with Image.open(r.files["rest.png"]) as image:
                picture = np.asarray(image.convert("RGB"))
            axis.imshow(picture, alpha=0.35, extent=(0, picture.shape[1], picture.shape[0], 0))
            rows, columns = np.nonzero(picture.min(-1) < 200)
            places += list(zip(columns.tolist(), rows.tolist(), strict=True))
        for i, family in enumerate(paths_of(r).values()):
            for points in family:
                x, y = zip(*points, strict=True)
                axis.plot(x, y, color=f"C{i}", linewidth=1, alpha=0.9)
                axis.plot(x[0], y[0], ".", color=f"C{i}", markersize=4)
        (left, top), (right, bottom) = np.min(places, 0) - 4, np.max(places, 0) + 4
        axis.set(title=name_of_scene(r.params["scene"]), xlim=(left, right), ylim=(bottom, top))
        axis.set(aspect="equal", xticks=(), yticks=())
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    return figure


# Times


def shown(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times_alt(times: Sequence[Result]) -> str:
    parts = []
    for count, found in by(times, "gaussians").items():
        cells = [
            f"{name} {shown(1e3 * median(found.metric(f'{mover}_s')))} ms"
            for mover, (name, _) in MOVERS.items()
        ]
        parts.append(f"{count:,} Gaussians: {', '.join(cells)}")
    return f"Median time of a motion. {'; '.join(parts)}."


def _times(times: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    groups = by(times, "gaussians")
    figure, axes = pyplot.subplots(
        1, len(groups), figsize=(4.2 * len(groups) + 0.6, 2.5), layout="constrained",
        squeeze=False, sharey=True,
    )  # fmt: skip
    for axis, (count, found) in zip(axes[0], groups.items(), strict=True):
        for row, (mover, (_, colour)) in enumerate(MOVERS.items()):
            value = 1e3 * median(found.metric(f"{mover}_s"))
            axis.barh(row, value, color=colour)
            axis.annotate(
                f"{shown(value)} ms", (value, row), (4, 0), textcoords="offset points", va="center"
            )
        axis.set(title=f"{count:,} Gaussians", xlabel="ms", xscale="log")
        bars = [bar.get_width() for bar in axis.patches]
        axis.set_xlim(min(bars) / 4, 12 * max(bars))
    axes[0][0].set_yticks(range(len(MOVERS)), [name for name, _ in MOVERS.values()])
    axes[0][0].invert_yaxis()
    return figure


# The search


def best_of(found: Iterable[Result]) -> Result:
    """The candidate with the largest PSNR on validation views; of equal ones the first."""
    return max(found, key=lambda r: r.metrics["score"])


def _tuning_alt(tuned: Results) -> str:
    parts = []
    for scene, members in by(tuned.where(search="rate"), "scene").items():
        cells = [
            f"{ARMS[str(arm)][0]} {setting(str(scene), str(arm))['rate']:g}"
            for arm in by(members, "arm")
        ]
        parts.append(f"{name_of_scene(scene)}: {', '.join(cells)}")
    networks = [f"{ARMS[arm][0]} {basis:g}" for arm, (basis, _) in BASIS.items()]
    return f"Rates chosen. Networks: {', '.join(networks)}; coefficients: {'; '.join(parts)}."


def _tuning(tuned: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    panels: list[tuple[str, str, Results]] = []
    for final in sorted(tuned.where(search="basis").distinct("final"), reverse=True):
        title = f"network, {float(final):g} of it left"
        panels.append((title, "basis", tuned.where(search="basis", final=final)))
    for scene in by(tuned.where(search="rate"), "scene"):
        found = tuned.where(search="rate", scene=str(scene))
        panels.append((name_of_scene(scene), "rate", found))
    columns = (len(panels) + 1) // 2
    figure, axes = pyplot.subplots(
        2, columns, figsize=(2.9 * columns + 0.8, 5.6), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, name, found) in zip(axes.flat, panels, strict=False):
        for arm, members in by(found, "arm").items():
            label, colour, line = ARMS[str(arm)]
            points = {float(r): g.metric("score")[0] for r, g in by(members, name).items()}
            axis.plot(list(points), list(points.values()), line, color=colour, label=label)
            for rate, score in points.items():
                best = score == max(points.values())
                axis.plot(
                    rate, score, "o", color=colour, markerfacecolor=colour if best else "none"
                )
        axis.set(title=title, xlabel="rate", xscale="log")
    figure.supylabel("PSNR on validation views, dB", fontsize="medium")
    legend_below(figure, axes.flat[: len(panels)], in_a_row=5)
    return figure
