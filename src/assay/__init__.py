"""assay: NeurIPS 2025 papers whose methods can be imported and whose claims can be run."""

__version__ = "0.1.0"
