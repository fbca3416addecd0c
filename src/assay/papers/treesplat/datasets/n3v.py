"""Neural 3D Video's layout: a film for each camera, and LLFF's poses_bounds.npy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from assay.papers.treesplat.datasets.assemble import (
    Array,
    Options,
    Recorded,
    assemble,
    fitted,
    pinhole,
)
from assay.papers.treesplat.datasets.frames import Capture
from assay.papers.treesplat.datasets.images import Film, image_size, read_image
from assay.papers.treesplat.datasets.points import find_points, read_points
from assay.papers.treesplat.datasets.records import malformed

_RATE = 30.0  # of the data set's films, for those who keep pictures only


def load_n3v(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in Neural 3D Video's layout; see `load_capture` for the arguments.

    Films cam*.mp4, or folders cam*/images that they were taken apart into, in the order of the
    rows of poses_bounds.npy. The first camera is the test split. Frames are decoded when they
    are asked for; random access into a film decodes from the key frame before, so pictures
    train faster. Frame i is at i / rate seconds.

    Raises:
        ValueError: poses and cameras are not as many, or poses_bounds.npy is none.
    """
    path = folder / "poses_bounds.npy"
    with malformed(path):
        table = np.load(path, allow_pickle=False)
        if table.ndim != 2 or table.shape[1] != 17 or table.dtype.kind not in "iuf":
            raise ValueError(f"got {table.dtype} {table.shape}, wants (cameras, 17) numbers")
    rows, near_far = table[:, :15].reshape(-1, 3, 5).astype(float), table[:, 15:].astype(float)
    for i, (row, (near, far)) in enumerate(zip(rows, near_far, strict=True)):
        if not np.all(np.isfinite(table[i])) or row[:, 4].min() <= 0 or not near < far:
            height, width, focal = row[:, 4]
            raise ValueError(
                f"{path}: row {i}: got height {height:g}, width {width:g}, focal length {focal:g}, "
                f"near {near:g}, far {far:g}, wants finite numbers, sizes > 0 and near < far"
            )
    sources = {p.stem: p for p in folder.glob("cam*.mp4")}
    sources |= {p.name: p for p in folder.glob("cam*") if (p / "images").is_dir()}
    if len(sources) != len(rows):
        raise ValueError(
            f"{folder}: {len(sources)} cameras (cam*.mp4 or cam*/images), "
            f"{len(rows)} rows in poses_bounds.npy"
        )
    splits: dict[str, list[Recorded]] = {"train": [], "val": [], "test": []}
    matrices = []
    for number, (name, row) in enumerate(zip(sorted(sources), rows, strict=True)):
        # LLFF: down, right, backward, place, and (height, width, focal length).
        matrix = np.eye(4)
        matrix[:3] = np.stack([row[:, 1], -row[:, 0], row[:, 2], row[:, 3]], 1)
        matrices.append(matrix)
        split = splits["train" if number else "test"]
        split += _frames(name, sources[name], matrix, row[:, 4], options)
    given = points or find_points(folder)
    cloud, colors = read_points(given) if given else (None, None)
    bounds = None if cloud is not None else _frustum(np.stack(matrices), near_far)
    return assemble(splits, "opengl camera-to-world", options, cloud, colors, bounds, "seconds")


def _frames(
    name: str, source: Path, matrix: Array, size: Array, options: Options
) -> list[Recorded]:
    if source.is_dir():
        pictures = sorted(p for p in (source / "images").iterdir() if p.suffix in (".png", ".jpg"))
        if not pictures:
            raise ValueError(f"{source / 'images'}: has no pictures")
        width, height = image_size(pictures[0])
        readers = [lambda p=p: read_image(p) for p in pictures]
        rate = _RATE
    else:
        film = Film(source)
        width, height, rate = film.width, film.height, film.rate
        readers = [lambda i=i: film.read(i) for i in range(film.n_frames)]
    full_height, full_width, focal = size
    K = pinhole(focal, focal, full_width / 2, full_height / 2)
    K = fitted(f"poses_bounds.npy: {source}", K, (full_width, full_height), (width, height))
    return [
        Recorded(f"{name}[{i}]", i / rate, matrix, K, width, height, read, options.downscale)
        for i, read in enumerate(readers)
    ]


def _frustum(matrices: Array, near_far: Array) -> Array:
    """The box around what lies between the near and far bounds, along the cameras' axes."""
    depths = np.array([near_far[:, 0].min(), near_far[:, 1].max()])
    places = matrices[:, None, :3, 3] - depths[:, None] * matrices[:, None, :3, 2]
    half = 0.5 * (depths[1] - depths[0])
    middle = places.reshape(-1, 3).mean(0)
    return np.stack([middle - half, middle + half])
