from __future__ import annotations

import math

import av
import numpy as np
import pytest
import torch
from PIL import Image

from assay.papers.treesplat.playback import (
    draw,
    intrinsics,
    look_at,
    orbit,
    surroundings,
    write_film,
)
from assay.papers.treesplat.tree_splat import TreeSplat

UP = torch.tensor([0.0, 0.0, 1.0])


def ball(center=(1.0, -2.0, 0.5), n=200, seed=0):
    points = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
    points = points / points.norm(dim=1, keepdim=True) + torch.tensor(center)
    red = torch.tensor([1.0, 0.0, 0.0]).expand(n, 3)
    return TreeSplat.from_points(points, red, motion="flat", sh_degree=0)


def test_a_camera_sees_its_target_ahead_and_the_sky_above():
    viewmat = look_at(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 0.5]), UP)
    assert float(torch.linalg.det(viewmat[:3, :3])) == pytest.approx(1, abs=1e-6)
    seen = viewmat @ torch.tensor([0.0, 1.0, 0.5, 1.0])
    torch.testing.assert_close(seen[:2], torch.zeros(2), atol=1e-6, rtol=0)
    assert seen[2] == pytest.approx(math.hypot(3, 1.5), abs=1e-5)
    assert (viewmat[:3, :3] @ UP)[1] < 0  # y points down
    with pytest.raises(ValueError, match="looks along up"):
        look_at(UP, torch.zeros(3), UP)


def test_an_orbit_sees_the_whole_model_from_all_around():
    model = ball()
    middle, radius = surroundings(model)
    torch.testing.assert_close(middle, torch.tensor([1.0, -2.0, 0.5]), atol=0.2, rtol=0)
    size = float(model.splats["scales"].exp().max())
    assert radius == pytest.approx(1 + size, abs=0.2)
    views = orbit(model, 4, elevation=30)
    K = intrinsics(100, 80)
    means = torch.cat([model.splats["means"].detach(), torch.ones(model.n, 1)], 1)
    for viewmat in views:
        pixels = (means @ viewmat.T)[:, :3] @ K.T
        assert (pixels[:, 2] > 0).all()
        x, y = (pixels[:, :2] / pixels[:, 2:]).T
        assert ((x > 0) & (x < 100) & (y > 0) & (y < 80)).all()
    eyes = -(views[:, :3, :3].mT @ views[:, :3, 3:]).squeeze(-1)
    torch.testing.assert_close(eyes.mean(0)[:2], middle[:2], atol=1e-4, rtol=0)
    height = (eyes[:, 2] - middle[2]) / (eyes - middle).norm(dim=1)
    torch.testing.assert_close(height, torch.full((4,), 0.5), atol=1e-4, rtol=0)
    sideways = orbit(model, 2, up=(0.0, -1.0, 0.0))
    assert ((sideways[:, :3, :3] @ torch.tensor([0.0, -1.0, 0.0]))[:, 1] < 0).all()


def test_surroundings_reach_as_far_as_the_model_moves():
    model = ball()
    with torch.no_grad():
        for parameter in model.motion.basis.parameters():
            parameter.zero_()
        model.motion.basis.mlp[0].weight[0, 0] = model.motion.basis.mlp[2].weight[0, 0] = 1
        model.motion.basis.mlp[-1].weight[2, 0] = 1
        model.motion.coef_mu[:, 0] = 8
    ends = [model.at(t)["means"] for t in (0.0, 1.0)]
    assert float((ends[1] - ends[0]).norm(dim=1).min()) > 4
    middle, radius = surroundings(model)
    for means in ends:
        assert ((means - middle).norm(dim=1) < 1.05 * radius).all()
    halfway = (ends[0].mean(0) + ends[1].mean(0)) / 2
    torch.testing.assert_close(middle, halfway, atol=0.2, rtol=0)


def test_one_stray_gaussian_does_not_move_the_camera_away():
    model = ball()
    with torch.no_grad():
        model.splats["means"][0] = 1e4
    assert surroundings(model)[1] < 2
    with pytest.raises(ValueError, match="turns: got inf"):
        orbit(model, 2, turns=math.inf)


def test_a_picture_shows_the_model_on_its_background():
    model = ball()
    with torch.no_grad():
        model.splats["opacities"].fill_(4.0)
        model.splats["scales"].fill_(math.log(0.3))
    picture = draw(
        model, orbit(model, 1)[0], intrinsics(40, 30), 40, 30, 0.5, torch.tensor([0.0, 0, 1]), "cpu"
    )
    assert picture.shape == (30, 40, 3)
    assert picture.dtype == np.uint8
    assert picture[15, 20].tolist() == [255, 0, 0]
    assert picture[0, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize("size", [(32, 48), (33, 47)])
def test_films_have_all_their_pictures(tmp_path, size):
    pictures = [np.full((*size, 3), value, np.uint8) for value in (0, 90, 180, 250)]
    assert write_film(tmp_path / "a.gif", pictures, fps=10) == 4
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 4
        assert gif.info["duration"] == 100
        assert gif.size == size[::-1]
    assert write_film(tmp_path / "a.mp4", iter(pictures), fps=25) == 4
    with av.open(tmp_path / "a.mp4") as film:
        assert film.streams.video[0].average_rate == 25
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert [round(float(frame.mean()), -1) for frame in frames] == [0, 90, 180, 250]
    assert frames[0].shape[0] - size[0] in (0, 1)


def test_bad_films_are_refused(tmp_path):
    picture = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match=r"path: got a\.avi, wants a name that ends in \.gif or"):
        write_film(tmp_path / "a.avi", [picture])
    with pytest.raises(ValueError, match="pictures: got none"):
        write_film(tmp_path / "a.gif", [])
    with pytest.raises(ValueError, match="fps: got 0"):
        write_film(tmp_path / "a.gif", [picture], fps=0)
    with pytest.raises(ValueError, match="pictures: got"):
        write_film(tmp_path / "a.gif", [picture, picture[:4]])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_film(tmp_path / "nowhere" / "a.gif", [picture])
    assert not list(tmp_path.iterdir())
