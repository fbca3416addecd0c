"""The tables of the study."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

from assay.papers.treesplat.figures import (
    ARMS,
    MOVERS,
    by,
    name_of_scene,
    shown,
    was_quiet,
)
from assay.papers.treesplat.tuning import BASIS, setting
from assay.study import Result, Results, Table


def tables(results: Results) -> Iterable[Table]:
    """Those for which there are results."""
    for make in (_quality, _foreground, _depths, _sizes, _motion, _frames, _rasterizer, _tuning):
        if table := make(results):
            yield table


def _spread(values: list[float], digits: int = 2) -> str:
    """Mean, smallest and largest; "" for none."""
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{fmean(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _compared(results: Results, metric: str) -> tuple[tuple[Any, ...], ...]:
    compared = [*results.where(part="compare"), *results.where(part="n3v")]
    rows = []
    for scene, members in by(compared, "scene").items():
        for train, found in sorted(by(members, "train").items(), reverse=True):
            cells = {arm: found.metric(f"{metric}_{arm}") for arm in ARMS}
            mlp = results.where(part="mlp", scene=scene, train=train)
            cells["mlp"] = cells["mlp"] or mlp.metric(f"{metric}_mlp")
            if any(cells.values()):
                row = [name_of_scene(scene), train or "all", len(found)]
                rows.append((*row, *map(_spread, cells.values())))
    return tuple(rows)


_COMPARED = ("scene", "training views", "seeds", *(name for name, _, _ in ARMS.values()))


def _quality(results: Results) -> Table | None:
    rows = _compared(results, "psnr")
    title = "PSNR on test views in dB: mean over seeds (smallest to largest)"
    return Table("quality", title, _COMPARED, rows) if rows else None


def _foreground(results: Results) -> Table | None:
    rows = _compared(results, "foreground")
    title = "The same on the pixels that the object covers"
    return Table("foreground", title, _COMPARED, rows) if rows else None


def _depths(results: Results) -> Table | None:
    rows = []
    for scene, members in by(results.where(part="depth"), "scene").items():
        for depth, of_depth in by(members, "depth").items():
            for decay, found in sorted(by(of_depth, "decay").items(), reverse=True):
                rows.append(
                    (
                        name_of_scene(scene),
                        depth,
                        "yes" if decay else "no",
                        _spread(found.metric("psnr")),
                        f"{fmean(found.metric('reached')):.1f}",
                        f"{fmean(found.metric('gaussians')):.0f}",
                        f"{fmean(found.metric('nodes')):.0f}",
                        _spread(_defined(found, "root_over_leaf")),
                        _spread(_defined(found, "siblings_apart")),
                    )
                )
    columns = (
        "scene", "largest depth", "decay", "PSNR", "depth reached", "Gaussians", "nodes",
        "gradient of roots over that of leaves", "siblings' distance over that of any two",
    )  # fmt: skip
    title = "Trees by their largest depth: mean over seeds (smallest to largest)"
    return Table("depths", title, columns, tuple(rows)) if rows else None


def _defined(found: Results, metric: str) -> list[float]:
    return [value for value in found.metric(metric) if value == value]


def _sizes(results: Results) -> Table | None:
    rows = []
    for scene, members in by(results.where(part="depth", decay=True), "scene").items():
        for depth, found in by(members, "depth").items():
            each = {
                kind: fmean(r.metrics[f"{kind}_bytes"] / r.metrics["gaussians"] for r in found)
                for kind in ("static", "merged", "tree")
            }
            row = (name_of_scene(scene), depth, *(f"{value:.0f}" for value in each.values()))
            rows.append((*row, f"{each['tree'] / each['merged']:.2f}"))
    columns = (
        "scene", "largest depth", "static", "merged", "tree", "tree over merged",
    )  # fmt: skip
    title = "Bytes of a Gaussian in a saved file"
    return Table("sizes", title, columns, tuple(rows)) if rows else None


def _motion(results: Results) -> Table | None:
    found = [r for r in results.where(part="motion-time") if was_quiet(r, "merged_s")]
    rows = []
    for count, members in by(found, "gaussians").items():
        times = {mover: median(members.metric(f"{mover}_s")) for mover in MOVERS}
        cells = [shown(1e3 * value) for value in times.values()]
        ratios = [f"{times[mover] / times['merged']:.1f}" for mover in ("tree", "mlp")]
        rows.append((f"{count:,}", *cells, *ratios))
    names = [f"{name}, ms" for name, _ in MOVERS.values()]
    columns = ("Gaussians", *names, "before merging over merged", "MLP over merged")
    title = "Time to move all Gaussians to an instant, median"
    return Table("motion-times", title, columns, tuple(rows)) if rows else None


def _frames(results: Results) -> Table | None:
    found = [r for r in results.where(part="motion-time") if was_quiet(r, "frame_merged_s")]
    rows = []
    for count, members in by(found, "gaussians").items():
        times = {mover: median(members.metric(f"frame_{mover}_s")) for mover in MOVERS}
        rates = [f"{1 / value:.1f}" for value in times.values()]
        ratios = [f"{times[mover] / times['merged']:.2f}" for mover in ("tree", "mlp")]
        rows.append((f"{count:,}", members[0].params["size"], *rates, *ratios))
    names = [f"{name}, frames a second" for name, _ in MOVERS.values()]
    columns = ("Gaussians", "pixels", *names, "before merging over merged", "MLP over merged")
    title = "Whole frames, rasterisation included; no claim rests on them"
    return Table("frames", title, columns, tuple(rows)) if rows else None


def _rasterizer(results: Results) -> Table | None:
    found = [r for r in results.where(part="rasterizer") if was_quiet(r, "ours_s")]
    rows = []
    for count, members in by(found, "gaussians").items():
        for size, group in by(members, "size").items():
            times = {
                name: median(values)
                for name in ("ours", "torch_projection", "dense")
                if (values := _defined(group, f"{name}_s"))
            }
            cells = [shown(1e3 * times[name]) if name in times else "" for name in _RASTERIZERS]
            over = [f"{times[n] / times['ours']:.1f}" if n in times else "" for n in _SLOWER]
            rows.append((f"{count:,}", size, *cells, *over))
    columns = (
        "Gaussians", "pixels", "ours, ms", "gsplat's projection, ms", "dense, ms",
        "gsplat's projection over ours", "dense over ours",
    )  # fmt: skip
    title = "Rasterisation forward and backward on one thread, median"
    return Table("rasterizer", title, columns, tuple(rows)) if rows else None


_SLOWER = ("torch_projection", "dense")
_RASTERIZERS = ("ours", *_SLOWER)


def _tuning(results: Results) -> Table | None:
    rows = []
    tuned = results.where(part="tuning")
    for arm, found in by(tuned.where(search="basis"), "arm").items():
        rate, final = BASIS[str(arm)]
        scene = name_of_scene(found[0].params["scene"])
        cells = [f"{r.params['basis']:g} to {r.params['final']:g}: {_score(r)}" for r in found]
        best = f"{rate:g} to {final:g}"
        rows.append((scene, ARMS[str(arm)][0], "network", ", ".join(cells), best))
    for scene, members in by(tuned.where(search="rate"), "scene").items():
        for arm, found in by(members, "arm").items():
            cells = [f"{r.params['rate']:g}: {_score(r)}" for r in found]
            best = f"{setting(str(scene), str(arm))['rate']:g}"
            name = name_of_scene(scene)
            rows.append((name, ARMS[str(arm)][0], "coefficients", ", ".join(cells), best))
    title = (
        "Search for rates on seeds apart: PSNR on validation views of each candidate, dB. Rates of "
        "networks are given with the share of them that is left at the end"
    )
    columns = ("scene", "arm", "rate of", "found", "chosen")
    return Table("tuning", title, columns, tuple(rows)) if rows else None


def _score(result: Result) -> str:
    return f"{result.metrics['score']:.2f}"
