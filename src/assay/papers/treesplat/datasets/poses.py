"""Camera matrices in the conventions that people write them in, and which one a file is in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.toolkits.checks import one_of

Array = NDArray[np.float64]

CONVENTIONS = (
    "opengl camera-to-world",  # D-NeRF, Blender, nerfstudio: y up, z backward
    "opencv camera-to-world",  # y down, z forward
    "opencv world-to-camera",  # COLMAP, HyperNeRF, gsplat
    "opengl world-to-camera",
)
_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])


class PoseError(ValueError):
    """Poses that cannot be what they are said to be; the message says what they look like."""


def to_viewmats(matrices: Array, convention: str) -> Array:
    """World-to-camera matrices with OpenCV axes, as gsplat takes them.

    Args:
        matrices: (F, 4, 4) rigid transforms.
        convention: one of `CONVENTIONS`.

    Returns:
        (F, 4, 4).
    """
    axes, direction = one_of("convention", convention, CONVENTIONS).split()
    viewmats = matrices
    if direction == "camera-to-world":
        viewmats = np.linalg.inv(matrices).astype(np.float64)
    return _FLIP @ viewmats if axes == "opengl" else viewmats


def check_matrices(matrices: Array, names: list[str]) -> None:
    """That each matrix is a rotation and a translation.

    A rotation is let pass with the rounding of a text file, 1e-3.

    Args:
        matrices: (F, 4, 4).
        names: of the frames, for messages.

    Raises:
        PoseError: naming the first frame whose matrix is none.
    """
    for matrix, name in zip(matrices, names, strict=True):
        rotation = matrix[:3, :3]
        if not np.all(np.isfinite(matrix)):
            raise PoseError(f"frame {name}: its pose holds NaN or infinity")
        if not np.allclose(matrix[3], (0, 0, 0, 1), atol=1e-6):
            hint = ", it is transposed" if np.allclose(matrix[:, 3], (0, 0, 0, 1)) else ""
            raise PoseError(f"frame {name}: the last row of its pose is {matrix[3]}{hint}")
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-3:
            raise PoseError(f"frame {name}: its pose is no rotation, it scales or shears")
        if np.linalg.det(rotation) < 0:
            raise PoseError(f"frame {name}: its pose mirrors (its axes are left-handed)")


def check_convention(
    matrices: Array, Ks: Array, sizes: Array, convention: str, points: Array | None = None
) -> None:
    """That cameras see the scene; a wrong convention turns them away from it.

    The scene is where the points are; without points, where the cameras' axes all but meet,
    which says nothing for cameras that look the same way.

    Args:
        matrices: (F, 4, 4) as read.
        Ks: (F, 3, 3) intrinsics.
        sizes: (F, 2) widths and heights.
        convention: what they are taken for.
        points: (P, 3), or None.

    Raises:
        PoseError: most of the scene is out of sight. Where another convention brings it into
            sight, the message names that one and the flip that leads to it. Cameras that look
            outwards from one place look so too: with points they pass.
    """
    if len(matrices) < 2 and points is None:
        return
    seen = {name: _seen(matrices, Ks, sizes, name, points) for name in CONVENTIONS}
    found = seen[convention]
    if found is None:
        return
    rated = {name: share for name, share in seen.items() if share is not None}
    best = max(rated, key=lambda name: rated[name])
    turned = rated[best] > 0.5 and found < rated[best] - 0.3
    if not turned and found > 0.001:
        return
    scene = "the scene's points lie" if points is not None else "what the cameras look at lies"
    message = f"poses: taken as {convention}, {scene} behind or beside most cameras"
    if not turned:
        raise PoseError(
            f"{message}, and no other convention helps: look at the poses and the intrinsics, "
            "or pass check_poses=False"
        )
    axes, direction = zip(convention.split(), best.split(), strict=True)
    flips = []
    if axes[0] != axes[1]:
        flips.append(f"their y and z axes are {_NAMES[axes[1]]}'s, not {_NAMES[axes[0]]}'s")
    if direction[0] != direction[1]:
        flips.append(f"they are {direction[1]} matrices, not {direction[0]}")
    raise PoseError(f"{message}; {' and '.join(flips)}: pass convention={best!r}")


def check_frames(
    matrices: Array,
    Ks: Array,
    sizes: Array,
    convention: str,
    names: list[str],
    points: Array | None = None,
) -> None:
    """That no single camera is turned away from what the others look at.

    Asked only where three cameras of four see the scene, which those inside a room do not.

    Args:
        matrices, Ks, sizes, convention, points: see `check_convention`.
        names: of the frames, for messages.

    Raises:
        PoseError: a camera sees nothing of the scene, and most of it with its y and z axes
            flipped; the message names its frame.
    """
    viewmats = to_viewmats(matrices, convention)
    if points is None:
        if (middle := _middle(viewmats)) is None:
            return
        points = middle[None]
    # As in `_seen`, a few hundred tell as well as all of them.
    chosen = points[:: max(1, len(points) // 500)]
    seen = [_inside(*camera, chosen) for camera in zip(viewmats, Ks, sizes, strict=True)]
    if np.mean(np.array(seen) > 0) < 0.75:
        return
    for share, viewmat, K, size, name in zip(seen, viewmats, Ks, sizes, names, strict=True):
        if share == 0 and _inside(_FLIP @ viewmat, K, size, chosen) > 0.5:
            raise PoseError(
                f"frame {name}: its pose looks away from what the other cameras look at; with its "
                "y and z axes flipped it looks at it: mend it, or pass check_poses=False"
            )


_NAMES = {"opengl": "OpenGL", "opencv": "OpenCV"}


def _seen(
    matrices: Array, Ks: Array, sizes: Array, convention: str, points: Array | None
) -> float | None:
    """How well a convention fits; None where it cannot be told.

    With points, the mean share of them that a camera has in its picture. Without, the share of
    cameras that look at what all look at, and 1 more for all sides: cameras around a scene,
    read the wrong way round, stand together and look the same way, which no one does who has
    the choice.
    """
    viewmats = to_viewmats(matrices, convention)
    if points is not None:
        # A few hundred tell as well as all of them.
        chosen = points[:: max(1, len(points) // 500)]
        cameras = zip(viewmats, Ks, sizes, strict=True)
        return float(np.mean([_inside(*camera, chosen) for camera in cameras]))
    centers = -np.einsum("fba,fb->fa", viewmats[:, :3, :3], viewmats[:, :3, 3])
    axes = viewmats[:, 2, :3]
    if (middle := _middle(viewmats)) is None:
        return None
    toward = middle - centers
    depths = np.einsum("fa,fa->f", axes, toward)
    aside = np.linalg.norm(toward - depths[:, None] * axes, axis=1)
    # Axes that meet in the cameras themselves, as those of matrices read the wrong way round
    # do, pass it by rather than lead to it.
    sides = 1 - np.linalg.norm(axes.mean(0))
    return float(np.mean(aside < 0.5 * depths) * (1 + sides))


def _middle(viewmats: Array) -> Array | None:
    """The point nearest to all axes in the least squares sense; None where they are parallel."""
    centers = -np.einsum("fba,fb->fa", viewmats[:, :3, :3], viewmats[:, :3, 3])
    axes = viewmats[:, 2, :3]
    across = np.eye(3) - np.einsum("fa,fb->fab", axes, axes)
    total = across.sum(0)
    if np.linalg.eigvalsh(total)[0] < 1e-2 * len(viewmats):
        return None  # they are all but parallel
    return np.linalg.solve(total, np.einsum("fab,fb->a", across, centers))


def _inside(viewmat: Array, K: Array, size: Array, points: Array) -> float:
    local = points @ viewmat[:3, :3].T + viewmat[:3, 3]
    ahead = local[:, 2] > 1e-6
    pixel = local[ahead] @ K.T
    pixel = pixel[:, :2] / pixel[:, 2:]
    return float(np.all(np.abs(pixel - size / 2) < size / 2, axis=1).sum() / len(points))
