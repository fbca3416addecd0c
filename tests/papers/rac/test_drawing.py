from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from assay.papers.rac.drawing import draw_contextual_values, draw_curves, save_figure, write_gif

VALUES = np.array([[-12.0, -12.0, -12.0], [2.4, 0.1, 0.2], [-5.8, 6.0, 6.1], [8.0, 0.4, 0.3]])
PHI = np.array([8.0, 6.0, 6.1])
SEEN = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [1, 0, 0]], bool)


def test_curves_show_the_median_and_the_middle_half():
    axes = Figure().subplots()
    runs = np.array([[0.0, 1.0], [2.0, 3.0], [10.0, 20.0], [4.0, 5.0], [6.0, 7.0]])
    draw_curves(axes, [0, 100], {"rac": runs, "iql": runs[:1]}, best=8.0)
    rac, iql, best = axes.get_lines()
    assert rac.get_xdata().tolist() == [0, 100]
    assert rac.get_ydata().tolist() == [4, 5]
    assert iql.get_ydata().tolist() == [0, 1]
    assert list(best.get_ydata()) == [8, 8]
    (band,) = axes.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(0, 2), (0, 6), (100, 3), (100, 7)}
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["rac", "iql", "optimum"]


@pytest.mark.parametrize("returns", [{}, {"rac": [[1.0, 2.0]]}, {"rac": np.zeros((0, 3))}])
def test_curves_that_do_not_fit_are_refused(returns):
    with pytest.raises(ValueError, match="returns: got"):
        draw_curves(Figure().subplots(), [0, 1, 2], returns)


def test_the_heat_map_holds_every_value_and_one_scale():
    figure = Figure()
    draw_contextual_values(figure, VALUES, PHI, seen=SEEN, actions=["a", "b", "c"])
    left, right = figure.axes
    shown = {t.get_position(): t.get_text() for t in left.texts}
    assert shown == {(c, a): f"{VALUES[c, a]:.2f}" for c in range(4) for a in range(3)}
    assert [t.get_text() for t in right.texts] == ["8.00", "6.00", "6.10"]
    assert left.images[0].get_clim() == right.images[0].get_clim() == (-12, 8)
    assert len(left.lines) == (~SEEN).sum(), "what did not occur is crossed out"
    assert np.isnan(left.images[0].get_array().filled(np.nan)).sum() == (~SEEN).sum()
    assert [t.get_text() for t in left.get_yticklabels()] == ["a", "b", "c"]


def test_words_take_the_pages_colours():
    from matplotlib import rc_context

    with rc_context({"text.color": "#123456"}):
        figure = Figure()
        draw_contextual_values(figure, VALUES, PHI, seen=SEEN)
    crossed = [t for t in figure.axes[0].texts if not SEEN[t.get_position()]]
    assert {t.get_color() for t in crossed} == {"#123456"}
    # Those on a coloured cell must be read on that cell: the lightest and the darkest.
    by_value = {t.get_text(): t.get_color() for t in figure.axes[1].texts + figure.axes[0].texts}
    assert by_value["8.00"] == "black"
    assert by_value["-12.00"] == "white"


@pytest.mark.parametrize(
    ("contextual", "marginal", "options", "message"),
    [
        (PHI, PHI, {}, "contextual: got shape"),
        (VALUES, PHI[:2], {}, "marginal: got shape"),
        (VALUES, PHI, {"seen": SEEN.T}, "seen: got shape"),
        (VALUES, PHI, {"actions": ["a"]}, "actions: got 1 names, wants 3"),
        (VALUES, PHI, {"contexts": ["a"]}, "contexts: got 1 names, wants 4"),
    ],
)
def test_values_that_do_not_fit_are_refused(contextual, marginal, options, message):
    with pytest.raises(ValueError, match=message):
        draw_contextual_values(Figure(), contextual, marginal, **options)


def test_figures_are_saved_by_their_ending(tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1])
    save_figure(figure, tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").format == "PNG"
    with pytest.raises(ValueError, match="xyz"):
        save_figure(figure, tmp_path / "a.xyz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_an_animation_holds_its_frames(tmp_path):
    frames = [np.full((8, 6, 3), value, np.uint8) for value in (0, 120, 240)]
    write_gif(frames, tmp_path / "a.gif", fps=5)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 3
        assert image.info["loop"] == 0
        durations = []
        for i, value in enumerate((0, 120, 240)):
            image.seek(i)
            durations.append(image.info["duration"])
            assert image.convert("RGB").getpixel((2, 2)) == (value,) * 3
    assert durations == [200, 200, 800]


FRAME = np.zeros((4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("frames", "name", "fps", "message"),
    [
        ([], "a.gif", 4, "frames: got none"),
        ([FRAME, FRAME[:2]], "a.gif", 4, "frames: got uint8"),
        ([FRAME.astype(float)], "a.gif", 4, "frames: got float64"),
        ([FRAME], "a.png", 4, "path: got"),
        ([FRAME], "a.gif", 0, "fps: got 0"),
        ([FRAME], "a.gif", 1e-3, r"fps: got 0\.001"),
        ([FRAME], "a.gif", np.inf, "fps: got inf"),
        ([FRAME[:0]], "a.gif", 4, "frames: got uint8"),
    ],
)
def test_bad_animations_are_refused(tmp_path, frames, name, fps, message):
    with pytest.raises(ValueError, match=message):
        write_gif(frames, tmp_path / name, fps)
    assert not list(tmp_path.iterdir())


def test_pictures_may_come_as_one_array(tmp_path):
    write_gif([FRAME, FRAME // 2], tmp_path / "list.gif")
    write_gif(np.stack([FRAME, FRAME // 2]), tmp_path / "array.gif")
    assert (tmp_path / "list.gif").read_bytes() == (tmp_path / "array.gif").read_bytes()
