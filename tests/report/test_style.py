"""Every text of the page can be read, and no verdict or line is told by hue alone."""

from __future__ import annotations

import itertools
import math

import pytest

from assay.report.style import CYCLE, PALETTES, Palette, Theme, css_variables, figure_style
from assay.study import Outcome

TEXT, GRAPHIC = 4.5, 3.0  # WCAG 2.2, AA


def _linear(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG between two #rrggbb colours, 1 to 21."""
    light, dark = sorted(
        (sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), _linear(x), strict=True)) + 0.05)
        for x in (b, a)
    )[::-1]
    return light / dark


def test_contrast_of_known_pairs() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.fixture(params=list(Theme))
def palette(request: pytest.FixtureRequest) -> Palette:
    return PALETTES[request.param]


def test_text_can_be_read_on_every_ground(palette: Palette) -> None:
    texts = ("ink", "muted", "accent", "code_keyword", "code_string", "code_comment", "code_number")
    for text, ground in itertools.product(texts, ("page", "surface", "sunken")):
        assert contrast(getattr(palette, text), getattr(palette, ground)) >= TEXT, (text, ground)


def test_verdicts_can_be_read_and_stand_out(palette: Palette) -> None:
    assert set(palette.verdicts) == set(Outcome)
    for outcome, mark in palette.verdicts.items():
        assert contrast(mark.text, mark.fill) >= TEXT, outcome
        for ground in (palette.page, palette.surface, palette.sunken):
            assert contrast(mark.line, ground) >= GRAPHIC, outcome


def test_decided_verdicts_are_equally_loud(palette: Palette) -> None:
    decided = (Outcome.SUPPORTED, Outcome.CONTRADICTED, Outcome.NOT_REPRODUCED)
    loudness = [contrast(palette.verdicts[o].fill, palette.surface) for o in decided]
    assert max(loudness) / min(loudness) < 1.35


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
_DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def _lab(colour: str, deficiency: str) -> tuple[float, float, float]:
    seen = _times(_DEFICIENCIES[deficiency], _linear(colour))
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = _times(to_xyz, [min(max(c, 0.0), 1.0) for c in seen])
    x, y, z = (
        math.cbrt(v / w) if v / w > 0.008856 else 7.787 * v / w + 16 / 116
        for v, w in zip(xyz, (0.95047, 1.0, 1.08883), strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize("deficiency", _DEFICIENCIES)
def test_lines_stay_apart_for_the_colour_blind(deficiency: str) -> None:
    seen = {c: _lab(c, deficiency) for c in CYCLE}
    for a, b in itertools.combinations(CYCLE, 2):
        assert math.dist(seen[a], seen[b]) > 10, (a, b)


def test_lines_stand_out_on_both_pages(palette: Palette) -> None:
    for colour in CYCLE:
        assert contrast(colour, palette.page) >= GRAPHIC, colour


def test_the_style_sheet_gets_every_colour() -> None:
    css = css_variables(Theme.DARK)
    assert "--page: #14171b;" in css
    assert "--not-reproduced-fill:" in css


def test_figure_style_leaves_no_trace() -> None:
    import matplotlib as mpl

    before = mpl.rcParams["text.color"]
    with figure_style(Theme.DARK):
        assert mpl.rcParams["text.color"] == PALETTES[Theme.DARK].ink
    assert mpl.rcParams["text.color"] == before
