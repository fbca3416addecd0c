"""Drawing a state machine as SVG, PDF or PNG, without Graphviz."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import networkx as nx
import numpy as np

from assay.papers.psmbench.machine import ProtocolStateMachine
from assay.toolkits.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Labels: TypeAlias = Literal["auto", "full", "numbered"]
Point: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]

# Inches; the axes are drawn one unit to the inch so that text has a size in them.
_NODE_HEIGHT = 0.42
_COLUMN_GAP = 1.5
_ROW_GAP = 1.4
_MARGIN = 0.35
_FONT = 8.5
_CHARACTER = _FONT * 0.56 / 72
_LINE = _FONT * 1.25 / 72


def draw(
    machine: ProtocolStateMachine,
    path: str | Path | None = None,
    *,
    title: str = "",
    labels: Labels = "auto",
) -> Figure:
    """Draws a machine: states in columns by their distance from the initial one.

    The initial state is entered by an arrow from a dot, final states have a double border,
    undeclared ones a dashed border.

    Args:
        machine: what to draw.
        path: where to save it; the ending names the format (.svg, .pdf, .png). None: not saved.
        title: a line above the drawing.
        labels: "full" writes event and action at the arrows, "numbered" writes numbers there and
            a list beside the drawing; "auto" takes numbers where the arrows are crowded.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: for a machine without states, an unknown ending or an unknown `labels`.
        OSError: where the file cannot be written.
    """
    from matplotlib.figure import Figure

    if labels not in ("auto", "full", "numbered"):
        raise ValueError(f"labels: got {labels!r}, wants 'auto', 'full' or 'numbered'")
    ending = Path(path).suffix.lower() if path else ".svg"
    if ending not in (".svg", ".pdf", ".png"):
        raise ValueError(f"path: got ending {ending!r}, wants .svg, .pdf or .png")
    graph = machine.to_networkx()
    if not graph:
        raise ValueError("machine: it has no states to draw")
    texts = _arrow_texts(machine)
    if labels == "auto":
        longest = max((len(line) for lines in texts.values() for line in lines), default=0)
        most = max(map(len, texts.values()), default=0)
        crowded = longest > 64 or most > 3 or len(texts) > 3 * len(graph)
        labels = "numbered" if crowded else "full"
    legend: list[str] = []
    if labels == "numbered":
        texts, legend = _numbered(texts)
    else:
        # Two lines to a label: narrow columns keep the drawing on a page.
        texts = {
            ends: [part for line in lines for part in line.replace(" / ", "\n/ ", 1).split("\n")]
            for ends, lines in texts.items()
        }

    sizes = {state: max(0.8, len(state) * _CHARACTER + 0.3) for state in graph}
    label_width = max((len(line) for lines in texts.values() for line in lines), default=0)
    gap = max(_COLUMN_GAP, label_width * _CHARACTER + 0.55)
    centres = _positions(graph, machine.initial_state, sizes, gap)
    left = min(x - sizes[s] / 2 for s, (x, _) in centres.items()) - 0.9
    right = max(x + sizes[s] / 2 for s, (x, _) in centres.items()) + 0.5
    heights = [y for _, y in centres.values()]
    arcs = {ends: _arc(ends, centres, sizes) for ends in texts}
    lows = [float(arc[:, 1].min()) for arc in arcs.values()]
    highs = [float(arc[:, 1].max()) for arc in arcs.values()]
    bottom = min([min(heights) - 0.6, *lows]) - _MARGIN
    top = max([max(heights) + 0.6, *highs]) + _MARGIN + (0.4 if title else 0)
    if legend:
        needed = (len(legend) + 1) * _LINE + 2 * _MARGIN
        slack = max(0.0, needed - (top - bottom)) / 2
        bottom, top = bottom - slack, top + slack
    legend_left = right
    right += max(map(len, legend)) * _CHARACTER + 0.4 if legend else 0

    figure = Figure(figsize=(right - left, top - bottom))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
    axes.set_axis_off()
    taken = [_box(x, y, sizes[s], _NODE_HEIGHT) for s, (x, y) in centres.items()]
    for arc in arcs.values():
        axes.annotate(
            "",
            arc[-1],
            arc[-2],
            arrowprops={"arrowstyle": "-|>", "lw": 0.9, "shrinkA": 0, "shrinkB": 0, "color": "C0"},
            zorder=2,
        )
        axes.plot(arc[:-1, 0], arc[:-1, 1], lw=0.9, color="C0", zorder=1)
    for ends, arc in sorted(arcs.items(), key=lambda item: _length(item[1])):
        others = np.concatenate([np.zeros((0, 2)), *(a for e, a in arcs.items() if e != ends)])
        _write_label(axes, arc, texts[ends], taken, others)
    _draw_states(axes, machine, graph, centres, sizes)
    if legend:
        axes.text(
            legend_left,
            top - _MARGIN,
            "\n".join(legend),
            fontsize=_FONT,
            va="top",
            linespacing=1.25,
        )
    if title:
        axes.text(left + 0.2, top - 0.2, title, fontsize=12, va="top", weight="bold")
    if path:
        content = io.BytesIO()
        figure.savefig(
            content,
            format=ending[1:],
            dpi=150,
            metadata={"Date": None} if ending == ".svg" else None,
        )
        write_bytes(Path(path), content.getvalue())
    return figure


def _arrow_texts(machine: ProtocolStateMachine) -> dict[tuple[str, str], list[str]]:
    texts: dict[tuple[str, str], list[str]] = {}
    for t in machine.transitions:
        label = " / ".join(part for part in (t.event, t.action) if part)
        texts.setdefault((t.source, t.target), []).append(label)
    return texts


def _numbered(
    texts: dict[tuple[str, str], list[str]],
) -> tuple[dict[tuple[str, str], list[str]], list[str]]:
    numbers: dict[tuple[str, str], list[str]] = {}
    legend: list[str] = []
    for ends, lines in texts.items():
        first = len(legend) + 1
        legend += [f"{i}  {_shortened(line)}" for i, line in enumerate(lines, first)]
        last = len(legend)
        numbers[ends] = [str(first) if first == last else f"{first}-{last}"]
    return numbers, legend


def _shortened(text: str, longest: int = 90) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _positions(
    graph: nx.MultiDiGraph, initial: str, sizes: dict[str, float], gap: float
) -> dict[str, Point]:
    """Columns by distance from the initial state; within a column near their neighbours."""
    depth = dict(nx.single_source_shortest_path_length(graph, initial)) if initial in graph else {}
    for state in graph:
        if state not in depth:
            # Out of reach: one column before the first state it leads to, or in the first one.
            later = [depth[other] for other in graph.successors(state) if other in depth]
            depth[state] = max(0, min(later, default=1) - 1)
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for state, column in depth.items():
        columns[column].append(state)
    columns = [column for column in columns if column]
    rows = {s: i - (len(c) - 1) / 2 for c in columns for i, s in enumerate(c)}
    neighbours = graph.to_undirected(as_view=True)
    for sweep in range(8):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = {
                s: float(np.mean([rows[n] for n in neighbours[s] if n not in column] or [rows[s]]))
                for s in column
            }
            column.sort(key=lambda s: (wanted[s], s))
            rows.update({s: i - (len(column) - 1) / 2 for i, s in enumerate(column)})
    positions: dict[str, Point] = {}
    x = 0.0
    for index, column in enumerate(columns):
        width = max(sizes[state] for state in column)
        # Half a step for every other column keeps long straight arrows off the states between.
        shift = 0.35 if index % 2 and len(column) == 1 else 0.0
        for state in column:
            positions[state] = (x + width / 2, -(rows[state] + shift) * _ROW_GAP)
        x += width + gap
    return positions


def _arc(ends: tuple[str, str], centres: dict[str, Point], sizes: dict[str, float]) -> np.ndarray:
    """Points of the arrow from border to border, ``(n, 2)``."""
    source, target = (np.array(centres[state]) for state in ends)
    t = np.linspace(0, 1, 121)[:, None]
    if ends[0] == ends[1]:
        # A loop above the state.
        up, side = np.array((0, _NODE_HEIGHT / 2)), np.array((0.2, 0))
        a, b = source + up - side, source + up + side
        c, d = (end + np.array((0, 0.5)) for end in (a - side, b + side))
        loop: np.ndarray = (
            (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * c + 3 * t**2 * (1 - t) * d + t**3 * b
        )
        return loop
    step = target - source
    length = float(np.hypot(*step))
    normal = np.array([-step[1], step[0]]) / length
    between = [
        _box(*centre, sizes[state] + 0.3, _NODE_HEIGHT + 0.3)
        for state, centre in centres.items()
        if state not in ends
    ]
    # To the left of its direction, so that arrows there and back part; wider where a state is in
    # the way.
    for bend in np.arange(0.16, 3.0, 0.12):
        control = (source + target) / 2 + normal * 2 * min(bend, length)
        points = (1 - t) ** 2 * source + 2 * t * (1 - t) * control + t**2 * target
        if not any(_inside(points, box).any() for box in between):
            break
    own = [_box(*centres[state], sizes[state], _NODE_HEIGHT) for state in ends]
    outside = ~(_inside(points, own[0]) | _inside(points, own[1]))
    visible: np.ndarray = points[outside] if outside.sum() > 2 else points
    return visible


def _write_label(
    axes: Axes, arc: np.ndarray, lines: list[str], taken: list[Box], others: np.ndarray
) -> None:
    """Writes a label on its arrow, where it covers least of what is there."""
    text = "\n".join(line for line in lines if line)
    if not text:
        return
    width = max(map(len, text.split("\n"))) * _CHARACTER + 0.06
    height = (text.count("\n") + 1) * _LINE + 0.03
    places = [_box(x, y, width, height) for x, y in _places(arc)]
    covered = [
        sum(_overlap(place, other) for other in taken) + 0.004 * _inside(others, place).sum()
        for place in places
    ]
    best = places[int(np.argmin(covered))]
    taken.append(best)
    axes.text(
        (best[0] + best[2]) / 2,
        (best[1] + best[3]) / 2,
        text,
        fontsize=_FONT,
        ha="center",
        va="center",
        linespacing=1.15,
        zorder=4,
        bbox={
            "boxstyle": "square,pad=0.1",
            "facecolor": axes.figure.get_facecolor(),
            "edgecolor": "none",
            "alpha": 0.85,
        },
    )


def _places(arc: np.ndarray) -> Iterator[Point]:
    """Along the arrow from its middle outwards; then beside it."""
    for offset in (0.0, 0.12, -0.12, 0.24, -0.24, 0.4, -0.4):
        for share in (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74):
            x, y = arc[round(share * (len(arc) - 1))]
            yield float(x), float(y) + offset


def _draw_states(
    axes: Axes,
    machine: ProtocolStateMachine,
    graph: nx.MultiDiGraph,
    centres: dict[str, Point],
    sizes: dict[str, float],
) -> None:
    from matplotlib.patches import FancyBboxPatch

    declared = set(machine.states)
    ink = axes.xaxis.label.get_color()
    for state, (x, y) in centres.items():
        borders = (0.0, 0.05) if graph.nodes[state]["final"] else (0.0,)
        for inset in borders:
            box = _box(x, y, sizes[state] - 2 * inset, _NODE_HEIGHT - 2 * inset)
            axes.add_patch(
                FancyBboxPatch(
                    box[:2],
                    box[2] - box[0],
                    box[3] - box[1],
                    boxstyle="round,pad=0,rounding_size=0.1",
                    facecolor=axes.figure.get_facecolor(),
                    edgecolor=ink,
                    linestyle="-" if state in declared else "--",
                    linewidth=1.1,
                    zorder=5,
                )
            )
        axes.text(x, y, state, fontsize=_FONT, ha="center", va="center", zorder=6)
    if machine.initial_state in centres:
        x, y = centres[machine.initial_state]
        border = x - sizes[machine.initial_state] / 2
        axes.plot([border - 0.5], [y], "o", color=ink, markersize=6)
        axes.annotate(
            "",
            (border, y),
            (border - 0.5, y),
            arrowprops={"arrowstyle": "-|>", "color": ink, "shrinkA": 0, "shrinkB": 0},
        )


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _inside(points: np.ndarray, box: Box) -> np.ndarray:
    """Which of the points ``(n, 2)`` lie in the box, ``(n,)``."""
    inside: np.ndarray = np.all((points >= box[:2]) & (points <= box[2:]), axis=1)
    return inside


def _overlap(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, width) * max(0.0, height)


def _length(arc: np.ndarray) -> float:
    return math.fsum(np.hypot(*np.diff(arc, axis=0).T))
