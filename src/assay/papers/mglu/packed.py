"""The inference form of an MGLU block: one matrix, masks as bits, one read of both a token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.papers.mglu.activation import ACTIVATIONS, check_input
from assay.papers.mglu.kernels import BACKENDS, mglu_hidden
from assay.papers.mglu.layer import MGLU, WEIGHT_DTYPES, route
from assay.papers.mglu.packing import LAYOUTS, mask_shape, pack_masks
from assay.toolkits.checks import one_of, whole


class PackedMGLU(nn.Module):
    """An `MGLU` for inference, whose masks take one bit (or all together one byte) a weight.

    Args:
        hidden_size: h.
        intermediate_size: d.
        n_masks: 1 to 16 for planes, 1 to 8 for bytes.
        activation: "silu", "gelu" or "relu".
        layout: "planes" (n bits a weight) or "bytes" (8 bits a weight); see `packing`.
        bias, top_k: as in `MGLU`.
        backend: "triton" (GPU), "cpu" (native, else numba), "torch" (dense, any device) or
            "auto", the first of these that can run. It may be changed at any time.
        device, dtype: of the weights.

    Attributes:
        weight: buffer ``(d, h)``.
        mask_bits: buffer, uint8, ``(n, d, ceil(h / 8))`` or ``(d, h)``.
        down_proj: `torch.nn.Linear`, frozen.

    Shapes: input ``(..., h)``, output ``(..., h)``. Sums run in fp32 whatever the dtype; the
    output has the dtype of the input.

    Raises:
        TypeError, ValueError: an argument outside its range.
        RuntimeError: called in train mode or with an input that requires a gradient.
    """

    weight: Tensor
    mask_bits: Tensor

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        n_masks: int = 4,
        activation: str = "silu",
        layout: str = "planes",
        bias: bool = False,
        top_k: int | None = None,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = whole("hidden_size", hidden_size)
        self.intermediate_size = whole("intermediate_size", intermediate_size)
        self.n_masks = whole("n_masks", n_masks)
        self.activation = one_of("activation", activation, tuple(ACTIVATIONS))
        self.layout = layout
        self.backend = one_of("backend", backend, BACKENDS)
        self.top_k = top_k
        weight = torch.zeros(intermediate_size, hidden_size, device=device, dtype=dtype)
        if weight.dtype not in WEIGHT_DTYPES:
            raise ValueError(f"dtype: got {dtype}, wants float16, bfloat16, float32 or float64")
        shape = mask_shape(n_masks, intermediate_size, hidden_size, layout)
        self.register_buffer("weight", weight)
        self.register_buffer("mask_bits", torch.zeros(shape, dtype=torch.uint8, device=device))
        self.down_proj = nn.Linear(
            intermediate_size, hidden_size, bias=bias, device=device, dtype=dtype
        )
        self.router: nn.Linear | None = None
        if top_k is not None:
            if whole("top_k", top_k) > n_masks:
                raise ValueError(f"top_k: got {top_k}, wants 1 to n_masks = {n_masks}")
            self.router = nn.Linear(hidden_size, n_masks, bias=False, device=device, dtype=dtype)
        self.requires_grad_(False).eval()

    @classmethod
    def from_mglu(
        cls, mglu: MGLU, dtype: torch.dtype | None = None, layout: str = "planes"
    ) -> PackedMGLU:
        """Packs a trained block.

        Args:
            mglu: the block; it is left as it is.
            dtype: of the packed weights; None keeps that of the block.
            layout: "planes" or "bytes".

        Raises:
            TypeError: `mglu` is no MGLU.
            ValueError: more masks than the layout holds, or a dtype that is none of weights.
        """
        if not isinstance(mglu, MGLU):
            raise TypeError(
                f"mglu: got {type(mglu).__name__}, wants an MGLU; a gated block without masks "
                "cannot be converted, as masks are learned together with the weights"
            )
        packed = cls(
            mglu.hidden_size,
            mglu.intermediate_size,
            mglu.n_masks,
            mglu.activation,
            layout,
            bias=mglu.down_proj.bias is not None,
            top_k=mglu.top_k,
            device=mglu.weight.device,
            dtype=dtype or mglu.weight.dtype,
        )
        with torch.no_grad():
            packed.weight.copy_(mglu.weight)
            packed.mask_bits.copy_(pack_masks(mglu.hard_masks(), layout))
            packed.down_proj.load_state_dict(mglu.down_proj.state_dict())
            if packed.router is not None and mglu.router is not None:
                packed.router.load_state_dict(mglu.router.state_dict())
        return packed

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, ``(..., h)``, for ``x`` (..., h).

        Raises:
            RuntimeError: in train mode, or if a gradient of `x` is wanted.
            TypeError: `x` is no floating tensor.
            ValueError: the last axis of `x` is not h, or the backend cannot run here.
        """
        check_input("x", x, self.hidden_size)
        if self.training or (x.requires_grad and torch.is_grad_enabled()):
            raise RuntimeError("packed weights are inference only; use MGLU")
        tokens = x.reshape(-1, self.hidden_size).to(self.weight.dtype)
        scale = None
        if self.router is not None and self.top_k is not None:
            scale = route(self.router(tokens), self.top_k).squeeze(-1).float()
        hidden = mglu_hidden(
            tokens,
            self.weight,
            self.mask_bits,
            self.n_masks,
            self.layout,
            self.activation,
            scale=scale,
            backend=self.backend,
        )
        return self.down_proj(hidden).reshape(*x.shape[:-1], self.hidden_size).to(x.dtype)

    def weight_bytes(self) -> int:
        """Bytes of weights and masks that the gated projection reads for one token."""
        return self.weight.nbytes + self.mask_bits.nbytes

    def extra_repr(self) -> str:
        return (
            f"{self.hidden_size}, {self.intermediate_size}, n_masks={self.n_masks}, "
            f"activation={self.activation}, layout={self.layout}, backend={self.backend}"
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "n_masks"] = torch.tensor(self.n_masks)
        destination[prefix + "layout"] = torch.tensor(LAYOUTS.index(self.layout))

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        own = {"n_masks": self.n_masks, "layout": LAYOUTS.index(self.layout)}
        given = {name: state_dict.get(prefix + name) for name in own}
        for name, value in given.items():
            if value is None:
                missing_keys.append(prefix + name)
            elif value.numel() != 1:
                error_msgs.append(
                    f"{prefix}{name}: got shape {tuple(value.shape)}, wants one number"
                )
            elif int(value) != own[name]:
                got: Any = int(value)
                wants: Any = own[name]
                if name == "layout":
                    got, wants = (LAYOUTS[i] if i in (0, 1) else i for i in (got, wants))
                error_msgs.append(f"{prefix}{name}: got {got}, wants {wants}")
        super()._load_from_state_dict(
            {k: v for k, v in state_dict.items() if k not in {prefix + name for name in own}},
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
