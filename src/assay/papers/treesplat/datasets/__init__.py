"""Captures of moving scenes: posed images with times, in the layouts that people have."""

from assay.papers.treesplat.datasets.frames import Capture, DynamicDataset, Frame, TimeScale

__all__ = ["Capture", "DynamicDataset", "Frame", "TimeScale"]
