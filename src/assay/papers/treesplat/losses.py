"""What training minimises: squared and absolute errors and the structural similarity of images."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.toolkits.checks import number

WINDOW = 11
SIGMA = 1.5
"""Width and standard deviation of SSIM's Gaussian window, in pixels (Wang et al., 2004)."""


def photometric_loss(
    image: Tensor, target: Tensor, l2: float = 0.8, l1: float = 0.0, ssim: float = 0.2
) -> Tensor:
    """``l2 mean (x - y)^2 + l1 mean |x - y| + ssim (1 - SSIM(x, y))``.

    Args:
        image: (..., H, W, C), values in [0, 1].
        target: The same shape.
        l2, l1, ssim: Weights, >= 0; what has weight 0 is not computed.

    Returns:
        A scalar.

    Raises:
        TypeError: Images that are not both float32 or both float64, or a weight that is no number.
        ValueError: For shapes that differ, have fewer than three dimensions or no pixels; for a
            weight < 0.
    """
    _check_pair(image, target)
    for name, weight in {"l2": l2, "l1": l1, "ssim": ssim}.items():
        number(name, weight, least=0.0)
    difference = image - target
    loss = image.new_zeros(())
    if l2:
        loss = loss + l2 * difference.square().mean()
    if l1:
        loss = loss + l1 * difference.abs().mean()
    if ssim:
        loss = loss + ssim * (1 - structural_similarity(image, target))
    return loss


def structural_similarity(image: Tensor, target: Tensor) -> Tensor:
    """Mean SSIM over pixels, channels and images, with a gradient for `image` alone.

    The window is 11 x 11 pixels and sees zeros beyond the border, as in the training of 3D
    Gaussian splatting; evaluation takes the SSIM of torchmetrics, which leaves the border out.

    Args:
        image: (..., H, W, C), values in [0, 1].
        target: The same shape.

    Returns:
        A scalar in [-1, 1].

    Raises:
        TypeError: For images that are not both float32 or both float64.
        ValueError: For shapes that differ, have fewer than three dimensions or no pixels.
    """
    _check_pair(image, target)
    height, width, channels = image.shape[-3:]
    x = image.reshape(-1, height, width * channels)
    y = target.detach().reshape(x.shape)
    mean_y, square_y = _blur(torch.cat([y, y * y]), channels).chunk(2)
    blurred: Tensor = _Blur.apply(torch.cat([x, x * x, x * y]), channels)
    mean_x, square_x, product = blurred.chunk(3)
    xx, yy, xy = mean_x * mean_x, mean_y * mean_y, mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    above = (2 * xy + c1) * (2 * (product - xy) + c2)
    below = (xx + yy + c1) * (square_x - xx + square_y - yy + c2)
    return (above / below).mean()


def _check_pair(image: Tensor, target: Tensor) -> None:
    if image.dtype not in (torch.float32, torch.float64) or target.dtype != image.dtype:
        raise TypeError(
            f"image, target: got {image.dtype} and {target.dtype}, wants torch.float32 or "
            "torch.float64 for both"
        )
    if image.shape != target.shape or image.ndim < 3 or not image.numel():
        raise ValueError(
            f"target: got shape {tuple(target.shape)} for an image of {tuple(image.shape)}, "
            "wants the same (..., H, W, C)"
        )


class _Blur(torch.autograd.Function):
    """A symmetric window over zeros beyond the border is its own adjoint."""

    @staticmethod
    def forward(ctx: Any, planes: Tensor, channels: int) -> Tensor:
        ctx.channels = channels
        return _blur(planes, channels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _blur(gradients[0].contiguous(), ctx.channels), None


@cache
def _window(dtype: torch.dtype) -> Tensor:
    offsets = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    taps = torch.exp(-(offsets**2) / (2 * SIGMA**2))
    return (taps / taps.sum()).to(dtype)


def _blur(planes: Tensor, channels: int) -> Tensor:
    """Planes (P, H, W * C), whose columns are interleaved channels, under the window."""
    if planes.device.type != "cpu":
        return _convolve(planes, channels)
    planes = planes.detach()
    blurred = torch.empty_like(planes)
    taps = _window(planes.dtype).numpy()
    _blur_rows(planes.numpy(), taps, channels, blurred.numpy())
    return blurred


def _convolve(planes: Tensor, channels: int) -> Tensor:
    """The same by torch alone, for a GPU."""
    taps = _window(planes.dtype).to(planes.device)
    count, height, columns = planes.shape
    stack = planes.reshape(count, height, columns // channels, channels).movedim(-1, 1)
    stack = stack.reshape(-1, 1, height, columns // channels)
    half = WINDOW // 2
    stack = F.conv2d(stack, taps.view(1, 1, 1, -1), padding=(0, half))
    stack = F.conv2d(stack, taps.view(1, 1, -1, 1), padding=(half, 0))
    stack = stack.reshape(count, channels, height, columns // channels)
    return stack.movedim(1, -1).reshape(planes.shape)


# torch's depthwise convolutions take five times as long on one core. Slices, rather than indices
# with an offset, let the compiler use vector instructions.
@numba.njit(nogil=True, cache=True)
def _blur_rows(
    planes: np.ndarray, taps: np.ndarray, channels: int, blurred: np.ndarray
) -> None:  # pragma: no cover - compiled
    count, height, columns = planes.shape
    half = WINDOW // 2
    padded = np.zeros(columns + 2 * half * channels, planes.dtype)
    across = np.zeros((height + 2 * half, columns), planes.dtype)
    for p in range(count):
        for i in range(height):
            padded[half * channels : half * channels + columns] = planes[p, i]
            row = across[half + i]
            row[:] = 0
            for k in range(WINDOW):
                tap, shifted = taps[k], padded[k * channels : k * channels + columns]
                for j in range(columns):
                    row[j] += tap * shifted[j]
        for i in range(height):
            row = blurred[p, i]
            row[:] = 0
            for k in range(WINDOW):
                tap, shifted = taps[k], across[i + k]
                for j in range(columns):
                    row[j] += tap * shifted[j]
