"""What figures of several rooms share; matplotlib is theirs to import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def legend_below(
    figure: Figure, axes: Iterable[Axes], in_a_row: int = 3, columns: int | None = None
) -> None:
    """Draws one legend below all axes, with each name once.

    Args:
        figure: In constrained layout.
        axes: Those whose labelled artists are named.
        in_a_row: So many entries stand side by side.
        columns: How many where there are more; None for two rows, neither almost empty.
    """
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    entries = len(found)
    place: Any = "outside lower center"
    wide = entries if entries <= in_a_row else columns or (entries + 1) // 2
    figure.legend(list(found.values()), list(found), loc=place, ncols=wide)
