"""Rigid parts that move with the bones of a skeleton."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.papers.treesplat.scenes.mesh import Array, Mesh
from assay.toolkits.checks import number


class Articulated:
    """A mesh whose parts are carried by bones; a scene whose true tree of motions is known.

    Args:
        parents: the parent of each bone, -1 for a root; parents come first.
        mesh: all parts, each in its bone's own frame.
        bone_of_vertex: (V,) the bone that carries each vertex.
        pose: gives the (bones, 4, 4) matrices from bone to world, z up, at t in [0, 1].
        duration: seconds that t from 0 to 1 stands for.

    Attributes:
        bone_of: (F,) the bone that carries each face.

    Raises:
        ValueError: a parent does not come before its child.
    """

    def __init__(
        self,
        parents: Sequence[int],
        mesh: Mesh,
        bone_of_vertex: NDArray[np.int64],
        pose: Callable[[float], Array],
        duration: float,
    ):
        for bone, parent in enumerate(parents):
            if not -1 <= parent < bone:
                raise ValueError(
                    f"parents: bone {bone} has parent {parent}, wants -1 to {bone - 1}"
                )
        self.parents = tuple(parents)
        self.duration = number("duration", duration, above=0)
        self.bone_of = bone_of_vertex[mesh.faces[:, 0]]
        self._mesh, self._bone_of_vertex, self._pose = mesh, bone_of_vertex, pose

    def at(self, t: float) -> Mesh:
        """The mesh at t in [0, 1]. Raises ValueError where t is not."""
        matrices = self.bone_matrices(t)[self._bone_of_vertex]
        placed = np.einsum("vab,vb->va", matrices[:, :3, :3], self._mesh.vertices)
        return self._mesh.moved(placed + matrices[:, :3, 3])

    def bone_matrices(self, t: float) -> Array:
        """(bones, 4, 4) matrices from bone to world at t in [0, 1]."""
        return self._pose(number("t", t, least=0, most=1))
