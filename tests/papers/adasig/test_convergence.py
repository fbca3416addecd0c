"""The rate: problems, noise and the fitted exponent."""

from __future__ import annotations

import pytest
import torch

from assay.papers.adasig.convergence import PROBLEMS, exponent, mean_squared_gradient


def test_an_exponent_is_that_of_a_power():
    sizes = [100, 200, 400]
    assert exponent(sizes, [3 * n**-1.5 for n in sizes]) == pytest.approx(-1.5)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_slopes_are_derivatives_of_the_losses(problem):
    logits = torch.linspace(-3, 3, 7, requires_grad=True)
    y = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    p = torch.sigmoid(logits)
    losses = {
        "convex": torch.nn.functional.binary_cross_entropy(p, y, reduction="sum"),
        "non-convex": 2 * (p - y).square().sum(),
    }
    (wanted,) = torch.autograd.grad(losses[problem], logits)
    assert torch.allclose(PROBLEMS[problem](p.detach(), y), wanted, atol=1e-6)


@pytest.mark.parametrize("clipping", ["flat", "adasig"])
def test_more_examples_leave_a_smaller_gradient(clipping):
    few, many = (mean_squared_gradient("convex", clipping, n, 100, 0) for n in (200, 3200))
    assert many < few / 4


def test_what_is_unknown_is_named():
    with pytest.raises(ValueError, match="'concave'"):
        mean_squared_gradient("concave", "flat", 100, 10, 0)
