"""HyperNeRF's and Nerfies' layout: a camera file for each picture."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from assay.papers.treesplat.datasets.assemble import Array, Options, Recorded, assemble
from assay.papers.treesplat.datasets.frames import Capture
from assay.papers.treesplat.datasets.images import image_size, read_image
from assay.papers.treesplat.datasets.points import find_points, read_points
from assay.toolkits.files import read_json


def load_hypernerf(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in HyperNeRF's layout; see `load_capture` for the arguments.

    Cameras are world-to-camera with OpenCV axes; the world is moved and scaled as scene.json
    says. Times are `time_id`, or `warp_id` where that is missing. `val_ids` of dataset.json are
    the test split; where there are none, every fourth frame is trained on and those halfway
    between are tested, as the authors do for interpolation. Pictures come from rgb/<n>x, from
    the smallest that is at least as large as asked for.

    Raises:
        ValueError: a file lacks what it should have; the message names both.
        FileNotFoundError: a picture, or all of the size asked for, are not there.
    """
    scene, metadata, dataset = (
        _mapping(folder / name) for name in ("scene.json", "metadata.json", "dataset.json")
    )
    stored = _stored_scale(folder, options.downscale)
    try:
        center, scale = np.array(scene["center"], float).reshape(3), float(scene["scale"])
        ids = [str(i) for i in dataset["ids"]]
        test = [str(i) for i in dataset.get("val_ids", ())]
        train = [str(i) for i in dataset.get("train_ids", ids)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder}: scene.json or dataset.json: {error!r}") from None
    if not test:
        train, test = ids[::4], ids[2::4]
    if not train:
        raise ValueError(f"{folder / 'dataset.json'}: names no training frames")

    def read(name: str) -> Recorded:
        path = folder / "camera" / f"{name}.json"
        camera, said = _mapping(path), metadata.get(name, {})
        picture = folder / "rgb" / f"{stored}x" / f"{name}.png"
        width, height = image_size(picture)
        try:
            matrix, K = _camera(camera, center, scale)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error!r}") from None
        # Stored sizes are rounded, so the factor is taken from the picture itself.
        full_width, full_height = camera["image_size"]
        K[0] *= width / full_width
        K[1] *= height / full_height
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
    first = _mapping(folder / "camera" / f"{train[0]}.json")
    if np.abs(first.get("radial_distortion", 0)).max() > 0.01:
        warnings.warn(
            f"{folder}: its lens distorts and the rasteriser's does not: undistort the images",
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


def _camera(camera: dict[str, Any], center: Array, scale: float) -> tuple[Array, Array]:
    rotation = np.array(camera["orientation"], float).reshape(3, 3)
    place = (np.array(camera["position"], float).reshape(3) - center) * scale
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation, -rotation @ place
    focal = float(camera["focal_length"])
    K = np.eye(3)
    K[0, 0], K[1, 1] = focal, focal * float(camera.get("pixel_aspect_ratio", 1))
    K[0, 1] = float(camera.get("skew", 0))
    K[:2, 2] = np.array(camera["principal_point"], float).reshape(2)
    return matrix, K


def _stored_scale(folder: Path, downscale: int) -> int:
    found = sorted(
        int(path.name[:-1])
        for path in (folder / "rgb").glob("*x")
        if path.is_dir() and path.name[:-1].isdecimal()
    )
    fitting = [scale for scale in found if downscale % scale == 0]
    if not fitting:
        names = ", ".join(f"{scale}x" for scale in found) or "nothing"
        raise FileNotFoundError(
            f"{folder / 'rgb'}: has {names}, none of which gives downscale={downscale}"
        )
    return fitting[-1]


def _mapping(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: wants a JSON object")
    return content
