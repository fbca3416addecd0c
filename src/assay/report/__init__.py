"""The report: each paper's claims beside what was measured, as a static site.

It opens from disk and asks the network for nothing. `build_report` is all that is needed.
"""

from assay.report.build import build_report
from assay.report.sources import shipped_exports

__all__ = ["build_report", "shipped_exports"]
