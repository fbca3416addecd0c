"""Times of the rasteriser: ``python -m assay.papers.treesplat.rasterizer_speed``."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from assay.papers.treesplat import cpu, reference
from assay.papers.treesplat.constants import EPS2D, FAR_PLANE, NEAR_PLANE
from assay.papers.treesplat.rasterizer import rasterize
from assay.toolkits.checks import whole
from assay.toolkits.timing import Arms, interleave

SIZES = ((2_000, 128), (5_000, 128), (5_000, 256), (20_000, 256))
"""Gaussians, and pixels of a side."""

MAX_DENSE = 1 << 26
"""Pixels times Gaussians beyond which the dense reference is not timed, as memory runs out."""

_TILE = 16


def random_scene(n: int, size: int, seed: int = 0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Gaussians in the cube from -1 to 1, seen from 4 units off; a twelfth of the image wide.

    Returns:
        means, quats, scales, opacities and coefficients (N, 1, 3) of degree 0, which require
        gradients; viewmats (1, 4, 4); Ks (1, 3, 3).
    """
    drawn = torch.Generator().manual_seed(seed)
    splats = [
        torch.rand(n, 3, generator=drawn) * 2 - 1,
        torch.randn(n, 4, generator=drawn),
        0.06 * (0.5 * torch.randn(n, 3, generator=drawn)).exp(),
        torch.rand(n, generator=drawn) * 0.9 + 0.05,
        torch.randn(n, 1, 3, generator=drawn) * 0.3,
    ]
    viewmat = torch.eye(4)
    viewmat[2, 3] = 4
    focal = 1.4 * size
    K = torch.tensor([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1]])
    return [x.requires_grad_() for x in splats], viewmat[None], K[None]


def speed(n: int, size: int, seed: int = 0, repeats: int = 7) -> dict[str, float]:
    """Times one training step's rendering of n Gaussians, forward and backward, in float32.

    Arms, interleaved, on ``torch.get_num_threads()`` threads: "ours", backend "cpu" with colors
    by spherical harmonics of degree 0; "forward", the same without the backward pass;
    "torch_projection", gsplat's projection and colors in PyTorch before our compositing; "dense",
    backend "reference".

    Args:
        n: number of Gaussians.
        size: side of the image in pixels.
        seed: of the scene.
        repeats: how often each arm is timed.

    Returns:
        "<arm>_s", median seconds, NaN on a busy machine; "dense_s" is NaN too if the scene is too
        large for it. "spread", "foreign" and "rounds" as `toolkits.timing.interleave` has them;
        "threads"; "radius", the mean in pixels of those that can be seen.

    Raises:
        TypeError, ValueError: a number that is no integer, or too small.
    """
    n, size = whole("n", n), whole("size", size)
    splats, viewmats, Ks = random_scene(n, size, seed)
    pull = torch.rand(1, size, size, 3, generator=torch.Generator().manual_seed(seed))

    def render(backend: str) -> tuple[Tensor, Tensor, dict[str, Any]]:
        options: Any = {"sh_degree": 0, "backend": backend}
        means, quats, scales, opacities, coeffs = splats
        return rasterize(
            means, quats, scales, opacities, coeffs, viewmats, Ks, size, size, **options
        )

    def torch_projection() -> Tensor:
        means, quats, scales, opacities, coeffs = splats
        bounds: Any = (NEAR_PLANE, FAR_PLANE, 0.0, EPS2D, False)
        radii, means2d, depths, conics, _ = reference.project(
            means, quats, scales, opacities, viewmats, Ks, size, size, *bounds
        )
        campos = torch.linalg.inv(viewmats)[:, :3, 3]
        colors = reference.shade(0, means, campos, coeffs[None], radii)
        shapes = (means2d, conics, opacities[None], colors, torch.zeros(1, 3))
        return cpu.composite(*shapes, radii, depths, size, size, _TILE, False)[0]

    def step(image: Tensor) -> None:
        torch.autograd.grad(image, splats, pull)

    arms: Arms = {
        "ours": lambda: step(render("cpu")[0]),
        "forward": lambda: render("cpu"),
        "torch_projection": lambda: step(torch_projection()),
    }
    dense = n * size * size <= MAX_DENSE
    if dense:
        arms = {**arms, "dense": lambda: step(render("reference")[0])}
    times = interleave(arms, whole("repeats", repeats))
    radii = render("cpu")[2]["radii"].float()
    return {
        "dense_s": math.nan,
        **times,
        "threads": float(torch.get_num_threads()),
        "radius": float(radii[radii > 0].mean()),
    }


def main() -> None:
    """Prints one table; a time that is missing was taken on a busy machine, or is too long."""
    print(
        "Gaussians  pixels  forward  backward  step    dense/step  torch projection/step  threads"
    )
    for n, size in SIZES:
        found = speed(n, size)
        step, forward = found["ours_s"], found["forward_s"]
        print(
            f"{n:9,}  {size:6}  {1e3 * forward:4.1f} ms  {1e3 * (step - forward):5.1f} ms"
            f"  {1e3 * step:4.1f} ms  {found['dense_s'] / step:8.0f} x"
            f"  {found['torch_projection_s'] / step:19.2f} x  {found['threads']:7.0f}"
        )


if __name__ == "__main__":
    main()
