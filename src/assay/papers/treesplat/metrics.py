"""How close a model's pictures come to held-out ones."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.papers.treesplat.datasets.frames import BACKGROUNDS
from assay.papers.treesplat.losses import WINDOW

if TYPE_CHECKING:
    from assay.papers.treesplat.datasets import DynamicDataset
    from assay.papers.treesplat.tree_splat import TreeSplat


def psnr(image: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
    """Peak signal-to-noise ratio of an image with values in [0, 1].

    Args:
        image: (H, W, C).
        target: The same shape.
        mask: (H, W) booleans, the pixels that count; None for all.

    Returns:
        ``-10 log10(mean squared error)`` in dB: infinite for equal images, NaN where no pixel
        counts.

    Raises:
        ValueError: For shapes that differ.
    """
    if image.shape != target.shape:
        raise ValueError(
            f"target: got shape {tuple(target.shape)}, wants the image's {tuple(image.shape)}"
        )
    error = (image - target).square()
    mean = float((error if mask is None else error[mask]).mean(dtype=torch.float64))
    return math.inf if mean == 0 else -10 * math.log10(mean)


@torch.no_grad()
def evaluate(model: TreeSplat, dataset: DynamicDataset, backend: str = "auto") -> dict[str, Any]:
    """Renders every frame of a split and compares it with the picture that was taken.

    Args:
        model: Any `TreeSplat`.
        dataset: The split, composited on the background that the model is rendered on.
        backend: Of `rasterize`.

    Returns:
        ``psnr`` (dB), ``ssim`` (torchmetrics, 11 x 11 Gaussian window) and ``psnr_foreground``
        (over pixels whose alpha exceeds 1/2; None where the split has no alpha), each the mean of
        the frames' values, and ``frames``, a list of dictionaries with ``name``, ``time`` and the
        same measures of one frame. A frame without foreground has None there, and does not count.

    Raises:
        ValueError: For a split without frames, or with pictures smaller than SSIM's window.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure

    if not len(dataset):
        raise ValueError("dataset: got a split without frames, wants at least one to compare with")
    device = model.splats["means"].device
    behind = torch.tensor(BACKGROUNDS[dataset.background or "black"], device=device)
    frames: list[dict[str, Any]] = []
    for frame in dataset.frames:
        if min(frame.width, frame.height) < WINDOW:
            raise ValueError(
                f"frame {frame.name}: got {frame.width} x {frame.height} pixels, wants at least "
                f"{WINDOW} x {WINDOW}, the window of SSIM"
            )
    for i, frame in enumerate(dataset.frames):
        target = dataset.image(i).to(device)
        rendered, _, _ = model.render(
            frame.viewmat[None].to(target),
            frame.K[None].to(target),
            frame.width,
            frame.height,
            frame.time,
            backend=backend,
            background=behind,
        )
        image = rendered[0].clamp(0, 1)
        similarity = structural_similarity_index_measure(
            image.movedim(-1, 0)[None], target.movedim(-1, 0)[None], data_range=1.0
        )
        alpha = dataset.alpha(i)
        mask = None if alpha is None else alpha.to(target) > 0.5
        foreground = None if mask is None or not mask.any() else psnr(image, target, mask)
        frames.append(
            {
                "name": frame.name,
                "time": frame.time,
                "psnr": psnr(image, target),
                "ssim": float(torch.as_tensor(similarity)),
                "psnr_foreground": foreground,
            }
        )
    inside = [one["psnr_foreground"] for one in frames if one["psnr_foreground"] is not None]
    return {
        "psnr": fmean(one["psnr"] for one in frames),
        "ssim": fmean(one["ssim"] for one in frames),
        "psnr_foreground": fmean(inside) if inside else None,
        "frames": frames,
    }
