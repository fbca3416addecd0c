"""What the loaders share: from frames as recorded to a checked capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.papers.treesplat.datasets.frames import (
    Capture,
    DynamicDataset,
    Frame,
    Pixels,
    normalize_times,
)
from assay.papers.treesplat.datasets.images import shrink
from assay.papers.treesplat.datasets.poses import (
    check_convention,
    check_frames,
    check_matrices,
    to_viewmats,
)

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """A frame as a capture's files have it.

    Args:
        name: for messages.
        time: as recorded; None where it is missing.
        matrix: (4, 4) pose in the file's convention.
        K: (3, 3) intrinsics at the stored size.
        width, height: stored size in pixels.
        read: gives the stored pixels.
        factor: how many times smaller it is to be used.
    """

    name: str
    time: Any
    matrix: Array
    K: Array
    width: int
    height: int
    read: Callable[[], Pixels]
    factor: int = 1


@dataclass(frozen=True)
class Options:
    """How images are read and poses are taken; see `load_capture`."""

    background: str | None = "white"
    alpha_mode: str = "straight"
    downscale: int = 1
    convention: str | None = None
    check_poses: bool = True
    cache_bytes: int = 512 * 2**20


def assemble(
    splits: Mapping[str, Sequence[Recorded]],
    convention: str,
    options: Options,
    points: Array | None,
    colors: Array | None,
    bounds: Array | None,
    unit: str | None = None,
    **world: Any,
) -> Capture:
    """A capture, from frames as recorded.

    Args:
        splits: frames of "train", "val" and "test".
        convention: of their poses, unless the options say another.
        options: of the user.
        points, colors: (P, 3) each, or None.
        bounds: (2, 3) of the scene; None takes those of the points or, without any, a cube
            that the cameras span.
        unit: of the recorded times, where the layout says it.
        **world: `center`, `scale` and `synthetic` of the capture.

    Raises:
        ValueError: a time is missing, poses are none, or cameras look away from the scene.
    """
    every = [frame for name in ("train", "val", "test") for frame in splits[name]]
    names = [frame.name for frame in every]
    if not splits["train"]:
        raise ValueError("train: got no frames, wants at least one")
    times, time_scale = normalize_times([frame.time for frame in every], names, unit)
    convention = options.convention or convention
    matrices = np.stack([frame.matrix for frame in every])
    check_matrices(matrices, names)
    if options.check_poses:
        sizes = np.array([(frame.width, frame.height) for frame in every], float)
        Ks = np.stack([frame.K for frame in every])
        check_convention(matrices, Ks, sizes, convention, points)
        check_frames(matrices, Ks, sizes, convention, names, points)
    viewmats = to_viewmats(matrices, convention)
    if bounds is None:
        bounds = _bounds(viewmats, points)

    datasets, at = [], 0
    for name in ("train", "val", "test"):
        frames, readers = [], []
        for recorded in splits[name]:
            frames.append(_frame(recorded, times[at], viewmats[at]))
            readers.append(_reader(recorded, options.alpha_mode))
            at += 1
        datasets.append(
            DynamicDataset(
                frames,
                lambda i, readers=readers: readers[i](),  # type: ignore[misc]
                options.background,
                options.alpha_mode,
                options.cache_bytes,
            )
        )
    train, val, test = datasets
    return Capture(
        train,
        val,
        test,
        None if points is None else torch.from_numpy(points).float(),
        None if colors is None else torch.from_numpy(colors).float(),
        torch.from_numpy(np.asarray(bounds, float)).float(),
        time_scale,
        **world,
    )


def pinhole(fx: float, fy: float, cx: float, cy: float) -> Array:
    """(3, 3) intrinsics from focal lengths and principal point in pixels."""
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], float)


def fitted(
    where: Path | str, K: Array, stated: tuple[float, float], stored: tuple[int, int]
) -> Array:
    """Intrinsics for a picture stored smaller or larger than its camera says.

    Args:
        where: the camera's, for messages.
        K: (3, 3) intrinsics at the stated size.
        stated: width and height that they are meant for.
        stored: those of the picture, whose rounding is let pass.

    Returns:
        (3, 3) intrinsics at the stored size.

    Raises:
        ValueError: the two differ in shape, so one is not a scaled copy of the other.
    """
    (width, height), (wide, high) = stored, stated
    if abs(width * high / wide - height) >= 1 + high / wide:
        raise ValueError(
            f"{where}: its picture is {width} x {height} pixels, its camera says "
            f"{wide:g} x {high:g}, wants the same shape"
        )
    K = K.copy()
    K[0] *= width / wide
    K[1] *= height / high
    return K


def _frame(recorded: Recorded, time: float, viewmat: Array) -> Frame:
    K = recorded.K.copy()
    K[:2] /= recorded.factor
    return Frame(
        recorded.name,
        time,
        torch.from_numpy(viewmat).float(),
        torch.from_numpy(K).float(),
        -(-recorded.width // recorded.factor),
        -(-recorded.height // recorded.factor),
    )


def _reader(recorded: Recorded, alpha_mode: str) -> Callable[[], Pixels]:
    return lambda: shrink(recorded.read(), recorded.factor, alpha_mode)


def _bounds(viewmats: Array, points: Array | None) -> Array:
    if points is not None:
        return np.stack([points.min(0), points.max(0)])
    centers = -np.einsum("fba,fb->fa", viewmats[:, :3, :3], viewmats[:, :3, 3])
    middle = centers.mean(0)
    half = float(np.linalg.norm(centers - middle, axis=1).max()) or 1.0
    return np.stack([middle - half, middle + half])
