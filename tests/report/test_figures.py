from __future__ import annotations

from typing import Any

from assay.report.figures import draw, file_name, listed
from assay.study import Figure

BLACK, DARK_INK = "#000000", "#e9e7e2"


def _figure(paint: Any) -> Figure:
    def make() -> Any:
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas()
        paint(canvas.subplots())
        return canvas

    return Figure("a", "A figure", "Words", make)


def test_error_bars_of_a_bar_chart_are_seen_on_a_dark_page() -> None:
    drawn = draw(_figure(lambda axes: axes.bar([1, 2], [3, 4], yerr=[1, 1], capsize=3)))
    assert drawn.error == ""
    dark = drawn.dark.decode()
    assert f"stroke: {BLACK}" not in dark
    assert f"stroke: {DARK_INK}" in dark


def test_other_colours_are_left_alone() -> None:
    drawn = draw(_figure(lambda axes: axes.plot([1, 2], [3, 4], color="#123456")))
    assert "#123456" in drawn.dark.decode()


def test_a_figure_is_drawn_the_same_way_twice() -> None:
    figure = _figure(lambda axes: axes.plot([1, 2], [3, 4]))
    assert draw(figure) == draw(figure)


def test_the_size_is_known_before_the_figure_is_loaded() -> None:
    drawn = draw(_figure(lambda axes: axes.plot([1, 2], [3, 4])))
    assert 450 < drawn.width < 600
    assert 250 < drawn.height < 400


def test_figures_made_before_an_error_are_kept() -> None:
    def figures() -> Any:
        yield _figure(lambda axes: None)
        raise KeyError("loss")

    found, error = listed(figures())
    assert len(found) == 1
    assert error == "KeyError: 'loss'"


def test_names_are_fit_for_files() -> None:
    assert file_name("../F1 by model/größe") == "F1-by-model-gr-e"
    assert file_name("...") == "figure"
