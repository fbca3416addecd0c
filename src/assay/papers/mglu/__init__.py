"""Masked gated linear units: one weight matrix and learned binary masks instead of gate and value.

    from assay.papers.mglu import SwiMGLU
    block = SwiMGLU(hidden_size=768, intermediate_size=3072, n_masks=4)

"Masked Gated Linear Unit", Tajima, Inoue, Sekikawa, Sato and Yokota, arXiv 2506.23225.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.mglu.conversion import (
        LlamaMGLUMLP,
        pack_model,
        param_groups,
        replace_mlp,
        swimglu_mlp,
    )
    from assay.papers.mglu.cost import DecodeCost, decode_cost
    from assay.papers.mglu.layer import MGLU, MaskedLinear, MaskStats, SwiMGLU
    from assay.papers.mglu.packed import PackedMGLU

__all__ = [
    "MGLU",
    "DecodeCost",
    "LlamaMGLUMLP",
    "MaskStats",
    "MaskedLinear",
    "PackedMGLU",
    "SwiMGLU",
    "decode_cost",
    "pack_model",
    "param_groups",
    "replace_mlp",
    "swimglu_mlp",
]

_HOMES = {
    "conversion": ["LlamaMGLUMLP", "pack_model", "param_groups", "replace_mlp", "swimglu_mlp"],
    "cost": ["DecodeCost", "decode_cost"],
    "layer": ["MGLU", "MaskStats", "MaskedLinear", "SwiMGLU"],
    "packed": ["PackedMGLU"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
