"""D-NeRF's layout: transforms_{train,val,test}.json beside their pictures; read and written."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.papers.treesplat.datasets.assemble import (
    Array,
    Options,
    Recorded,
    assemble,
    fitted,
    pinhole,
)
from assay.papers.treesplat.datasets.frames import Capture, DynamicDataset, TimeScale
from assay.papers.treesplat.datasets.images import image_file, image_size, read_image
from assay.papers.treesplat.datasets.points import find_points, read_points, write_points
from assay.papers.treesplat.datasets.poses import to_viewmats
from assay.papers.treesplat.datasets.records import Record
from assay.toolkits.files import write_text

_SPLITS = ("train", "val", "test")
_BOUNDS = np.array([[-1.3] * 3, [1.3] * 3])  # where D-NeRF's objects lie


def load_dnerf(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in D-NeRF's layout; see `load_capture` for the arguments.

    Poses are camera-to-world with OpenGL axes. Where the file has no point cloud, random
    points within `bounds` are the data set's own start.
    """
    splits: dict[str, list[Recorded]] = {}
    about = Record(folder, {})
    for split in _SPLITS:
        path = folder / f"transforms_{split}.json"
        meta = Record.read(path) if path.is_file() else Record(path, {"frames": []})
        splits[split] = read_transforms(meta, path.parent, options)
        about = meta.inner("assay") if not about.content else about
    given = points or find_points(folder)
    cloud, colors = read_points(given) if given else (None, None)
    bounds = about.array("bounds", (2, 3), _BOUNDS)
    if np.any(bounds[0] > bounds[1]):
        raise about.wrong("bounds", "a lower and an upper corner")
    capture = assemble(
        splits,
        "opengl camera-to-world",
        options,
        cloud,
        colors,
        bounds,
        synthetic=True,
        center=tuple(about.array("center", (3,), (0.0, 0.0, 0.0)).tolist()),
        scale=about.number("scale", 1.0, above=0),
    )
    if "time_scale" in about:
        times = about.inner("time_scale")
        if times.number("duration") < 0:
            raise times.wrong("duration", "a finite number >= 0")
        start, duration = times.number("start"), times.number("duration")
        return replace(capture, time_scale=TimeScale(start, duration, times.text("unit")))
    return capture


def read_transforms(meta: Record, folder: Path, options: Options) -> list[Recorded]:
    """The frames of a transforms file, NeRF's or nerfstudio's.

    Args:
        meta: what it holds. What a frame says itself goes before what the file says for all.
        folder: where its pictures are.
        options: of the user.

    Raises:
        ValueError: a frame has no pose or no focal length, or its picture is not of the shape
            that its camera says; the message names it.
        FileNotFoundError: a picture is not there.
    """
    if not isinstance(meta.content.get("frames"), list):
        raise meta.wrong("frames", "a list")
    frames = []
    for i, content in enumerate(meta.content["frames"]):
        file_path = Record(f"{meta.where}: frame {i}", content).text("file_path")
        name = file_path.removeprefix("./")
        frame = Record(f"{meta.where}: frame {name}", {**meta.content, **content})
        picture = image_file(folder, file_path)
        width, height = image_size(picture)
        frames.append(
            Recorded(
                name,
                content.get("time"),
                frame.array("transform_matrix", (4, 4)),
                _intrinsics(frame, width, height),
                width,
                height,
                lambda picture=picture: read_image(picture),  # type: ignore[misc]
                options.downscale,
            )
        )
    return frames


def _intrinsics(said: Record, width: int, height: int) -> Array:
    """As nerfstudio writes them, for pictures of the size (w, h), or from NeRF's angle of view."""
    wide, high = said.number("w", width, above=0), said.number("h", height, above=0)
    if "fl_x" in said:
        fx = said.number("fl_x", above=0)
    elif "camera_angle_x" in said:
        fx = _from_angle(said, "camera_angle_x", wide)
    else:
        raise ValueError(f"{said.where}: neither fl_x nor camera_angle_x, wants one")
    if "fl_x" in said or "fl_y" in said or "camera_angle_y" not in said:
        fy = said.number("fl_y", fx, above=0)
    else:
        fy = _from_angle(said, "camera_angle_y", high)
    K = pinhole(fx, fy, said.number("cx", wide / 2), said.number("cy", high / 2))
    return fitted(said.where, K, (wide, high), (width, height))


def _from_angle(said: Record, key: str, side: float) -> float:
    """Focal length where a side of so many pixels is seen under an angle."""
    if (angle := said.number(key, above=0)) >= math.pi:
        raise said.wrong(key, "an angle below pi")
    return side / 2 / math.tan(angle / 2)


def save_capture(capture: Capture, folder: str | Path) -> None:
    """Writes a capture in D-NeRF's layout, which other programs read too.

    A folder that was not written to its end is no capture, and can be written again.

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
    # The training frames last: they are what makes the folder a capture, which is then whole.
    for split, meta in reversed(written.items()):
        write_text(folder / f"transforms_{split}.json", json.dumps(meta, indent=1))
