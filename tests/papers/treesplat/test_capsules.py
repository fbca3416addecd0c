import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from assay.papers.treesplat.scenes import Capsule, CapsuleBody, Pendulum
from assay.papers.treesplat.scenes.bvh import BvhError, read_bvh

BVH = """HIERARCHY
ROOT Hips
{
  OFFSET 0 0 0
  CHANNELS 6 Xposition Yposition Zposition Zrotation Yrotation Xrotation
  JOINT Knee
  {
    OFFSET 0 -2 0
    CHANNELS 3 Xrotation Zrotation Yrotation
    End Site
    {
      OFFSET 0 -1 0
    }
  }
}
MOTION
Frames: 3
Frame Time: 0.5
0 5 0   0 0 0     0 0 0
3 5 1   90 0 0    0 0 0
6 7 2   30 40 50  10 20 300
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "walk.bvh"
    path.write_text(BVH)
    return path


def test_bvh_reads_the_hierarchy(path):
    motion = read_bvh(path)
    assert motion.names == ("Hips", "Knee", "Knee end")
    assert motion.parents == (-1, 0, 1)
    assert motion.n_frames == 3
    np.testing.assert_allclose(motion.rest, [[0, 0, 0], [0, -2, 0], [0, -3, 0]])


def test_bvh_poses_apply_channels_in_their_order(path):
    motion = read_bvh(path)
    np.testing.assert_allclose(motion.world(0)[:, :3, 3], [[0, 5, 0], [0, 3, 0], [0, 2, 0]])
    # A quarter turn about z sends what hangs down to +x.
    np.testing.assert_allclose(
        motion.world(1)[:, :3, 3], [[3, 5, 1], [5, 5, 1], [6, 5, 1]], atol=1e-12
    )
    hips = Rotation.from_euler("ZYX", [30, 40, 50], degrees=True)
    knee = Rotation.from_euler("XZY", [10, 20, 300], degrees=True)
    at = np.array([6.0, 7, 2]) + hips.apply([0, -2, 0])
    np.testing.assert_allclose(motion.world(2)[1, :3, 3], at)
    np.testing.assert_allclose(motion.world(2)[2, :3, 3], at + (hips * knee).apply([0, -1, 0]))


def test_bvh_between_frames(path):
    halfway = read_bvh(path).world(0.5)
    s = np.sqrt(0.5)
    np.testing.assert_allclose(halfway[1, :3, 3], [1.5 + 2 * s, 5 - 2 * s, 0.5], atol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("HIERARCHY", "<html>", "'<html>' where 'HIERARCHY' belongs"),
        ("Frames: 3", "Frames: 4", "27 numbers, 4 frames want 36"),
        ("Frame Time: 0.5", "Frame Time: 0", "frame time of 0"),
        ("10 20 300", "10 20 nan", "NaN"),
        ("10 20 300", "10 20", "26 numbers"),
        ("CHANNELS 3 Xrotation", "CHANNELS 3 Wrotation", "channel 'Wrotation' of 'Knee'"),
        ("ROOT Hips", "JOINT Hips\n{\n}\nROOT Hips", "2 roots"),
        (BVH[60:], "", "ends too early"),
        ("}\nMOTION", "MOTION", "'Hips' is not closed, a '}' is missing"),
        ("}\nMOTION", "}\n}\nMOTION", "a '}' that closes nothing"),
        ("}\nMOTION", "}\nOFFSET 0 0 0\nMOTION", "'OFFSET' outside of a joint"),
    ],
)
def test_bvh_says_what_is_wrong(path, old, new, pattern):
    assert old in BVH
    path.write_text(BVH.replace(old, new))
    with pytest.raises(BvhError, match=pattern):
        read_bvh(path)


def test_body_of_one_frame_is_refused(path):
    path.write_text(BVH.replace("Frames: 3", "Frames: 1"))
    with pytest.raises(ValueError, match=r"\.bvh: has one frame, wants at least two"):
        CapsuleBody.from_bvh(path)


def test_bvh_takes_a_frame_more_than_declared(path):
    path.write_text(BVH.replace("Frames: 3", "Frames: 2"))
    assert read_bvh(path).n_frames == 2


def test_body_hangs_capsules_between_joints(path):
    body = CapsuleBody.from_bvh(path, recenter=False)
    assert body.duration == 1.0
    mesh = body.at(0)
    # Two capsules, z up: from the hips at 5 to the foot at 2, and their round ends.
    low, high = mesh.vertices[:, 2].min(), mesh.vertices[:, 2].max()
    assert 1.5 < low < 2
    assert 5 < high < 5.5
    assert set(body.bone_of) == {0, 1}
    np.testing.assert_allclose(mesh.vertices[:, :2].mean(0), 0, atol=0.05)


def test_recentred_body_stays_over_its_spot(path):
    for t in (0, 0.6, 1):
        hips = CapsuleBody.from_bvh(path).bone_matrices(t)[0, :3, 3]
        walked = CapsuleBody.from_bvh(path, recenter=False).bone_matrices(t)[0, :3, 3]
        np.testing.assert_allclose(hips[:2], 0, atol=1e-12)
        assert hips[2] == pytest.approx(walked[2])
    assert np.linalg.norm(walked[:2]) > 5


@pytest.mark.parametrize(
    ("arguments", "error", "pattern"),
    [
        ({"start": 2.0}, ValueError, "start: got 2.0, wants a finite number from 0 to 1"),
        ({"seconds": 0.9, "start": 0.5}, ValueError, "seconds: got 0.9 from 0.5 on"),
        ({"seconds": 0}, ValueError, "seconds: got 0"),
        ({"recenter": "no"}, TypeError, "recenter"),
    ],
)
def test_clip_must_lie_in_the_file(path, arguments, error, pattern):
    with pytest.raises(error, match=pattern):
        CapsuleBody.from_bvh(path, **arguments)


def test_capsule_is_closed_and_has_the_volume_of_one():
    trimesh = pytest.importorskip("trimesh")
    start, end, radius = np.array([1.0, 2, 3]), np.array([1.0, 0, 4]), 0.5
    body = CapsuleBody([-1], [Capsule(0, start, end, radius)], lambda t: np.eye(4)[None], 1)
    mesh = body.at(0.5)
    solid = trimesh.Trimesh(mesh.vertices, mesh.faces)  # which merges the seam
    assert solid.is_watertight
    length = np.linalg.norm(end - start)
    wanted = np.pi * radius**2 * (length + 4 / 3 * radius)
    assert solid.volume == pytest.approx(wanted, rel=0.08)  # inscribed, so a little less
    assert 0 < solid.volume < wanted
    # No vertex is farther from the axis than the radius.
    along = np.clip((mesh.vertices - start) @ (end - start) / length**2, 0, 1)
    nearest = start + along[:, None] * (end - start)
    np.testing.assert_allclose(np.linalg.norm(mesh.vertices - nearest, axis=1), radius)


def test_body_needs_capsules_and_ordered_parents():
    with pytest.raises(ValueError, match="capsules: got none"):
        CapsuleBody([-1], [], lambda t: np.eye(4)[None], 1)
    capsule = Capsule(0, np.zeros(3), np.ones(3), 0.1)
    with pytest.raises(ValueError, match="bone 1 has parent 1, wants -1 to 0"):
        CapsuleBody([-1, 1], [capsule], lambda t: np.eye(4)[None], 1)


def test_pendulum_is_a_chain_that_closes():
    chain = Pendulum(5, seed=3)
    assert chain.parents == (-1, 0, 1, 2, 3)
    np.testing.assert_allclose(chain.at(0).vertices, chain.at(1).vertices, atol=1e-12)
    for t in np.linspace(0, 1, 7):
        world = chain.bone_matrices(t)
        np.testing.assert_allclose(np.linalg.det(world[:, :3, :3]), 1)
        # Each joint sits at the lower end of the link above it, a length of 1 away.
        np.testing.assert_allclose(world[1:, :3, 3], world[:-1, :3, 3] - world[:-1, :3, 2])
    assert np.ptp([chain.at(t).vertices[-1] for t in (0, 0.2, 0.4, 0.6)], axis=0).max() > 0.5


def test_pendulums_link_moves_rigidly_with_those_above():
    chain = Pendulum(3)
    a, b = chain.at(0.1), chain.at(0.7)
    for link in range(3):
        vertices = np.unique(a.faces[chain.bone_of == link])[::9]
        for mesh in (b,):
            before = np.linalg.norm(a.vertices[vertices, None] - a.vertices[vertices], axis=-1)
            after = np.linalg.norm(mesh.vertices[vertices, None] - mesh.vertices[vertices], axis=-1)
            np.testing.assert_allclose(before, after, atol=1e-12)


def test_pendulum_refuses_no_links():
    with pytest.raises(ValueError, match="n_links: got 0"):
        Pendulum(0)
