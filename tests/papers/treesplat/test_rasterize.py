"""The CPU rasteriser against closed forms and against the dense reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.papers.treesplat.gaussians import gradients, random_scene

from assay.papers.treesplat import rasterize


def same(found: dict[str, Any], wanted: dict[str, Any], tolerance: float = 1e-9) -> None:
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        if x is None:
            assert found[name] is None or not found[name].any(), name
        else:
            error = (found[name] - x).norm() / x.norm().clamp(min=1e-12)
            assert error < tolerance, f"{name}: {error}"


@pytest.mark.parametrize("mode", ["RGB", "D", "ED", "RGB+D", "RGB+ED"])
@pytest.mark.parametrize("kind", ["classic", "antialiased"])
def test_values_and_gradients_match_the_dense_reference(mode, kind):
    scene = random_scene(cameras=2, size=(37, 29))
    options = {
        "render_mode": mode,
        "rasterize_mode": kind,
        "backgrounds": torch.rand(2, 3, dtype=torch.float64),
    }
    same(
        gradients(scene, backend="cpu", **options),
        gradients(scene, backend="reference", **options),
    )


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_spherical_harmonics_match_the_dense_reference(degree):
    scene = random_scene(cameras=2, coefficients=16)
    found = gradients(scene, backend="cpu", sh_degree=degree)
    same(found, gradients(scene, backend="reference", sh_degree=degree))


def test_one_gaussian_is_its_closed_form():
    focal, sigma, z, opacity = 40.0, 0.2, 4.0, 0.8
    K = torch.tensor([[[focal, 0, 16], [0, focal, 16], [0, 0, 1]]])
    viewmat = torch.eye(4)[None]
    image, alpha, meta = rasterize(
        torch.tensor([[0.0, 0.0, z]]),
        torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        torch.full((1, 3), sigma),
        torch.tensor([opacity]),
        torch.tensor([[1.0, 0.5, 0.25]]),
        viewmat,
        K,
        32,
        32,
        backend="cpu",
    )
    centres = torch.arange(32) + 0.5 - 16
    squared = centres**2 + centres[:, None] ** 2
    wanted = opacity * torch.exp(-squared / (2 * ((focal * sigma / z) ** 2 + 0.3)))
    wanted = torch.where(wanted < 1 / 255, 0.0, wanted)
    assert (alpha[0, ..., 0] - wanted).abs().max() < 1e-5
    assert (image[0, ..., 1] - 0.5 * wanted).abs().max() < 1e-5
    assert meta["means2d"].tolist() == [[[16.0, 16.0]]]
