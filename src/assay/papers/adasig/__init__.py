"""Sigmoid clipping with a learned slope for training with differential privacy, in Opacus.

    from assay.papers.adasig import AdaSigPrivacyEngine
    model, optimizer, loader = AdaSigPrivacyEngine().make_private(..., clipping="adasig")

"Adaptive Sigmoid Clipping for Balancing the Direction-Magnitude Mismatch Trade-off in
Differentially Private Learning", Moradi Kalarde, Liang, Bereyhi and Dong, NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.adasig.clipping import (
        adasig_slope_weight,
        adasig_weight,
        auto_s_weight,
        auto_v_weight,
        flat_weight,
        nsgd_weight,
        per_sample_norms,
        psac_weight,
    )
    from assay.papers.adasig.distributed import (
        DistributedAdaSigDPOptimizer,
        DistributedAdaSigDPOptimizerFastGradientClipping,
    )
    from assay.papers.adasig.engine import AdaSigPrivacyEngine
    from assay.papers.adasig.ghost import AdaSigDPOptimizerFastGradientClipping, NormWeightedLoss
    from assay.papers.adasig.optimizer import (
        AdaSigDPOptimizer,
        Diagnostics,
        NormWeightedDPOptimizer,
    )
    from assay.papers.adasig.privacy import equivalent_multiplier, sensitivity, split_noise

__all__ = [
    "AdaSigDPOptimizer",
    "AdaSigDPOptimizerFastGradientClipping",
    "AdaSigPrivacyEngine",
    "Diagnostics",
    "DistributedAdaSigDPOptimizer",
    "DistributedAdaSigDPOptimizerFastGradientClipping",
    "NormWeightedDPOptimizer",
    "NormWeightedLoss",
    "adasig_slope_weight",
    "adasig_weight",
    "auto_s_weight",
    "auto_v_weight",
    "equivalent_multiplier",
    "flat_weight",
    "nsgd_weight",
    "per_sample_norms",
    "psac_weight",
    "sensitivity",
    "split_noise",
]

_HOMES = {
    "clipping": [
        "adasig_slope_weight",
        "adasig_weight",
        "auto_s_weight",
        "auto_v_weight",
        "flat_weight",
        "nsgd_weight",
        "per_sample_norms",
        "psac_weight",
    ],
    "distributed": [
        "DistributedAdaSigDPOptimizer",
        "DistributedAdaSigDPOptimizerFastGradientClipping",
    ],
    "engine": ["AdaSigPrivacyEngine"],
    "ghost": ["AdaSigDPOptimizerFastGradientClipping", "NormWeightedLoss"],
    "optimizer": ["AdaSigDPOptimizer", "Diagnostics", "NormWeightedDPOptimizer"],
    "privacy": ["equivalent_multiplier", "sensitivity", "split_noise"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
