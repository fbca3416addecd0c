"""The figures of the study, drawn from its results alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, geometric_mean, median
from typing import TYPE_CHECKING, Any

from assay.papers.kvflow.claims import CASES, HARDWARE, JUDGED_FIXED, JUDGED_LINK
from assay.study import Figure, Result, Results, grouped
from assay.toolkits.drawing import legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

ARMS: Mapping[str, tuple[str, str, str]] = {
    "kvflow": ("KVFlow", "C0", "o-"),
    "steps": ("eviction by steps", "C0", "o-"),
    "eviction": ("eviction by steps with host memory", "C2", "s--"),
    "prefetch": ("prefetching alone", "C3", "^-."),
    "hicache": ("hierarchical LRU", "C1", "v-"),
    "belady": ("Belady's optimum", "C4", "D:"),
    "mru_fixed": ("MRU of fixed prompts", "C2", "s--"),
    "mru": ("MRU", "C5", "p:"),
    "pin": ("pin what fits", "C3", "^-."),
    "lfu": ("LFU", "C6", "P--"),
    "slru": ("SLRU", "C6", "X-."),
    "lru": ("LRU", "C1", "v-"),
}
"""Name, colour and line of each arm in every figure; those with a tier in host memory first."""

MACHINES = {"h100": "H100, Qwen2.5-32B", "a10g": "A10G, Llama-3.1-8B"}
_PRINTED = {"h100": (1.24, "paper: 1.24x at 4,096"), "a10g": (1.83, "arXiv v1: up to 1.83x")}
_TRACKS = {
    "compute": (0, "C0", "prefill and decoding"),
    "stall": (0, "C3", "waits for a load"),
    "load": (1, "C1", "host to device"),
    "offload": (2, "C2", "device to host"),
}
"""Row, colour and name of what is recorded; a wait lies upon the computation that waits."""


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale; those without data are left out."""
    paced = [r for r in results.where(part="times", case="paced") if r.series]
    if paced:
        yield Figure(
            "timeline",
            "One cycle of the real loop over the paced (emulated) link: compute and transfers",
            _timeline_alt(paced[0], ("hicache", "kvflow")),
            partial(_timeline, paced[0], ("hicache", "kvflow")),
            ("C1-paced", "C3-eviction-paced", "C3-prefetch-paced"),
        )
    judged = results.where(
        part="sequential",
        hardware="h100",
        link_gbps=JUDGED_LINK["h100"],
        fixed=JUDGED_FIXED,
        output=32,
        branches=1,
    )
    simulated = [r for r in judged if r.series]
    if simulated:
        yield Figure(
            "timeline-simulated",
            "One cycle of the simulated H100, link 8 GB/s: compute and transfers",
            _timeline_alt(simulated[0], ("hicache", "kvflow")),
            partial(_timeline, simulated[0], ("hicache", "kvflow")),
            ("C1-hicache",),
        )
    if cycle := [r for r in results.where(part="hits", case="cycle") if r.series]:
        yield Figure(
            "contents",
            "Which agents' fixed prompts the device holds as agents take turns, on the real loop",
            _contents_alt(cycle[0]),
            partial(_contents, cycle[0]),
            ("X2", "X3"),
        )
    pressure = results.where(part="pressure")
    if len(pressure.distinct("room")) > 1:
        yield Figure(
            "pressure",
            "Speed-up by how many of 10 fixed prompts fit, simulated H100: without and with a "
            "tier in host memory",
            _pressure_alt(pressure),
            partial(_pressure, pressure),
            ("C1-hicache", "C1-lru"),
        )
    if hits := results.where(part="hits"):
        yield Figure(
            "hit-rates",
            "Share of fixed prompts' tokens found on the device, real loop, by policy",
            _hits_alt(hits),
            partial(_hits, hits),
            ("C4-hits", "C5-hits", "X2", "X3"),
        )
    links = results.where(part="sequential", branches=1, output=32)
    if len(links.distinct("link_gbps")) > 2:
        yield Figure(
            "links",
            "Simulated speed-up over hierarchical LRU by what the host link delivers",
            _links_alt(links),
            partial(_links, links),
            ("C1-hicache", "C1-hicache-fast", "C1-v1-hicache", "C1-fixed"),
        )
    crowds = results.where(part="concurrent")
    if len(crowds.distinct("workflows")) > 1:
        yield Figure(
            "concurrency",
            "Simulated speed-up by the number of concurrent workflows, H100",
            _crowds_alt(crowds),
            partial(_crowds, crowds),
            ("C2-lru", "C2-hicache", "C2-hicache-slow"),
        )
    if times := [r for r in results.where(part="times") if was_quiet(r)]:
        yield Figure(
            "measured",
            "Speed-up on the real loop, each seed, and what the simulator predicted",
            _measured_alt(times),
            partial(_measured, times),
            ("C1-loop", "C1-paced", "C2-loop", "C5-lru", "C5-hicache", "X1"),
        )
    overhead = [r for r in results.where(part="overhead") if was_quiet(r)]
    if len({r.params["nodes"] for r in overhead}) > 1:
        yield Figure(
            "overhead",
            "Time of a metadata update and of an eviction by the size of the tree",
            _overhead_alt(overhead),
            partial(_overhead, overhead),
            ("C7",),
        )


def was_quiet(result: Result) -> bool:
    """False where the machine was too busy to time anything."""
    return all(
        math.isfinite(value)
        for name, value in result.metrics.items()
        if name.endswith("_per_s") or name == "update_s"
    )


def by(found: Iterable[Result], name: str) -> dict[Any, Results]:
    """Results by the value of a parameter, rising, or in the order in which cases are named."""
    return grouped(found, name, CASES if name == "case" else ())


def arms_of(found: Sequence[Result], metric: str = "per_s") -> list[str]:
    """The arms that were measured, in the order of `ARMS`."""
    return [arm for arm in ARMS if f"{arm}_{metric}" in found[0].metrics]


def speedups(found: Iterable[Result], arm: str, than: str) -> list[float]:
    """Requests a second of an arm over those of another, in each result."""
    return [r.metrics[f"{arm}_per_s"] / r.metrics[f"{than}_per_s"] for r in found]


def mean_of(found: Iterable[Result], metric: str) -> float:
    """Mean of a metric."""
    return fmean(r.metrics[metric] for r in found)


def baseline_of(result: Result) -> tuple[str, str]:
    """KVFlow's arm of a trial against the clock, and the arm it is compared with."""
    return ("kvflow", "hicache") if "kvflow_per_s" in result.metrics else ("steps", "lru")


# Timelines


def spans_of(result: Result, arm: str, track: str) -> list[tuple[float, float]]:
    """Start and end of what an arm did on a track, seconds from the start of the cycle."""
    return [(start, end) for start, end in result.series.get(f"span/{arm}/{track}", ())]


def hidden_share(result: Result, arm: str) -> float:
    """Share of the time of an arm's loads during which something was computed."""
    loads, compute, stalls = (spans_of(result, arm, t) for t in ("load", "compute", "stall"))
    waits = [(s, e) for s, e in stalls if any(s0 <= s < e0 for s0, e0 in compute)]
    total = sum(end - start for start, end in loads)
    return (_overlap(loads, compute) - _overlap(loads, waits)) / total if total else 1.0


def _overlap(a: Iterable[tuple[float, float]], b: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, min(e1, e2) - max(s1, s2)) for s1, e1 in a for s2, e2 in b)


def _timeline_alt(result: Result, arms: Sequence[str]) -> str:
    parts = [
        f"{ARMS[arm][0]} takes {_length(result, arm):.2f} s, with {hidden_share(result, arm):.0%} "
        "of loading under compute"
        for arm in arms
    ]
    return f"One cycle: {'; '.join(parts)}."


def _length(result: Result, arm: str) -> float:
    return max((end for _, end in spans_of(result, arm, "compute")), default=0.0)


def _timeline(result: Result, arms: Sequence[str]) -> MatplotlibFigure:
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(
        len(arms), 1, figsize=(8.4, 1.5 * len(arms) + 1.2), layout="constrained", sharex=True
    )
    for axis, arm in zip(axes, arms, strict=True):
        for track, (row, colour, _) in _TRACKS.items():
            spans = [(start, end - start) for start, end in spans_of(result, arm, track)]
            axis.broken_barh(spans, (-row - 0.4, 0.8), color=colour, linewidth=0)
        axis.set_yticks([0, -1, -2], ["compute", "load", "offload"])
        axis.set_ylim(-2.6, 0.6)
        axis.set_title(ARMS[arm][0], loc="left", fontsize="medium")
        axis.grid(visible=False, axis="y")
        axis.axvline(_length(result, arm), linestyle=":", color="0.5")
    axes[-1].set_xlabel("seconds from the start of the cycle")
    place: Any = "outside lower center"
    patches = [
        Patch(color=colour, label=label)
        for track, (_, colour, label) in _TRACKS.items()
        if any(spans_of(result, arm, track) for arm in arms)
    ]
    figure.legend(handles=patches, loc=place, ncols=4)
    return figure


# What the device holds


def _contents_alt(result: Result) -> str:
    parts = []
    for arm in ("lru", "steps"):
        found = result.series[f"hit/{arm}"]
        hits = sum(value for _, value in found)
        parts.append(
            f"{ARMS[arm][0]} finds the next agent's prompt {hits:.0f} of {len(found)} times"
        )
    return f"{'; '.join(parts)}."


def _contents(result: Result) -> MatplotlibFigure:
    import numpy as np
    from matplotlib import pyplot

    arms = ("lru", "steps")
    agents = int(result.params["agents"])
    figure, axes = pyplot.subplots(
        2, 1, figsize=(8.4, 0.42 * agents + 2.0), layout="constrained", sharex=True
    )
    for axis, arm in zip(axes, arms, strict=True):
        turns = [int(agent) for _, agent in result.series[f"turn/{arm}"]]
        held = np.zeros((agents, len(turns)))
        for step, agent in result.series[f"resident/{arm}"]:
            held[int(agent), int(step)] = 1
        for agent in range(agents):
            edges = np.diff(np.concatenate(([0], held[agent], [0])))
            starts, ends = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
            spans = [(s - 0.5, e - s) for s, e in zip(starts, ends, strict=True)]
            axis.broken_barh(spans, (agent - 0.35, 0.7), color="C0", alpha=0.35, linewidth=0)
        hits = dict(result.series[f"hit/{arm}"])
        for value, marker, colour, label in (
            (1, "o", "C0", "its prompt was there"),
            (0, "x", "C1", "computed again"),
        ):
            steps = [step for step in range(len(turns)) if hits[step] == value]
            axis.plot(
                steps, [turns[s] for s in steps], marker, color=colour, markersize=5, label=label
            )
        axis.set_title(ARMS[arm][0], loc="left", fontsize="medium")
        axis.set(ylabel="agent", ylim=(agents - 0.4, -0.6))
        axis.set_yticks(range(agents), [str(a + 1) for a in range(agents)], fontsize="small")
        axis.grid(visible=False)
    axes[-1].set_xlabel("turn")
    legend_below(figure, axes)
    return figure


# Memory


_PANELS = (
    ("lru", ("steps", "mru_fixed", "mru", "pin", "belady")),
    ("hicache", ("kvflow", "eviction", "prefetch")),
)


def _pressure_alt(found: Results) -> str:
    parts = []
    for base, arms in _PANELS:
        cells = ", ".join(
            f"{speedups(group, arms[0], base)[0]:.2f} with {room}"
            for room, group in by(found, "room").items()
        )
        parts.append(f"{ARMS[arms[0]][0]} over {ARMS[base][0]}: {cells}")
    return f"{'; '.join(parts)}."


def _pressure(found: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.4, 4.0), layout="constrained")
    rooms = by(found, "room")
    for axis, (base, arms) in zip(axes, _PANELS, strict=True):
        for width, arm in zip((3.2, 2.2, 1.6, 1.2, 0.9), arms, strict=False):
            name, colour, line = ARMS[arm]
            values = [geometric_mean(speedups(group, arm, base)) for group in rooms.values()]
            axis.plot(
                list(rooms), values, line, color=colour, label=name, linewidth=width, markersize=5
            )
        axis.axhline(1, linestyle=":", color="0.5")
        axis.set(xlabel="fixed prompts that fit, of 10", ylabel=f"speed-up over {ARMS[base][0]}")
        axis.set_xticks(list(rooms))
        axis.legend(fontsize="small")
    return figure


# Hit rates


def _hits_alt(found: Results) -> str:
    parts = []
    for case, group in by(found, "case").items():
        cells = ", ".join(
            f"{ARMS[arm][0]} {mean_of(group, f'{arm}_hit_rate'):.2f}"
            for arm in arms_of(group, "hit_rate")
        )
        parts.append(f"{CASES[str(case)]}: {cells}")
    return f"Mean hit rates. {'; '.join(parts)}."


def _hits(found: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    cases = by(found, "case")
    figure, axes = pyplot.subplots(
        1, len(cases), figsize=(2.4 * len(cases) + 1.6, 3.4), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    names = arms_of(next(iter(cases.values())), "hit_rate")
    for axis, (case, group) in zip(axes[0], cases.items(), strict=True):
        for row, arm in enumerate(names):
            values = [r.metrics[f"{arm}_hit_rate"] for r in group]
            colour = {"belady": "C4", "steps": "C0"}.get(arm, "C1")
            axis.barh(row, fmean(values), color=colour, alpha=0.45, height=0.7)
            axis.plot(values, [row] * len(values), ".", color=colour, markersize=5)
        axis.set_title(CASES[str(case)].replace(", ", ",\n"), fontsize="small")
        axis.set(xlim=(0, 1), xlabel="hit rate")
        axis.grid(visible=False, axis="y")
    axes[0][0].set_yticks(range(len(names)), [ARMS[arm][0] for arm in names])
    axes[0][0].invert_yaxis()
    return figure


# The simulated machines


def _links_alt(found: Results) -> str:
    parts = []
    for hardware, machine in MACHINES.items():
        for fixed, group in by(found.where(hardware=hardware), "fixed").items():
            cells = ", ".join(
                f"{fmean(speedups(r, 'kvflow', 'hicache')):.2f} at {link:g} GB/s"
                for link, r in by(group, "link_gbps").items()
            )
            parts.append(f"{machine}, {fixed} fixed tokens: {cells}")
    return f"{'; '.join(parts)}."


def _links(found: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.4, 4.0), layout="constrained", sharey=True)
    lines = zip(("C2", "C0", "C3"), ("s--", "o-", "^-."), strict=True)
    styles = dict(zip(by(found, "fixed"), lines, strict=False))
    for axis, (hardware, machine) in zip(axes, MACHINES.items(), strict=True):
        for fixed, group in by(found.where(hardware=hardware), "fixed").items():
            colour, line = styles[fixed]
            links = by(group, "link_gbps")
            values = [fmean(speedups(r, "kvflow", "hicache")) for r in links.values()]
            axis.plot(list(links), values, line, color=colour, label=f"{fixed:,} fixed tokens")
        value, label = _PRINTED[hardware]
        axis.axhline(value, linestyle=":", color="C1", label=label)
        axis.set(xscale="log", xlabel="GB/s of the host link", title=machine)
        ticks = list(by(found, "link_gbps"))
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.legend(fontsize="small")
    axes[0].set_ylabel("speed-up over hierarchical LRU")
    return figure


def _crowds_alt(found: Results) -> str:
    parts = []
    for fixed, group in by(found, "fixed").items():
        for than in ("lru", "hicache"):
            cells = ", ".join(
                f"{geometric_mean(speedups(r, 'kvflow', than)):.2f} with {n}"
                for n, r in by(_large(group), "workflows").items()
            )
            parts.append(f"over {ARMS[than][0]} at {fixed} fixed tokens: {cells}")
    return f"Speed-up on {MACHINES['h100']}: {'; '.join(parts)}."


def _large(found: Iterable[Result]) -> list[Result]:
    return [r for r in found if r.params["model"] == HARDWARE["h100"]]


def _crowds(found: Results) -> MatplotlibFigure:
    from matplotlib import pyplot

    models = [model for model in HARDWARE.values() if found.where(model=model)]
    figure, axes = pyplot.subplots(
        1, len(models), figsize=(4.7 * len(models), 4.4), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    for axis, model in zip(axes[0], models, strict=True):
        for than, colour in (("lru", "C0"), ("hicache", "C1")):
            for (fixed, group), line in zip(
                by(found.where(model=model), "fixed").items(), ("o-", "s--"), strict=False
            ):
                counts = by(group, "workflows")
                values = [geometric_mean(speedups(r, "kvflow", than)) for r in counts.values()]
                label = f"over {ARMS[than][0]}, {fixed:,} fixed"
                axis.plot(list(counts), values, line, color=colour, label=label)
        axis.axhline(1, linestyle=":", color="0.5")
        axis.set(xscale="log", xlabel="concurrent workflows", title=_written(model))
        axis.set_xticks(list(by(found, "workflows")), [str(n) for n in by(found, "workflows")])
        axis.minorticks_off()
    axes[0][0].set_ylabel("speed-up of KVFlow")
    legend_below(figure, axes[0])
    return figure


def _written(model: str) -> str:
    return {"qwen2.5-32b": "Qwen2.5-32B", "llama-3.1-8b": "Llama-3.1-8B"}[model]


# The real loop against the clock


def _measured_alt(found: Sequence[Result]) -> str:
    parts = []
    for case, group in by(found, "case").items():
        ours, than = baseline_of(group[0])
        ratio = geometric_mean(speedups(group, ours, than))
        predicted = [r.metrics["predicted_speedup"] for r in group if r.params["predicted"]]
        text = f", {median(predicted):.2f} predicted" if predicted else ""
        parts.append(f"{CASES[str(case)]}: {ratio:.2f} over {ARMS[than][0]}{text}")
    return f"Speed-up, geometric mean over seeds. {'; '.join(parts)}."


def _measured(found: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    cases = by(found, "case")
    figure, axis = pyplot.subplots(figsize=(7.6, 0.55 * len(cases) + 1.8), layout="constrained")
    names = []
    for row, (case, group) in enumerate(cases.items()):
        ours, than = baseline_of(group[0])
        values = speedups(group, ours, than)
        names.append(f"{CASES[str(case)]}\nover {ARMS[than][0]}")
        axis.plot(values, [row] * len(values), ".", color="C0", alpha=0.6, markersize=9,
                  label="each seed")  # fmt: skip
        axis.plot(geometric_mean(values), row, "|", color="C0", markersize=22, markeredgewidth=2.5,
                  label="geometric mean")  # fmt: skip
        predicted = [r.metrics["predicted_speedup"] for r in group if r.params["predicted"]]
        if predicted:
            axis.plot(predicted, [row + 0.22] * len(predicted), "x", color="C1", markersize=6,
                      label="simulator's prediction")  # fmt: skip
    axis.axvline(1, linestyle=":", color="0.5")
    axis.set_yticks(range(len(names)), names, fontsize="small")
    axis.set(xlabel="speed-up", ylim=(len(names) - 0.5, -0.5))
    axis.grid(visible=False, axis="y")
    legend_below(figure, [axis])
    return figure


_OVERHEAD = {
    "update_s": ("metadata update", "C0", "o-"),
    "evict_s": ("eviction of a node", "C1", "s--"),
    "step_s": ("decoding step of the model", "0.5", ":"),
}


def _overhead_alt(found: Sequence[Result]) -> str:
    cells = ", ".join(
        f"{nodes:,} nodes {1e6 * median(r.metrics['update_s'] for r in group):.0f} and "
        f"{1e6 * median(r.metrics['evict_s'] for r in group):.0f}"
        for nodes, group in by(found, "nodes").items()
    )
    return f"Microseconds of an update and an eviction: {cells}."


def _overhead(found: Sequence[Result]) -> MatplotlibFigure:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6.4, 3.9), layout="constrained")
    sizes = by(found, "nodes")
    for metric, (name, colour, line) in _OVERHEAD.items():
        for nodes, group in sizes.items():
            values = [1e6 * r.metrics[metric] for r in group]
            axis.plot([nodes] * len(values), values, ".", color=colour, alpha=0.5)
        middle = [1e6 * median(r.metrics[metric] for r in group) for group in sizes.values()]
        axis.plot(list(sizes), middle, line, color=colour, label=name)
    axis.set(xscale="log", yscale="log", xlabel="nodes of the tree", ylabel="microseconds")
    axis.legend(fontsize="small")
    return figure
