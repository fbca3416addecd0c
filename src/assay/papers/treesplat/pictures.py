"""Strips over time and animations: what was filmed above or beside what a model renders."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.papers.treesplat.playback import draw
from assay.papers.treesplat.scenes.raycast import cast

if TYPE_CHECKING:
    from torch import Tensor

    from assay.papers.treesplat.datasets.frames import Capture, Frame
    from assay.papers.treesplat.scenes.mesh import AnimatedMesh
    from assay.papers.treesplat.tree_splat import TreeSplat

Picture = NDArray[np.uint8]

_AREA = 24_000  # pixels of a column of a film, so that its file stays small
_HEADER = 22
_COLOURS = 48
_MILLISECONDS = 100


def filmed(
    scene: AnimatedMesh, capture: Capture, camera: Frame, times: Sequence[float]
) -> list[Picture]:
    """The scene itself, seen from one camera at several times, on the capture's background.

    Args:
        scene: what the capture was rendered of.
        capture: says how the scene lies in it.
        camera: a frame whose pose and intrinsics are used; its time is not.
        times: in [0, 1].

    Returns:
        (H, W, 3) pictures, one for each time.
    """
    behind = 255 * capture.background.numpy()
    center = np.array(capture.center)
    pictures = []
    for t in times:
        mesh = scene.at(t)
        moved = mesh.moved((mesh.vertices - center) * capture.scale)
        view = cast(
            moved, camera.viewmat.double().numpy(), camera.K.double().numpy(), camera.width,
            camera.height, supersample=3,
        )  # fmt: skip
        alpha = view.rgba[..., 3:] / 255
        pictures.append(np.rint(view.rgba[..., :3] * alpha + behind * (1 - alpha)).astype(np.uint8))
    return pictures


def rendered(
    model: TreeSplat, background: Tensor, camera: Frame, times: Sequence[float]
) -> list[Picture]:
    """What a model shows from one camera at several times.

    Args:
        model: any.
        background: (3,) colour behind it.
        camera: as for `filmed`.
        times: in [0, 1].

    Returns:
        (H, W, 3) pictures, one for each time.
    """
    view = (camera.viewmat, camera.K, camera.width, camera.height)
    return [draw(model, *view, t, background) for t in times]


def cropped(*films: Sequence[Picture], margin: int = 6) -> list[list[Picture]]:
    """Films without the border that is empty in all pictures of the first of them.

    Args:
        *films: pictures, all of one size, on a plain background.
        margin: pixels that are kept around what is not empty.
    """
    first = np.stack(films[0]).astype(int)
    seen = (np.abs(first - first[0, 0, 0]).max(-1) > 8).any(0)
    rows, columns = np.flatnonzero(seen.any(1)), np.flatnonzero(seen.any(0))
    if not len(rows):
        return [list(film) for film in films]
    top, left = max(0, rows[0] - margin), max(0, columns[0] - margin)
    part = np.s_[top : rows[-1] + margin + 1, left : columns[-1] + margin + 1]
    return [[picture[part] for picture in film] for film in films]


def strip(rows: Sequence[Sequence[Picture]]) -> bytes:
    """A PNG of pictures in rows.

    Args:
        rows: as many pictures in each, all of one size.
    """
    from PIL import Image

    whole = np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)
    content = io.BytesIO()
    picture = Image.fromarray(_bright(whole)).quantize(256, dither=Image.Dither.NONE)
    picture.save(content, "PNG", optimize=True)
    return content.getvalue()


def film(columns: Mapping[str, Sequence[Picture]]) -> bytes:
    """A GIF of films side by side, which repeats.

    Args:
        columns: frames by what they are called; as many of each, all of one size.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=13)
    frames = []
    for pictures in zip(*columns.values(), strict=True):
        height, width = pictures[0].shape[:2]
        larger = math.sqrt(_AREA / (width * height))
        wide, high = round(width * larger), round(height * larger)
        frame = Image.new("RGB", (wide * len(columns), high + _HEADER), "white")
        pen = ImageDraw.Draw(frame)
        for i, (name, picture) in enumerate(zip(columns, pictures, strict=True)):
            shown = Image.fromarray(picture).resize((wide, high), Image.Resampling.LANCZOS)
            frame.paste(Image.fromarray(_bright(np.asarray(shown))), (i * wide, _HEADER))
            pen.text((i * wide + wide / 2, 4), name, "black", font, anchor="ma")
        frames.append(frame)
    # One palette for all frames, so that still parts do not flicker.
    palette = frames[0].quantize(_COLOURS)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    content = io.BytesIO()
    frames[0].save(
        content, "GIF", save_all=True, append_images=frames[1:], duration=_MILLISECONDS, loop=0
    )
    return content.getvalue()


def _bright(picture: Picture) -> Picture:
    """All but white becomes white: haze of one or two levels only makes files larger."""
    return np.where(picture.min(-1, keepdims=True) >= 250, 255, picture).astype(np.uint8)
