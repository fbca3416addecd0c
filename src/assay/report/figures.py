"""Draws a study's figures as SVG files, once for light and once for dark pages."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.report.style import PALETTES, Theme, figure_style
from assay.study import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_log = logging.getLogger(__name__)
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NO_METADATA = {"Date": None, "Creator": None}
_POINTS_TO_PIXELS = 4 / 3


@dataclass(frozen=True)
class Drawn:
    """A figure as two SVG documents, or the `error` that kept it from being drawn.

    `width` and `height` are in CSS pixels, so that the page does not jump while loading.
    """

    figure: Figure
    light: bytes = b""
    dark: bytes = b""
    width: int = 0
    height: int = 0
    error: str = ""


def draw(figure: Figure) -> Drawn:
    """Both versions of a figure. A study's error is reported in the result and never raised."""
    try:
        light, dark = (_svg(figure, theme) for theme in (Theme.LIGHT, Theme.DARK))
    except Exception as error:  # one broken figure must not cost the reader the page
        _log.warning("figure %s could not be drawn", figure.name, exc_info=True)
        return Drawn(figure, error=f"{type(error).__name__}: {error}")
    width, height = _size(light)
    return Drawn(figure, light, dark, width, height)


def listed(figures: Iterable[Figure]) -> tuple[list[Figure], str]:
    """The figures up to the first error while they are made, and that error ("" for none)."""
    found: list[Figure] = []
    try:
        found.extend(figures)
    except Exception as error:  # as in `draw`
        _log.warning("figures could not be listed", exc_info=True)
        return found, f"{type(error).__name__}: {error}"
    return found, ""


def _svg(figure: Figure, theme: Theme) -> bytes:
    import matplotlib as mpl

    # A study that uses pyplot must not open windows; a notebook that does keeps its own choice.
    if "matplotlib.pyplot" not in sys.modules:
        mpl.use("Agg")
    with figure_style(theme):
        drawn = figure.draw()
        _repaint(drawn, PALETTES[theme].ink)
        buffer = io.BytesIO()
        drawn.savefig(buffer, format="svg", bbox_inches="tight", metadata=_NO_METADATA)
        _forget(drawn)
    return buffer.getvalue()


def _repaint(drawn: MatplotlibFigure, ink: str) -> None:
    """Gives black lines the colour of the text: matplotlib paints the error bars of a bar chart
    black whatever its settings say, and on a dark page they would be gone."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba_array
    from matplotlib.lines import Line2D

    def black(colour: Any) -> bool:
        found = to_rgba_array(colour)
        return len(found) > 0 and bool((found == (0, 0, 0, 1)).all())

    for artist in drawn.findobj(lambda a: isinstance(a, Line2D | LineCollection)):
        if isinstance(artist, LineCollection) and black(artist.get_color()):
            artist.set_color(ink)
        elif isinstance(artist, Line2D):
            if black(artist.get_color()):
                artist.set_color(ink)
            if black(artist.get_markeredgecolor()):
                artist.set_markeredgecolor(ink)


def _forget(drawn: object) -> None:
    """Frees a figure made through pyplot, which keeps all of them."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(drawn)


def _size(svg: bytes) -> tuple[int, int]:
    head = svg[:2000].decode("utf-8", "replace")
    sizes = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', head)
    if not sizes:
        return 0, 0
    return tuple(round(float(s) * _POINTS_TO_PIXELS) for s in sizes.groups())  # type: ignore[return-value]


def file_name(name: str) -> str:
    """A name that any file system and any address takes."""
    return _SAFE.sub("-", name).strip("-.") or "figure"
