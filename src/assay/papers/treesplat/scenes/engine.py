"""A boxer engine that runs: public CAD parts, moved by slider-crank kinematics."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from assay.papers.treesplat.scenes.articulated import Articulated
from assay.papers.treesplat.scenes.gltf import GltfError, load_gltf
from assay.papers.treesplat.scenes.mesh import Array, bake_light

# Measured on the model, in its units; pistons run along x, both shafts along y.
_THROW, _ROD = 36.0, 139.0
_AT_REST = math.radians(39.9)  # of the crank in the file
_CAMSHAFT_Z = -100.0
_CRANK, _CAMSHAFT, _RODS, _PISTONS = 0, 1, (2, 3), (4, 5)
_BONES = {
    "body_22": (_CRANK, _CRANK),
    "body_23": (_CRANK, _CRANK),
    "body_20": (_CAMSHAFT, _CAMSHAFT),
    "body_21": (_CAMSHAFT, _CAMSHAFT),
    "rod_123-699_0_Parts_1": _RODS,
    "Piston_123-844_0_Parts_1": _PISTONS,
    "body_24": _PISTONS,
}


class BoxerEngine(Articulated):
    """The running gear of the glTF sample model "2CylinderEngine".

    The file holds no animation, so its motion is computed: the crankshaft turns twice, carrying
    two opposed connecting rods and through them the pistons, while the camshaft's gear turns
    once the other way; t = 1 is t = 0 again. Housing and valves, which would hide it all, are
    left out. Light is painted on at rest and stays with the parts. Bones: crankshaft,
    camshaft, two rods (children of the crankshaft), two pistons (each a child of its rod).

    Args:
        path: 2CylinderEngine.glb.

    Raises:
        GltfError: it is another model.
    """

    def __init__(self, path: str | Path):
        model = load_gltf(path, still=True)
        mesh = model.at(0)
        bone_of = np.full(len(mesh.vertices), -1)
        for name, (right, left) in _BONES.items():
            part = model.mesh_names == name
            if not part.any():
                raise GltfError(f"{path}: has no part {name!r}, wants 2CylinderEngine.glb")
            bone_of[part] = np.where(mesh.vertices[part, 0] > 0, right, left)
        shown = bone_of[mesh.faces[:, 0]] >= 0
        order = mesh.faces[shown].ravel()
        mesh = replace(mesh, faces=mesh.faces[shown], material_of=mesh.material_of[shown])
        super().__init__(
            (-1, -1, 0, 0, 2, 3), bake_light(mesh, (0.4, -0.6, 0.7)), bone_of[order], _pose, 2.0
        )


def _pose(t: float) -> Array:
    """Matrices that move each part from where the file has it."""
    turn = 4 * math.pi * t
    rest_pin, rest_wrist, rest_slope = _slider_crank(_AT_REST)
    pin, wrist, slope = _slider_crank(_AT_REST + turn)
    matrices = np.tile(np.eye(4), (6, 1, 1))
    matrices[_CRANK] = _about_y(turn, np.zeros(2), np.zeros(2))
    axle = np.array([0, _CAMSHAFT_Z])
    matrices[_CAMSHAFT] = _about_y(-turn / 2, axle, axle)
    for side, rod, piston in zip((1, -1), _RODS, _PISTONS, strict=True):
        matrices[rod] = _about_y(slope - rest_slope, side * rest_pin, side * pin)
        matrices[piston, 0, 3] = side * (wrist - rest_wrist)
    return matrices


def _slider_crank(angle: float) -> tuple[Array, float, float]:
    """Crank pin (x, z), x of the wrist pin, and slope of the rod between them."""
    pin = _THROW * np.array([math.cos(angle), math.sin(angle)])
    slope = -math.asin(pin[1] / _ROD)
    return pin, pin[0] + _ROD * math.cos(slope), slope


def _about_y(angle: float, before: Array, after: Array) -> Array:
    """Turns from x towards z by an angle, taking the point (x, z) `before` to `after`."""
    c, s = math.cos(angle), math.sin(angle)
    matrix = np.eye(4)
    matrix[np.ix_((0, 2), (0, 2))] = [[c, -s], [s, c]]
    matrix[[0, 2], 3] = after - matrix[np.ix_((0, 2), (0, 2))] @ before
    return matrix
