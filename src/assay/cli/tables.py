"""Verdicts as a table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay import registry
from assay.ledger import Ledger
from assay.study import Claim, Outcome, Scale, Verdict
from assay.study.judge import describe
from assay.verdicts import verdicts

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {
    Outcome.SUPPORTED: "green",
    Outcome.CONTRADICTED: "bold red",
    Outcome.NOT_REPRODUCED: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NEEDS: "dim",
    Outcome.FAILED: "bold white on red",
}
_NARROWEST_TABLE = 120  # columns; below that a table breaks its sentences into single words
DID_NOT_HOLD = (Outcome.CONTRADICTED, Outcome.NOT_REPRODUCED)

console = Console(highlight=False)


def of_paper(slug: str, scale: Scale, ledger: Ledger) -> list[Verdict]:
    """The verdicts on a paper's claims from what the ledger holds."""
    study = registry.study(slug)
    return verdicts(slug, scale, ledger.results(slug, scale, study.version))


def print_verdicts(
    slugs: Iterable[str], scale: Scale, ledger_url: str | None, *, as_json: bool, strict: bool
) -> int:
    """Prints the verdicts on each paper's claims; returns the exit code."""
    with Ledger.open(ledger_url) as ledger:
        found = {slug: of_paper(slug, scale, ledger) for slug in slugs}
    if as_json:
        rows = [as_dict(slug, v) for slug, some in found.items() for v in some]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        for slug, some in found.items():
            console.print(table(slug, scale, some))
    return exit_code((v for some in found.values() for v in some), strict=strict)


def exit_code(found: Iterable[Verdict], *, strict: bool) -> int:
    """3 where a claim did not hold and that was asked for, else 0."""
    return 3 if strict and any(v.outcome in DID_NOT_HOLD for v in found) else 0


def table(slug: str, scale: Scale, found: Iterable[Verdict]) -> RenderableType:
    """A paper's verdicts: claim, the paper's figure, what was measured, verdict."""
    paper, study = registry.paper(slug), registry.study(slug)
    if console.width < _NARROWEST_TABLE:
        return _lines(slug, f"{slug}: {paper.title} ({scale})", found)
    grid = Table(
        title=f"{slug}: {paper.title} ({scale})",
        title_justify="left",
        title_style="bold",
        expand=False,
    )
    grid.add_column("claim", no_wrap=True)
    grid.add_column("statement", ratio=4)
    grid.add_column("the paper's figure", ratio=3)
    grid.add_column("measured", ratio=4)
    grid.add_column("protocol", no_wrap=True)
    grid.add_column("verdict", no_wrap=True)
    for verdict in found:
        claim = study.claim(verdict.claim)
        grid.add_row(
            claim.id,
            Text(claim.statement),
            Text(claim.figure),
            Text(verdict.reason),
            verdict.protocol or "",
            outcome(verdict),
        )
    return grid


def _lines(slug: str, title: str, found: Iterable[Verdict]) -> RenderableType:
    """Verdicts below each other, where columns would have no room for words."""
    text = Text(title, style="bold")
    for verdict in found:
        claim = registry.study(slug).claim(verdict.claim)
        protocol = f" ({verdict.protocol})" if verdict.protocol else ""
        text.append(f"\n{verdict.claim}{protocol}: ", style="not bold")
        text.append(str(verdict.outcome), style=f"not bold {STYLES[verdict.outcome]}")
        text.append(f"\n  {claim.statement}\n  paper: {claim.figure}", style="not bold")
        text.append(f"\n  measured: {verdict.reason}", style="not bold")
    return text


def outcome(verdict: Verdict) -> Text:
    """The outcome in its colour."""
    return Text(str(verdict.outcome), style=STYLES[verdict.outcome])


def as_dict(slug: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict beside its claim, for JSON; undefined numbers are null."""
    claim: Claim = registry.study(slug).claim(verdict.claim)
    return {
        "paper": slug,
        "claim": claim.id,
        "statement": claim.statement,
        "figure": claim.figure,
        "setting": claim.setting,
        "source": claim.source,
        "scale": str(verdict.scale),
        "protocol": verdict.protocol and str(verdict.protocol),
        "verdict": str(verdict.outcome),
        "effect": _finite(verdict.effect),
        "low": _finite(verdict.low),
        "high": _finite(verdict.high),
        "n": verdict.n,
        "asked": verdict.asked,
        "reason": verdict.reason,
        "needs": [describe(need) for need in verdict.needs],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
