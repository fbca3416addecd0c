"""The report, from the ledger and what the repository ships."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.ledger import Ledger, home
from assay.report import build_report, shipped_exports


def write(slugs: Sequence[str], ledger_url: str | None, out: Path | None) -> Path:
    """Builds the site, by default below home(); returns its front page."""
    folder = (out or home() / "report").resolve()
    shipped = [export for slug in slugs for export in shipped_exports(slug)]
    with Ledger.open(ledger_url) as ledger:
        return build_report(folder, ledger=ledger, shipped=shipped, slugs=list(slugs))
