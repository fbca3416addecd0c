import numpy as np
import pytest

from assay.papers.treesplat.datasets.poses import (
    CONVENTIONS,
    PoseError,
    check_convention,
    check_matrices,
    to_viewmats,
)
from assay.papers.treesplat.scenes import look_at

K = np.array([[60.0, 0, 32], [0, 60, 32], [0, 0, 1]])
FLIP = np.diag([1.0, -1, -1, 1])


def orbit(n=12, target=(0.0, 0, 0), seed=0):
    """World-to-camera matrices with OpenCV axes of cameras around a target."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 2 * np.pi, n)
    heights = rng.uniform(0.2, 2, n)
    eyes = np.stack([3 * np.cos(angles), 3 * np.sin(angles), heights], 1) + target
    return np.stack([look_at(eye, np.array(target)) for eye in eyes])


def written_as(viewmats, convention):
    """The same cameras in another convention, by hand."""
    axes, direction = convention.split()
    if axes == "opengl":
        viewmats = FLIP @ viewmats
    return viewmats if direction == "world-to-camera" else np.linalg.inv(viewmats)


def check(matrices, convention, points=None):
    n = len(matrices)
    check_convention(matrices, np.tile(K, (n, 1, 1)), np.full((n, 2), 64.0), convention, points)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_convention_gives_the_same_cameras(convention):
    viewmats = orbit()
    np.testing.assert_allclose(
        to_viewmats(written_as(viewmats, convention), convention), viewmats, atol=1e-12
    )


@pytest.mark.parametrize("with_points", [False, True])
@pytest.mark.parametrize("target", [(0.0, 0, 0), (2.0, -5, 1)])
@pytest.mark.parametrize("taken_for", CONVENTIONS)
@pytest.mark.parametrize("written", CONVENTIONS)
def test_a_wrong_convention_is_named(written, taken_for, target, with_points):
    points = None
    if with_points:
        points = np.random.default_rng(1).uniform(-1, 1, (300, 3)) + target
    matrices = written_as(orbit(target=target), written)
    if written == taken_for:
        check(matrices, taken_for, points)
        return
    with pytest.raises(PoseError) as caught:
        check(matrices, taken_for, points)
    message = str(caught.value)
    assert f"taken as {taken_for}" in message
    assert f"pass convention='{written}'" in message
    axes, direction = (a.split()[0] for a in (written, taken_for)), written.split()[1]
    assert ("y and z axes" in message) == (len(set(axes)) == 2)
    assert (f"{direction} matrices" in message) == (direction != taken_for.split()[1])


def test_cameras_that_look_the_same_way_tell_nothing_without_points():
    eyes = np.array([[x, -4.0, 0.3 * x] for x in np.linspace(-1, 1, 6)])
    viewmats = np.stack([look_at(eye, eye + np.array([0, 1, 0.1])) for eye in eyes])
    check(viewmats, "opencv world-to-camera")
    check(FLIP @ viewmats, "opencv world-to-camera")
    points = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    check(viewmats, "opencv world-to-camera", points)
    with pytest.raises(PoseError, match="OpenGL's, not OpenCV's"):
        check(FLIP @ viewmats, "opencv world-to-camera", points)


def test_cameras_inside_a_room_pass_with_points():
    rng = np.random.default_rng(0)
    walls = rng.normal(size=(2000, 3))
    walls = 5 * walls / np.linalg.norm(walls, axis=1, keepdims=True)
    eyes = rng.uniform(-0.3, 0.3, (16, 3))
    outwards = rng.normal(size=(16, 3)) * [1, 1, 0.3]
    viewmats = np.stack([look_at(eye, eye + out) for eye, out in zip(eyes, outwards, strict=True)])
    check(viewmats, "opencv world-to-camera", walls)


def test_points_that_nobody_sees():
    with pytest.raises(PoseError, match="no other convention helps"):
        check(orbit(), "opencv world-to-camera", np.full((10, 3), 500.0) * [1, 0, 30])


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (lambda m: m.__setitem__((0, 0), np.nan), "frame b: its pose holds NaN"),
        (lambda m: m.__setitem__(slice(None), 2 * m), "frame b: the last row of its pose"),
        (lambda m: m.__setitem__(slice(0, 3), 2 * m[:3]), "frame b: its pose is no rotation"),
        (lambda m: m.__setitem__(0, -m[0]), "frame b: its pose mirrors"),
        (lambda m: m.__setitem__(slice(None), m.T.copy()), "it is transposed"),
    ],
)
def test_what_is_no_pose_is_named(spoil, pattern):
    matrices = orbit(3)
    check_matrices(matrices, ["a", "b", "c"])
    spoil(matrices[1])
    with pytest.raises(PoseError, match=pattern):
        check_matrices(matrices, ["a", "b", "c"])


def test_unknown_conventions_are_refused():
    with pytest.raises(ValueError, match="convention: got 'maya', wants one of opengl"):
        to_viewmats(orbit(2), "maya")
