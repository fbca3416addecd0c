"""Cameras that circle a model, and films of what they see."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.toolkits.checks import number, whole
from assay.toolkits.files import write_bytes

if TYPE_CHECKING:
    from assay.papers.treesplat.tree_splat import TreeSplat

FOV = math.radians(45)
"""Vertical field of view of the cameras made here."""


def look_at(position: Tensor, target: Tensor, up: Tensor) -> Tensor:
    """The camera that stands at `position` and sees `target` in the middle of its picture.

    Args:
        position, target: (3,) points.
        up: (3,) a direction that points upwards in the picture.

    Returns:
        (4, 4) world-to-camera, OpenCV axes.

    Raises:
        ValueError: For a camera that looks along `up`, or stands at its target.
    """
    forward = torch.nn.functional.normalize(target - position, dim=0)
    right = torch.linalg.cross(forward, up.to(forward))
    if not float(right.norm()) > 1e-6 * float(up.norm()):
        raise ValueError("position, target, up: the camera looks along up, or at itself")
    right = right / right.norm()
    rotation = torch.stack([right, torch.linalg.cross(forward, right), forward])
    viewmat = torch.eye(4, dtype=position.dtype)
    viewmat[:3, :3], viewmat[:3, 3] = rotation, -rotation @ position
    return viewmat


def intrinsics(width: int, height: int, fov: float = FOV) -> Tensor:
    """(3, 3) of a camera with its axis in the middle of the picture.

    Args:
        width, height: In pixels.
        fov: Vertical field of view in radians.
    """
    focal = height / 2 / math.tan(fov / 2)
    return torch.tensor([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])


def surroundings(model: TreeSplat) -> tuple[Tensor, float]:
    """Middle (3,) and radius of what a model shows at any time.

    One in a hundred Gaussians, and those that are seldom seen, may lie outside.
    """
    opaque = (model.splats["opacities"].detach() > 0).cpu()
    chosen = opaque if opaque.any() else torch.ones_like(opaque)
    moments = [model.at(t)["means"].cpu().float()[chosen] for t in np.linspace(0, 1, 9).tolist()]
    means = torch.cat(moments).numpy()
    middle = np.quantile(means, (0.01, 0.99), axis=0).mean(0)
    sizes = model.splats["scales"].detach().exp().amax(1).cpu().float()[chosen]
    reach = np.linalg.norm(means - middle, axis=1) + np.tile(sizes.numpy(), len(moments))
    radius = max(float(np.quantile(reach, 0.99)), 1e-6)
    return torch.from_numpy(middle).float(), radius


def orbit(
    model: TreeSplat,
    n: int,
    turns: float = 1.0,
    elevation: float = 20.0,
    up: Sequence[float] = (0, 0, 1),
) -> Tensor:
    """Cameras on a circle around a model, which see its `surroundings`; the first stands askew.

    Args:
        model: Any `TreeSplat`.
        n: How many.
        turns: Rounds in all; 0 stands still.
        elevation: Degrees above the horizon, between -90 and 90.
        up: (3,) the direction away from the ground.

    Returns:
        (n, 4, 4) world-to-camera matrices.

    Raises:
        TypeError, ValueError: For an elevation out of range, or turns that are not finite.
    """
    number("elevation", elevation, above=-90, most=89.9)
    number("turns", turns)
    middle, radius = surroundings(model)
    axis = torch.nn.functional.normalize(torch.tensor(up, dtype=torch.float32), dim=0)
    aside = torch.eye(3)[int(axis.abs().argmin())]
    east = torch.nn.functional.normalize(torch.linalg.cross(axis, aside), dim=0)
    north = torch.linalg.cross(axis, east)
    distance = 1.05 * radius / math.sin(FOV / 2)
    height = math.radians(elevation)
    views = []
    for i in range(whole("n", n)):
        angle = math.pi / 4 + 2 * math.pi * turns * i / n
        flat = math.cos(angle) * east + math.sin(angle) * north
        place = middle + distance * (math.cos(height) * flat + math.sin(height) * axis)
        views.append(look_at(place, middle, axis))
    return torch.stack(views)


@torch.no_grad()
def draw(
    model: TreeSplat,
    viewmat: Tensor,
    K: Tensor,
    width: int,
    height: int,
    t: float,
    background: Tensor,
    backend: str = "auto",
) -> NDArray[np.uint8]:
    """One picture of a model, ready to be shown.

    Args:
        model: Any `TreeSplat`.
        viewmat: (4, 4) world-to-camera.
        K: (3, 3) intrinsics.
        width, height: In pixels.
        t: Time in [0, 1].
        background: (3,) colour in [0, 1].
        backend: Of `rasterize`.

    Returns:
        uint8 (height, width, 3).
    """
    to = model.splats["means"]
    image, _, _ = model.render(
        viewmat[None].to(to), K[None].to(to), width, height, t, backend, background.to(to)
    )
    pixels: NDArray[np.uint8] = (image[0].clamp(0, 1) * 255).round().byte().cpu().numpy()
    return pixels


def write_film(path: str | Path, pictures: Iterable[NDArray[np.uint8]], fps: float = 20.0) -> int:
    """Writes pictures as an animation: .gif, or .mp4 (H.264).

    Args:
        path: Where; its ending decides.
        pictures: At least one, uint8 (H, W, 3), all of one size.
        fps: Pictures a second, up to 50.

    Returns:
        How many there were.

    Raises:
        ValueError: Without pictures, or for another ending or rate.
        OSError: Where the file cannot be written.
    """
    path = Path(path)
    number("fps", fps, above=0, most=50)
    ending = path.suffix.lower()
    if ending not in (".gif", ".mp4"):
        raise ValueError(f"path: got {path.name}, wants a name that ends in .gif or .mp4")
    frames = list(pictures)
    if not frames:
        raise ValueError("pictures: got none, wants at least one")
    if sizes := {frame.shape for frame in frames} - {frames[0].shape}:
        raise ValueError(f"pictures: got {frames[0].shape} and {min(sizes)}, wants one size")
    write_bytes(path, _gif(frames, fps) if ending == ".gif" else _mp4(frames, fps))
    return len(frames)


def _gif(frames: list[NDArray[np.uint8]], fps: float) -> bytes:
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    content = io.BytesIO()
    images[0].save(
        content, "GIF", save_all=True, append_images=images[1:], duration=1000 / fps, loop=0
    )
    return content.getvalue()


def _mp4(frames: list[NDArray[np.uint8]], fps: float) -> bytes:
    from fractions import Fraction

    import av

    content = io.BytesIO()
    with av.open(content, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        # Players want an even number of rows and columns.
        stream.height, stream.width = (size + size % 2 for size in frames[0].shape[:2])
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "16"}
        for frame in frames:
            odd = [(0, size % 2) for size in frame.shape[:2]]
            picture = np.pad(frame, [*odd, (0, 0)], mode="edge")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode())
    return content.getvalue()
