"""The gate functions that blocks and kernels know, in the order of the kernels' codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "relu": F.relu,
}
"""g by name: that of SwiMGLU, GeMGLU and ReMGLU."""

CODES = {name: code for code, name in enumerate(ACTIVATIONS)}
"""Numbers that stand for them in kernels."""


def check_input(name: str, x: Any, size: int) -> None:
    """Raises TypeError or ValueError where `x` is no floating tensor of shape (..., size)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {type(x).__name__}, wants a tensor")
    if not x.is_floating_point():
        raise TypeError(f"{name}: got {x.dtype}, wants a floating dtype")
    if x.ndim == 0 or x.shape[-1] != size:
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, wants (..., {size})")
