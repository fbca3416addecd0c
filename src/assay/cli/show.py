"""`assay list`, `assay show` and `assay data`: what there is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from assay import registry
from assay.cli import tables
from assay.ledger import Ledger
from assay.study import Outcome, Scale
from assay.study.judge import asked
from assay.toolkits.data import MissingData, data_roots, find_data
from assay.verdicts import verdicts

console = tables.console


def papers(ledger_url: str | None, scale: Scale, as_json: bool) -> None:
    """Prints every paper with how many of its claims got which verdict."""
    rows = []
    with Ledger.open(ledger_url) as ledger:
        for slug in registry.slugs():
            results = ledger.results(slug, scale, registry.study(slug).version)
            found = verdicts(slug, scale, results) if results else ()
            counts = Counter(verdict.outcome for verdict in found)
            rows.append((registry.paper(slug), counts))
    if as_json:
        content = [
            {
                "paper": p.slug,
                "title": p.title,
                "area": p.area,
                "summary": p.summary,
                "installed": not registry.missing_modules(p.slug),
                "scale": str(scale),
                "verdicts": {str(o): counts[o] for o in Outcome if counts[o]},
            }
            for p, counts in rows
        ]
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    grid = Table(show_lines=console.width < 100)
    for column in ("paper", "what it does", "area", f"verdicts ({scale})"):
        grid.add_column(column)
    for paper, counts in rows:
        words = [Text(f"{counts[o]} {o}", tables.STYLES[o]) for o in Outcome if counts[o]]
        grid.add_row(
            paper.slug,
            Text(paper.summary),
            Text(paper.area),
            Text(", ").join(words) if words else Text("not run"),
        )
    console.print(grid)


def paper(slug: str) -> None:
    """Prints a paper: its bibliography, how its method is used, and its claims with their tests."""
    about, study = registry.paper(slug), registry.study(slug)
    console.print(f"[bold]{escape(about.title)}[/bold]")
    console.print(Text(f"{', '.join(about.authors)}. {about.venue}. {about.url}"))
    console.print(Text(about.summary))
    code = "no official code"
    if about.code:
        code = f"official code: {about.code} (licence: {about.licence})"
    console.print(Text(code))
    missing = registry.missing_modules(slug)
    extra = f"not installed: pip install 'assay[{slug}]'" if missing else "installed"
    console.print(Text(f"extra assay[{slug}]: {extra}\n"))
    if example := usage(slug):
        console.print(Syntax(example, "python", background_color="default", word_wrap=True))
    grid = Table(show_lines=True)
    grid.add_column("claim", no_wrap=True)
    for column in ("statement", "the paper's figure", "setting", "test", "measured at"):
        grid.add_column(column)
    for claim in study.claims:
        grid.add_row(
            claim.id,
            Text(claim.statement),
            Text(claim.figure),
            Text(f"{claim.setting} ({claim.source})"),
            Text("\n".join(dict.fromkeys(asked(claim.test_at(s)) for s in claim.protocol))),
            Text("\n".join(f"{s} ({p})" for s, p in claim.protocol.items())),
        )
    console.print(grid)
    console.print(Text(f"run it: assay run {slug}"))


def usage(slug: str) -> str:
    """The example of the paper's card; empty where it has none."""
    card = registry.room(slug) / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    match = re.search(r"^## Use\n.*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return match.group(1) if match else ""


def data(slugs: Sequence[str]) -> None:
    """Prints what data each paper reads, at which scales, and where they were found."""
    grid = Table(show_lines=True)
    for column in ("paper", "data", "what", "licence", "scales", "found"):
        grid.add_column(column)
    absent: dict[str, bool] = {}
    for slug in slugs:
        sources = registry.paper(slug).data
        if not sources:
            grid.add_row(slug, "", "needs none beyond what its extra installs")
        for source in sources:
            try:
                found = Text(str(find_data(slug, source.name)), "green")
            except MissingData:
                found = Text("no", "red")
                absent[slug] = absent.get(slug, False) or bool(source.files)
            grid.add_row(
                slug,
                source.name,
                Text(source.summary),
                Text(source.licence),
                ", ".join(source.scales),
                found,
            )
    console.print(grid)
    for slug, fetchable in absent.items():
        roots = " or ".join(str(root) for root in data_roots(slug))
        fetch = f", or run: assay data fetch {slug}" if fetchable else ""
        console.print(
            Text(
                f"{slug}: put them in {roots}, or name a folder that holds {slug}/ with "
                f"--data or ASSAY_DATA{fetch}"
            )
        )
