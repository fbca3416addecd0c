"""D-NeRF's layout: transforms_{train,val,test}.json beside their pictures; read and written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.papers.treesplat.datasets.assemble import Array, Options, Recorded, assemble, pinhole
from assay.papers.treesplat.datasets.frames import Capture, DynamicDataset, TimeScale
from assay.papers.treesplat.datasets.images import image_file, image_size, read_image
from assay.papers.treesplat.datasets.points import find_points, read_points, write_points
from assay.papers.treesplat.datasets.poses import to_viewmats
from assay.toolkits.files import read_json, write_text

_SPLITS = ("train", "val", "test")
_BOUNDS = np.array([[-1.3] * 3, [1.3] * 3])  # where D-NeRF's objects lie


def load_dnerf(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in D-NeRF's layout; see `load_capture` for the arguments.

    Poses are camera-to-world with OpenGL axes. Where the file has no point cloud, random
    points within `bounds` are the data set's own start.
    """
    splits: dict[str, list[Recorded]] = {}
    about: dict[str, Any] = {}
    for split in _SPLITS:
        path = folder / f"transforms_{split}.json"
        meta = read_json(path) if path.is_file() else {"frames": []}
        splits[split] = read_transforms(path, meta, options)
        about = about or meta.get("assay", {})
    given = points or find_points(folder)
    cloud, colors = read_points(given) if given else (None, None)
    capture = assemble(
        splits,
        "opengl camera-to-world",
        options,
        cloud,
        colors,
        np.asarray(about.get("bounds", _BOUNDS), float),
        synthetic=True,
        center=tuple(about.get("center", (0.0, 0.0, 0.0))),
        scale=float(about.get("scale", 1.0)),
    )
    if "time_scale" in about:
        return replace(capture, time_scale=TimeScale(**about["time_scale"]))
    return capture


def read_transforms(path: Path, meta: Any, options: Options) -> list[Recorded]:
    """The frames of a transforms file, NeRF's or nerfstudio's.

    Args:
        path: the file; pictures are looked for beside it.
        meta: what it holds. What a frame says itself goes before what the file says for all.
        options: of the user.

    Raises:
        ValueError: a frame has no pose or no focal length; the message names it.
        FileNotFoundError: a picture is not there.
    """
    if not isinstance(meta, Mapping) or not isinstance(meta.get("frames"), list):
        raise ValueError(f"{path}: has no list of frames")
    frames = []
    for i, frame in enumerate(meta["frames"]):
        if not isinstance(frame, Mapping) or not isinstance(frame.get("file_path"), str):
            raise ValueError(f"{path}: frame {i} has no file_path")
        name = frame["file_path"].removeprefix("./")
        try:
            matrix = np.array(frame["transform_matrix"], float).reshape(4, 4)
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(f"{path}: frame {name}: no transform_matrix: {error!r}") from None
        picture = image_file(path.parent, frame["file_path"])
        width, height = image_size(picture)
        frames.append(
            Recorded(
                name,
                frame.get("time"),
                matrix,
                _intrinsics(path, name, {**meta, **frame}, width, height),
                width,
                height,
                lambda picture=picture: read_image(picture),  # type: ignore[misc]
                options.downscale,
            )
        )
    return frames


def _intrinsics(path: Path, name: str, said: Mapping[str, Any], width: int, height: int) -> Array:
    """As nerfstudio writes them, for pictures of the size (w, h), or from NeRF's angle of view."""
    try:
        wide, high = float(said.get("w", width)), float(said.get("h", height))
        if "fl_x" in said:
            fx = float(said["fl_x"])
        elif "camera_angle_x" in said:
            fx = wide / 2 / math.tan(float(said["camera_angle_x"]) / 2)
        else:
            raise ValueError("neither fl_x nor camera_angle_x")
        if "fl_y" in said:
            fy = float(said["fl_y"])
        elif "fl_x" not in said and "camera_angle_y" in said:
            fy = high / 2 / math.tan(float(said["camera_angle_y"]) / 2)
        else:
            fy = fx
        K = pinhole(fx, fy, float(said.get("cx", wide / 2)), float(said.get("cy", high / 2)))
        if not (np.all(np.isfinite(K)) and fx > 0 and fy > 0):
            raise ValueError(f"focal length {fx:g}, {fy:g}")
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{path}: frame {name}: intrinsics: {error}") from None
    K[0] *= width / wide
    K[1] *= height / high
    return K


def save_capture(capture: Capture, folder: str | Path) -> None:
    """Writes a capture in D-NeRF's layout, which other programs read too.

    Pictures as PNG, with straight alpha where they have any; `points3d.ply`; intrinsics of each
    frame beside NeRF's `camera_angle_x`. Bounds and how the world and its times were normalised
    lie under the key "assay", which others pass over.

    Args:
        capture: what is written.
        folder: where; made where it is not there.

    Raises:
        ValueError: there is a capture already.
        OSError: it cannot be written.
    """
    from PIL import Image

    folder = Path(folder)
    if (folder / "transforms_train.json").exists():
        raise ValueError(f"folder: got {folder}, which holds a capture, wants another one")
    about = {
        "bounds": capture.bounds.tolist(),
        "time_scale": asdict(capture.time_scale),
        "center": list(capture.center),
        "scale": capture.scale,
    }
    written: dict[str, dict[str, Any]] = {}
    for split in _SPLITS:
        dataset: DynamicDataset = getattr(capture, split)
        (folder / split).mkdir(parents=True, exist_ok=True)
        frames: list[dict[str, Any]] = []
        for i, frame in enumerate(dataset.frames):
            name = f"{split}/r_{i:03d}"
            pixels = dataset.pixels(i)
            if dataset.alpha_mode == "premultiplied" and pixels.shape[-1] == 4:
                alpha = np.maximum(pixels[..., 3:], 1) / 255
                straight = np.rint(np.minimum(pixels[..., :3] / alpha, 255)).astype(np.uint8)
                pixels = np.concatenate([straight, pixels[..., 3:]], -1)
            Image.fromarray(pixels).save(folder / f"{name}.png")
            K = frame.K.double()
            pose = to_viewmats(frame.viewmat.double().numpy(), "opengl world-to-camera")
            frames.append(
                {
                    "file_path": f"./{name}",
                    "time": frame.time,
                    "transform_matrix": np.linalg.inv(pose).tolist(),
                    "fl_x": K[0, 0].item(),
                    "fl_y": K[1, 1].item(),
                    "cx": K[0, 2].item(),
                    "cy": K[1, 2].item(),
                    "w": frame.width,
                    "h": frame.height,
                }
            )
        written[split] = {"assay": about, "frames": frames}
        if frames:
            first = frames[0]
            written[split]["camera_angle_x"] = 2 * math.atan(first["w"] / 2 / first["fl_x"])
    if capture.points is not None:
        colors = capture.point_colors
        write_points(
            folder / "points3d.ply",
            capture.points.double().numpy(),
            None if colors is None else colors.double().numpy(),
        )
    for split, meta in written.items():
        write_text(folder / f"transforms_{split}.json", json.dumps(meta, indent=1))
