"""Sampling from an unnormalised density by averaging, without training or inner chains.

"Sampling by averaging: A multiscale approach to score estimation", Cordero-Encinar, Duncan, Reich
and Akyildiz, NeurIPS 2025.
"""

from assay.papers.multalmc.cdiff import CriticallyDampedOU, OverdampedOU

__all__ = ["CriticallyDampedOU", "OverdampedOU"]
