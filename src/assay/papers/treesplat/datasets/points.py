"""Point clouds to start from: PLY, COLMAP's points3D and numpy files."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay.papers.treesplat.datasets.records import malformed
from assay.toolkits.files import write_bytes

Array = NDArray[np.float64]
_FOLDERS = ("", "sparse/0", "colmap/sparse/0", "colmap/dense/workspace/sparse")
_NAMES = (
    "points3d.ply",
    "points3D.ply",
    "points3D_downsample2.ply",
    "points3D_downsample.ply",
    "fused.ply",
    "points.npy",
    "points3D.bin",
    "points3D.txt",
)


def find_points(folder: Path) -> Path | None:
    """The first point cloud under a name that captures use, or None."""
    for inner in _FOLDERS:
        for name in _NAMES:
            if (path := folder / inner / name).is_file():
                return path
    return None


def read_points(path: Path) -> tuple[Array, Array | None]:
    """A point cloud.

    Args:
        path: .ply, .npy (P, 3), or COLMAP's points3D.bin or points3D.txt.

    Returns:
        (P, 3) points, and (P, 3) sRGB colours in [0, 1], or None where it has none.

    Raises:
        ValueError: it is none of them, is empty, or holds NaN.
        OSError: it cannot be read.
    """
    readers = {".ply": _ply, ".npy": _npy, ".bin": _colmap_binary, ".txt": _colmap_text}
    if path.suffix not in readers:
        raise ValueError(f"{path}: wants {', '.join(readers)}")
    with malformed(path):
        points, colors = readers[path.suffix](path)
    if not len(points) or not np.all(np.isfinite(points)):
        raise ValueError(f"{path}: {len(points)} points, wants some, and none with NaN")
    return points, colors


def write_points(path: Path, points: Array, colors: Array | None) -> None:
    """Writes a PLY that 3DGS programs read: positions, normals of zero, colours as bytes.

    As a whole or not at all.

    Args:
        path: the file.
        points: (P, 3).
        colors: (P, 3) in [0, 1]; None writes grey.
    """
    from plyfile import PlyData, PlyElement

    names = ["x", "y", "z", "nx", "ny", "nz"]
    row = [(name, "f4") for name in names] + [(name, "u1") for name in ("red", "green", "blue")]
    table = np.zeros(len(points), row)
    for k, name in enumerate(names[:3]):
        table[name] = points[:, k]
    bytes_ = np.full((len(points), 3), 128) if colors is None else np.rint(colors * 255)
    for k, name in enumerate(("red", "green", "blue")):
        table[name] = bytes_[:, k]
    content = io.BytesIO()
    PlyData([PlyElement.describe(table, "vertex")]).write(content)
    write_bytes(path, content.getvalue())


def _ply(path: Path) -> tuple[Array, Array | None]:
    from plyfile import PlyData, PlyParseError

    try:
        vertex = PlyData.read(str(path))["vertex"]
    except PlyParseError as error:
        raise ValueError(str(error)) from None
    points = np.stack([vertex[name] for name in "xyz"], 1).astype(np.float64)
    names = ("red", "green", "blue")
    if not all(name in vertex.data.dtype.names for name in names):
        return points, None
    colors = np.stack([vertex[name] for name in names], 1)
    return points, colors / (255 if colors.dtype.kind == "u" else 1.0)


def _npy(path: Path) -> tuple[Array, None]:
    points = np.load(path, allow_pickle=False)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"shape {points.shape}, wants (P, 3)")
    return points.astype(np.float64), None


def _colmap_binary(path: Path) -> tuple[Array, Array]:
    content = path.read_bytes()
    (count,) = struct.unpack_from("<Q", content)
    if count > len(content) // struct.calcsize("<Q3d3BdQ"):
        raise ValueError(f"{len(content)} bytes, too few for the {count} points it says")
    at, points, colors = 8, np.empty((count, 3)), np.empty((count, 3))
    for i in range(count):
        # Number, place, colour, error, and the images that see it.
        _, *values, _, seen = struct.unpack_from("<Q3d3BdQ", content, at)
        points[i], colors[i] = values[:3], values[3:]
        at += struct.calcsize("<Q3d3BdQ") + 8 * seen
    return points, colors / 255


def _colmap_text(path: Path) -> tuple[Array, Array]:
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    table = np.array([[float(word) for word in line.split()[1:7]] for line in lines])
    if table.ndim != 2 or table.shape[1] != 6:
        raise ValueError("wants a number, a place and a colour in each line")
    return table[:, :3], table[:, 3:] / 255
