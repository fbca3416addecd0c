"""Small models for tests."""

from __future__ import annotations

import torch

from assay.papers.treesplat.tree_splat import TreeSplat

MOTIONS = ["none", "flat", "tree", "mlp", "polynomial"]
SMALL_MLP = {"width": 16, "layers": 3, "octaves": 4}


def moving(motion="tree", n=40, seed=0, dtype=torch.float32, stir=0.2, **options) -> TreeSplat:
    """Random Gaussians within the unit ball that move at random."""
    torch.manual_seed(seed)
    points = torch.nn.functional.normalize(torch.randn(n, 3), dim=1) * torch.rand(n, 1)
    if motion == "mlp":
        options = {**SMALL_MLP, **options}
    model = TreeSplat.from_points(
        points, torch.rand(n, 3), motion, **{"sh_degree": 1, "n_basis": 4, **options}
    )
    with torch.no_grad():
        for parameter in model.motion.parameters():
            parameter += stir * torch.randn_like(parameter)
        model.splats["quats"] += 0.3 * torch.randn(n, 4)
        model.splats["shN"] += 0.1 * torch.randn_like(model.splats["shN"])
        model.splats["opacities"] += 1.5
    return model.to(dtype)


def camera(size=32, dtype=torch.float32):
    """One camera three units before the origin: viewmats, Ks, width, height."""
    viewmat = torch.eye(4, dtype=dtype)
    viewmat[2, 3] = 3.0
    k = torch.tensor([[size, 0, size / 2], [0, size, size / 2], [0, 0, 1.0]], dtype=dtype)
    return viewmat[None], k[None], size, size
