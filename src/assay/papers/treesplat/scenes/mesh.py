"""Meshes that move: what a scene gives at an instant, and what colour its surface has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Material:
    """A base colour, in linear light.

    Args:
        color: (3,) factor in [0, 1].
        texture: (H, W, 3) linear image in [0, 1] that multiplies it, or None.
        wrap: how texture coordinates beyond [0, 1] are read along u and v: "repeat", "clamp"
            or "mirror".
    """

    color: Array
    texture: NDArray[np.float32] | None = None
    wrap: tuple[str, str] = ("repeat", "repeat")


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles at one instant.

    Args:
        vertices: (V, 3) positions, z up.
        faces: (F, 3) vertex numbers.
        materials: what `material_of` points into.
        material_of: (F,) a material for each face.
        colors: (V, 3) linear vertex colours that multiply the material's, or None.
        uvs: (V, 2) texture coordinates, v down from the image's top, or None.
    """

    vertices: Array
    faces: NDArray[np.int64]
    materials: tuple[Material, ...]
    material_of: NDArray[np.int64]
    colors: Array | None = None
    uvs: Array | None = None

    def moved(self, vertices: Array) -> Mesh:
        """The same mesh with its vertices (V, 3) elsewhere."""
        return replace(self, vertices=vertices)

    def base_color(self, face: NDArray[np.int64], bary: Array) -> Array:
        """The surface's own colour, which no light changes, in linear light.

        Args:
            face: (R,) faces.
            bary: (R, 3) barycentric coordinates on them.

        Returns:
            (R, 3) colours in [0, 1].
        """
        color = np.ones((len(face), 3))
        corners = self.faces[face]
        if self.colors is not None:
            color *= np.einsum("rk,rkc->rc", bary, self.colors[corners])
        uv = None if self.uvs is None else np.einsum("rk,rkc->rc", bary, self.uvs[corners])
        number = self.material_of[face]
        for i in np.unique(number):
            material, here = self.materials[i], number == i
            color[here] *= material.color
            if material.texture is not None and uv is not None:
                color[here] *= _bilinear(material.texture, uv[here], material.wrap)
        return color


class AnimatedMesh(Protocol):
    """A scene: the same triangles at every instant, elsewhere."""

    @property
    def duration(self) -> float:
        """Seconds that t from 0 to 1 stands for."""

    def at(self, t: float) -> Mesh:
        """The mesh at t in [0, 1]."""


def toward(light: tuple[float, float, float]) -> Array:
    """(3,) unit vector along a direction. Raises ValueError where it is none."""
    direction = np.asarray(light, float)
    if direction.shape != (3,) or not np.all(np.isfinite(direction)) or not direction.any():
        raise ValueError(f"light: got {light!r}, wants three finite numbers, not all of them 0")
    return direction / np.linalg.norm(light)


def lambert(normals: Array, light: tuple[float, float, float]) -> Array:
    """(R,) share of the light that surfaces with unit normals (R, 3) reflect.

    Two fifths of it come from everywhere, the rest from the direction `light` points to.
    Raises ValueError where that is none.
    """
    direction = toward(light)
    return 0.4 + 0.6 * np.maximum(normals @ direction, 0)


def bake_light(mesh: Mesh, light: tuple[float, float, float]) -> Mesh:
    """The mesh with a light painted onto it, which it keeps however it moves later.

    It shows the shape of a model of few colours, and its colour is still the same from every
    side and at every time.

    Args:
        mesh: whose triangles no longer share vertices afterwards.
        light: the direction that it comes from.
    """
    corners = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    order = mesh.faces.ravel()
    shade = np.repeat(lambert(normals, light), 3)[:, None]
    return replace(
        mesh,
        vertices=mesh.vertices[order],
        faces=np.arange(len(order)).reshape(-1, 3),
        colors=shade * (np.ones((1, 3)) if mesh.colors is None else mesh.colors[order]),
        uvs=None if mesh.uvs is None else mesh.uvs[order],
    )


def to_linear(srgb: NDArray[np.floating]) -> NDArray[np.floating]:
    """Linear light from sRGB values in [0, 1] (IEC 61966-2-1)."""
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def to_srgb(linear: NDArray[np.floating]) -> NDArray[np.floating]:
    """sRGB values from linear light in [0, 1]: the inverse of `to_linear`."""
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)


def _bilinear(image: NDArray[np.float32], uv: Array, wrap: tuple[str, str]) -> Array:
    height, width = image.shape[:2]
    x, y = uv[:, 0] * width - 0.5, uv[:, 1] * height - 0.5
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    fx, fy = (x - left)[:, None], (y - top)[:, None]
    columns = [_wrapped(left + k, width, wrap[0]) for k in (0, 1)]
    rows = [_wrapped(top + k, height, wrap[1]) for k in (0, 1)]
    upper = image[rows[0], columns[0]] * (1 - fx) + image[rows[0], columns[1]] * fx
    lower = image[rows[1], columns[0]] * (1 - fx) + image[rows[1], columns[1]] * fx
    return upper * (1 - fy) + lower * fy


def _wrapped(index: NDArray[np.int64], size: int, wrap: str) -> NDArray[np.int64]:
    if wrap == "clamp":
        return np.clip(index, 0, size - 1)
    if wrap == "mirror":
        index = index % (2 * size)
        return np.minimum(index, 2 * size - 1 - index)
    return index % size
