"""The motions under one protocol, their start, their growth and their bases."""

from __future__ import annotations

import math

import pytest
import torch
from tests.papers.treesplat.growing import TIMES

from assay.papers.treesplat.basis import MotionBasis, TabulatedBasis, sinusoids
from assay.papers.treesplat.merged_motion import MergedMotion
from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.motions import (
    FlatMotion,
    MLPDeformation,
    PolynomialMotion,
    StaticMotion,
)

KINDS = [
    StaticMotion,
    FlatMotion,
    PolynomialMotion,
    MotionTree,
    lambda n: MLPDeformation(n, width=16, layers=3),
]


def stirred(motion):
    """The motion with random values in every parameter."""
    with torch.no_grad():
        for parameter in motion.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape))
    return motion


@pytest.mark.parametrize("make", KINDS)
def test_training_starts_without_motion_and_can_leave_it(make):
    torch.manual_seed(0)
    motion, means = make(5), torch.randn(5, 3)
    dmu, dq = motion(0.3, means)
    assert dmu.shape == (5, 3)
    assert dq.shape == (5, 4)
    assert not dmu.any()
    assert not dq.any()
    if not isinstance(motion, StaticMotion):
        (dmu.sum() + dq.sum()).backward()
        assert any(p.grad is not None and p.grad.any() for p in motion.parameters())


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("growth", ["expand", "promote"])
def test_rows_follow_their_gaussians(make, growth):
    torch.manual_seed(0)
    motion, means = stirred(make(6)), torch.randn(6, 3)
    source = torch.arange(6)
    before = [torch.cat(motion(t, means), 1) for t in TIMES]

    def compare(source):
        assert motion.n == len(source)
        for t, old in zip(TIMES, before, strict=True):
            new = torch.cat(motion(t, means[source]), 1)
            assert torch.allclose(new, old[source], atol=1e-5)

    rows = getattr(motion, growth)([4, 1])
    assert rows.keys() == motion.row_parameters().keys()
    source = torch.cat([source, torch.tensor([4, 1])])
    compare(source)
    motion.prune([True] + [False] * 7)
    source = source[1:]
    compare(source)
    order = torch.randperm(7)
    motion.reorder(order)
    compare(source[order])
    assert f"{motion.n} Gaussians" in repr(motion)
    fresh = make(2)
    fresh.load_state_dict(motion.state_dict())
    assert torch.equal(fresh(0.7, means[source])[0], motion(0.7, means[source])[0])


@pytest.mark.parametrize("make", KINDS)
def test_every_parameter_is_of_rows_or_shared(make):
    motion = make(5)
    mine = [*motion.row_parameters().values(), *motion.shared_parameters()]
    assert {id(p) for p in mine} == {id(p) for p in motion.parameters()}
    assert len(mine) == len(list(motion.parameters()))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("t", [-0.01, 1.01, math.nan, math.inf])
def test_times_outside_are_refused(make, t):
    with pytest.raises(ValueError, match="t: got"):
        make(2)(t, torch.zeros(2, 3))


@pytest.mark.parametrize("make", KINDS)
def test_a_frozen_parameter_stays_frozen(make):
    motion = make(3).requires_grad_(False)
    motion.expand([0])
    assert not any(p.requires_grad for p in motion.parameters())


def test_a_cubic_is_a_cubic():
    motion = PolynomialMotion(1).double()
    with torch.no_grad():
        motion.poly_mu[0, :, 0] = torch.tensor([2.0, -1.0, 4.0])
        motion.poly_quat[0, 0, 3] = 5.0
    dmu, dq = motion(0.8)
    assert dmu[0, 0].item() == pytest.approx(2 * 0.3 - 0.3**2 + 4 * 0.3**3)
    assert dq[0, 3].item() == pytest.approx(1.5)
    assert not motion(0.5)[0].any()


def test_the_deformation_sees_its_input_again_in_the_sixth_layer():
    motion = MLPDeformation(2)
    sizes = [(layer.in_features, layer.out_features) for layer in motion.hidden]
    assert sizes == [(76, 256)] + [(256, 256)] * 4 + [(332, 256)] + [(256, 256)] * 2
    means = torch.randn(2, 3, requires_grad=True)
    stirred(motion)(0.4, means)[0].sum().backward()
    assert means.grad is None
    scaled = MLPDeformation(2, scale=10.0)
    scaled.load_state_dict(motion.state_dict())
    assert torch.allclose(scaled(0.4, 10 * means)[0], motion(0.4, means)[0], rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="means: got None"):
        motion(0.4)


def test_the_deformation_may_be_one_layer():
    assert MLPDeformation(2, width=8, layers=1)(0.1, torch.zeros(2, 3))[0].shape == (2, 3)


def test_flat_motion_merges_into_its_coefficients():
    motion = stirred(FlatMotion(4))
    merged = motion.merge()
    assert torch.equal(merged(0.3)[0], motion(0.3)[0])
    assert isinstance(motion.merge(frames=5).basis, TabulatedBasis)


def test_encoding_of_a_number():
    x = torch.tensor([0.25], dtype=torch.float64)
    assert sinusoids(x, 2).tolist() == pytest.approx(
        [0.25, math.sin(math.pi / 4), 1.0, math.cos(math.pi / 4), 0.0]
    )
    grid = torch.rand(5, 3)
    assert sinusoids(grid, 4).shape == (5, 27)


def test_a_basis_and_its_table():
    torch.manual_seed(0)
    basis = MotionBasis(n_basis=3, octaves=4, width=8, layers=1)
    table = basis.tabulate(4)
    for i in range(4):
        for a, b in zip(basis(i / 3), table(i / 3), strict=True):
            assert torch.allclose(a, b, atol=1e-6)
    assert basis(0.5)[0].shape == (3, 3)
    assert basis(0.5)[1].shape == (3, 4)
    assert table.n_basis == 3
    assert "frames=4" in repr(table)
    assert torch.equal(basis(torch.tensor(0.5))[0], basis(0.5)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MotionBasis(octaves=0), "octaves: got 0"),
        (lambda: MotionBasis().tabulate(1), "frames: got 1"),
        (lambda: TabulatedBasis(torch.zeros(1, 2, 7)), "table: got shape"),
        (
            lambda: MergedMotion(torch.zeros(2, 3), torch.zeros(2, 4), MotionBasis(3)),
            "c_mu, c_quat",
        ),
        (lambda: FlatMotion(0), "n: got 0"),
        (lambda: PolynomialMotion(1, degree=0), "degree: got 0"),
        (lambda: MLPDeformation(1, scale=0.0), "scale: got 0"),
        (lambda: MLPDeformation(1, layers=0), "layers: got 0"),
        (lambda: StaticMotion(3).prune([True] * 3), "remove all 3"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
