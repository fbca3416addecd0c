"""Metrics, against values known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from assay.papers.multalmc.metrics import (
    energy_distance,
    entropic_w2,
    mode_weight_tv,
    radius_quantile_log_ratio,
    self_distance,
    sliced_ks,
    sliced_w2,
)
from assay.papers.multalmc.targets import DoubleWell, Funnel, GaussianMixture, eight_gaussians

DISTANCES = [entropic_w2, sliced_w2, sliced_ks, energy_distance, radius_quantile_log_ratio]


def normal(n=200, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("metric", DISTANCES)
def test_a_sample_is_at_no_distance_from_itself(metric):
    blur = math.sqrt(0.05) if metric is entropic_w2 else 1e-6  # sqrt(d reg / 2)
    assert metric(normal(), normal()) == pytest.approx(0, abs=blur)
    assert metric(torch.from_numpy(normal()), 1 + 3 * normal(seed=1)) != pytest.approx(0, abs=0.2)


def test_a_shift_is_its_length():
    x, shift = normal(), np.array([3, 4])
    assert entropic_w2(x, x + shift) == pytest.approx(5, rel=0.01)
    # the mean square of a direction's component of the shift is 5^2 / 2
    shifted = sliced_w2(x, x + shift, n_projections=4000)
    assert shifted == pytest.approx(5 / math.sqrt(2), rel=0.03)
    assert energy_distance([[0.0]], [[8.0]]) == pytest.approx(4)
    assert radius_quantile_log_ratio(2 * x, x) == pytest.approx(math.log(2))
    assert sliced_ks(x, x + 100) == pytest.approx(1, abs=0.05)


def test_entropic_distance_is_near_the_exact_one():
    import ot

    x, y = 3 * normal(), 3 * normal(seed=1) + 2
    exact = math.sqrt(ot.emd2([], [], ot.dist(x, y)))
    assert entropic_w2(x, y) == pytest.approx(exact, rel=0.03)


def test_weights_of_modes():
    target = GaussianMixture(torch.tensor([[-20.0], [20.0]]), weights=[1, 3])
    x = torch.tensor([[-20.0]] * 5 + [[20.0]] * 5)
    assert mode_weight_tv(x, target) == pytest.approx(0.25)
    wells = DoubleWell(2, 1)
    assert mode_weight_tv([[2.0, 0.0]], wells) == pytest.approx(0.5)
    assert mode_weight_tv([[2.0, 0.0], [-2.0, 0.0]], wells) == 0
    with pytest.raises(ValueError, match="mode_weights"):
        mode_weight_tv(x, Funnel())


def test_the_floor_falls_with_the_size_of_the_sample():
    target = eight_gaussians()
    for metric in (sliced_w2, energy_distance, mode_weight_tv):
        floors = [
            np.mean([self_distance(metric, target, n, seed) for seed in range(5)])
            for n in (50, 800)
        ]
        assert 0 < floors[1] < floors[0] / 2
    assert self_distance(sliced_w2, target, 50, 0) == self_distance(sliced_w2, target, 50, 0)


@pytest.mark.parametrize("metric", DISTANCES)
def test_refuses_what_has_no_distance(metric):
    broken = normal()
    broken[3, 0] = np.nan
    with pytest.raises(ValueError, match="x: got 1 samples that are not finite"):
        metric(broken, normal())
    with pytest.raises(ValueError, match="y: got dimension 3, wants 2"):
        metric(normal(), normal(d=3))
    with pytest.raises(ValueError, match=r"x: got shape \(3,\), wants"):
        metric([1, 2, 3], normal())


def test_refuses_arguments_out_of_range():
    with pytest.raises(ValueError, match=r"reg: got 0\.0"):
        entropic_w2(normal(), normal(), reg=0.0)
    with pytest.raises(ValueError, match="n_projections"):
        sliced_w2(normal(), normal(), n_projections=0)
    with pytest.raises(ValueError, match="q: got 2"):
        radius_quantile_log_ratio(normal(), normal(), q=2)
