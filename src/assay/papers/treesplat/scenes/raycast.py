"""Ground truth by ray casting: pictures of an animated mesh that no splatting code has touched.

A surface shows its own base colour, the same from every side and at every time, which is what
splats with fixed colours can represent; a light that stands in the world is an option.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from assay.papers.treesplat.datasets.frames import Capture, DynamicDataset, Frame, TimeScale
from assay.papers.treesplat.scenes.mesh import AnimatedMesh, Array, Mesh, lambert, to_srgb, toward
from assay.toolkits.checks import whole

_DISTANCE = 4.0  # of the cameras, as D-NeRF's; the scene lies in [-1, 1]^3


@dataclass(frozen=True, eq=False)
class View:
    """One picture.

    Args:
        rgba: (H, W, 4) uint8, sRGB, straight alpha: the share of a pixel's rays that hit.
        depth: (H, W) float32, mean distance along the camera's z axis of the hits; 0 where
            there is none.
    """

    rgba: NDArray[np.uint8]
    depth: NDArray[np.float32]


def cast(
    mesh: Mesh,
    viewmat: Array,
    K: Array,
    width: int,
    height: int,
    supersample: int = 2,
    light: tuple[float, float, float] | None = None,
) -> View:
    """A picture of a mesh.

    Args:
        mesh: what is seen, opaque and from both sides.
        viewmat: (4, 4) world-to-camera, OpenCV axes.
        K: (3, 3) intrinsics in pixels, whose centres lie at + 0.5.
        width, height: in pixels.
        supersample: rays along each side of a pixel.
        light: direction in the world from which light comes (Lambert, with 0.4 of it from
            everywhere); None shows base colours.
    """
    from embreex.mesh_construction import TriangleMesh
    from embreex.rtcore_scene import EmbreeScene

    scene = EmbreeScene()
    TriangleMesh(scene, mesh.vertices[mesh.faces].astype(np.float32))
    n = supersample
    x = (np.arange(width * n) + 0.5) / n
    y = (np.arange(height * n) + 0.5) / n
    grid = np.stack(np.broadcast_arrays(x[None, :], y[:, None], 1.0), -1).reshape(-1, 3)
    # z = 1 in the camera, so that the distance along a ray is the depth.
    directions = grid @ np.linalg.inv(K).T @ viewmat[:3, :3]
    eye = -viewmat[:3, :3].T @ viewmat[:3, 3]
    origins = np.broadcast_to(eye, directions.shape)
    hits = scene.run(
        np.ascontiguousarray(origins, np.float32), directions.astype(np.float32), output=1
    )
    seen = hits["primID"] >= 0
    face = hits["primID"][seen].astype(np.int64)
    u, v = hits["u"][seen].astype(np.float64), hits["v"][seen].astype(np.float64)
    color = mesh.base_color(face, np.stack([1 - u - v, u, v], 1))
    if light is not None:
        normal = hits["Ng"][seen].astype(np.float64)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        normal *= -np.sign(np.einsum("rc,rc->r", normal, directions[seen]))[:, None]
        color = color * lambert(normal, light)[:, None]
    samples = np.zeros((len(seen), 5))
    samples[seen] = np.column_stack([color, hits["tfar"][seen], np.ones(len(face))])
    sums = samples.reshape(height, n, width, n, 5).sum((1, 3))
    count = sums[..., 4:]
    mean = sums[..., :4] / np.maximum(count, 1)
    rgba = np.concatenate([to_srgb(np.clip(mean[..., :3], 0, 1)), count / n**2], -1)
    return View(np.rint(255 * rgba).astype(np.uint8), mean[..., 3].astype(np.float32))


def look_at(eye: Array, target: Array) -> Array:
    """The pose of a camera that looks at something, with z up in its picture.

    Args:
        eye: (3,) where it stands; not straight above or below the target.
        target: (3,) what it looks at.

    Returns:
        (4, 4) world-to-camera, OpenCV axes.
    """
    forward = target - eye
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = rotation, -rotation @ eye
    return viewmat


def render_capture(
    scene: AnimatedMesh,
    size: int = 128,
    n_train: int = 96,
    n_val: int = 6,
    n_test: int = 24,
    seed: int = 0,
    supersample: int = 2,
    background: str = "white",
    n_points: int = 2000,
    light: tuple[float, float, float] | None = None,
) -> Capture:
    """A capture of an animated scene, as D-NeRF's were made.

    One camera per time, on the upper hemisphere at random, looking at the scene's middle.
    Training times are evenly spaced over [0, 1]; those of the other splits are random, one in
    each of as many equal parts, so neither a time nor a pose of theirs is trained on. The scene
    is moved and scaled into [-1, 1]^3; `center` and `scale` of the capture say how. Points to
    start from are random within the box that the scene moves in, not on its surface, which
    would give the answer away; their colours are random.

    Args:
        scene: what is filmed.
        size: side of the square images in pixels.
        n_train, n_val, n_test: images of the splits.
        seed: of cameras, times and points; each split has a stream of its own.
        supersample: rays along each side of a pixel.
        background: "white" or "black".
        n_points: points to start from.
        light: see `cast`.

    Raises:
        TypeError, ValueError: an argument is out of range, or the scene has no extent.
    """
    whole("size", size, 2), whole("supersample", supersample), whole("n_points", n_points)
    whole("seed", seed, 0)
    if light is not None:
        toward(light)
    counts = [whole("n_train", n_train), whole("n_val", n_val, 0), whole("n_test", n_test, 0)]
    sampled = [scene.at(t).vertices for t in np.linspace(0, 1, 33)]
    lower = np.min([vertices.min(0) for vertices in sampled], 0)
    upper = np.max([vertices.max(0) for vertices in sampled], 0)
    center, half = (lower + upper) / 2, float((upper - lower).max()) / 2
    if not half > 0:
        raise ValueError("scene: all its vertices lie in one point")
    radius = max(np.linalg.norm(vertices - center, axis=1).max() for vertices in sampled) / half
    # The widest sphere that the scene reaches, seen whole from any side, with a small margin.
    focal = size / 2 / math.tan(1.05 * math.asin(radius / _DISTANCE))
    K = np.array([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1]])

    *streams, points_stream = np.random.default_rng(seed).spawn(4)
    splits = []
    for name, count, rng in zip(("train", "val", "test"), counts, streams, strict=True):
        if name == "train":
            times = np.linspace(0, 1, count) if count > 1 else np.zeros(1)
        else:
            times = (np.arange(count) + rng.uniform(0, 1, count)) / max(count, 1)
        frames, images = [], []
        for i, t in enumerate(times):
            mesh = scene.at(float(t))
            viewmat = look_at(_on_hemisphere(rng), np.zeros(3))
            moved = mesh.moved((mesh.vertices - center) / half)
            images.append(cast(moved, viewmat, K, size, size, supersample, light).rgba)
            frames.append(
                Frame(
                    f"{name}/r_{i:03d}",
                    float(t),
                    torch.from_numpy(viewmat).float(),
                    torch.from_numpy(K).float(),
                    size,
                    size,
                )
            )
        splits.append(DynamicDataset(frames, images.__getitem__, background, cache_bytes=0))
    train, val, test = splits
    bounds = np.stack([lower - center, upper - center]) / half
    points = points_stream.uniform(bounds[0], bounds[1], (n_points, 3))
    colors = points_stream.uniform(0, 1, (n_points, 3))
    return Capture(
        train,
        val,
        test,
        torch.from_numpy(points).float(),
        torch.from_numpy(colors).float(),
        torch.from_numpy(bounds).float(),
        TimeScale(0.0, scene.duration, "seconds"),
        tuple(center.tolist()),
        1 / half,
        synthetic=True,
    )


def _on_hemisphere(rng: np.random.Generator) -> Array:
    """A place for a camera, evenly over the hemisphere but for its pole and its rim."""
    azimuth, height = rng.uniform(0, 2 * math.pi), rng.uniform(0.05, 0.9)
    ring = math.sqrt(1 - height**2)
    return _DISTANCE * np.array([ring * math.cos(azimuth), ring * math.sin(azimuth), height])
