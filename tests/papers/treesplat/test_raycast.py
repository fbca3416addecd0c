import math
import time

import numpy as np
import pytest
import torch

pytest.importorskip("embreex")

from assay.papers.treesplat import rasterize
from assay.papers.treesplat.datasets.frames import camera_centers
from assay.papers.treesplat.scenes import (
    Capsule,
    CapsuleBody,
    Material,
    Mesh,
    Pendulum,
    cast,
    catalogue,
    look_at,
    render_capture,
)
from assay.papers.treesplat.scenes.mesh import bake_light, to_linear, to_srgb
from assay.toolkits.data import MissingData


def square(z=0.0, color=(1, 0, 0), uvs=None, texture=None):
    """The square from (-1, -1) to (1, 1) at a height."""
    vertices = np.array([[-1, -1, z], [1, -1, z], [1, 1, z], [-1, 1, z]], float)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    material = Material(np.array(color, float), texture)
    return Mesh(vertices, faces, (material,), np.zeros(2, int), uvs=uvs)


class Still:
    duration = 1.0

    def __init__(self, mesh):
        self.mesh = mesh

    def at(self, t):
        return self.mesh


def scene_or_skip(name):
    try:
        return catalogue.load(name)
    except MissingData as error:
        pytest.skip(str(error))


# From (0, 0, 4) straight down; image x is world x, image y is world -y.
DOWN = np.array([[1.0, 0, 0, 0], [0, -1, 0, 0], [0, 0, -1, 4], [0, 0, 0, 1]])
K = np.array([[40.0, 0, 16], [0, 40, 12], [0, 0, 1]])


def test_square_covers_the_pixels_that_projection_says():
    view = cast(square(), DOWN, K, 32, 24, supersample=4)
    # Its edges project to 16 +- 10 and 12 +- 10.
    wanted = np.zeros((24, 32))
    wanted[2:22, 6:26] = 1
    np.testing.assert_array_equal(view.rgba[..., 3] / 255, wanted)
    np.testing.assert_array_equal(view.rgba[wanted == 1][:, :3], [[255, 0, 0]] * 400)
    np.testing.assert_allclose(view.depth[wanted == 1], 4, rtol=1e-5)
    assert (view.depth[wanted == 0] == 0).all()


def test_supersampling_gives_the_share_of_a_pixel():
    shifted = K.copy()
    shifted[0, 2] += 0.25
    alpha = cast(square(), DOWN, shifted, 32, 24, supersample=4).rgba[12, :, 3]
    assert alpha[6] == round(0.75 * 255)
    assert alpha[26] == round(0.25 * 255)


def test_texture_reads_the_right_way_up():
    # Top row of the image red and green, bottom row blue and white.
    texture = np.array([[[1, 0, 0], [0, 1, 0]], [[0, 0, 1], [1, 1, 1]]], np.float32)
    uvs = np.array([[0, 1], [1, 1], [1, 0], [0, 0]], float)
    rgba = cast(square(color=(1, 1, 1), uvs=uvs, texture=texture), DOWN, K, 32, 24).rgba
    # Quarter points are texel centres.
    found = [rgba[y, x, :3].argmax() for y, x in ((7, 11), (7, 21), (17, 11))]
    assert found == [0, 1, 2]
    assert rgba[17, 21, :3].min() > 200


def test_nearer_surface_hides_the_farther_one():
    near, far = square(1.0, (0, 1, 0)), square(0.0)
    both = Mesh(
        np.concatenate([far.vertices, 0.5 * near.vertices + [0, 0, 0.5]]),
        np.concatenate([far.faces, near.faces + 4]),
        (*far.materials, *near.materials),
        np.array([0, 0, 1, 1]),
    )
    rgba = cast(both, DOWN, K, 32, 24).rgba
    np.testing.assert_array_equal(rgba[12, 16], [0, 255, 0, 255])
    np.testing.assert_array_equal(rgba[12, 7], [255, 0, 0, 255])


def test_light_stands_in_the_world():
    lit = cast(square(), DOWN, K, 32, 24, light=(0, 0, 2)).rgba[12, 16, 0]
    slanted = cast(square(), DOWN, K, 32, 24, light=(0, math.sqrt(3), 1)).rgba[12, 16, 0]
    behind = cast(square(), DOWN, K, 32, 24, light=(0, 0, -1)).rgba[12, 16, 0]
    for found, share in ((lit, 1.0), (slanted, 0.7), (behind, 0.4)):
        assert to_linear(np.array(found / 255)) == pytest.approx(share, abs=0.01)


def test_baked_light_turns_with_the_surface():
    baked = bake_light(square(), (0, 0, 1))
    over = baked.moved(baked.vertices[:, [0, 2, 1]])  # on its edge, then seen from the side
    side = look_at(np.array([0.0, -4, 0]), np.zeros(3))
    for mesh, viewmat in ((baked, DOWN), (over, side)):
        np.testing.assert_array_equal(cast(mesh, viewmat, K, 32, 24).rgba[12, 16], [255, 0, 0, 255])
    dim = cast(bake_light(square(), (0, 0, -1)), DOWN, K, 32, 24).rgba[12, 16, 0]
    assert to_linear(np.array(dim / 255)) == pytest.approx(0.4, abs=0.01)


def test_srgb_round_trip():
    values = np.linspace(0, 1, 101)
    np.testing.assert_allclose(to_srgb(to_linear(values)), values, atol=1e-7)


def test_look_at_has_z_up_and_opencv_axes():
    eye, target = np.array([3.0, -2, 1.5]), np.array([0.2, 0.1, 0.4])
    viewmat = look_at(eye, target)
    rotation = viewmat[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    seen = viewmat @ np.append(target, 1)
    np.testing.assert_allclose(seen[:3], [0, 0, np.linalg.norm(target - eye)], atol=1e-12)
    above = viewmat @ np.append(target + np.array([0, 0, 0.1]), 1)
    assert above[1] < -0.05  # y is down
    assert abs(above[0]) < 1e-12


def test_capture_is_d_nerfs_kind():
    capture = render_capture(Pendulum(2), 24, n_train=9, n_val=3, n_test=4, n_points=50)
    train, test = capture.train, capture.test
    np.testing.assert_allclose(train.times, np.linspace(0, 1, 9))
    assert not set(train.times.tolist()) & set(test.times.tolist() + capture.val.times.tolist())
    assert [int(t * 4) for t in test.times] == [0, 1, 2, 3]
    centers = camera_centers(torch.cat([d.viewmats for d in (train, capture.val, test)]))
    np.testing.assert_allclose(centers.norm(dim=1), 4, rtol=1e-5)
    assert (centers[:, 2] > 0).all()
    assert torch.pdist(centers).min() > 1e-3
    assert 3 < capture.extent < 5
    assert capture.time_scale.unit == "seconds"
    assert capture.time_scale.duration == 2
    assert not capture.still
    assert capture.synthetic
    assert capture.points.shape == capture.point_colors.shape == (50, 3)
    assert ((capture.points >= capture.bounds[0]) & (capture.points <= capture.bounds[1])).all()
    # Box and scale are those of the mesh.
    placed = [(Pendulum(2).at(t).vertices - capture.center) * capture.scale for t in (0, 0.5, 1)]
    assert np.abs(placed).max() <= 1.01
    assert float(capture.bounds.abs().max()) == pytest.approx(1)


def test_scene_stays_in_view_and_in_the_pictures():
    capture = render_capture(Pendulum(3), 32, n_train=12, n_val=0, n_test=0)
    for i in range(12):
        alpha = capture.train.alpha(i)
        border = torch.cat([alpha[0], alpha[-1], alpha[:, 0], alpha[:, -1]])
        assert border.max() == 0
        assert alpha.sum() > 8
    assert len(capture.val) == len(capture.test) == 0


def test_rays_and_rasteriser_agree_where_things_are():
    """A small ball and a small Gaussian at one place have their middles in one pixel place."""
    rng = np.random.default_rng(0)
    k = np.array([[70.0, 0, 30], [0, 80, 20], [0, 0, 1]])
    for _ in range(4):
        place = rng.uniform(-0.6, 0.6, 3)
        viewmat = look_at(np.array([2.0, -3, 1.5]), np.zeros(3))
        ball = CapsuleBody([-1], [Capsule(0, place, place, 0.2)], lambda t: np.eye(4)[None], 1)
        hit = torch.from_numpy(cast(ball.at(0), viewmat, k, 64, 48, 8).rgba[..., 3]).double()
        _, alpha, _ = rasterize(
            torch.from_numpy(place)[None],
            torch.tensor([[1.0, 0, 0, 0]]).double(),
            torch.full((1, 3), 0.1).double(),
            torch.tensor([0.9]).double(),
            torch.ones(1, 3).double(),
            torch.from_numpy(viewmat)[None],
            torch.from_numpy(k)[None],
            64,
            48,
            backend="reference",
        )
        grid = torch.stack(torch.meshgrid(torch.arange(48), torch.arange(64), indexing="ij"), 2)
        middles = [(a[..., None] * grid).sum((0, 1)) / a.sum() for a in (hit, alpha[0, ..., 0])]
        torch.testing.assert_close(middles[0], middles[1], atol=0.1, rtol=0)


def test_seeds_and_splits():
    def frames(**arguments):
        capture = render_capture(Pendulum(2), 16, n_points=20, **arguments)
        return capture, capture.test.image(0), capture.train.image(1)

    one, test, train = frames(n_train=4, n_test=2, n_val=1, seed=5)
    _, again_test, again_train = frames(n_train=4, n_test=2, n_val=1, seed=5)
    assert torch.equal(test, again_test)
    assert torch.equal(train, again_train)
    # Fewer training views leave the test views what they were.
    few, few_test, _ = frames(n_train=2, n_test=2, n_val=0, seed=5)
    assert torch.equal(test, few_test)
    assert torch.equal(one.points, few.points)
    other, *_ = frames(n_train=4, n_test=2, n_val=1, seed=6)
    assert not torch.equal(one.train.viewmats, other.train.viewmats)


def test_background_and_alpha():
    white = render_capture(Pendulum(1), 16, n_train=1, n_val=0, n_test=0)
    black = render_capture(Pendulum(1), 16, n_train=1, n_val=0, n_test=0, background="black")
    assert torch.equal(white.train.image(0)[0, 0], torch.ones(3))
    assert torch.equal(black.train.image(0)[0, 0], torch.zeros(3))
    alpha = white.train.alpha(0)[..., None]
    torch.testing.assert_close(
        white.train.image(0) - black.train.image(0), (1 - alpha).expand(-1, -1, 3)
    )


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ({"size": 1}, "size: got 1"),
        ({"n_train": 0}, "n_train: got 0"),
        ({"n_test": -1}, "n_test: got -1"),
        ({"background": "green"}, "background: got 'green'"),
        ({"supersample": 0}, "supersample: got 0"),
        ({"seed": -1}, "seed: got -1"),
        ({"light": (0, 0, 0)}, r"light: got \(0, 0, 0\), wants three finite numbers"),
        ({"light": (1,)}, r"light: got \(1,\)"),
    ],
)
def test_bad_arguments(arguments, pattern):
    with pytest.raises(ValueError, match=pattern):
        render_capture(
            Pendulum(1), **{"size": 8, "n_train": 1, "n_val": 0, "n_test": 0, **arguments}
        )


def test_scene_without_extent():
    flat = square()
    with pytest.raises(ValueError, match="all its vertices lie in one point"):
        render_capture(Still(flat.moved(0 * flat.vertices)), 8)


def test_catalogue_lists_its_names():
    with pytest.raises(ValueError, match="name: got 'cat', wants one of fox-run"):
        catalogue.load("cat")
    assert catalogue.load("pendulum").duration == 2


def test_missing_data_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingData, match=r"treesplat/Fox\.glb"):
        catalogue.load("fox-run")


def test_fox_is_a_fox():
    fox = scene_or_skip("fox-run")
    assert fox.clips == ("Survey", "Walk", "Run")
    mesh = fox.at(0.0)
    length, width, height = np.sort(np.ptp(mesh.vertices, axis=0))[[2, 0, 1]]
    # Longer than tall, taller than wide, and z is up: paws (dark) below the back (orange).
    assert length > 1.5 * height > 2 * width
    start = time.process_time()
    capture = render_capture(fox, 96, n_train=16, n_val=0, n_test=4)
    assert time.process_time() - start < 5
    for i in range(16):
        image, alpha = capture.train.image(i), capture.train.alpha(i)
        assert 0.01 < alpha.mean() < 0.25
        rows = torch.arange(96.0)[:, None]
        dark = (image.sum(-1) < 1.0) & (alpha == 1)
        orange = (image[..., 0] > 0.6) & (image[..., 2] < 0.4) & (alpha == 1)
        assert orange.sum() > 100
        centers = camera_centers(capture.train.viewmats)
        if centers[i, 2] < 2 and dark.sum() > 5:  # not from above
            assert (rows * dark).sum() / dark.sum() > (rows * orange).sum() / orange.sum()
    # It moves, and comes back at the end of its clip.
    assert np.abs(fox.at(0).vertices - fox.at(0.5).vertices).max() > 10
    assert np.abs(fox.at(0).vertices - fox.at(1).vertices).max() < 1


@pytest.mark.parametrize("name", ["jumper"])
def test_bodies_are_upright_and_move(name):
    body = scene_or_skip(name)
    sizes = np.ptp(body.at(0.0).vertices, axis=0)
    assert sizes.argmax() == 2
    assert np.abs(body.at(0).vertices - body.at(0.5).vertices).max() > 0.1 * sizes[2]
