"""nerfstudio's layout: one transforms.json, here with a time for each frame."""

from __future__ import annotations

import warnings
from pathlib import Path

from assay.papers.treesplat.datasets.assemble import Options, Recorded, assemble
from assay.papers.treesplat.datasets.dnerf import read_transforms
from assay.papers.treesplat.datasets.frames import Capture
from assay.papers.treesplat.datasets.images import SUFFIXES
from assay.papers.treesplat.datasets.points import find_points, read_points
from assay.papers.treesplat.datasets.records import Record

_HOLD_OUT = 8
_DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")


def load_nerfstudio(folder: Path, options: Options, points: Path | None = None) -> Capture:
    """A capture in nerfstudio's layout; see `load_capture` for the arguments.

    Poses are camera-to-world with OpenGL axes. Splits are those of `train_filenames`,
    `val_filenames` and `test_filenames`, with or without suffixes; where a file has none, every
    eighth frame is held out for testing.

    Raises:
        ValueError: its camera is no pinhole, or a split lists a file that no frame has.
    """
    path = folder / "transforms.json"
    meta = Record.read(path)
    frames = read_transforms(meta, folder, options)
    model = meta.content.get("camera_model", "OPENCV")
    if model not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise ValueError(f"{path}: camera_model {model!r}, wants a pinhole: undistort the images")
    if any(said.get(k) for said in (meta.content, *meta.content["frames"]) for k in _DISTORTION):
        warnings.warn(
            f"{path}: its lens distorts and the rasteriser's does not: undistort the images",
            stacklevel=3,
        )
    if any(f"{name}_filenames" in meta for name in ("train", "val", "test")):
        splits = {name: _listed(meta, name, frames) for name in ("train", "val", "test")}
    else:
        held_out = frames[::_HOLD_OUT] if len(frames) > 1 else []
        train = [frame for frame in frames if frame not in held_out]
        splits = {"train": train, "val": [], "test": held_out}
    given = points
    if given is None and "ply_file_path" in meta:
        given = folder / meta.text("ply_file_path")
    given = given or find_points(folder)
    cloud, colors = read_points(given) if given else (None, None)
    return assemble(splits, "opengl camera-to-world", options, cloud, colors, None)


def _listed(meta: Record, split: str, frames: list[Recorded]) -> list[Recorded]:
    """The frames of a split that the file lists, in the frames' order."""
    key = f"{split}_filenames"
    wanted = [file.removeprefix("./") for file in meta.names(key, [])]
    # Some files list pictures with their suffix and give frames without, or the other way round.
    bare = {_bare(frame.name): frame for frame in frames}
    exact = {frame.name: frame for frame in frames}
    found = [exact.get(file) or bare.get(_bare(file)) for file in wanted]
    if None in found:
        unknown = wanted[found.index(None)]
        raise ValueError(f"{meta.where}: {key}: got {unknown!r}, wants the file_path of a frame")
    kept = set(found)
    return [frame for frame in frames if frame in kept]


def _bare(name: str) -> str:
    path = Path(name)
    return str(path.with_suffix("") if path.suffix.lower() in SUFFIXES else path)
