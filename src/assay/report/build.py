"""From a ledger and shipped exports to the site."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay import registry
from assay.report.card import Card
from assay.report.pages import paper_page
from assay.report.site import write_site
from assay.report.sources import own_measurements, shipped_measurement

if TYPE_CHECKING:
    from assay.ledger import Export, Ledger


def build_report(
    out: Path,
    *,
    ledger: Ledger | None,
    shipped: Sequence[Export],
    slugs: Iterable[str] | None = None,
) -> Path:
    """Writes the report as a static site that opens from disk.

    The site is built beside `out` and moved there at the end, so a build that is stopped leaves
    the old report as it was.

    Args:
        out: folder of the site; a report that is there is replaced.
        ledger: the reader's own measurements; None for none.
        shipped: measurements that come with assay, such as `shipped_exports` gives.
        slugs: the papers to show, in this order; None for all.

    Returns:
        The path of its front page.

    Raises:
        UnknownPaper: a slug names no paper.
        ValueError: `out` is a file, or a folder that holds something else than a report.
        OSError: the place cannot be written.
    """
    pages = []
    for slug in registry.slugs() if slugs is None else slugs:
        paper, study = registry.paper(slug), registry.study(slug)
        measurements = [shipped_measurement(e) for e in shipped if e.slug == slug]
        if ledger is not None:
            measurements += own_measurements(ledger, slug)
        card = Card.read(registry.room(slug) / "README.md")
        pages.append(paper_page(paper, study, card, measurements))
    return write_site(out, pages)
