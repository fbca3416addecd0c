"""Figures and tables of the study, drawn from its results alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.papers.mglu.instructions import ISAS
from assay.papers.mglu.study import FIRST_ROUND, SECOND_ROUND, TUNING_RATES, arm_name
from assay.study import Figure, Param, Result, Results, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

_ARMS = ("glu", "torch", "mglu1", "mglu2", "mglu4", "mglu8", "mglu4_bytes", "mglu8_bytes")
_PRINTED = {"2048x8192": (1.51, 1.41, 1.15), "4096x14336": (1.31, 1.29, 1.24)}
_PRINTED_MASKS = (1, 4, 8)

_KINDS: Mapping[str, tuple[Param, ...]] = {
    "GELU": ("gelu", 0, "none"),
    "SwiGLU": ("swiglu", 0, "none"),
    "SwiGLU,\none matrix": ("shared", 0, "none"),
    "1 mask": ("mglu", 1, "learned"),
    "2 masks": ("mglu", 2, "learned"),
    "4 masks": ("mglu", 4, "learned"),
    "1 fixed": ("mglu", 1, "fixed"),
    "2 fixed": ("mglu", 2, "fixed"),
    "4 fixed": ("mglu", 4, "fixed"),
}


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale; those without data are left out."""
    done = results.ok
    decode = [r for r in done.where(what="decode", isa="best") if _quiet(r)]
    if decode:
        yield Figure(
            "decode-speed",
            "Decode speed against the faster of two GLU baselines, by number of masks",
            _speed_alt(decode),
            partial(_speed, decode),
            tuple(f"C2-{bits}bit-n{n}" for bits in (16, 32) for n in _PRINTED_MASKS),
        )
        yield Figure(
            "decode-bandwidth",
            "Weight bytes that each kernel reads a second",
            "Bars of achieved GB/s for the GLU and MGLU kernels at each size and dtype, with the "
            "rate of plain reading of memory as a line.",
            partial(_bandwidth, decode),
        )
    models = done.where(what="lm")
    kinds = {name: _of(models, arm) for name, arm in _KINDS.items()}
    kinds = {name: found for name, found in kinds.items() if found}
    if len(kinds) > 1:
        yield Figure(
            "held-out-loss",
            "Held-out loss of the language models by kind of feed-forward block",
            "Mean held-out loss in nats a byte: "
            + "; ".join(
                f"{name.replace(chr(10), ' ')} {_mean(found, 'held_out_nll'):.3f}"
                for name, found in kinds.items()
            )
            + ".",
            partial(_losses, kinds),
            ("C4", "C5", "C6-gated", "C6-masked", "C6-shared", "C6-shared-gelu", "C7-n4"),
        )
        yield Figure(
            "training-curves",
            "Held-out loss during training, mean over seeds",
            "One line a kind of block; the loss in nats a byte falls with the training steps.",
            partial(_curves, kinds),
        )
    masked = [r for r in models.where(kind="mglu", masks="learned") if r.series]
    if any(name.startswith("flip_rate") for r in masked for name in r.series):
        yield Figure(
            "masks",
            "Mask density and flip rate during training",
            f"Left, the share of ones of each number of masks, {_density_range(masked)}. "
            "Right, the share of mask entries that flip in a step.",
            partial(_masks, masked),
        )


def tables(results: Results) -> Iterable[Table]:
    """Tables of one scale; those without data are left out."""
    done = results.ok
    if rows := _decode_rows(done.where(what="decode")):
        yield Table(
            "kernels",
            "Decode kernels at batch 1: speed against the faster GLU baseline (geometric mean)",
            ("size", "bits", "instructions", *(arm_name(a) for a in _ARMS), "GLU ms"),
            rows,
        )
    if rows := _naive_rows(done.where(what="naive")):
        yield Table(
            "naive",
            "Our kernel against PyTorch, fp32",
            ("size", "masks", "over the printed layer", "over masked matrices made once"),
            rows,
        )
    if rows := _step_rows(done.where(what="step")):
        yield Table(
            "steps", "Time of a training step over SwiGLU's", ("block", "ratio", "ms"), rows
        )
    if done.where(what="lm"):
        yield Table(
            "tuning",
            "Search for learning rates: held-out nats a byte after half of the steps and, for the "
            "best, after all of them (one seed apart; kept in the study)",
            ("block", *(f"{rate:g}" for rate in TUNING_RATES)),
            tuple((name.replace("\n", " "), *_search(arm)) for name, arm in _KINDS.items()),
        )


def _search(arm: tuple[Param, ...]) -> Iterable[str]:
    for rate, early in zip(TUNING_RATES, FIRST_ROUND[arm], strict=True):
        late = SECOND_ROUND[arm].get(rate)
        yield f"{early:.3f}" if late is None else f"{early:.3f}, {late:.3f}"


def _density_range(masked: Sequence[Result]) -> str:
    values = [
        value
        for result in masked
        for name, points in result.series.items()
        if name.startswith("mask_density")
        for _, value in points
    ]
    return f"between {min(values):.3f} and {max(values):.3f} in every layer"


# Decode kernels


def _quiet(result: Result) -> bool:
    return math.isfinite(result.metrics.get("best_glu_per_s", math.nan))


def _ratios(found: Iterable[Result], arm: str) -> list[float]:
    return [r.metrics[f"{arm}_per_s"] / r.metrics["best_glu_per_s"] for r in found]


def _geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _groups(found: Iterable[Result], *names: str) -> dict[tuple[Param, ...], list[Result]]:
    groups: dict[tuple[Param, ...], list[Result]] = {}
    for result in found:
        groups.setdefault(tuple(result.params[n] for n in names), []).append(result)
    return groups


def _speed_alt(decode: Sequence[Result]) -> str:
    parts = [
        f"{size}, {bits}-bit: "
        + ", ".join(f"{n} {_geometric(_ratios(found, f'mglu{n}')):.2f}" for n in (1, 2, 4, 8))
        for (size, bits), found in _groups(decode, "size", "bits").items()
    ]
    return "Speed over the GLU by number of masks, 1.00 is equal. " + "; ".join(parts) + "."


def _speed(decode: Sequence[Result]) -> MatplotlibFigure:
    figure, axes = _panels(decode)
    for size, axis, groups in axes:
        for bits, members, x, width in groups:
            ratios = [_ratios(members, f"mglu{n}") for n in (1, 2, 4, 8)]
            heights = [_geometric(values) for values in ratios]
            low = [h - min(values) for h, values in zip(heights, ratios, strict=True)]
            high = [max(values) - h for h, values in zip(heights, ratios, strict=True)]
            at = [i + x for i in range(4)]
            axis.bar(at, heights, width, yerr=(low, high), capsize=2, label=f"{bits}-bit, here")
        if size in _PRINTED:
            axis.plot((0, 2, 3), _PRINTED[size], "D", color="C3", label="paper, RTX 5090, fp16")
        axis.axhline(1, linestyle="--", linewidth=1, color="C7")
        axis.set(title=size, xlabel="masks")
        axis.set_xticks(range(4), ("1", "2", "4", "8"))
    axes[0][1].set_ylabel("tokens a second over GLU's")
    _legend(figure, axes[-1][1])
    return figure


def _bandwidth(decode: Sequence[Result]) -> MatplotlibFigure:
    arms = {"torch": "torch", "glu": "GLU", **{f"mglu{n}": str(n) for n in (1, 2, 4, 8)}}
    figure, axes = _panels(decode)
    for size, axis, groups in axes:
        for bits, members, x, width in groups:
            rates = [_mean(members, f"{arm}_gb_s") for arm in arms]
            axis.bar([i + x for i in range(len(arms))], rates, width, label=f"{bits}-bit")
        reading = statistics.fmean(_mean(members, "copy_gb_s") for _, members, _, _ in groups)
        axis.axhline(reading, linestyle="--", color="C7", label="plain reading of memory")
        axis.set(title=size, xlabel="torch, our GLU, masks")
        axis.set_xticks(range(len(arms)), list(arms.values()))
    axes[0][1].set_ylabel("GB/s of weights and masks")
    _legend(figure, axes[-1][1])
    return figure


def _panels(
    decode: Sequence[Result],
) -> tuple[
    MatplotlibFigure, list[tuple[str, Axes, list[tuple[Param, list[Result], float, float]]]]
]:
    """One axis a size, smallest first, and for each dtype its results, bar offset and width."""
    from matplotlib import pyplot

    sizes = sorted(_groups(decode, "size").items(), key=lambda item: _area(str(item[0][0])))
    figure, axes = pyplot.subplots(
        1, len(sizes), figsize=(9, 3.6), layout="constrained", squeeze=False
    )
    panels = []
    for ((size,), found), axis in zip(sizes, axes[0], strict=True):
        by_bits = sorted(_groups(found, "bits").items())
        width = 0.8 / len(by_bits)
        groups = [
            (bits, members, (i - (len(by_bits) - 1) / 2) * width, width)
            for i, ((bits,), members) in enumerate(by_bits)
        ]
        panels.append((str(size), axis, groups))
    return figure, panels


def _area(size: str) -> int:
    h, d = size.split("x")
    return int(h) * int(d)


def _legend(figure: MatplotlibFigure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")


def _decode_rows(decode: Results) -> tuple[tuple[Any, ...], ...]:
    rows = []
    for (size, bits, isa), every in _groups(decode, "size", "bits", "isa").items():
        found = [r for r in every if _quiet(r)]
        if not found:
            if any(r.metrics for r in every):
                rows.append((size, bits, isa, *("machine busy" for _ in _ARMS), ""))
            continue
        ratios = (f"{_geometric(_ratios(found, arm)):.2f}" for arm in _ARMS)
        used = _instructions(found[0])
        rows.append((size, bits, used, *ratios, f"{1e3 / _mean(found, 'glu_per_s'):.2f}"))
    return tuple(rows)


def _instructions(result: Result) -> str:
    code = int(result.metrics.get("isa", -1))
    return ISAS[code] if code >= 0 else "not C++"


def _naive_rows(naive: Results) -> tuple[tuple[Any, ...], ...]:
    rows = []
    for (size, n), every in _groups(naive, "size", "n_masks").items():
        found = [r for r in every if math.isfinite(r.metrics.get("mglu_per_s", math.nan))]
        if found:
            over = (
                _geometric([r.metrics["mglu_per_s"] / r.metrics[f"{base}_per_s"] for r in found])
                for base in ("naive", "premasked")
            )
            rows.append((size, n, *(f"{ratio:.1f}x" for ratio in over)))
    return tuple(rows)


def _step_rows(steps: Results) -> tuple[tuple[Any, ...], ...]:
    found = [r for r in steps if math.isfinite(r.metrics.get("swiglu_s", math.nan))]
    if not found:
        return ()
    return tuple(
        (
            name,
            f"{_geometric([r.metrics[f'{kind}_s'] / r.metrics['swiglu_s'] for r in found]):.2f}",
            f"{1e3 * _mean(found, f'{kind}_s'):.1f}",
        )
        for kind, name in (
            ("swiglu", "SwiGLU"),
            ("mglu1", "1 mask"),
            ("mglu2", "2 masks"),
            ("mglu4", "4 masks"),
        )
    )


# Language models


def _of(models: Results, arm: tuple[Param, ...]) -> Results:
    kind, n_masks, masks = arm
    return models.where(kind=kind, n_masks=n_masks, masks=masks)


def _mean(found: Iterable[Result], metric: str) -> float:
    return statistics.fmean(r.metrics[metric] for r in found)


def _losses(kinds: Mapping[str, Results]) -> MatplotlibFigure:
    from matplotlib import pyplot
    from scipy import stats

    figure, axis = pyplot.subplots(figsize=(8, 3.8), layout="constrained")
    for seed in sorted({r.seed for found in kinds.values() for r in found}):
        line = [found.where(seed=seed).metric("held_out_nll") for found in kinds.values()]
        points = [(i, values[0]) for i, values in enumerate(line) if values]
        axis.plot(*zip(*points, strict=True), marker=".", linewidth=0.7, alpha=0.5, color="C7")
    for i, found in enumerate(kinds.values()):
        values = found.metric("held_out_nll")
        half = math.nan
        if len(values) > 1:
            error = statistics.stdev(values) / math.sqrt(len(values))
            half = float(stats.t.ppf(0.975, len(values) - 1)) * error
        axis.errorbar(i, statistics.fmean(values), half, fmt="o", capsize=4, color="C0")
    axis.set_xticks(range(len(kinds)), list(kinds), fontsize="small")
    axis.set_ylabel("held-out nats a byte")
    return figure


def _curves(kinds: Mapping[str, Results]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 3.8), layout="constrained")
    for i, (name, found) in enumerate(kinds.items()):
        style = "--" if "fixed" in name else "-"
        steps, values = _mean_series(found, "held_out_nll")
        axis.plot(steps, values, style, color=f"C{i % 6}", label=name.replace("\n", " "))
    axis.set(xlabel="step", ylabel="held-out nats a byte")
    axis.legend(fontsize="small", ncols=2)
    return figure


def _masks(masked: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for (n,), found in sorted(_groups(masked, "n_masks").items()):
        label = f"{n} mask{'s' * (n != 1)}"
        for axis, prefix in ((left, "mask_density"), (right, "flip_rate")):
            axis.plot(*_mean_series(found, prefix), label=label)
    left.set(xlabel="step", ylabel="share of ones")
    right.set(xlabel="step", ylabel="flips a step and entry", yscale="log")
    left.legend(fontsize="small")
    return figure


def _mean_series(found: Iterable[Result], prefix: str) -> tuple[list[float], list[float]]:
    """Steps, and the mean at each over all series whose name starts with the prefix."""
    values: dict[float, list[float]] = {}
    for result in found:
        for name, points in result.series.items():
            for step, value in points if name.startswith(prefix) else ():
                values.setdefault(step, []).append(value)
    steps = sorted(values)
    return steps, [statistics.fmean(values[step]) for step in steps]
