"""The motion tree, against walking up the parents, and its invariants under any growth."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.papers.treesplat.growing import TIMES, chain, filled, grown

from assay.papers.treesplat.motion_tree import MotionTree, _PathSum, coefficients_by_walking
from assay.papers.treesplat.motions import FlatMotion

OPTIONS = [{}, {"init": "root"}, {"decay": False}, {"shared_field": True}, {"max_depth": 3}]


def moves(motion):
    with torch.no_grad():
        return [torch.cat(motion(t), 1) for t in TIMES]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_paths_at_once_equal_walking_up_the_parents(options):
    tree = grown(**options)
    tree.check()
    weights = [torch.randn(tree.n, 10, dtype=torch.float64) for _ in range(2)]
    grads = []
    for coefficients in (tree.coefficients, lambda: coefficients_by_walking(tree)):
        tree.zero_grad()
        c = coefficients()
        sum((x * w).sum() for x, w in zip(c, weights, strict=True)).backward()
        grads.append((c, {k: p.grad.clone() for k, p in tree.row_parameters().items()}))
    for fast, slow in zip(grads[0][0], grads[1][0], strict=True):
        assert torch.allclose(fast, slow, atol=1e-13, rtol=0)
    for name, grad in grads[0][1].items():
        assert grad.abs().max() > 0.1
        assert torch.allclose(grad, grads[1][1][name], atol=1e-12), name


def test_gradients_by_finite_differences():
    tree = grown(n=6)
    paths = tree._get_paths()
    nodes = torch.randn(tree.n_nodes, 3, dtype=torch.float64, requires_grad=True)
    beta = torch.rand(tree.n, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, b: _PathSum.apply(x, b, paths), (nodes, beta))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("growth", ["expand", "promote"])
def test_growth_moves_nothing(options, dtype, tolerance, growth):
    tree = grown(dtype=dtype, **options)
    before, n = moves(tree), tree.n
    idx = torch.arange(0, n, 2).flip(0)
    getattr(tree, growth)(idx)
    tree.check()
    assert tree.n == n + len(idx)
    for old, new in zip(before, moves(tree), strict=True):
        assert (new[:n] - old).abs().max() < tolerance
        assert (new[n:] - old[idx]).abs().max() < tolerance


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["expand", "promote", "prune", "reorder"]), st.integers(0, 999)),
        max_size=10,
    ),
    st.sampled_from(["forest", "root"]),
    st.integers(2, 6),
    st.integers(1, 8),
)
def test_any_growth_keeps_the_tree_sound_and_the_picture_still(steps, init, max_depth, n):
    tree = filled(MotionTree(n, 3, max_depth, init).double())
    for name, seed in steps:
        draw = np.random.default_rng(seed)
        before, n = moves(tree), tree.n
        some = draw.permutation(n)
        if name == "prune":
            mask = draw.random(n) < 0.4
            mask[0] = False
            tree.prune(mask)
            source = np.flatnonzero(~mask)
        elif name == "reorder":
            tree.reorder(some)
            source = some
        else:
            some = some[: draw.integers(0, n + 1)]
            getattr(tree, name)(some)
            source = np.concatenate([np.arange(n), some])
        tree.check()
        leaves = set(range(tree.n_nodes)) - set(tree.parent.tolist())
        assert sorted(tree.entry.tolist()) == sorted(leaves)
        for i in range(tree.n):
            path = tree.ancestors(i)
            assert len(set(path)) == len(path) <= max_depth
            assert [int(tree.levels[node]) for node in path] == list(range(len(path)))[::-1]
            assert tree.roots()[i] == path[-1]
        for old, new in zip(before, moves(tree), strict=True):
            assert (new - old[source]).abs().max() < 1e-10
        for fast, slow in zip(tree.coefficients(), coefficients_by_walking(tree), strict=True):
            assert torch.allclose(fast, slow, atol=1e-12)


def test_promotion_makes_two_leaves_of_what_is_left_beside_the_decayed_parent():
    tree = grown()
    node, beta = int(tree.entry[4]), tree.beta[4]
    c = [x[4].clone() for x in tree.coefficients()]
    inner, level = tree.field_mu[node].clone(), tree.levels[node]
    tree.promote([4])
    for leaf in (tree.entry[4], tree.entry[-1]):
        assert tree.parent[leaf] == node
        assert tree.levels[leaf] == level + 1
        assert torch.allclose(tree.field_mu[leaf], (1 - beta) * c[0])
        assert torch.allclose(tree.field_quat[leaf], (1 - beta) * c[1])
    assert (tree.field_mu[node] == inner).all()
    assert tree.beta[-1] == beta


def test_expansion_hangs_a_copy_beside_its_source():
    tree = grown()
    leaf = int(tree.entry[7])
    tree.expand([7])
    assert tree.entry[7] == leaf
    assert tree.parent[-1] == tree.parent[leaf]
    assert (tree.field_quat[-1] == tree.field_quat[leaf]).all()
    assert tree.beta_logit[-1] == tree.beta_logit[7]


def test_without_continuity_a_promotion_shrinks_motion_by_beta():
    tree = filled(MotionTree(5, promote_continuity=False).double())
    before = tree.coefficients()[0]
    tree.promote([2])
    assert torch.allclose(tree.coefficients()[0][2], tree.beta[2] * before[2])


def test_promotion_at_max_depth_expands():
    tree = filled(MotionTree(4, max_depth=2))
    tree.promote([0])
    assert (tree.depth(), tree.n_nodes) == (2, 6)
    tree.promote([0, 1])  # the first may go no deeper
    assert (tree.depth(), tree.n_nodes) == (2, 9)
    tree.check()
    flat = MotionTree(4, max_depth=1)
    flat.promote([0, 1, 2])
    assert (flat.depth(), flat.n_nodes) == (1, 7)


def test_pruning_takes_childless_inner_nodes_along_and_leaves_chains():
    tree = filled(MotionTree(3).double())
    tree.promote([0])
    tree.promote([0])
    assert tree.depth() == 3
    kept = moves(tree)
    tree.prune([False, True, True, True, False])  # the last is the deep twin of the first
    tree.check()
    assert tree.n_nodes == 4
    tree.prune([False, True])
    tree.check()
    assert (tree.n, tree.n_nodes, tree.depth()) == (1, 3, 3)
    for old, new in zip(kept, moves(tree), strict=True):
        assert torch.allclose(new, old[:1], atol=1e-12)


def test_beta_one_is_the_plain_sum_and_beta_zero_the_leaf_alone():
    tree = grown()
    with torch.no_grad():
        tree.beta_logit.fill_(1e3)
        plain = torch.stack([tree.field_mu[tree.ancestors(i)].sum(0) for i in range(tree.n)])
        assert torch.allclose(tree.coefficients()[0], plain)
        tree.beta_logit.fill_(-1e3)
        assert (tree.coefficients()[0] == tree.field_mu[tree.entry]).all()
    tree.coefficients()[0].sum().backward()
    assert tree.beta_logit.grad.isfinite().all()
    without = copy.deepcopy(tree)
    without.register_parameter("beta_logit", None)
    assert torch.allclose(without.coefficients()[0], plain)


def test_a_roots_gradient_is_the_decayed_sum_of_its_descendants():
    tree = grown()
    grad = torch.randn(tree.n, 10, dtype=torch.float64)
    tree.coefficients()[0].backward(grad)
    root = int(tree.roots().mode().values)
    below = [i for i in range(tree.n) if tree.roots()[i] == root]
    assert len(below) > 2
    steps = torch.tensor([len(tree.ancestors(i)) - 1 for i in below])
    expected = (grad[below] * tree.beta[below, None] ** steps[:, None]).sum(0)
    assert torch.allclose(tree.field_mu.grad[root], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forest_of_depth_one_is_the_flat_model_exactly(dtype):
    tree = filled(MotionTree(40).to(dtype))
    flat = FlatMotion(40, basis=tree.basis).to(dtype)
    with torch.no_grad():
        flat.coef_mu.copy_(tree.field_mu)
        flat.coef_quat.copy_(tree.field_quat)
    weight = torch.randn(40, 7, dtype=dtype)
    for t in TIMES:
        grads = []
        for motion in (tree, flat):
            motion.zero_grad()
            out = torch.cat(motion(t), 1)
            (out * weight).sum().backward()
            rows = list(motion.row_parameters().values())[:2]
            grads.append([out, *[p.grad.clone() for p in [*rows, *motion.basis.parameters()]]])
        for a, b in zip(*grads, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_merging_changes_nothing(options, dtype, tolerance):
    tree = grown(dtype=dtype, **options)
    merged = tree.merge()
    for a, b in zip(moves(tree), moves(merged), strict=True):
        assert a.abs().max() > 0.1
        assert (a - b).abs().max() < tolerance
    with torch.no_grad():  # which shares nothing with the tree
        tree.basis.mlp[0].weight.zero_()
        tree.field_mu.zero_()
    assert merged.c_mu.abs().max() > 0.1
    assert merged.basis.mlp[0].weight.abs().max() > 0


def test_a_tabulated_basis_is_exact_at_its_times_and_has_no_mlp():
    tree = grown()
    merged = tree.merge(frames=11)
    assert not list(merged.basis.parameters())
    with torch.no_grad():
        for i in range(11):
            for a, b in zip(tree(i / 10), merged(i / 10), strict=True):
                assert torch.allclose(a, b, atol=1e-8)
        between = [(a + b) / 2 for a, b in zip(tree(0.3), tree(0.4), strict=True)]
        for a, b in zip(between, merged(0.35), strict=True):
            assert torch.allclose(a, b, atol=1e-8)


def test_a_path_of_73_nodes():
    tree = chain(73)
    tree.check()
    assert tree.depth() == len(tree.ancestors(0)) == 73
    for fast, slow in zip(tree.coefficients(), coefficients_by_walking(tree), strict=True):
        assert torch.allclose(fast, slow, atol=1e-12)
    tree(0.4)[0].sum().backward()
    assert tree.beta_logit.grad.isfinite().all()


def test_one_gaussian():
    tree = MotionTree(1)
    assert (tree.depth(), tree.ancestors(0), tree.path_gain()) == (1, [0], 1.0)
    assert tree(0.5)[0].shape == (1, 3)
    tree.expand([])
    assert tree.n == 1


def test_motion_starts_at_zero_and_can_leave_it():
    tree = MotionTree(4, init="root")
    dmu, dq = tree(0.3)
    assert not dmu.any()
    assert not dq.any()
    (dmu.sum() + dq.sum()).backward()
    assert tree.field_mu.grad.abs().min() > 0


def test_path_gain_is_how_far_a_unit_step_of_every_node_goes():
    tree = grown()
    before = tree.coefficients()[0].detach()
    with torch.no_grad():
        tree.field_mu += 1
    assert (tree.coefficients()[0] - before).mean().item() == pytest.approx(tree.path_gain())


def test_rows_say_where_parameters_come_from():
    tree = grown()
    beta, field, n, m = tree.beta_logit, tree.field_mu, tree.n, tree.n_nodes
    leaf = tree.entry[3]
    rows = tree.promote([3])
    assert rows["beta_logit"].source.tolist() == [*range(n), 3]
    assert rows["beta_logit"].fresh.tolist() == [False] * n + [True]
    assert rows["field_mu"].source.tolist() == [*range(m), leaf, leaf]
    assert rows["field_mu"].fresh.sum() == 2
    assert (tree.field_mu[:m] == field).all()
    assert tree.field_mu is not field
    assert (tree.beta_logit[:n] == beta).all()
    rows = tree.prune(torch.arange(tree.n) == n)
    assert not rows["field_mu"].fresh.any()
    assert len(rows["field_mu"].source) == tree.n_nodes == m + 1


def test_a_grown_state_loads_into_a_fresh_tree():
    tree = grown(dtype=torch.float32)
    fresh = MotionTree(2)
    fresh.coefficients()
    fresh.load_state_dict(tree.state_dict())
    fresh.check()
    for a, b in zip(moves(tree), moves(fresh), strict=True):
        assert torch.equal(a, b)


def test_dtype_and_copies():
    tree = grown(dtype=torch.float32)
    twin = copy.deepcopy(tree).double()
    assert twin(0.5)[0].dtype == torch.float64
    assert torch.allclose(twin(0.5)[0].float(), tree(0.5)[0], atol=1e-5)
    assert twin.to("meta")._paths is None  # paths must not stay behind on another device


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MotionTree(0), ValueError, "n: got 0"),
        (lambda: MotionTree(2.5), TypeError, "n: got 2.5"),
        (lambda: MotionTree(2, max_depth=0), ValueError, "max_depth: got 0"),
        (lambda: MotionTree(2, max_depth=1, init="root"), ValueError, "max_depth: got 1"),
        (lambda: MotionTree(2, init="bush"), ValueError, "init: got 'bush'"),
        (lambda: MotionTree(2, decay=1), TypeError, "decay: got 1"),
        (lambda: MotionTree(2, n_basis=0), ValueError, "n_basis: got 0"),
        (lambda: MotionTree(2).expand([2]), ValueError, "index 2, wants 0 to 1"),
        (lambda: MotionTree(2).promote([-1]), ValueError, "index -1"),
        (lambda: MotionTree(2).expand([0, 0]), ValueError, "more than once"),
        (lambda: MotionTree(2).expand([0.5]), TypeError, "idx: got torch.float32"),
        (lambda: MotionTree(2).expand(1), TypeError, "idx: got 1"),
        (lambda: MotionTree(2).expand(["a"]), TypeError, "idx: got no numbers"),
        (lambda: MotionTree(2).expand([[0]]), ValueError, "wants \\(K,\\)"),
        (lambda: MotionTree(2).expand([True]), ValueError, "shape \\(1,\\), wants \\(2,\\)"),
        (lambda: MotionTree(2).prune([0]), TypeError, "mask: got torch.int64"),
        (lambda: MotionTree(2).prune([True] * 3), ValueError, "shape \\(3,\\)"),
        (lambda: MotionTree(2).prune([True] * 2), ValueError, "remove all 2"),
        (lambda: MotionTree(2).reorder([0]), ValueError, "a permutation of 2"),
        (lambda: MotionTree(2).ancestors(2), ValueError, "i: got 2"),
        (lambda: MotionTree(2)(1.5), ValueError, "t: got 1.5"),
        (lambda: MotionTree(2)(float("nan")), ValueError, "t: got nan"),
        (lambda: MotionTree(2)("now"), TypeError, "t: got 'now'"),
        (lambda: MotionTree(2)(torch.zeros(2)), TypeError, "t: got a tensor"),
        (lambda: MotionTree(2).merge(frames=1), ValueError, "frames: got 1"),
        (lambda: MotionTree(2).merge().expand([0]), RuntimeError, "merged model has no tree"),
        (lambda: MotionTree(2).merge().promote([0]), RuntimeError, "merged model has no tree"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tree: tree.entry.__setitem__(0, int(tree.entry[1])), "share a leaf|no Gaussian"),
        (lambda tree: tree.entry.__setitem__(0, 999), "an entry is no node"),
        (lambda tree: tree.parent.__setitem__(0, -2), "a parent is no node"),
        (lambda tree: tree.levels.__setitem__(int(tree.entry[0]), 9), "level"),
        (lambda tree: tree.parent.__setitem__(int(tree.roots()[0]), int(tree.entry[0])), "level"),
        (lambda tree: setattr(tree, "max_depth", 1), "longer than max_depth"),
        (lambda tree: tree._set("beta_logit", torch.zeros(1)), "beta is not"),
    ],
)
def test_check_names_the_invariant_that_broke(damage, message):
    tree = grown()
    tree.check()
    damage(tree)
    with pytest.raises(AssertionError, match=message):
        tree.check()


def test_repr_tells_the_size_of_the_tree():
    tree = grown()
    assert f"{tree.n} Gaussians, {tree.n_nodes} nodes" in repr(tree)
    assert f"depth {tree.depth()} of at most 8" in repr(tree)
