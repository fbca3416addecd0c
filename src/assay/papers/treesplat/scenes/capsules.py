"""Bodies of capsules on a skeleton: textured, so that their turning shows."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from assay.papers.treesplat.scenes.articulated import Articulated
from assay.papers.treesplat.scenes.bvh import read_bvh
from assay.papers.treesplat.scenes.mesh import Array, Material, Mesh, to_linear
from assay.toolkits.checks import flag, number

_SIDES, _RINGS = 14, 4
# Its bones are short and would come out thin; a motion capture says nothing of flesh.
_TRUNK = ("hips", "back", "spine", "chest", "ab", "head")
# BVH: y up. Here: z up.
_Z_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])


@dataclass(frozen=True, eq=False)
class Capsule:
    """A capsule that a bone carries.

    Args:
        bone: number of the bone.
        start, end: (3,) ends of its axis, in the bone's own frame.
        radius: its thickness.
    """

    bone: int
    start: Array
    end: Array
    radius: float


class CapsuleBody(Articulated):
    """Capsules that move with the bones of a skeleton.

    Args:
        parents, pose, duration: see `Articulated`.
        capsules: what the bones carry.

    Raises:
        ValueError: there is no capsule, or a parent does not come before its child.
    """

    def __init__(
        self,
        parents: Sequence[int],
        capsules: Sequence[Capsule],
        pose: Callable[[float], Array],
        duration: float,
    ):
        if not capsules:
            raise ValueError("capsules: got none, wants at least one")
        shapes = [_shape(capsule) for capsule in capsules]
        counts = [len(shape[0]) for shape in shapes]
        starts = np.cumsum([0, *counts[:-1]])
        faces = [shape[1] + start for shape, start in zip(shapes, starts, strict=True)]
        mesh = Mesh(
            np.concatenate([shape[0] for shape in shapes]),
            np.concatenate(faces),
            tuple(_stripes(i) for i in range(len(capsules))),
            np.repeat(np.arange(len(capsules)), [len(f) for f in faces]),
            uvs=np.concatenate([shape[2] for shape in shapes]),
        )
        bone_of_vertex = np.repeat([capsule.bone for capsule in capsules], counts)
        super().__init__(parents, mesh, bone_of_vertex, pose, duration)

    @classmethod
    def from_bvh(
        cls,
        path: str | Path,
        start: float = 0.0,
        seconds: float | None = None,
        recenter: bool = True,
    ) -> CapsuleBody:
        """A body that moves as a BVH file says: one capsule from each joint to each child.

        Between frames, rotations go along the shortest arc and places along the line.

        Args:
            path: the .bvh file, y up.
            start: seconds into the file at which t = 0.
            seconds: length of the clip; None goes to the file's end.
            recenter: hold the hips over one spot of the floor, so that one who walks away
                stays in view; up and down they still move.

        Raises:
            ValueError: the file is no BVH or has but one frame, or the clip does not lie in it.
        """
        motion = read_bvh(path)
        if motion.n_frames < 2:
            raise ValueError(f"{path}: has one frame, wants at least two, between which it moves")
        last = (motion.n_frames - 1) * motion.frame_time
        start = number("start", start, least=0, most=last)
        if seconds is None:
            seconds = last - start
        seconds = number("seconds", seconds, above=0)
        if start + seconds > last + 1e-9:
            raise ValueError(
                f"seconds: got {seconds:g} from {start:g} on, {Path(path).name} has {last:g}"
            )
        flag("recenter", recenter)
        tall = float(np.ptp(motion.rest[:, 1])) or 1.0
        capsules = []
        for parent, offset in zip(motion.parents, motion.offsets, strict=True):
            length = float(np.linalg.norm(offset))
            if parent < 0 or length < 0.01 * tall:
                continue
            trunk = any(word in motion.names[parent].lower() for word in _TRUNK)
            radius = 0.07 if trunk else float(np.clip(0.25 * length / tall, 0.02, 0.05))
            capsules.append(Capsule(parent, np.zeros(3), offset, radius * tall))

        def pose(t: float) -> Array:
            world = motion.world((start + t * seconds) / motion.frame_time)
            if recenter:
                world[:, :3, 3] -= world[0, :3, 3] * (1, 0, 1)
            turned = world.copy()
            turned[:, :3] = _Z_UP @ world[:, :3]
            return turned

        return cls(motion.parents, capsules, pose, seconds)


def _shape(capsule: Capsule) -> tuple[Array, NDArray[np.int64], Array]:
    """Vertices (V, 3), faces (F, 3) and texture coordinates (V, 2) of one capsule."""
    axis = np.asarray(capsule.end, float) - capsule.start
    length = float(np.linalg.norm(axis))
    number("radius", capsule.radius, above=0)
    angles = np.linspace(-math.pi / 2, 0, _RINGS + 1)
    # From pole to pole: a lower cap, the side in as many rings, an upper cap.
    along = np.concatenate(
        [
            capsule.radius * np.sin(angles),
            np.linspace(0, length, _RINGS + 1)[1:-1],
            length - capsule.radius * np.sin(angles[::-1]),
        ]
    )
    cap = capsule.radius * np.cos(angles)
    ring = np.concatenate([cap, np.full(_RINGS - 1, capsule.radius), cap[::-1]])
    around = np.linspace(0, 2 * math.pi, _SIDES + 1)  # the seam twice, for the texture
    shape = np.broadcast_arrays(ring[:, None], around[None, :], along[:, None])
    local = np.stack([shape[0] * np.cos(shape[1]), shape[0] * np.sin(shape[1]), shape[2]], -1)
    if length > 0:
        turn, _ = Rotation.align_vectors([axis / length], [[0, 0, 1]])
    else:
        turn = Rotation.identity()
    vertices = turn.apply(local.reshape(-1, 3)) + capsule.start
    rows, columns = np.meshgrid(np.arange(len(ring) - 1), np.arange(_SIDES), indexing="ij")
    a = (rows * (_SIDES + 1) + columns).ravel()
    b, c, d = a + 1, a + _SIDES + 1, a + _SIDES + 2
    # At a pole, one triangle of each pair has no area.
    lower, upper = np.stack([a, b, d], 1)[_SIDES:], np.stack([a, d, c], 1)[:-_SIDES]
    faces = np.concatenate([lower, upper])
    v = (along - along[0]) / (along[-1] - along[0])
    uvs = np.stack(np.broadcast_arrays(around[None, :] / (2 * math.pi), v[:, None]), -1)
    return vertices, faces, uvs.reshape(-1, 2)


def _stripes(i: int) -> Material:
    """A colour of its own for each capsule, in a checker that shows how it turns and bends."""
    hue = (0.08 + i * 0.618034) % 1
    light = colorsys.hsv_to_rgb(hue, 0.55, 0.95)
    dark = colorsys.hsv_to_rgb((hue + 0.05) % 1, 0.8, 0.5)
    rows, columns = np.indices((4, 4))
    checker = ((rows + columns) % 2)[..., None]
    image = np.where(checker == 1, np.array(dark), np.array(light)).repeat(8, 0).repeat(8, 1)
    return Material(np.ones(3), to_linear(image).astype(np.float32), ("repeat", "clamp"))
