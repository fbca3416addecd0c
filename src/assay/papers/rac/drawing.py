"""Pictures of training and of what was learned."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from assay.toolkits.checks import number
from assay.toolkits.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_curves(
    axes: Axes, steps: ArrayLike, returns: Mapping[str, ArrayLike], best: float | None = None
) -> None:
    """Draws the median over runs of each learner, and the half of the runs around it.

    Args:
        axes: Where to draw.
        steps: Environment steps at which was measured, ``(k,)``.
        returns: For each learner, by name, the returns of its runs, ``(runs, k)``.
        best: The largest return that there is; drawn as a line where given.

    Raises:
        ValueError: Where there is no learner, or `returns` do not fit `steps`.
    """
    x = np.asarray(steps, dtype=float)
    if not returns:
        raise ValueError("returns: got none, wants those of at least one learner")
    for name, given in returns.items():
        runs = np.atleast_2d(np.asarray(given, dtype=float))
        if runs.shape[1:] != x.shape or len(runs) == 0:
            raise ValueError(f"returns: got {runs.shape} for {name}, wants (runs, {x.size})")
        low, median, high = np.quantile(runs, (0.25, 0.5, 0.75), axis=0)
        (line,) = axes.plot(x, median, label=name)
        if len(runs) > 1:
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if best is not None:
        axes.axhline(best, linestyle=":", color="0.5", label="optimum")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.legend()


def draw_contextual_values(
    figure: Figure,
    contextual: ArrayLike,
    marginal: ArrayLike,
    *,
    contexts: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    seen: ArrayLike | None = None,
) -> None:
    """Draws Q_C of every action and context as a heat map, and phi beside it (Table 1).

    Args:
        figure: Where to draw; it must be empty.
        contextual: Q_C(s, c_kappa, a) of one state, ``(m, A)``.
        marginal: phi(s, a), ``(A,)``.
        contexts: Names of the contexts. Default: kappa = 0, ..., m - 1.
        actions: Names of the actions. Default: 0, ..., A - 1.
        seen: Bool ``(m, A)``, which pairs occurred; the others are crossed out, as in the paper.

    Raises:
        ValueError: For arrays or names that do not fit together.
    """
    values = np.asarray(contextual, dtype=float)
    phi = np.asarray(marginal, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"contextual: got shape {values.shape}, wants (contexts, actions)")
    m, n_actions = values.shape
    if phi.shape != (n_actions,):
        raise ValueError(f"marginal: got shape {phi.shape}, wants ({n_actions},)")
    occurred = np.ones(values.shape, bool) if seen is None else np.asarray(seen, dtype=bool)
    if occurred.shape != values.shape:
        raise ValueError(f"seen: got shape {occurred.shape}, wants {values.shape}")
    rows = [str(a) for a in (range(n_actions) if actions is None else actions)]
    columns = [str(c) for c in (range(m) if contexts is None else contexts)]
    for name, got, wants in (("actions", rows, n_actions), ("contexts", columns, m)):
        if len(got) != wants:
            raise ValueError(f"{name}: got {len(got)} names, wants {wants}")

    # Both panels share one scale, so that a colour means one value.
    shown = np.concatenate([values[occurred], phi])
    scale = {"vmin": shown.min(), "vmax": shown.max(), "cmap": "viridis", "aspect": "auto"}
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(m, 1))
    panels: list[tuple[Any, Any, list[str], str]] = [
        (left, np.where(occurred, values, np.nan).T, columns, "$Q_C(a, c_\\kappa)$"),
        (right, phi[:, None], [""], "$\\phi(a)$"),
    ]
    for axes, table, ticks, title in panels:
        image = axes.imshow(table, **scale)
        axes.set_title(title)
        upright = max(map(len, ticks)) * len(ticks) > 60  # side by side they would overlap
        axes.set_xticks(range(len(ticks)), ticks, rotation=90 if upright else 0)
        axes.grid(False)
        for (row, column), value in np.ndenumerate(table):
            if np.isnan(value):
                number, colour = float(values[column, row]), None
                axes.plot(
                    (column - 0.4, column + 0.4), (row, row), color="0.5", linewidth=1, alpha=0.8
                )
            else:
                number = float(value)
                # On the cell's own fill, not on the page: dark on light, light on dark.
                red, green, blue, _ = image.cmap(image.norm(value))
                colour = "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.5 else "white"
            text = f"{round(number, 2) + 0.0:.2f}"  # + 0.0: no minus at zero
            axes.text(column, row, text, ha="center", va="center", color=colour)
    left.set_yticks(range(n_actions), rows)
    left.set_ylabel("action")
    left.set_xlabel("context")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Saves a figure as a whole or not at all.

    Args:
        figure: What to save.
        path: Where; the ending names the format (.png, .svg, .pdf).

    Raises:
        ValueError: For an ending that matplotlib does not know.
        OSError: Where the file cannot be written.
    """
    path = Path(path)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix("."), dpi=150)
    write_bytes(path, content.getvalue())


def write_gif(
    frames: Sequence[np.ndarray] | np.ndarray, path: str | Path, fps: float = 4.0
) -> None:
    """Writes pictures as an animation that repeats, with a rest on the last of them.

    Args:
        frames: At least one RGB picture, uint8 ``(height, width, 3)``, all of one size.
        path: Where; ends in .gif.
        fps: Frames a second, 0.01 to 100.

    Raises:
        ValueError: Without frames, for frames of another form, for another ending or rate.
        OSError: Where the file cannot be written.
    """
    from PIL import Image

    path = Path(path)
    if path.suffix != ".gif":
        raise ValueError(f"path: got {path.name}, wants a name that ends in .gif")
    number("fps", fps, least=0.01, most=100)
    if len(frames) == 0:
        raise ValueError("frames: got none, wants at least one")
    for frame in frames:
        if not frame.size or frame.dtype != np.uint8 or frame.shape != (*frames[0].shape[:2], 3):
            raise ValueError(
                f"frames: got {frame.dtype} {frame.shape}, wants uint8 (height, width, 3) in all"
            )
    images = [Image.fromarray(frame) for frame in frames]
    durations = [round(1000 / fps)] * (len(images) - 1) + [round(4000 / fps)]
    content = io.BytesIO()
    images[0].save(
        content,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
    )
    write_bytes(path, content.getvalue())
