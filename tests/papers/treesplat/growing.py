"""Trees for tests: with random values, and grown at random."""

from __future__ import annotations

import torch

from assay.papers.treesplat.motion_tree import MotionTree

TIMES = (0.0, 0.21, 0.5, 1.0)


def filled(tree: MotionTree, seed: int = 0) -> MotionTree:
    """The tree with random fields and decays."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in tree.row_parameters().values():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
    return tree


def grown(
    rounds: int = 5, seed: int = 0, n: int = 30, dtype=torch.float64, **options
) -> MotionTree:
    """A random tree after `rounds` of expansion, promotion and pruning."""
    torch.manual_seed(seed)
    tree = filled(MotionTree(n, **options).to(dtype), seed)
    draw = torch.Generator().manual_seed(seed)
    for i in range(rounds):
        some = torch.randperm(tree.n, generator=draw)[: tree.n // 2]
        (tree.promote if i % 2 == 0 else tree.expand)(some)
        tree.prune(torch.rand(tree.n, generator=draw) < 0.2)
    return tree


def chain(depth: int, dtype=torch.float64) -> MotionTree:
    """A tree whose first Gaussian has a path of `depth` nodes."""
    tree = MotionTree(1, max_depth=depth).to(dtype)
    for _ in range(depth - 1):
        tree.promote([0])
    return filled(tree)
