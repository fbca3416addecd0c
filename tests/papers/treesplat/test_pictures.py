"""Strips and films: what is cropped, how it is put together."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from assay.papers.treesplat.pictures import cropped, film, filmed, rendered, strip
from assay.papers.treesplat.scenes import Pendulum, render_capture
from assay.papers.treesplat.tree_splat import TreeSplat


def dots(*places, size=40):
    """White pictures with a black pixel each."""
    pictures = []
    for row, column in places:
        picture = np.full((size, size, 3), 255, np.uint8)
        picture[row, column] = 0
        pictures.append(picture)
    return pictures


def test_films_are_cropped_alike_to_what_the_first_of_them_shows():
    first, second = cropped(dots((10, 20), (15, 22)), dots((12, 21), (0, 0)), margin=2)
    assert [picture.shape for picture in (*first, *second)] == [(10, 7, 3)] * 4
    assert first[0][2, 2].tolist() == [0, 0, 0]
    assert second[0][4, 3].tolist() == [0, 0, 0]
    assert (second[1] == 255).all()


def test_margins_end_at_the_border_and_empty_films_stay_whole():
    (film_at_corner,) = cropped(dots((0, 39)), margin=3)
    assert film_at_corner[0].shape == (4, 4, 3)
    empty = [np.full((5, 6, 3), 255, np.uint8)]
    assert cropped(empty)[0][0].shape == (5, 6, 3)


def test_a_strip_is_its_pictures_in_rows():
    rows = [dots((1, 1), (2, 2), size=8), dots((3, 3), (4, 4), size=8)]
    with Image.open(io.BytesIO(strip(rows))) as image:
        picture = np.asarray(image.convert("RGB"))
    assert picture.shape == (16, 16, 3)
    assert np.argwhere(picture.max(-1) == 0).tolist() == [[1, 1], [2, 10], [11, 3], [12, 12]]


def test_a_film_has_a_frame_for_each_time_and_repeats():
    columns = {"left": dots((1, 1), (9, 9)), "right": dots((2, 2), (8, 8))}
    with Image.open(io.BytesIO(film(columns))) as image:
        assert image.n_frames == 2
        assert image.info["loop"] == 0
        assert image.width == 2 * round(24_000**0.5)


@pytest.mark.parametrize("background", ["white", "black"])
def test_a_scene_is_filmed_as_its_capture_was(background):
    scene = Pendulum()
    capture = render_capture(
        scene, size=32, n_train=2, n_val=0, n_test=1, n_points=9, background=background
    )
    frame = capture.test.frames[0]
    (picture,) = filmed(scene, capture, frame, [frame.time])
    taken = 255 * capture.test.image(0).numpy()
    assert np.abs(picture - taken).mean() < 2  # other rays a pixel
    far = taken.mean() - 255 * capture.background.numpy().mean()
    assert np.abs(picture.mean() - taken.mean()) < 0.1 * np.abs(far)


def test_a_model_is_rendered_on_its_background():
    model = TreeSplat.from_points(torch.zeros(1, 3), motion="none", sh_degree=0)
    capture = render_capture(Pendulum(), size=16, n_train=2, n_val=0, n_test=1, n_points=9)
    pictures = rendered(model, capture.background, capture.test.frames[0], [0.0, 1.0])
    assert [picture.shape for picture in pictures] == [(16, 16, 3)] * 2
    assert pictures[0][0, 0].tolist() == [255, 255, 255]
    assert pictures[0].min() < 255
