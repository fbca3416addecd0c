from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torchmetrics.functional.image import structural_similarity_index_measure

from assay.papers.treesplat import losses
from assay.papers.treesplat.losses import photometric_loss, structural_similarity


def pair(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(shape, generator=generator, dtype=dtype)
    noise = torch.randn(shape, generator=generator, dtype=dtype)
    return (target + 0.1 * noise).clamp(0, 1), target


@pytest.mark.parametrize("shape", [(21, 30, 3), (2, 16, 12, 3), (11, 11, 1), (5, 7, 3)])
def test_ssim_is_that_of_torchmetrics_on_images_with_a_border_of_zeros(shape):
    image, target = pair(*shape, dtype=torch.float64)
    height, width, channels = shape[-3:]
    wide = [
        F.pad(x.reshape(-1, height, width, channels).movedim(-1, 1), (20,) * 4)
        for x in (image, target)
    ]
    _, local = structural_similarity_index_measure(*wide, data_range=1.0, return_full_image=True)
    expected = local[:, :, 20:-20, 20:-20].mean()
    assert structural_similarity(image, target) == pytest.approx(float(expected), abs=1e-12)


def test_gradients_are_those_of_the_formula():
    image, target = pair(6, 13, 2, dtype=torch.float64)

    def loss(x):
        return photometric_loss(x, target, l2=0.5, l1=0.25, ssim=0.25)

    assert torch.autograd.gradcheck(loss, image.requires_grad_(), eps=1e-6, atol=1e-7)


def test_both_ways_to_blur_agree():
    planes = pair(4, 9, 18)[0]
    torch.testing.assert_close(losses._blur(planes, 3), losses._convolve(planes, 3))


def test_known_values():
    target = torch.full((16, 16, 3), 0.5)
    assert float(structural_similarity(target, target)) == pytest.approx(1)
    assert float(photometric_loss(target + 0.1, target, 1, 0, 0)) == pytest.approx(0.01)
    assert float(photometric_loss(target + 0.1, target, 0, 1, 0)) == pytest.approx(0.1)
    assert float(photometric_loss(target, target)) == pytest.approx(0, abs=1e-6)


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"target: got shape \(4, 4, 3\) for an image of \(4, 5"):
        structural_similarity(torch.zeros(4, 5, 3), torch.zeros(4, 4, 3))
    with pytest.raises(ValueError, match=r"target: got shape \(4, 4\)"):
        structural_similarity(torch.zeros(4, 4), torch.zeros(4, 4))


@pytest.mark.parametrize(
    ("image", "target", "weights", "error", "message"),
    [
        (torch.zeros(4, 4, 3), torch.zeros(4, 4, 1), {"ssim": 0}, ValueError, "target: got shape"),
        (torch.zeros(0, 4, 3), torch.zeros(0, 4, 3), {}, ValueError, r"target: got shape \(0, 4"),
        (torch.zeros(4, 4, 3).int(), torch.zeros(4, 4, 3).int(), {}, TypeError, "torch.int32"),
        (torch.zeros(4, 4, 3).half(), torch.zeros(4, 4, 3).half(), {}, TypeError, "torch.float16"),
        (torch.zeros(4, 4, 3), torch.zeros(4, 4, 3), {"l1": -1.0}, ValueError, "l1: got -1.0"),
    ],
)
def test_what_is_no_pair_of_images_is_refused(image, target, weights, error, message):
    with pytest.raises(error, match=message):
        photometric_loss(image, target, **weights)
