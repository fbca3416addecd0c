"""Masked gated linear units for training: one weight matrix, n learned binary masks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.papers.mglu.activation import ACTIVATIONS, check_input
from assay.papers.mglu.reference import mglu_terms
from assay.toolkits.checks import number, one_of, whole

if TYPE_CHECKING:
    from assay.papers.mglu.packed import PackedMGLU

WEIGHT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_DEAD_SHARE = 0.01


class _HardMask(torch.autograd.Function):
    """1[logits > 0] in another dtype; the backward pass is the identity."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = logits.dtype
        return (logits > 0).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        return grads[0].to(ctx.dtype), None


class MaskedWeight(nn.Module):
    """A weight matrix and n learned binary masks over it.

    Mask i is 1 where its logit is strictly positive. The logits stay in at least fp32 whatever
    the dtype of the weight, since bf16 rounding would swallow most of their updates.

    Attributes:
        weight: ``(d, h)``, initialised as in `torch.nn.Linear`.
        mask_logits: ``(n, d, h)``, drawn from N(0, mask_init_std^2), so that about half of each
            mask is ones.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_masks: int,
        mask_init_std: float,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.n_masks = whole("n_masks", n_masks)
        self.mask_init_std = number("mask_init_std", mask_init_std, above=0)
        weight = torch.empty(out_features, in_features, device=device, dtype=dtype)
        if weight.dtype not in WEIGHT_DTYPES:
            raise ValueError(f"dtype: got {dtype}, wants float16, bfloat16, float32 or float64")
        self.weight = nn.Parameter(weight)
        self.mask_logits = nn.Parameter(
            torch.empty(
                (n_masks, out_features, in_features),
                device=device,
                dtype=torch.promote_types(weight.dtype, torch.float32),
            )
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and logits anew."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.normal_(self.mask_logits, std=self.mask_init_std)

    def hard_masks(self) -> Tensor:
        """The masks as booleans, ``(n, d, h)``."""
        return self.mask_logits > 0

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gate and value of every mask, both ``(n, ..., d)``, from ``x`` (..., h).

        The complement of a mask needs no product of its own, as x(W - M*W) = xW - x(M*W).
        Gradients reach the logits as if the masks were real numbers (straight-through).

        Raises TypeError where `x` is no floating tensor, ValueError where its last axis is not h.
        """
        rows, columns = self.weight.shape
        check_input("x", x, columns)
        masked = _HardMask.apply(self.mask_logits, self.weight.dtype) * self.weight
        products = F.linear(x, torch.cat([self.weight[None], masked]).flatten(0, 1))
        streams = products.unflatten(-1, (self.n_masks + 1, rows)).movedim(-2, 0)
        return streams[1:], streams[:1] - streams[1:]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MaskedWeight:
        logits = self.mask_logits.data
        super()._apply(fn, recurse)
        moved = self.mask_logits.data
        if moved.is_floating_point() and torch.finfo(moved.dtype).bits < 32:
            self.mask_logits.data = logits.to(moved.device)
            if (grad := self.mask_logits.grad) is not None:
                self.mask_logits.grad = grad.to(logits.dtype)
        return self


class MaskedLinear(MaskedWeight):
    """The gate and value projections of an MGLU, drawn from one weight by n binary masks.

    Args:
        in_features: h.
        out_features: d.
        n_masks: number of masks n, at least 1.
        mask_init_std: standard deviation of the initial logits.
        device, dtype: of the weight.

    Attributes:
        weight: ``(d, h)``.
        mask_logits: ``(n, d, h)``; a mask is 1 where its logit is strictly positive.

    Shapes: input ``(..., h)``; output a pair (gate, value), both ``(n, ..., d)``.

    Raises:
        TypeError, ValueError: a size that is no positive integer, or ``mask_init_std <= 0``.

    Source: arXiv 2506.23225, equations 2 and 3, appendix D.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_masks: int = 4,
        mask_init_std: float = 0.01,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.in_features = whole("in_features", in_features)
        self.out_features = whole("out_features", out_features)
        super().__init__(in_features, out_features, n_masks, mask_init_std, device, dtype)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gate and value, both ``(n, ..., d)``, of ``x`` (..., h)."""
        return self.project(x)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, n_masks={self.n_masks}"


@dataclass(frozen=True)
class MaskStats:
    """What the masks of one layer look like.

    Attributes:
        density: share of ones of each mask.
        flip_rate: share of each mask's entries that changed since the statistics were last
            taken; NaN the first time.
        dead_rows: share of the rows of all masks that are all ones or all zeros. Gate or value
            is zero there, so such a mask adds nothing to its hidden unit.
    """

    density: tuple[float, ...]
    flip_rate: tuple[float, ...]
    dead_rows: float


class MGLU(MaskedWeight):
    """Masked gated linear unit with its output projection: a gated feed-forward block.

    ``y = (sum_i g(x (M_i * W)) * (x ((1 - M_i) * W))) W_o`` with one weight W and n masks. With
    `top_k`, a router keeps the k largest of the n logits ``x W_r`` and weighs the terms by the
    softmax over them (appendix B.2).

    Args:
        hidden_size: h.
        intermediate_size: d.
        n_masks: number of masks n; the paper recommends 4.
        activation: g: "silu" (SwiMGLU), "gelu" (GeMGLU) or "relu" (ReMGLU).
        bias: adds a bias to the output projection; the paper has none.
        top_k: how many masks a token uses; None for all of them, each with weight 1.
        mask_init_std: standard deviation of the initial mask logits.
        implementation: "fast" computes n + 1 products, "reference" the 2 n of the definition.
        device, dtype: of the weights; mask logits stay in at least fp32.

    Attributes:
        weight: ``(d, h)``.
        mask_logits: ``(n, d, h)``.
        down_proj: `torch.nn.Linear` from d to h.
        router: `torch.nn.Linear` from h to n, or None without `top_k`.

    Shapes: input ``(..., h)``, output ``(..., h)``.

    Raises:
        TypeError, ValueError: an argument outside its range, named in the message.

    Source: arXiv 2506.23225, equations 1 to 3.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        n_masks: int = 4,
        activation: str = "silu",
        bias: bool = False,
        top_k: int | None = None,
        mask_init_std: float = 0.01,
        implementation: str = "fast",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.hidden_size = whole("hidden_size", hidden_size)
        self.intermediate_size = whole("intermediate_size", intermediate_size)
        super().__init__(hidden_size, intermediate_size, n_masks, mask_init_std, device, dtype)
        self.activation = one_of("activation", activation, tuple(ACTIVATIONS))
        self.implementation = one_of("implementation", implementation, ("fast", "reference"))
        self.down_proj = nn.Linear(
            intermediate_size, hidden_size, bias=bias, device=device, dtype=dtype
        )
        self.top_k = top_k
        self.router: nn.Linear | None = None
        if top_k is not None:
            if whole("top_k", top_k) > n_masks:
                raise ValueError(f"top_k: got {top_k}, wants 1 to n_masks = {n_masks}")
            self.router = nn.Linear(hidden_size, n_masks, bias=False, device=device, dtype=dtype)
        self._last_masks: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, ``(..., h)``, for ``x`` (..., h).

        Raises TypeError where `x` is no floating tensor, ValueError where its last axis is not h.
        """
        g = ACTIVATIONS[self.activation]
        if self.implementation == "reference":
            terms = mglu_terms(x, self.weight, self.mask_logits, g)
        else:
            gate, value = self.project(x)
            terms = g(gate) * value
        if self.router is not None and self.top_k is not None:
            terms = terms * route(self.router(x), self.top_k)
        return self.down_proj(terms.sum(0))

    def pack(self, dtype: torch.dtype | None = None, layout: str = "planes") -> PackedMGLU:
        """This block for inference, its masks as bits; see `PackedMGLU.from_mglu`."""
        from assay.papers.mglu.packed import PackedMGLU

        return PackedMGLU.from_mglu(self, dtype=dtype, layout=layout)

    @torch.no_grad()
    def mask_stats(self) -> MaskStats:
        """Density of each mask, and how much of it flipped since the last call.

        Warns where more than 1 % of the rows are all ones or all zeros.
        """
        masks = self.hard_masks().flatten(2)
        last, self._last_masks = self._last_masks, masks
        flips = (
            torch.full((self.n_masks,), math.nan)
            if last is None
            else (masks != last.to(masks.device)).float().mean((1, 2))
        )
        dead = (masks.all(-1) | ~masks.any(-1)).float().mean().item()
        if dead > _DEAD_SHARE:
            warnings.warn(
                f"{dead:.1%} of the mask rows are all ones or all zeros and add nothing to "
                "their hidden unit; check the decay and learning rate of the mask logits",
                stacklevel=2,
            )
        density = masks.float().mean((1, 2))
        return MaskStats(tuple(density.tolist()), tuple(flips.tolist()), dead)

    def extra_repr(self) -> str:
        routed = "" if self.top_k is None else f", top_k={self.top_k}"
        return (
            f"{self.hidden_size}, {self.intermediate_size}, n_masks={self.n_masks}, "
            f"activation={self.activation}{routed}"
        )


class SwiMGLU(MGLU):
    """`MGLU` with SiLU as its gate: the paper's recommended block.

    Args:
        hidden_size: h.
        intermediate_size: d.
        n_masks: number of masks n.
        **options: the other arguments of `MGLU`.

    Shapes: input ``(..., h)``, output ``(..., h)``.

    Raises:
        TypeError, ValueError: as `MGLU`.
    """

    def __init__(
        self, hidden_size: int, intermediate_size: int, n_masks: int = 4, **options: Any
    ) -> None:
        if "activation" in options:
            raise TypeError("activation: SwiMGLU is the MGLU with SiLU; use MGLU for another one")
        super().__init__(hidden_size, intermediate_size, n_masks, "silu", **options)


def route(logits: Tensor, top_k: int) -> Tensor:
    """Weights of the masks for each token: the softmax over the `top_k` largest logits, else 0.

    Args:
        logits: ``(..., n)``.
        top_k: how many to keep, 1 to n.

    Returns:
        ``(n, ..., 1)``.
    """
    kept, index = logits.topk(top_k, dim=-1)
    shares = kept.softmax(-1).to(logits.dtype)  # autocast on a GPU takes a softmax to fp32
    weights = torch.zeros_like(logits).scatter(-1, index, shares)
    return weights.movedim(-1, 0).unsqueeze(-1)
