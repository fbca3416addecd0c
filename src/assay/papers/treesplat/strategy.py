"""Densification that grows the Gaussians and their motion together."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gsplat import DefaultStrategy
from gsplat.strategy.ops import reset_opa
from gsplat.utils import normalized_quat_to_rotmat
from torch import Tensor, nn

from assay.papers.treesplat.merged_motion import MergedMotion
from assay.papers.treesplat.motion import Rows
from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.tree_splat import SPLATS, GrowingParams, TreeSplat
from assay.toolkits.checks import flag, number, one_of, whole

SPLIT_BY = 1.6
"""A split Gaussian leaves two of its scales divided by this, as in 3DGS."""
_LOG = logging.getLogger(__name__)
_FIRST_MOMENTS = ("exp_avg", "momentum_buffer")
_ALL_MOMENTS = (*_FIRST_MOMENTS, "exp_avg_sq", "max_exp_avg_sq")


@dataclass
class TreeStrategy(DefaultStrategy):
    """gsplat's default strategy, for models that move.

    Used as that one, with ``model.params`` for `params` and one optimizer for each of them; the
    parameters in the model, in `params` and in the optimizers are the same after every step.
    What a clone or a split makes moves as its source: a tree gets a leaf beside the source's
    leaf, or, every so many rounds, two leaves below it. New rows of splats start without moments,
    as gsplat's do; those of motion take over the second moment of their source.

    Args:
        prune_opa: Gaussians of lower opacity go.
        grow_grad2d: Mean gradient in the image, in half widths, above which Gaussians grow.
        grow_scale3d: Largest scale, over the extent of the scene, that is cloned; others split.
        grow_scale2d: Radius in the image, over its size, above which Gaussians split.
        prune_scale3d: Scale over the extent above which Gaussians go, after the first reset of
            opacities, as in 3DGS.
        prune_scale2d: Radius in the image, over its size, above which they go, after that reset.
        refine_scale2d_stop_iter: Radii in the image count up to this step; 0 for never.
        refine_start_iter: Growth rounds come after this step ...
        refine_stop_iter: ... and before this one.
        reset_every: Steps between resets of opacities; 0 for never.
        refine_every: Steps between growth rounds.
        pause_refine_after_reset: Steps without rounds after a reset.
        absgrad: Whether gradients without signs count; render with ``absgrad=True`` then.
        revised_opacity: Whether the halves of a split look as opaque together as their source.
        verbose: Whether to print what each round did.
        key_for_gradient: Of the gradient in `info`; "means2d".
        promote_every: Every so many growth rounds promote; 0 for never. Counted from step 0: the
            rounds of steps ``promote_every * refine_every``, twice that, ... do.
        cap_max: Most Gaussians. Where there is room for few, those with the largest gradients grow.

    Raises:
        TypeError, ValueError: A field outside its range, named in the message.
    """

    reset_every: int = 3000
    promote_every: int = 5
    cap_max: int = 1_000_000

    def __post_init__(self) -> None:
        for name in ("cap_max", "refine_every"):
            whole(name, getattr(self, name))
        for name in ("promote_every", "refine_start_iter", "refine_stop_iter"):
            whole(name, getattr(self, name), 0)
        for name in ("refine_scale2d_stop_iter", "pause_refine_after_reset"):
            whole(name, getattr(self, name), 0)
        if whole("reset_every", self.reset_every, 0) == 0:
            self.reset_every = sys.maxsize
        for name in ("prune_opa", "grow_grad2d", "grow_scale3d", "prune_scale3d"):
            number(name, getattr(self, name), least=0.0)
        for name in ("grow_scale2d", "prune_scale2d"):
            number(name, getattr(self, name), least=0.0)
        for name in ("absgrad", "revised_opacity", "verbose"):
            flag(name, getattr(self, name))
        one_of("key_for_gradient", self.key_for_gradient, ("means2d",))

    def initialize_state(self, scene_scale: float = 1.0) -> dict[str, Any]:
        """The running state, to be passed to the hooks: tensors and plain values.

        Args:
            scene_scale: Extent of the scene; scales are compared with it.
        """
        return {
            **super().initialize_state(number("scene_scale", scene_scale, above=0)),
            "capped": False,
        }

    def check_sanity(
        self, params: GrowingParams, optimizers: Mapping[str, torch.optim.Optimizer]
    ) -> None:
        """Looks whether this can train.

        Args:
            params: ``model.params``.
            optimizers: One for each of them, by the same names.

        Raises:
            TypeError: `params` is not of a model.
            RuntimeError: The model is merged.
            AssertionError: Optimizers are missing, or not one for each parameter.
        """
        if isinstance(_model(params).motion, MergedMotion):
            raise RuntimeError("merged model has no tree")
        super().check_sanity(params, optimizers)

    def step_post_backward(
        self,
        params: GrowingParams,
        optimizers: Mapping[str, torch.optim.Optimizer],
        state: dict[str, Any],
        step: int,
        info: dict[str, Any],
        packed: bool = False,
    ) -> None:
        """After ``loss.backward()``: counts gradients; grows, prunes and resets when it is time.

        Args:
            params: ``model.params``.
            optimizers: One for each of them, by the same names.
            state: Of `initialize_state`.
            step: Of training, from 0.
            info: Third result of `TreeSplat.render`.
            packed: As in gsplat.

        Raises:
            RuntimeError: No Gaussian would be left, or the model is merged.
            FloatingPointError: Values are not finite.
            TypeError: `params` is not of a model.
            ValueError: `absgrad` is on, but the rendering was without it.
        """
        if self.absgrad and not hasattr(info["means2d"], "absgrad"):
            raise ValueError("absgrad: got no such gradient, wants a rendering with absgrad=True")
        super().step_post_backward(params, optimizers, state, step, info, packed)
        # gsplat 1.5.3 means to do this, but its condition, `0 & step > 0`, is never true.
        if 0 < step < self.refine_stop_iter and step % self.reset_every == 0:
            reset_opa(params, optimizers, state, value=2 * self.prune_opa)

    def promotes(self, step: int) -> bool:
        """Whether the growth round of a step promotes.

        Args:
            step: Of training, from 0.
        """
        return self.promote_every > 0 and step // self.refine_every % self.promote_every == 0

    def _update_state(
        self,
        params: GrowingParams,
        state: dict[str, Any],
        info: dict[str, Any],
        packed: bool = False,
    ) -> None:
        if state["grad2d"] is None:  # gsplat's own is always float32
            state["grad2d"] = torch.zeros_like(params["opacities"])
        super()._update_state(params, state, info, packed)

    @torch.no_grad()
    def _grow_gs(
        self,
        params: GrowingParams,
        optimizers: Mapping[str, torch.optim.Optimizer],
        state: dict[str, Any],
        step: int,
    ) -> tuple[int, int]:
        model = _model(params)
        grads = state["grad2d"] / state["count"].clamp_min(1)
        growing = grads > self.grow_grad2d
        large = params["scales"].exp().amax(1) > self.grow_scale3d * state["scene_scale"]
        if step < self.refine_scale2d_stop_iter:
            wide = state["radii"] > self.grow_scale2d
            growing, large = growing | wide, large | wide
        idx = self._within_cap(growing.nonzero().squeeze(1), grads, state, step)
        if not len(idx):
            return 0, 0
        n, split = model.n, large[idx]

        old = model.motion.row_parameters()
        grow = model.motion.promote if self.promotes(step) else model.motion.expand
        followed = grow(idx)
        _follow(optimizers, old, model.motion.row_parameters(), followed)

        rows = Rows.appended(n, idx)
        new = {name: params[name].detach()[rows.source] for name in SPLATS}
        halves = torch.cat([idx[split], n + split.nonzero().squeeze(1)])
        rows.fresh[halves] = True
        scales = new["scales"][halves].exp()
        turns = normalized_quat_to_rotmat(F.normalize(new["quats"][halves], dim=-1))
        new["means"][halves] += torch.einsum("nij,nj->ni", turns, scales * torch.randn_like(scales))
        new["scales"][halves] = (scales / SPLIT_BY).log()
        if self.revised_opacity:
            opacities = new["opacities"][halves].sigmoid()
            new["opacities"][halves] = (1 - (1 - opacities).sqrt()).logit()
        _take(params, optimizers, state, new, rows)
        n_split = int(split.sum())
        return len(idx) - n_split, n_split

    def _within_cap(self, idx: Tensor, grads: Tensor, state: dict[str, Any], step: int) -> Tensor:
        room = max(self.cap_max - len(grads), 0)
        if len(idx) <= room:
            return idx
        if not state["capped"]:
            state["capped"] = True
            _LOG.warning(
                "step %d: %d of %d Gaussians would grow, but cap_max is %d; from here on those "
                "with the largest gradients do",
                step,
                len(idx),
                len(grads),
                self.cap_max,
            )
        return idx[grads[idx].topk(room).indices].sort().values

    @torch.no_grad()
    def _prune_gs(
        self,
        params: GrowingParams,
        optimizers: Mapping[str, torch.optim.Optimizer],
        state: dict[str, Any],
        step: int,
    ) -> int:
        model = _model(params)
        for name, value in params.items():
            bad = int((~value.isfinite().view(len(value), -1).all(1)).sum())
            if bad:
                raise FloatingPointError(
                    f"step {step}: {bad} of {len(value)} rows of {name} are not finite; lower the "
                    f"learning rates, or look for NaN in images and poses"
                )
        mask = params["opacities"].sigmoid() < self.prune_opa
        if step > self.reset_every:
            scales = params["scales"].exp().amax(1)
            mask |= scales > self.prune_scale3d * state["scene_scale"]
            if step < self.refine_scale2d_stop_iter:
                mask |= state["radii"] > self.prune_scale2d
        pruned = int(mask.sum())
        if pruned == model.n:
            raise RuntimeError(
                f"step {step}: all {pruned} Gaussians have faded or outgrown the scene, and none "
                f"would be left; most likely the intrinsics or poses do not fit the images"
            )
        if pruned:
            old = model.motion.row_parameters()
            followed = model.motion.prune(mask)
            _follow(optimizers, old, model.motion.row_parameters(), followed)
            rows = Rows.kept((~mask).nonzero().squeeze(1))
            new = {name: params[name].detach()[rows.source] for name in SPLATS}
            _take(params, optimizers, state, new, rows)
        return pruned


def sibling_distance(model: TreeSplat, times: Sequence[float]) -> Tensor:
    """How far siblings drift apart: the premise of a tree that densification grew.

    Args:
        model: With a motion tree.
        times: In [0, 1].

    Returns:
        ``(T, S)``: for each time and each node with at least two leaves as children, the mean
        distance of these Gaussians from their centroid, in scene units.

    Raises:
        TypeError: The motion is no tree, or a time no number.
        ValueError: A time outside, or none.
    """
    if not len(times):
        raise ValueError("times: got none, wants at least one")
    tree = model.motion
    if not isinstance(tree, MotionTree):
        raise TypeError(f"model: got a motion of kind {tree.kind!r}, wants a tree")
    above = tree.parent[tree.entry]
    children = torch.bincount(above[above >= 0], minlength=tree.n_nodes)
    siblings = ((above >= 0) & (children[above] > 1)).nonzero().squeeze(1)
    _, group = above[siblings].unique(return_inverse=True)
    sizes = torch.bincount(group)
    distances = []
    for t in times:
        means = model.at(t)["means"][siblings]
        sums = means.new_zeros(len(sizes), 3).index_add_(0, group, means)
        away = (means - (sums / sizes[:, None])[group]).norm(dim=1)
        distances.append(means.new_zeros(len(sizes)).index_add_(0, group, away) / sizes)
    return torch.stack(distances)


def _model(params: Any) -> TreeSplat:
    if not isinstance(params, GrowingParams):
        raise TypeError(
            f"params: got {type(params).__name__}, wants `model.params`, with the rows of the "
            f"motion beside those of the splats"
        )
    return params.model


def _take(
    params: GrowingParams,
    optimizers: Mapping[str, torch.optim.Optimizer],
    state: dict[str, Any],
    values: dict[str, Tensor],
    rows: Rows,
) -> None:
    """Puts new values of splats everywhere: into the model, the optimizers and the statistics."""
    old = {name: params[name] for name in values}
    for name, value in values.items():
        params[name] = nn.Parameter(value, requires_grad=old[name].requires_grad)
    # A clone with its source's second moment would take its steps too, and never leave it.
    _follow(optimizers, old, params, dict.fromkeys(values, rows), _ALL_MOMENTS)
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = value[rows.source]


def _follow(
    optimizers: Mapping[str, torch.optim.Optimizer],
    old: Mapping[str, nn.Parameter],
    new: Mapping[str, nn.Parameter],
    rows: Mapping[str, Rows],
    zeroed: Sequence[str] = _FIRST_MOMENTS,
) -> None:
    """Gives each optimizer its new parameter, and the moments of the rows that it was made of.

    Of rows that are fresh the moments that `zeroed` names are 0.
    """
    for name, each in rows.items():
        if name not in optimizers:
            continue
        optimizer = optimizers[name]
        optimizer.param_groups[0]["params"] = [new[name]]
        moments = optimizer.state.pop(old[name], None)
        if moments is None:
            continue
        for key, value in moments.items():
            if isinstance(value, Tensor) and value.shape == old[name].shape:
                moments[key] = value[each.source]
                if key in zeroed:
                    moments[key][each.fresh] = 0
        optimizer.state[new[name]] = moments
