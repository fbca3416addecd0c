"""nerfstudio's layout: one transforms.json, here with a time for each frame."""

from __future__ import annotations

import warnings
from pathlib import Path

from assay.papers.treesplat.datasets.assemble import Options, Recorded, assemble
from assay.papers.treesplat.datasets.dnerf import read_transforms
from assay.papers.treesplat.datasets.frames import Capture
from assay.papers.treesplat.datasets.points import find_points, read_points
from assay.toolkits.files import read_json

_HOLD_OUT = 8
_DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")


def load_nerfstudio(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in nerfstudio's layout; see `load_capture` for the arguments.

    Poses are camera-to-world with OpenGL axes. Splits are those of `train_filenames`,
    `val_filenames` and `test_filenames`; where a file has none, every eighth frame is held out
    for testing.

    Raises:
        ValueError: its camera is no pinhole.
    """
    path = folder / "transforms.json"
    meta = read_json(path)
    frames = read_transforms(path, meta, options)
    model = meta.get("camera_model", "OPENCV")
    if model not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise ValueError(f"{path}: camera_model {model!r}, wants a pinhole: undistort the images")
    if any(said.get(k) for said in (meta, *meta["frames"]) for k in _DISTORTION):
        warnings.warn(
            f"{path}: its lens distorts and the rasteriser's does not: undistort the images",
            stacklevel=3,
        )
    splits: dict[str, list[Recorded]] = {}
    listed = {name: meta.get(f"{name}_filenames") for name in ("train", "val", "test")}
    if listed["train"] is not None:
        for name, files in listed.items():
            wanted = {file.removeprefix("./") for file in files or ()}
            splits[name] = [frame for frame in frames if frame.name in wanted]
    else:
        splits["train"] = [frame for i, frame in enumerate(frames) if i % _HOLD_OUT]
        splits["val"] = []
        splits["test"] = frames[::_HOLD_OUT]
    given = points
    if given is None and "ply_file_path" in meta:
        given = folder / meta["ply_file_path"]
    given = given or find_points(folder)
    cloud, colors = read_points(given) if given else (None, None)
    return assemble(splits, "opengl camera-to-world", options, cloud, colors, None)
