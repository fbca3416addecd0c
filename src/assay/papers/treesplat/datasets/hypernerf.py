"""HyperNeRF's and Nerfies' layout: a camera file for each picture."""

from __future__ import annotations

import warnings
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
from assay.papers.treesplat.datasets.images import image_size, read_image
from assay.papers.treesplat.datasets.points import find_points, read_points
from assay.papers.treesplat.datasets.records import Record


def load_hypernerf(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in HyperNeRF's layout; see `load_capture` for the arguments.

    Cameras are world-to-camera with OpenCV axes; the world is moved and scaled as scene.json
    says. The rasteriser has no skew, so theirs is dropped, with a warning. Times are `time_id`,
    or `warp_id` where that is missing. `val_ids` of dataset.json are the test split; where there
    are none, every fourth frame is trained on and those halfway between are tested, as the
    authors do for interpolation. Pictures come from rgb/<n>x, from the smallest that is at least
    as large as asked for.

    Raises:
        ValueError: a file lacks what it should have; the message names both.
        FileNotFoundError: a picture, or all of the size asked for, are not there.
    """
    scene, metadata, dataset = (
        Record.read(folder / name) for name in ("scene.json", "metadata.json", "dataset.json")
    )
    stored = _stored_scale(folder, options.downscale)
    center, scale = scene.array("center", (3,)), scene.number("scale", above=0)
    ids = dataset.names("ids")
    test, train = dataset.names("val_ids", []), dataset.names("train_ids", ids)
    if not test:
        train, test = ids[::4], ids[2::4]
    if not train:
        raise ValueError(f"{folder / 'dataset.json'}: names no training frames")

    cameras: list[Record] = []

    def read(name: str) -> Recorded:
        camera = Record.read(folder / "camera" / f"{name}.json")
        cameras.append(camera)
        picture = folder / "rgb" / f"{stored}x" / f"{name}.png"
        width, height = image_size(picture)
        matrix, K = _camera(camera, center, scale)
        full = camera.array("image_size", (2,))
        if full.min() <= 0:
            raise camera.wrong("image_size", "2 numbers > 0")
        # Stored sizes are rounded, so the factor is taken from the picture itself.
        K = fitted(camera.where, K, (full[0], full[1]), (width, height))
        said = metadata.inner(name).content
        return Recorded(
            name,
            said.get("time_id", said.get("warp_id")),
            matrix,
            K,
            width,
            height,
            lambda: read_image(picture),
            options.downscale // stored,
        )

    splits = {"train": [read(i) for i in train], "val": [], "test": [read(i) for i in test]}
    lenses = [camera.array("radial_distortion", (-1,), [0.0]) for camera in cameras]
    if any(np.any(np.abs(lens) > 0.01) for lens in lenses):
        warnings.warn(
            f"{folder}: its lens distorts and the rasteriser's does not: undistort the images",
            stacklevel=3,
        )
    skew = max((camera.number("skew", 0.0) for camera in cameras), key=abs)
    if skew:
        warnings.warn(
            f"{folder}: its cameras have skew, up to {skew:g}, which the rasteriser has not: "
            "it is taken for 0",
            stacklevel=3,
        )
    path = points or find_points(folder)
    cloud, colors = read_points(path) if path else (None, None)
    if cloud is not None:
        cloud = (cloud - center) * scale
    return assemble(
        splits,
        "opencv world-to-camera",
        options,
        cloud,
        colors,
        None,
        "frames",
        center=tuple(center.tolist()),
        scale=scale,
    )


def _camera(camera: Record, center: Array, scale: float) -> tuple[Array, Array]:
    rotation = camera.array("orientation", (3, 3))
    place = (camera.array("position", (3,)) - center) * scale
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation, -rotation @ place
    focal = camera.number("focal_length", above=0)
    aspect = camera.number("pixel_aspect_ratio", 1.0, above=0)
    return matrix, pinhole(focal, focal * aspect, *camera.array("principal_point", (2,)))


def _stored_scale(folder: Path, downscale: int) -> int:
    found = sorted(
        int(path.name[:-1])
        for path in (folder / "rgb").glob("*x")
        if path.is_dir() and path.name[:-1].isdecimal() and int(path.name[:-1])
    )
    fitting = [scale for scale in found if downscale % scale == 0]
    if not fitting:
        names = ", ".join(f"{scale}x" for scale in found) or "nothing"
        raise FileNotFoundError(
            f"{folder / 'rgb'}: has {names}, none of which gives downscale={downscale}"
        )
    return fitting[-1]
