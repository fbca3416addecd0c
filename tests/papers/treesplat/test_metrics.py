from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from assay.papers.treesplat.datasets import DynamicDataset, Frame
from assay.papers.treesplat.metrics import evaluate, psnr
from assay.papers.treesplat.tree_splat import TreeSplat


def test_a_constant_error_of_a_tenth_is_20_db():
    target = torch.full((8, 9, 3), 0.4)
    assert psnr(target + 0.1, target) == pytest.approx(20, abs=1e-5)
    assert psnr(target, target) == math.inf
    half = torch.zeros(8, 9, dtype=torch.bool)
    half[:4] = True
    image = target.clone()
    image[:4] += 0.1
    assert psnr(image, target, half) == pytest.approx(20, abs=1e-5)
    assert psnr(image, target) == pytest.approx(20 + 10 * math.log10(2), abs=1e-5)
    assert math.isnan(psnr(image, target, torch.zeros_like(half)))
    with pytest.raises(ValueError, match=r"target: got shape \(2, 9, 3\), wants the image's"):
        psnr(target, target[:2])


def empty_model():
    """A model of one Gaussian behind the camera: its pictures are the background."""
    return TreeSplat.from_points(torch.tensor([[0.0, 0.0, -5.0]]), motion="none", sh_degree=0)


def dataset(*pictures):
    frames = [
        Frame(
            f"r_{i}",
            i / 2,
            torch.eye(4),
            torch.tensor([20.0, 20.0, 1.0]).diag(),
            p.shape[1],
            p.shape[0],
        )
        for i, p in enumerate(pictures)
    ]
    return DynamicDataset(frames, lambda i: pictures[i], "white")


def test_values_of_a_split_are_means_of_its_frames():
    bright = np.full((16, 20, 4), 255, np.uint8)
    bright[..., :3] = 204  # 0.8, a fifth below the white background
    bright[:, 10:, 3] = 0  # half of it is not there
    empty = np.zeros((16, 20, 4), np.uint8)
    found = evaluate(empty_model(), dataset(bright, empty, bright), "cpu")
    first, second, third = found["frames"]
    assert (first["name"], first["time"]) == ("r_0", 0.0)
    assert first["psnr_foreground"] == pytest.approx(-20 * math.log10(0.2), abs=1e-4)
    assert first["psnr"] == pytest.approx(first["psnr_foreground"] + 10 * math.log10(2), abs=1e-4)
    assert second["psnr_foreground"] is None
    assert second["psnr"] > 100  # dB: nothing but rounding
    assert second["ssim"] == pytest.approx(1, abs=1e-5)
    assert third["psnr"] == first["psnr"]
    for name in ("psnr", "ssim"):
        assert found[name] == pytest.approx(np.mean([one[name] for one in found["frames"]]))
    assert found["psnr_foreground"] == pytest.approx(first["psnr_foreground"])


def test_opaque_pictures_have_no_foreground():
    grey = np.full((16, 20, 3), 128, np.uint8)
    found = evaluate(empty_model(), dataset(grey), "cpu")
    assert found["psnr_foreground"] is None
    assert found["psnr"] == pytest.approx(-20 * math.log10(1 - 128 / 255), abs=1e-4)


def test_a_split_without_frames_is_refused():
    with pytest.raises(ValueError, match="dataset: got a split without frames"):
        evaluate(empty_model(), dataset(), "cpu")


def test_pictures_smaller_than_the_window_are_refused():
    small = np.full((5, 5, 3), 128, np.uint8)
    with pytest.raises(ValueError, match="frame r_0: got 5 x 5 pixels, wants at least 11 x 11"):
        evaluate(empty_model(), dataset(small), "cpu")
