"""Captures of moving scenes: posed images with times, in the layouts that people have."""

from assay.papers.treesplat.datasets.dnerf import save_capture
from assay.papers.treesplat.datasets.frames import Capture, DynamicDataset, Frame, TimeScale
from assay.papers.treesplat.datasets.load import load_capture
from assay.papers.treesplat.datasets.poses import PoseError

__all__ = [
    "Capture",
    "DynamicDataset",
    "Frame",
    "PoseError",
    "TimeScale",
    "load_capture",
    "save_capture",
]
