"""Colours of the page and of its figures, for light and for dark screens.

One place holds them, so that the style sheet, the figures and the contrast tests cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from assay.study import Outcome


class Theme(StrEnum):
    """What the reader's screen asks for."""

    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True)
class Ink:
    """A filled mark: the text on it, its fill, and the line around it."""

    text: str
    fill: str
    line: str


@dataclass(frozen=True)
class Palette:
    """The page in one theme; all colours as #rrggbb.

    Text (`ink`, `muted`, `accent`, the code colours) reaches a contrast of 4.5 on `page`,
    `surface` and `sunken`; so does each verdict's text on its own fill.
    """

    page: str
    surface: str
    sunken: str
    line: str
    ink: str
    muted: str
    accent: str
    code_keyword: str
    code_string: str
    code_comment: str
    code_number: str
    verdicts: Mapping[Outcome, Ink]


LIGHT = Palette(
    page="#faf8f4",
    surface="#ffffff",
    sunken="#f3f0e9",
    line="#dcd7cc",
    ink="#1c2026",
    muted="#595f68",
    accent="#1b5e8c",
    code_keyword="#8a2a52",
    code_string="#1c6650",
    code_comment="#62666d",
    code_number="#1b5e8c",
    verdicts={
        Outcome.SUPPORTED: Ink("#ffffff", "#0b6b58", "#0b6b58"),
        Outcome.CONTRADICTED: Ink("#ffffff", "#a3271f", "#a3271f"),
        Outcome.NOT_REPRODUCED: Ink("#ffffff", "#94470a", "#94470a"),
        Outcome.INCONCLUSIVE: Ink("#3c424a", "#ebe8e1", "#80858c"),
        Outcome.NEEDS: Ink("#214767", "#e4edf5", "#5e86a8"),
        Outcome.FAILED: Ink("#6a2367", "#f3e6f2", "#a565a2"),
    },
)

DARK = Palette(
    page="#14171b",
    surface="#1b1f25",
    sunken="#22272e",
    line="#353b44",
    ink="#e9e7e2",
    muted="#a7adb6",
    accent="#86bce4",
    code_keyword="#f09dbe",
    code_string="#83d1b4",
    code_comment="#a0a6af",
    code_number="#86bce4",
    verdicts={
        Outcome.SUPPORTED: Ink("#04211a", "#57c8aa", "#57c8aa"),
        Outcome.CONTRADICTED: Ink("#340a06", "#ff9080", "#ff9080"),
        Outcome.NOT_REPRODUCED: Ink("#301902", "#f0a85c", "#f0a85c"),
        Outcome.INCONCLUSIVE: Ink("#dadde1", "#343a43", "#868d97"),
        Outcome.NEEDS: Ink("#b9d8f2", "#21364a", "#5f8db3"),
        Outcome.FAILED: Ink("#f2bdeb", "#422540", "#a86aa2"),
    },
)

PALETTES: Mapping[Theme, Palette] = {Theme.LIGHT: LIGHT, Theme.DARK: DARK}

CYCLE = ("#2e7ebc", "#cc3370", "#ad831f", "#8b52e0", "#1b9898", "#367d36")
"""Line colours that stand out by 3:1 on both pages and stay apart for the colour-blind."""


def css_variables(theme: Theme) -> str:
    """The palette as custom properties, one declaration a line."""
    palette = PALETTES[theme]
    named = {
        name.replace("_", "-"): value
        for name, value in vars(palette).items()
        if isinstance(value, str)
    }
    for outcome, ink in palette.verdicts.items():
        name = css_name(outcome)
        named |= {f"{name}-text": ink.text, f"{name}-fill": ink.fill, f"{name}-line": ink.line}
    return "\n".join(f"--{name}: {value};" for name, value in named.items())


def css_name(outcome: Outcome) -> str:
    """The outcome as a class name: "not reproduced" -> "not-reproduced"."""
    return outcome.value.replace(" ", "-")


@contextmanager
def figure_style(theme: Theme) -> Iterator[None]:
    """Matplotlib settings under which a study's figure fits the page in this theme."""
    import matplotlib as mpl
    from cycler import cycler

    palette = PALETTES[theme]
    settings: dict[Any, Any] = {
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "savefig.transparent": True,
        "figure.figsize": (5.6, 3.5),
        "figure.constrained_layout.use": True,
        "axes.facecolor": "none",
        "axes.edgecolor": palette.muted,
        "axes.labelcolor": palette.ink,
        "axes.titlecolor": palette.ink,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.labelsize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=CYCLE),
        "grid.color": palette.line,
        "grid.linewidth": 0.7,
        "xtick.color": palette.muted,
        "ytick.color": palette.muted,
        "xtick.labelcolor": palette.ink,
        "ytick.labelcolor": palette.ink,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "text.color": palette.ink,
        # A legend that has to lie on bars or lines stays readable.
        "legend.frameon": True,
        "legend.facecolor": palette.page,
        "legend.edgecolor": "none",
        "legend.framealpha": 0.85,
        "legend.fontsize": 10,
        "lines.linewidth": 2,
        "lines.markersize": 5.5,
        "patch.edgecolor": palette.surface,
        "hatch.color": palette.surface,
        "boxplot.boxprops.color": palette.ink,
        "boxplot.whiskerprops.color": palette.ink,
        "boxplot.capprops.color": palette.ink,
        "boxplot.flierprops.markeredgecolor": palette.muted,
        "font.size": 11,
        # Words stay words: sharp at every size, and found by a search. Fallbacks of the reader's
        # machine are narrower than DejaVu, with whose widths the layout is made.
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "svg.hashsalt": "assay",
    }
    with mpl.rc_context(settings):
        yield
