"""Splatting as it is defined: gsplat's torch projection, then every Gaussian at every pixel.

Any floating dtype, gradients by autograd, memory of pixels times Gaussians. It is what the fast
kernels are tested against.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.papers.treesplat.constants import (
    ALPHA_CAP,
    ALPHA_CUT,
    EXTENT,
    MAX_RADIUS,
    TRANSMITTANCE_STOP,
)


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
    """See `cpu.project`, which has the same arguments and results."""
    from gsplat.cuda._torch_impl import _fully_fused_projection, _quat_scale_to_covar_preci

    found = []
    for viewmat, K in zip(viewmats, Ks, strict=True):
        z = means @ viewmat[2, :3] + viewmat[2, 3]
        # What lies behind the camera would turn the gradients of everything into NaN.
        seen = ((z >= near_plane) & (z <= far_plane)).nonzero()[:, 0]
        covars, _ = _quat_scale_to_covar_preci(quats[seen], scales[seen], compute_preci=False)
        projected: tuple[Any, ...] = tuple(
            x if x is None else x[0]
            for x in _fully_fused_projection(
                means[seen],
                covars,
                viewmat[None],
                K[None],
                width,
                height,
                eps2d=eps2d,
                near_plane=-1.0,
                far_plane=far_plane * 2 + 1,
                calc_compensations=antialiased,
            )
        )
        _, means2d, depths, conics, compensation = projected
        if compensation is None:
            compensation = torch.ones_like(depths)
        radii = _radii(means2d, conics, opacities[seen] * compensation, width, height, radius_clip)
        keep = (radii > 0).all(-1)
        blank = [(len(means), 2), (len(means), 2), (len(means),), (len(means), 3), (len(means),)]
        parts = (radii, means2d, depths, conics, compensation)
        found.append(
            [
                part.new_zeros(shape).index_put((seen[keep],), part[keep])
                for shape, part in zip(blank, parts, strict=True)
            ]
        )
    radii, means2d, depths, conics, compensation = map(torch.stack, zip(*found, strict=True))
    return radii, means2d, depths, conics, compensation


@torch.no_grad()
def _radii(
    means2d: Tensor, conics: Tensor, opacities: Tensor, width: int, height: int, radius_clip: float
) -> Tensor:
    a, b, c = conics.unbind(-1)
    variance = torch.stack([c, a], -1) / (a * c - b * b)[:, None]
    extent = (2 * (opacities / ALPHA_CUT).log().clamp(min=0)).sqrt().clamp(max=EXTENT)
    radii = (extent[:, None] * variance.sqrt()).ceil().clamp(max=MAX_RADIUS)
    size = torch.tensor([width, height], dtype=means2d.dtype, device=means2d.device)
    keep = (
        (opacities >= ALPHA_CUT)
        & (radii > radius_clip).any(-1)
        & (means2d + radii > 0).all(-1)
        & (means2d - radii < size).all(-1)
    )
    return (radii * keep[:, None]).int()


def shade(sh_degree: int, means: Tensor, campos: Tensor, coeffs: Tensor, radii: Tensor) -> Tensor:
    """See `cpu.shade`, which has the same arguments and results."""
    from gsplat.cuda._torch_impl import _spherical_harmonics

    dirs = means - campos[:, None]
    coeffs = coeffs.expand(len(campos), *coeffs.shape[-3:])
    return torch.clamp_min(_spherical_harmonics(sh_degree, dirs, coeffs) + 0.5, 0.0)


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
    """See `cpu.composite`, which has the same arguments and results."""
    rows = torch.arange(height, dtype=means2d.dtype, device=means2d.device) + 0.5
    columns = torch.arange(width, dtype=means2d.dtype, device=means2d.device) + 0.5
    if absgrad:
        means2d.absgrad = torch.zeros_like(means2d)  # type: ignore[attr-defined]
    images, alphas = [], []
    for camera in range(len(means2d)):
        visible = (radii[camera] > 0).all(-1).nonzero()[:, 0]
        order = visible[depths[camera, visible].argsort(stable=True)]
        x, y = means2d[camera, order].unbind(-1)
        a, b, c = conics[camera, order].unbind(-1)
        everywhere = (height, width, len(order))
        dx = (x - columns[:, None])[None].expand(everywhere)
        dy = (y - rows[:, None])[:, None].expand(everywhere)
        if absgrad and dx.requires_grad:
            for axis, offset in enumerate((dx, dy)):
                offset.register_hook(partial(_add_absolute, means2d, camera, order, axis))
        sigma = 0.5 * (a * dx**2 + c * dy**2) + b * dx * dy
        alpha = (opacities[camera, order] * torch.exp(-sigma)).clamp(max=ALPHA_CAP)
        alpha = torch.where((sigma >= 0) & (alpha >= ALPHA_CUT), alpha, 0.0)
        after = torch.cumprod(1 - alpha, -1)
        alpha = torch.where(after > TRANSMITTANCE_STOP, alpha, 0.0)
        after = torch.cumprod(1 - alpha, -1)
        before = torch.cat([after.new_ones(height, width, 1), after], -1)
        weights = alpha * before[..., :-1]
        left = before[..., -1:]
        images.append(weights @ colors[camera, order] + left * backgrounds[camera])
        alphas.append(1 - left)
    return torch.stack(images), torch.stack(alphas)


def _add_absolute(means2d: Any, camera: int, order: Tensor, axis: int, per_pixel: Tensor) -> None:
    means2d.absgrad[camera, order, axis] += per_pixel.abs().sum((0, 1))
