"""The gate functions that blocks and kernels know, in the order of the kernels' codes."""

from __future__ import annotations

from collections.abc import Callable

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
