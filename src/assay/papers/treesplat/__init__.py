"""TreeSplat: mergeable motion trees for dynamic Gaussian splatting.

"TreeSplat: Mergeable Tree for Deformable Gaussian Splatting", Shen, Yang and Wang, NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.treesplat.basis import MotionBasis, TabulatedBasis
    from assay.papers.treesplat.config import TrainConfig
    from assay.papers.treesplat.datasets import (
        Capture,
        DynamicDataset,
        Frame,
        load_capture,
        save_capture,
    )
    from assay.papers.treesplat.losses import photometric_loss, structural_similarity
    from assay.papers.treesplat.merged_motion import MergedMotion
    from assay.papers.treesplat.metrics import evaluate, psnr
    from assay.papers.treesplat.motion import Motion, Rows
    from assay.papers.treesplat.motion_tree import MotionTree
    from assay.papers.treesplat.motions import (
        FlatMotion,
        MLPDeformation,
        PolynomialMotion,
        StaticMotion,
    )
    from assay.papers.treesplat.playback import draw, orbit, write_film
    from assay.papers.treesplat.ply import read_ply, write_ply
    from assay.papers.treesplat.rasterizer import rasterize
    from assay.papers.treesplat.scenes import CapsuleBody, Pendulum, load_gltf, render_capture
    from assay.papers.treesplat.strategy import TreeStrategy, sibling_distance
    from assay.papers.treesplat.trainer import History, Trainer
    from assay.papers.treesplat.tree_splat import GrowingParams, TreeSplat
    from assay.papers.treesplat.viewer import Viewer

__all__ = [
    "CapsuleBody",
    "Capture",
    "DynamicDataset",
    "FlatMotion",
    "Frame",
    "GrowingParams",
    "History",
    "MLPDeformation",
    "MergedMotion",
    "Motion",
    "MotionBasis",
    "MotionTree",
    "Pendulum",
    "PolynomialMotion",
    "Rows",
    "StaticMotion",
    "TabulatedBasis",
    "TrainConfig",
    "Trainer",
    "TreeSplat",
    "TreeStrategy",
    "Viewer",
    "draw",
    "evaluate",
    "load_capture",
    "load_gltf",
    "orbit",
    "photometric_loss",
    "psnr",
    "rasterize",
    "read_ply",
    "render_capture",
    "save_capture",
    "sibling_distance",
    "structural_similarity",
    "write_film",
    "write_ply",
]

_HOMES = {
    "viewer": ["Viewer"],
    "playback": ["draw", "orbit", "write_film"],
    "config": ["TrainConfig"],
    "losses": ["photometric_loss", "structural_similarity"],
    "metrics": ["evaluate", "psnr"],
    "trainer": ["History", "Trainer"],
    "datasets": ["Capture", "DynamicDataset", "Frame", "load_capture", "save_capture"],
    "scenes": ["CapsuleBody", "Pendulum", "load_gltf", "render_capture"],
    "basis": ["MotionBasis", "TabulatedBasis"],
    "merged_motion": ["MergedMotion"],
    "motion": ["Motion", "Rows"],
    "motion_tree": ["MotionTree"],
    "ply": ["read_ply", "write_ply"],
    "rasterizer": ["rasterize"],
    "motions": ["FlatMotion", "MLPDeformation", "PolynomialMotion", "StaticMotion"],
    "strategy": ["TreeStrategy", "sibling_distance"],
    "tree_splat": ["GrowingParams", "TreeSplat"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
