"""The three stages of splatting on the CPU, each one node of torch's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from assay.papers.treesplat.kernels import (
    backward,
    binning,
    forward,
    projection,
    spherical_harmonics,
)
from assay.papers.treesplat.kernels.threads import over

_GAUSSIANS_PER_THREAD = 1024


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().numpy()


def _zeros(shape: Sequence[int], like: Tensor) -> Any:
    return np.zeros(shape, np.float32 if like.dtype == torch.float32 else np.float64)


def _tensor(array: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device)


def _over_gaussians(count: int, kernel: Callable[..., Any], *args: Any) -> None:
    over(count, kernel, *args, least=_GAUSSIANS_PER_THREAD)


class _Project(Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        means, quats, scales, opacities, viewmats, Ks, *options = args
        shape = (len(viewmats), len(means))
        radii = np.zeros((*shape, 2), np.int32)
        rest = [_zeros((*shape, *tail), means) for tail in ((2,), (), (3,), ())]
        inputs = [_array(x) for x in (means, quats, scales, opacities, viewmats, Ks)]
        _over_gaussians(shape[1], projection.project, *inputs, *options, radii, *rest)
        found, means2d, depths, conics, compensations = (_tensor(x, means) for x in (radii, *rest))
        ctx.save_for_backward(means, quats, scales, viewmats, Ks, found, conics, compensations)
        width, height, _, _, _, eps2d, antialiased = options
        ctx.options = (width, height, eps2d, antialiased)
        ctx.mark_non_differentiable(found)
        return found, means2d, depths, conics, compensations

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Any, *gradients: Any) -> Any:
        means, quats, scales, viewmats, Ks, *found = ctx.saved_tensors
        g_means, g_quats, g_scales = (_zeros(x.shape, means) for x in (means, quats, scales))
        turned = ctx.needs_input_grad[4]
        g_views = _zeros((len(viewmats), len(means), 12) if turned else (0, 0, 0), means)
        _over_gaussians(
            len(means),
            projection.project_backward,
            *(_array(x) for x in (means, quats, scales, viewmats, Ks)),
            *ctx.options,
            *(_array(x) for x in (*found, *gradients)),
            *(g_means, g_quats, g_scales, g_views),
        )
        views = None
        if turned:
            views = torch.zeros_like(viewmats)
            # numpy's sum, as the order of torch's depends on the number of threads.
            views[:, :3] = _tensor(g_views.sum(1).reshape(-1, 3, 4), means)
        splats = (_tensor(x, means) for x in (g_means, g_quats, g_scales))
        return *splats, None, views, *(None,) * 8


def project(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    eps2d: float,
    antialiased: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gaussians in the image plane; arguments as in `rasterize`.

    Returns:
        radii (C, N, 2) int32, 0 where a Gaussian cannot be seen, and then everything is 0;
        means2d (C, N, 2) in pixels; depths (C, N); conics (C, N, 3), the inverse of the image
        covariance as xx, xy, yy; compensations (C, N), the factor by which `eps2d` would make a
        Gaussian too heavy, 1 unless `antialiased`.
    """
    return _Project.apply(
        *(means, quats, scales, opacities, viewmats, Ks, width, height),
        *(float(near_plane), float(far_plane), float(radius_clip), float(eps2d), antialiased),
    )


class _Shade(Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        degree, means, campos, coeffs, radii = args
        colors = _zeros((len(campos), len(means), 3), means)
        _over_gaussians(
            len(means),
            spherical_harmonics.shade,
            degree,
            *(_array(x) for x in (means, campos, coeffs, radii)),
            colors,
        )
        shaded = _tensor(colors, means)
        ctx.save_for_backward(means, campos, coeffs, radii, shaded)
        ctx.degree = degree
        return shaded

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_colors: Any) -> Any:
        means, campos, coeffs, *_ = ctx.saved_tensors
        g_means, g_coeffs = _zeros(means.shape, means), _zeros(coeffs.shape, means)
        moved = ctx.needs_input_grad[2]
        g_campos = _zeros((len(campos), len(means), 3) if moved else (0, 0, 0), means)
        _over_gaussians(
            len(means),
            spherical_harmonics.shade_backward,
            ctx.degree,
            *(_array(x) for x in (*ctx.saved_tensors, g_colors)),
            *(g_means, g_campos, g_coeffs),
        )
        summed = _tensor(g_campos.sum(1), means) if moved else None
        return None, _tensor(g_means, means), summed, _tensor(g_coeffs, means), None


def shade(sh_degree: int, means: Tensor, campos: Tensor, coeffs: Tensor, radii: Tensor) -> Tensor:
    """Colors (C, N, 3) of visible Gaussians by spherical harmonics, + 0.5 and not below 0.

    Args:
        sh_degree: 0 to 3; further coefficients are left out.
        means: (N, 3).
        campos: (C, 3), the cameras' centres.
        coeffs: (1 or C, N, K, 3).
        radii: (C, N, 2), > 0 where a Gaussian can be seen.
    """
    return _Shade.apply(sh_degree, means, campos, coeffs, radii)


class _Composite(Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        means2d, conics, opacities, colors, backgrounds, bins, width, height, *options = args
        cameras, _, channels = colors.shape
        images = _zeros((cameras, height, width, channels), means2d)
        left = _zeros((cameras, height, width), means2d)
        used = np.empty(len(bins.offsets) - 1, np.int32)
        tile_size, ctx.absgrad = options
        lists = (bins.offsets, bins.ids, bins.rows, tile_size)
        over(
            len(used),
            forward.composite,
            *_flat(means2d, conics, opacities, colors),
            _array(backgrounds),
            *lists,
            *(images, left, used),
        )
        rendered = _tensor(images, means2d)
        ctx.save_for_backward(means2d, conics, opacities, colors, rendered)
        ctx.bins, ctx.lists, ctx.left, ctx.used = bins, lists, left, used
        return rendered, _tensor(1 - left[..., None], means2d)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_images: Any, g_alphas: Any) -> Any:
        *inputs, images = ctx.saved_tensors
        means2d, channels = inputs[0], images.shape[-1]
        bins, g_pixels = ctx.bins, _array(g_images)
        columns = backward.SHAPE + channels + 2 * ctx.absgrad
        # Not zeros: only what is in use is written and read.
        partial = np.empty((len(bins.ids), columns), g_pixels.dtype)
        over(
            len(ctx.used),
            backward.composite_backward,
            *_flat(*inputs),
            *ctx.lists,
            *(_array(images), ctx.left, ctx.used, g_pixels, _array(g_alphas)[..., 0]),
            *(ctx.absgrad, partial),
        )
        gradients = [_zeros(x.shape, means2d) for x in inputs]
        absolute = _zeros(means2d.shape if ctx.absgrad else (0, 0, 2), means2d)
        _over_gaussians(
            len(bins.gaussians),
            backward.gather,
            *(bins.gaussians, bins.starts, bins.entries, bins.tiles, ctx.used, partial),
            *(x.reshape(-1, *x.shape[2:]) for x in (*gradients, absolute)),
        )
        if ctx.absgrad:
            means2d.absgrad = _tensor(absolute, means2d)
        behind = None
        if ctx.needs_input_grad[4]:
            behind = _tensor(np.einsum("chwd,chw->cd", g_pixels, ctx.left), means2d)
        return *(_tensor(x, means2d) for x in gradients), behind, *(None,) * 5


def _flat(*tensors: Tensor) -> list[Any]:
    return [_array(x).reshape(-1, *x.shape[2:]) for x in tensors]


def composite(
    means2d: Tensor,
    conics: Tensor,
    opacities: Tensor,
    colors: Tensor,
    backgrounds: Tensor,
    radii: Tensor,
    depths: Tensor,
    width: int,
    height: int,
    tile_size: int,
    absgrad: bool,
) -> tuple[Tensor, Tensor]:
    """What the cameras see.

    Args:
        means2d, conics, radii, depths: as `project` returns them.
        opacities: (C, N).
        colors: (C, N, D).
        backgrounds: (C, D).
        width, height, tile_size: in pixels.
        absgrad: the backward pass leaves ``means2d.absgrad`` (C, N, 2).

    Returns:
        images (C, H, W, D) and alphas (C, H, W, 1).
    """
    visible = binning.order(_array(radii), _array(depths))
    fill: Any = binning.fill
    flat = _flat(means2d, conics, opacities)
    lists = fill(visible, len(means2d), *flat, width, height, tile_size)
    bins = binning.Bins(visible, *lists)
    return _Composite.apply(
        *(means2d, conics, opacities, colors, backgrounds, bins),
        *(width, height, tile_size, absgrad),
    )
