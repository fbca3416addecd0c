"""The motion tree: coefficients summed along paths, grown by densification, merged after training.

Section on the tree of the paper: motion field F, entries E, parents P, and a decay for each
Gaussian. Gaussian i moves by the coefficients

    c_i = sum_k beta_i^k F[anc(i, k)],   anc(i, 0) = E[i],   anc(i, k + 1) = P[anc(i, k)]
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from assay.papers.treesplat.basis import MotionBasis, combine, make_basis
from assay.papers.treesplat.merged_motion import MergedMotion
from assay.papers.treesplat.motion import Motion, Rows
from assay.toolkits.checks import flag, one_of, whole

BETA_LOGIT = 3.0
"""Where decay starts: beta = sigmoid(3) = 0.95."""


class MotionTree(Motion):
    """Motion coefficients of N Gaussians, shared along the paths of a tree of M nodes.

    Leaves and Gaussians correspond one to one. Motion starts at zero, and growth never moves the
    picture: a new Gaussian moves exactly as its source.

    Args:
        n: Number of Gaussians N at the start.
        n_basis: Number of basis functions B; of `basis`, if that is given.
        max_depth: Longest path, in nodes; 1 is the flat model. (Where the paper counts the levels
            below a root, it is one less.) A promotion that would go deeper expands instead.
        init: "forest", where each first Gaussian's leaf is a root, or "root", where all of them
            hang from one.
        decay: Whether beta_i is learnt; otherwise it is 1.
        shared_field: Whether means and quaternions share one field.
        promote_continuity: Whether new leaves of a promotion start at (1 - beta) c, so that nothing
            jumps; otherwise they start at zero, and the motion shrinks by beta.
        basis: The basis; None makes ``MotionBasis(n_basis)``.

    Attributes:
        field_mu, field_quat: F, ``(M, B)``; `field_quat` is None where it is shared.
        beta_logit: ``(N,)`` with beta = sigmoid(beta_logit); None without decay.
        entry: ``(N,)`` int64, the leaf of each Gaussian.
        parent: ``(M,)`` int64, -1 at roots.
        levels: ``(M,)`` int64, steps from each node to its root.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.

    Source: the paper's section on the tree. The start of decay, separate fields, the forest and
    continuity are choices of this room.
    """

    kind = "tree"
    rows = ("field_mu", "field_quat", "beta_logit")
    indices = ("entry", "parent", "levels")
    not_stored = ("levels",)
    entry: Tensor
    parent: Tensor
    levels: Tensor
    field_quat: nn.Parameter | None
    beta_logit: nn.Parameter | None

    def __init__(
        self,
        n: int,
        n_basis: int = 10,
        max_depth: int = 8,
        init: str = "forest",
        decay: bool = True,
        shared_field: bool = False,
        promote_continuity: bool = True,
        basis: MotionBasis | None = None,
    ) -> None:
        super().__init__()
        whole("n", n)
        one_of("init", init, ("forest", "root"))
        self.max_depth = whole("max_depth", max_depth, 2 if init == "root" else 1)
        self.decay = flag("decay", decay)
        self.shared_field = flag("shared_field", shared_field)
        self.promote_continuity = flag("promote_continuity", promote_continuity)
        self.basis = make_basis(n_basis, basis)
        above = int(init == "root")
        self.register_buffer("entry", torch.arange(n) + above)
        self.register_buffer("parent", torch.tensor([-1] * above + [above - 1] * n))
        self.register_buffer("levels", torch.tensor([0] * above + [above] * n))
        shape = (above + n, self.basis.n_basis)
        self.field_mu = nn.Parameter(torch.zeros(shape))
        self.register_parameter(
            "field_quat", None if shared_field else nn.Parameter(torch.zeros(shape))
        )
        self.register_parameter(
            "beta_logit", nn.Parameter(torch.full((n,), BETA_LOGIT)) if decay else None
        )
        self._paths: _Paths | None = None

    @property
    def n(self) -> int:
        """Number of Gaussians N."""
        return len(self.entry)

    @property
    def n_nodes(self) -> int:
        """Number of nodes M, leaves included."""
        return len(self.parent)

    @property
    def beta(self) -> Tensor:
        """Decay ``(N,)`` in (0, 1]."""
        if self.beta_logit is None:
            return self.field_mu.new_ones(self.n)
        return torch.sigmoid(self.beta_logit)

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        b_mu, b_quat = self.basis(t)
        # The sum over a path and the product with the basis commute: 7 columns go along the
        # paths instead of 2 B.
        nodes = torch.cat([combine(self.field_mu, b_mu), combine(self._field_quat(), b_quat)], 1)
        dmu, dq = self._along_paths(nodes).split([3, 4], 1)
        return dmu, dq

    def options(self) -> dict[str, Any]:
        names = ("max_depth", "decay", "shared_field", "promote_continuity")
        return {"basis": self.basis.options(), **{name: getattr(self, name) for name in names}}

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Merged coefficients c of means and of quaternions, each ``(N, B)``."""
        if self.shared_field:
            c = self._along_paths(self.field_mu)
            return c, c
        c = self._along_paths(torch.cat([self.field_mu, self._field_quat()], 1))
        c_mu, c_quat = c.split(self.basis.n_basis, 1)
        return c_mu, c_quat

    def merge(self, frames: int | None = None) -> MergedMotion:
        """What plays the same motion without the tree; this tree stays as it is.

        Args:
            frames: Tabulate the basis at so many equally spaced times, exact at those and
                interpolated between them; None keeps the MLP.

        Raises:
            TypeError, ValueError: `frames` is no integer of at least 2.
        """
        with torch.no_grad():
            c_mu, c_quat = self.coefficients()
        basis = copy.deepcopy(self.basis) if frames is None else self.basis.tabulate(frames)
        return MergedMotion(c_mu, None if self.shared_field else c_quat, basis)

    def expand(self, idx: Any) -> dict[str, Rows]:
        """Appends a copy of each Gaussian in `idx`: a new leaf under the parent of its source's.

        Args:
            idx: Distinct indices ``(K,)``, or a bool mask ``(N,)``.

        Returns:
            For each of `row_parameters`, where its rows come from.

        Raises:
            TypeError, ValueError: Indices out of range, repeated, or of no integer type.
        """
        idx = self._indices("idx", idx)
        return self._grow(idx, torch.zeros_like(idx, dtype=torch.bool))

    def promote(self, idx: Any) -> dict[str, Rows]:
        """Appends a copy of each Gaussian in `idx`, and makes both leaves under the source's leaf.

        F_new = (1 - beta) c of both, as F_new + beta c = c. Where `max_depth` allows no deeper
        path, the Gaussian is expanded.

        Args:
            idx: As in `expand`.

        Returns:
            As `expand`.

        Raises:
            TypeError, ValueError: As `expand`.
        """
        idx = self._indices("idx", idx)
        return self._grow(idx, self.levels[self.entry[idx]] + 2 <= self.max_depth)

    @torch.no_grad()
    def _grow(self, idx: Tensor, deeper: Tensor) -> dict[str, Rows]:
        m = self.n_nodes
        leaf, up = self.entry[idx], idx[deeper]
        # Nodes: the old ones, a leaf for each new Gaussian, a new leaf for each promoted source.
        nodes = Rows.appended(m, torch.cat([leaf, leaf[deeper]]))
        gaussians = Rows.appended(self.n, idx)
        fresh = torch.cat(
            [m + deeper.nonzero().squeeze(1), m + len(idx) + torch.arange(len(up)).to(up)]
        )
        for name, c in zip(("field_mu", "field_quat"), self.coefficients(), strict=True):
            if getattr(self, name) is None:
                continue
            field = getattr(self, name).detach()[nodes.source]
            start = (1 - self.beta[up, None]) * c[up] if self.promote_continuity else 0 * c[up]
            field[fresh] = start.repeat(2, 1)
            self._set(name, field)
        if self.beta_logit is not None:
            self._set("beta_logit", self.beta_logit.detach()[gaussians.source])
        self.parent = torch.cat(
            [self.parent, torch.where(deeper, leaf, self.parent[leaf]), leaf[deeper]]
        )
        self.levels = torch.cat(
            [self.levels, self.levels[leaf] + deeper, self.levels[leaf[deeper]] + 1]
        )
        entry = torch.cat([self.entry, m + torch.arange(len(idx), device=idx.device)])
        entry[up] = torch.arange(m + len(idx), self.n_nodes, device=idx.device)
        self.entry = entry
        self._paths = None
        return self._followed(nodes, gaussians)

    def prune(self, mask: Any) -> dict[str, Rows]:
        """Removes Gaussians with their leaves, and inner nodes that are left without a leaf.

        Chains of single children stay: every node on a path is part of a sum. They go when the
        tree is merged.

        Args:
            mask: bool ``(N,)``, True where a Gaussian goes. Not all of them.

        Returns:
            As `expand`.

        Raises:
            TypeError, ValueError: No bool mask of that length, or nothing would stay.
        """
        staying = self._staying(mask)
        paths = self._get_paths()
        kept = torch.zeros(self.n, dtype=torch.bool, device=staying.device)
        kept[staying] = True
        used = torch.zeros(self.n_nodes, dtype=torch.bool, device=staying.device)
        used[paths.nodes[kept[paths.gaussians]]] = True
        renumbered = torch.where(used, used.cumsum(0) - 1, -1)
        nodes, gaussians = Rows.kept(used.nonzero().squeeze(1)), Rows.kept(staying)
        parent = self.parent[nodes.source]
        self.parent = torch.where(parent >= 0, renumbered[parent], -1)
        self.levels = self.levels[nodes.source]
        self.entry = renumbered[self.entry[staying]]
        return self._taken(nodes, gaussians)

    def reorder(self, order: Any) -> dict[str, Rows]:
        gaussians = Rows.kept(self._permutation(order))
        self.entry = self.entry[gaussians.source]
        return self._taken(
            Rows.kept(torch.arange(self.n_nodes, device=self.entry.device)), gaussians
        )

    def _taken(self, nodes: Rows, gaussians: Rows) -> dict[str, Rows]:
        followed = self._followed(nodes, gaussians)
        for name, rows in followed.items():
            self._set(name, getattr(self, name).detach()[rows.source])
        self._paths = None
        return followed

    def _followed(self, nodes: Rows, gaussians: Rows) -> dict[str, Rows]:
        return {
            name: gaussians if name == "beta_logit" else nodes for name in self.row_parameters()
        }

    def depth(self) -> int:
        """Length of the longest path from a leaf to its root, in nodes."""
        return int(self.levels[self.entry].max()) + 1

    def ancestors(self, i: int) -> list[int]:
        """Nodes from the leaf of Gaussian `i` up to its root, both included.

        Args:
            i: Index of a Gaussian.

        Raises:
            TypeError, ValueError: No integer below N.
        """
        if whole("i", i, 0) >= self.n:
            raise ValueError(f"i: got {i}, wants 0 to {self.n - 1}")
        path = [int(self.entry[i])]
        while (above := int(self.parent[path[-1]])) >= 0:
            path.append(above)
        return path

    def roots(self) -> Tensor:
        """The root of each Gaussian, ``(N,)`` int64 node numbers."""
        paths = self._get_paths()
        return paths.nodes[paths.offsets[1:] - 1]

    def path_gain(self) -> float:
        """Mean over Gaussians of sum_k beta_i^k: how many full steps a path takes at once.

        Adam moves every node of a path by about the learning rate, so the coefficient of a
        Gaussian moves that many times as far.
        """
        with torch.no_grad():
            return float(self._along_paths(self.field_mu.new_ones(self.n_nodes, 1)).mean())

    def check(self) -> None:
        """Looks at every invariant of the tree.

        Raises:
            AssertionError: naming the one that does not hold.
        """
        n, m = self.n, self.n_nodes
        fields = [p for name, p in self.row_parameters().items() if name != "beta_logit"]
        _holds(all(p.shape == (m, self.basis.n_basis) for p in fields), "a field is not (M, B)")
        _holds(self.beta_logit is None or self.beta_logit.shape == (n,), "beta is not (N,)")
        _holds(self.levels.shape == (m,), "levels are not (M,)")
        _holds(bool(((self.parent >= -1) & (self.parent < m)).all()), "a parent is no node")
        _holds(bool(((self.entry >= 0) & (self.entry < m)).all()), "an entry is no node")
        has_parent = self.parent >= 0
        _holds(bool((self.levels[~has_parent] == 0).all()), "a root's level is not 0")
        # Levels that fall by one towards the root leave no room for a cycle.
        below, above = self.levels[has_parent], self.levels[self.parent[has_parent]]
        _holds(bool((below == above + 1).all()), "a level is not its parent's + 1")
        leaf = torch.ones(m, dtype=torch.bool, device=self.parent.device)
        leaf[self.parent[has_parent]] = False
        _holds(bool(leaf[self.entry].all()), "a Gaussian enters at an inner node")
        _holds(len(self.entry.unique()) == n, "two Gaussians share a leaf")
        _holds(int(leaf.sum()) == n, "a leaf has no Gaussian")
        _holds(self.depth() <= self.max_depth, "a path is longer than max_depth")

    def extra_repr(self) -> str:
        roots = int((self.parent < 0).sum())
        return (
            f"{self.n} Gaussians, {self.n_nodes} nodes, {roots} roots, "
            f"depth {self.depth()} of at most {self.max_depth}"
        )

    def _field_quat(self) -> Tensor:
        return self.field_mu if self.field_quat is None else self.field_quat

    def _along_paths(self, nodes: Tensor) -> Tensor:
        """sum_k beta_i^k nodes[anc(i, k)], ``(N, C)`` of values ``(M, C)`` at nodes."""
        return _PathSum.apply(nodes, self.beta, self._get_paths())

    def _get_paths(self) -> _Paths:
        if self._paths is None:
            self._paths = _Paths.of(self.entry, self.parent, self.levels)
        return self._paths

    def _apply(self, fn: Any, recurse: bool = True) -> MotionTree:
        self._paths = None
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._paths = None


def levels_of(parent: Tensor, max_depth: int) -> Tensor:
    """Steps ``(M,)`` from each node to its root.

    Args:
        parent: ``(M,)`` int64, -1 at roots.
        max_depth: Longest path there may be, in nodes.

    Raises:
        ValueError: A parent is no node, or a path is longer, as in a cycle.
    """
    if bool(((parent < -1) | (parent >= len(parent))).any()):
        raise ValueError("parent: got a number that is no node")
    levels, above = torch.zeros_like(parent), parent
    for _ in range(min(max_depth, len(parent))):
        if not bool((above >= 0).any()):
            break
        levels += above >= 0
        above = torch.where(above >= 0, parent[above], -1)
    if bool((above >= 0).any()):
        raise ValueError(f"parent: got a path longer than {max_depth} nodes, or a cycle")
    return levels


def _holds(condition: bool, otherwise: str) -> None:
    # Not an assert statement, which python -O leaves out.
    if not condition:
        raise AssertionError(otherwise)


@dataclass(frozen=True)
class _Paths:
    """All paths one after another (CSR), and who uses each node; no values."""

    nodes: Tensor
    gaussians: Tensor
    steps: Tensor
    offsets: Tensor
    by_node: Tensor
    users: Tensor
    user_offsets: Tensor

    @classmethod
    def of(cls, entry: Tensor, parent: Tensor, levels: Tensor) -> _Paths:
        columns = [entry]
        for _ in range(int(levels[entry].max())):
            last = columns[-1]
            columns.append(torch.where(last >= 0, parent[last], -1))
        table = torch.stack(columns, 1)
        gaussians, steps = (table >= 0).nonzero(as_tuple=True)
        nodes = table[gaussians, steps]
        counts = levels[entry] + 1
        by_node = torch.argsort(nodes, stable=True)
        per_node = torch.bincount(nodes, minlength=len(parent))
        users = gaussians[by_node]
        return cls(nodes, gaussians, steps, _starts(counts), by_node, users, _starts(per_node))


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


class _PathSum(torch.autograd.Function):
    """The sum over paths as sparse products, which torch has as embedding bags.

    Of the ways tried (padded ancestor table, Horner over levels, CSR matrices, index_add,
    segment_reduce), none is faster on paths of eight nodes and more, and none by much on shorter
    ones; its cost grows with the number of pairs alone.
    """

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, beta: Tensor, paths: _Paths) -> Tensor:
        factors = beta.index_select(0, paths.gaussians)
        before = factors ** (paths.steps - 1).clamp_min(0)  # beta^(k - 1)
        weights = torch.where(paths.steps > 0, factors * before, 1.0)
        ctx.paths = paths
        ctx.save_for_backward(nodes, before, weights)
        return _bags(nodes, paths.nodes, paths.offsets, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        nodes, before, weights = ctx.saved_tensors
        paths: _Paths = ctx.paths
        d_nodes = d_beta = None
        if ctx.needs_input_grad[0]:
            of_users = weights.index_select(0, paths.by_node)
            d_nodes = _bags(grad.contiguous(), paths.users, paths.user_offsets, of_users)
        if ctx.needs_input_grad[1]:
            # d c / d beta = sum_k k beta^(k - 1) nodes[anc(k)] is a sum over the path, too.
            slopes = _bags(nodes, paths.nodes, paths.offsets, paths.steps * before)
            d_beta = (grad * slopes).sum(1)
        return d_nodes, d_beta, None


def _bags(values: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    return F.embedding_bag(
        rows,
        values,
        offsets,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def coefficients_by_walking(tree: MotionTree) -> tuple[Tensor, Tensor]:
    """The coefficients of `MotionTree.coefficients` by walking up the parents, slowly.

    Args:
        tree: Any tree.

    Returns:
        Coefficients of means and of quaternions, each ``(N, B)``, with gradients.
    """
    sums: tuple[list[Tensor], list[Tensor]] = ([], [])
    for i in range(tree.n):
        beta = tree.beta[i]
        for field, rows in zip((tree.field_mu, tree._field_quat()), sums, strict=True):
            weight, total = torch.ones_like(beta), torch.zeros_like(field[0])
            for node in tree.ancestors(i):
                total = total + weight * field[node]
                weight = weight * beta
            rows.append(total)
    return torch.stack(sums[0]), torch.stack(sums[1])
