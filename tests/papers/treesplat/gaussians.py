"""Random Gaussians in front of cameras."""

from __future__ import annotations

from typing import Any

import torch


def random_scene(
    n: int = 50,
    size: tuple[int, int] = (32, 32),
    cameras: int = 1,
    coefficients: int | None = None,
    seed: int = 0,
    scale: float = 0.12,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Any]:
    """Arguments of `rasterize`: Gaussians in the cube from -1 to 1, cameras 4 units off."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    width, height = size
    focal = 1.4 * max(size)
    viewmats = torch.eye(4, dtype=torch.float64).repeat(cameras, 1, 1)
    for c, viewmat in enumerate(viewmats):
        angle = torch.tensor(0.3 * c)
        viewmat[0, 0] = viewmat[2, 2] = angle.cos()
        viewmat[0, 2], viewmat[2, 0] = angle.sin(), -angle.sin()
        viewmat[:3, 3] = torch.tensor([0.1 * c, -0.05, 4.0])
    K = [[focal, 0, width / 2 - 0.7], [0, 1.1 * focal, height / 2 + 0.4], [0, 0, 1]]
    color_shape = (n, 3) if coefficients is None else (n, coefficients, 3)
    tensors = {
        "means": uniform(n, 3) * 2 - 1,
        "quats": normal(n, 4),
        "scales": scale * (0.5 * normal(n, 3)).exp(),
        "opacities": 0.05 + 0.94 * uniform(n),
        "colors": 0.4 * normal(*color_shape),
        "viewmats": viewmats,
        "Ks": torch.tensor([K], dtype=torch.float64).repeat(cameras, 1, 1),
    }
    return {name: x.to(dtype) for name, x in tensors.items()} | {"width": width, "height": height}


LEARNED = ("means", "quats", "scales", "opacities", "colors", "viewmats")


def gradients(scene: dict[str, Any], **options: Any) -> dict[str, torch.Tensor]:
    """Images, alphas, and the gradients of a random weighting of both."""
    from assay.papers.treesplat import rasterize

    leaves = {k: scene[k].clone().requires_grad_() for k in LEARNED}
    if options.get("backgrounds") is not None:
        leaves["backgrounds"] = options["backgrounds"].clone().requires_grad_()
    images, alphas, meta = rasterize(**{**scene, **options, **leaves})
    meta["means2d"].retain_grad()
    generator = torch.Generator().manual_seed(1)
    loss = sum(
        (x * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)).sum()
        for x in (images, alphas)
    )
    loss.backward()
    found = {k: x.grad for k, x in leaves.items()} | {"means2d": meta["means2d"].grad}
    return {"images": images.detach(), "alphas": alphas.detach()} | found
