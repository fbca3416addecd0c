"""The three stages of splatting on the CPU, each one node of torch's graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from assay.papers.treesplat.kernels import backward, binning, forward, projection
from assay.papers.treesplat.kernels.threads import over

_GAUSSIANS_PER_THREAD = 1024


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().numpy()


class _Project(Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        means, quats, scales, opacities, viewmats, Ks = args[:6]
        width, height, near_plane, far_plane, radius_clip, eps2d, antialiased = args[6:]
        shape = (len(viewmats), len(means))
        radii = torch.zeros(*shape, 2, dtype=torch.int32)
        means2d, depths = means.new_zeros(*shape, 2), means.new_zeros(shape)
        conics, compensations = means.new_zeros(*shape, 3), means.new_zeros(shape)
        inputs = [_array(x) for x in (means, quats, scales, opacities, viewmats, Ks)]
        outputs = [x.numpy() for x in (radii, means2d, depths, conics, compensations)]
        over(
            shape[1],
            projection.project,
            *inputs,
            width,
            height,
            float(near_plane),
            float(far_plane),
            float(radius_clip),
            float(eps2d),
            antialiased,
            *outputs,
            least=_GAUSSIANS_PER_THREAD,
        )
        ctx.save_for_backward(
            means, quats, scales, viewmats, Ks, radii, conics.clone(), compensations.clone()
        )
        ctx.options = (width, height, float(eps2d), antialiased)
        ctx.mark_non_differentiable(radii)
        return radii, means2d, depths, conics, compensations

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Any, *gradients: Any) -> Any:
        means, quats, scales, viewmats, Ks, radii, conics, compensations = ctx.saved_tensors
        g_means, g_quats, g_scales = (
            torch.empty(x.shape, dtype=x.dtype) for x in (means, quats, scales)
        )
        turned = ctx.needs_input_grad[4]
        g_views = means.new_zeros((*radii.shape[:2], 12) if turned else (0, 0, 0))
        width, height, eps2d, antialiased = ctx.options
        over(
            len(means),
            projection.project_backward,
            *(_array(x) for x in (means, quats, scales, viewmats, Ks)),
            width,
            height,
            eps2d,
            antialiased,
            *(_array(x) for x in (radii, conics, compensations, *gradients)),
            *(x.numpy() for x in (g_means, g_quats, g_scales, g_views)),
            least=_GAUSSIANS_PER_THREAD,
        )
        views = None
        if turned:
            views = torch.zeros_like(viewmats)
            # numpy's sum: torch's depends on the number of threads.
            summed = torch.from_numpy(g_views.numpy().sum(1))
            views[:, :3] = summed.view(-1, 3, 4)
        return g_means, g_quats, g_scales, None, views, *(None,) * 8


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
        means,
        quats,
        scales,
        opacities,
        viewmats,
        Ks,
        width,
        height,
        near_plane,
        far_plane,
        radius_clip,
        eps2d,
        antialiased,
    )


def spherical_harmonics(sh_degree: int, means: Tensor, campos: Tensor, coeffs: Tensor) -> Tensor:
    """Colors (C, N, 3) seen from the cameras, + 0.5 and not below 0.

    Args:
        sh_degree: 0 to 3; further coefficients are left out.
        means: (N, 3).
        campos: (C, 3), the cameras' centres.
        coeffs: (N, K, 3) or (C, N, K, 3).
    """
    from assay.papers.treesplat import reference

    return reference.spherical_harmonics(sh_degree, means, campos, coeffs)


class _Composite(Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        means2d, conics, colors, opacities, backgrounds, bins, width, height, tile_size, abs_ = args
        cameras, _, channels = colors.shape
        images = means2d.new_empty(cameras, height, width, channels)
        left = means2d.new_empty(cameras, height, width)
        used = np.empty(len(bins.offsets) - 1, np.int32)
        flat = [
            _array(means2d).reshape(-1, 2),
            _array(conics).reshape(-1, 3),
            _array(opacities).reshape(-1),
            _array(colors).reshape(-1, channels),
        ]
        over(
            len(used),
            forward.composite,
            *flat,
            _array(backgrounds),
            bins.offsets,
            bins.ids,
            bins.rows,
            tile_size,
            images.numpy(),
            left.numpy(),
            used,
        )
        ctx.save_for_backward(means2d, conics, colors, opacities, images, left)
        ctx.bins, ctx.used, ctx.tile_size, ctx.absgrad = bins, used, tile_size, abs_
        return images, (1 - left)[..., None]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_images: Any, g_alphas: Any) -> Any:
        means2d, conics, colors, opacities, images, left = ctx.saved_tensors
        bins = ctx.bins
        cameras, n, channels = colors.shape
        columns = backward.SHAPE + channels + 2 * ctx.absgrad
        partial = np.empty((len(bins.ids), columns), images.numpy().dtype)
        total = means2d.new_zeros(cameras, n, columns)
        over(
            len(ctx.used),
            backward.composite_backward,
            _array(means2d).reshape(-1, 2),
            _array(conics).reshape(-1, 3),
            _array(opacities).reshape(-1),
            _array(colors).reshape(-1, channels),
            bins.offsets,
            bins.ids,
            bins.rows,
            ctx.tile_size,
            images.numpy(),
            left.numpy(),
            ctx.used,
            _array(g_images),
            _array(g_alphas)[..., 0],
            ctx.absgrad,
            partial,
        )
        over(
            len(bins.gaussians),
            backward.gather,
            bins.gaussians,
            bins.starts,
            bins.entries,
            partial,
            total.view(-1, columns).numpy(),
            least=_GAUSSIANS_PER_THREAD,
        )
        if ctx.absgrad:
            means2d.absgrad = total[..., -2:]
        g_backgrounds = None
        if ctx.needs_input_grad[4]:
            g_backgrounds = torch.from_numpy(
                np.einsum("chwd,chw->cd", _array(g_images), left.numpy())
            )
        return (
            total[..., :2],
            total[..., 2:5],
            total[..., 6 : 6 + channels],
            total[..., 5],
            g_backgrounds,
            *(None,) * 5,
        )


def composite(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
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
        colors: (C, N, D).
        opacities: (C, N).
        backgrounds: (C, D).
        width, height, tile_size: in pixels.
        absgrad: the backward pass leaves ``means2d.absgrad`` (C, N, 2).

    Returns:
        images (C, H, W, D) and alphas (C, H, W, 1).
    """
    gaussians = binning.order(radii.numpy(), _array(depths))
    bins = binning.Bins(
        gaussians,
        *binning.fill(
            gaussians,
            len(means2d),
            _array(means2d).reshape(-1, 2),
            _array(conics).reshape(-1, 3),
            _array(opacities).reshape(-1),
            width,
            height,
            tile_size,
        ),
    )
    return _Composite.apply(
        means2d, conics, colors, opacities, backgrounds, bins, width, height, tile_size, absgrad
    )
