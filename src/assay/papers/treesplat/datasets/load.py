"""One function for all layouts."""

from __future__ import annotations

from pathlib import Path

from assay.papers.treesplat.datasets.assemble import Options
from assay.papers.treesplat.datasets.dnerf import load_dnerf
from assay.papers.treesplat.datasets.frames import BACKGROUNDS, Capture
from assay.papers.treesplat.datasets.hypernerf import load_hypernerf
from assay.papers.treesplat.datasets.n3v import load_n3v
from assay.papers.treesplat.datasets.nerfstudio import load_nerfstudio
from assay.papers.treesplat.datasets.poses import CONVENTIONS
from assay.papers.treesplat.datasets.records import malformed
from assay.toolkits.checks import flag, one_of, whole

# What tells a layout, and who reads it.
_LAYOUTS = {
    "dnerf": ("transforms_train.json", load_dnerf),
    "nerfstudio": ("transforms.json", load_nerfstudio),
    "hypernerf": ("dataset.json", load_hypernerf),
    "n3v": ("poses_bounds.npy", load_n3v),
}


def load_capture(
    path: str | Path,
    kind: str = "auto",
    background: str | None = "white",
    downscale: int = 1,
    alpha_mode: str = "straight",
    convention: str | None = None,
    check_poses: bool = True,
    points: str | Path | None = None,
    cache_bytes: int = 512 * 2**20,
) -> Capture:
    """A capture from a folder: D-NeRF, nerfstudio with times, HyperNeRF or Neural 3D Video.

    Times are normalised over all splits together, and how is recorded in `time_scale`. Images
    are read when they are asked for.

    Args:
        path: the folder of one scene.
        kind: "dnerf", "nerfstudio", "hypernerf", "n3v", or "auto", which goes by the files.
        background: behind images with alpha: "white" or "black"; None refuses such images.
        downscale: how many times smaller images are used; means over squares of pixels.
        alpha_mode: "straight" or "premultiplied"; see `DynamicDataset`.
        convention: of the poses, one of `poses.CONVENTIONS`, where it is not the layout's own.
        check_poses: refuse poses that turn most cameras away from the scene.
        points: a point cloud (.ply, .npy, COLMAP's points3D) in place of the one found.
        cache_bytes: bound on the decoded pixels that each split keeps.

    Raises:
        FileNotFoundError: a file is missing; where no layout fits, the message says what was
            looked for.
        ValueError: a file is not what it should be, a time is missing or NaN, or the poses are
            wrong; the message names the file or the frame.
    """
    folder = Path(path)
    one_of("kind", kind, ("auto", *_LAYOUTS))
    if background is not None:
        one_of("background", background, BACKGROUNDS)
    if convention is not None:
        one_of("convention", convention, CONVENTIONS)
    options = Options(
        background,
        one_of("alpha_mode", alpha_mode, ("straight", "premultiplied")),
        whole("downscale", downscale),
        convention,
        flag("check_poses", check_poses),
        whole("cache_bytes", cache_bytes, 0),
    )
    if not folder.is_dir():
        raise FileNotFoundError(f"path: got {folder}, which is no folder")
    if kind == "auto":
        fitting = [name for name, (mark, _) in _LAYOUTS.items() if (folder / mark).is_file()]
        if not fitting:
            marks = ", ".join(f"{mark} ({name})" for name, (mark, _) in _LAYOUTS.items())
            raise FileNotFoundError(f"path: {folder} holds no capture; looked for {marks}")
        kind = fitting[0]
    mark, load = _LAYOUTS[kind]
    if not (folder / mark).is_file():
        raise FileNotFoundError(f"path: {folder} has no {mark}, wants one for kind={kind!r}")
    with malformed(folder):
        return load(folder, options, None if points is None else Path(points))
