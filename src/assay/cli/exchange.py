"""`assay export` and `assay import`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from assay.cli import tables
from assay.ledger import Ledger, import_export
from assay.ledger import export as write_export
from assay.study import Scale, Verdict


def export(
    slugs: Sequence[str],
    out: Path,
    scale: Scale | None,
    form: Literal["json", "csv", "parquet"],
    ledger_url: str | None,
) -> None:
    """Writes the trials of papers as files and prints their paths."""
    with Ledger.open(ledger_url) as ledger:

        def judged(slug: str, at: Scale) -> list[Verdict]:
            return tables.of_paper(slug, at, ledger)

        written = write_export(ledger, out, slugs, scale, form, judged)
    if not written:
        raise ValueError(f"the ledger holds no trial of {', '.join(slugs)}: assay run it first")
    for path in written:
        print(path)


def import_(source: Path, ledger_url: str | None) -> None:
    """Reads an export into the ledger and says how many trials were new."""
    with Ledger.open(ledger_url) as ledger:
        found = import_export(ledger, source)
    print(f"{found.added} trials imported, {found.skipped} were there already")
