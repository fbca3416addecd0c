"""3D Gaussian splatting, differentiable, with the interface of `gsplat.rasterization`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.papers.treesplat import cpu, gsplat_backend, reference
from assay.papers.treesplat.checks import check_tensors
from assay.papers.treesplat.constants import EPS2D, FAR_PLANE, NEAR_PLANE
from assay.toolkits.checks import flag, number, one_of, whole

BACKENDS = ("auto", "gsplat", "cpu", "reference")
RENDER_MODES = ("RGB", "D", "ED", "RGB+D", "RGB+ED")
RASTERIZE_MODES = ("classic", "antialiased")


def rasterize(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float = NEAR_PLANE,
    far_plane: float = FAR_PLANE,
    radius_clip: float = 0.0,
    eps2d: float = EPS2D,
    sh_degree: int | None = None,
    tile_size: int = 16,
    backgrounds: Tensor | None = None,
    render_mode: str = "RGB",
    rasterize_mode: str = "classic",
    absgrad: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Images of Gaussians, as `gsplat.rasterization` with ``packed=False`` makes them.

    Gradients reach everything but `Ks`. On the CPU equal input gives equal images and gradients
    to the last bit, on any number of threads (``torch.get_num_threads()`` are used).

    Args:
        means: (N, 3), centres in world units.
        quats: (N, 4), rotations as w, x, y, z of any length but 0.
        scales: (N, 3), standard deviations in world units, > 0.
        opacities: (N,), from 0 to 1.
        colors: (N, D) or (C, N, D), any number of channels; with `sh_degree` the coefficients of
            spherical harmonics, (N, K, 3) or (C, N, K, 3).
        viewmats: (C, 4, 4), world to camera; x right, y down, z forward.
        Ks: (C, 3, 3), pinhole intrinsics in pixels; pixel centres lie at + 0.5.
        width: of the images in pixels.
        height: of the images in pixels.
        near_plane: Gaussians whose centre is nearer than this, in world units, are left out.
        far_plane: so are those farther than this.
        radius_clip: so are those whose radius in the image is at most this many pixels.
        eps2d: added to both variances of a Gaussian in the image, in square pixels.
        sh_degree: 0 to 3, of the coefficients that count; None takes `colors` as they are.
        tile_size: side of the tiles in pixels that are worked on at once; "reference" has none.
        backgrounds: (C, D), behind everything; None is 0. Depth has none.
        render_mode: "RGB"; depth "D", summed with the weights of the colors, or "ED", divided by
            the sum of the weights; "RGB+D" or "RGB+ED" with depth as last channel.
        rasterize_mode: "antialiased" lowers the opacity of Gaussians that `eps2d` makes larger.
        absgrad: the backward pass leaves ``meta["means2d"].absgrad``, the gradient summed over
            pixels without signs (AbsGS).
        backend: "cpu" (numba), "gsplat" (CUDA), "reference" (dense torch: every Gaussian at every
            pixel) or "auto": gsplat for tensors on a CUDA device where it runs, else cpu.

    Returns:
        images (C, height, width, D), D as `render_mode` says; alphas (C, height, width, 1); and
        meta: "means2d" (C, N, 2), whose gradient can be retained, "radii" (C, N, 2), "depths"
        (C, N), "conics" (C, N, 3), "opacities" (C, N), "width", "height", "tile_size",
        "n_cameras", "n_batches"; "camera_ids" and "gaussian_ids" are None. Where radii are 0 a
        Gaussian cannot be seen.

    Raises:
        TypeError: a number of the wrong kind, or tensors of other or mixed dtypes.
        ValueError: shapes or values that do not fit; the message names the argument.
        RuntimeError: backend="gsplat" cannot run here; the message says why.
    """
    width, height = whole("width", width), whole("height", height)
    tile_size = whole("tile_size", tile_size)
    number("near_plane", near_plane, above=0)
    number("far_plane", far_plane, above=near_plane)
    number("radius_clip", radius_clip, least=0)
    number("eps2d", eps2d, least=0)
    one_of("render_mode", render_mode, RENDER_MODES)
    one_of("rasterize_mode", rasterize_mode, RASTERIZE_MODES)
    one_of("backend", backend, BACKENDS)
    flag("absgrad", absgrad)
    check_tensors(
        means, quats, scales, opacities, colors, viewmats, Ks, sh_degree, backgrounds, render_mode
    )
    backend = gsplat_backend.choose(backend, means.device, means.dtype)
    if backend == "gsplat":
        return gsplat_backend.rasterize(
            means,
            quats,
            scales,
            opacities,
            colors,
            viewmats,
            Ks,
            width,
            height,
            near_plane=near_plane,
            far_plane=far_plane,
            radius_clip=radius_clip,
            eps2d=eps2d,
            sh_degree=sh_degree,
            tile_size=tile_size,
            backgrounds=backgrounds,
            render_mode=render_mode,
            rasterize_mode=rasterize_mode,
            absgrad=absgrad,
        )
    stages: Any = reference if backend == "reference" else cpu
    cameras = len(viewmats)
    # Half precision moves Gaussians by pixels.
    with torch.autocast(means.device.type, enabled=False):
        radii, means2d, depths, conics, compensations = stages.project(
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
            rasterize_mode == "antialiased",
        )
        seen = opacities.expand(cameras, -1)
        if rasterize_mode == "antialiased":
            seen = seen * compensations
        if "RGB" not in render_mode:
            values = depths[..., None]
        else:
            if sh_degree is None:
                values = colors.expand(cameras, *colors.shape[-2:])
            else:
                campos = torch.linalg.inv(viewmats)[:, :3, 3]
                coeffs = colors if colors.ndim == 4 else colors[None]
                values = stages.shade(sh_degree, means, campos, coeffs, radii)
            if render_mode != "RGB":
                values = torch.cat([values, depths[..., None]], -1)
        behind = values.new_zeros(cameras, values.shape[-1])
        if backgrounds is not None and "RGB" in render_mode:
            behind = torch.cat([backgrounds, behind[:, backgrounds.shape[-1] :]], -1)
        images, alphas = stages.composite(
            means2d, conics, seen, values, behind, radii, depths, width, height, tile_size, absgrad
        )
        if "ED" in render_mode:
            expected = images[..., -1:] / alphas.clamp(min=1e-10)
            images = torch.cat([images[..., :-1], expected], -1)
    meta = {
        "camera_ids": None,
        "gaussian_ids": None,
        "radii": radii,
        "means2d": means2d,
        "depths": depths,
        "conics": conics,
        "opacities": seen,
        "width": width,
        "height": height,
        "tile_size": tile_size,
        "n_batches": 1,
        "n_cameras": cameras,
    }
    return images, alphas, meta
