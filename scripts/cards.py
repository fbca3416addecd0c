"""Writes the tables of measurements in the cards and in README.md from the files under results/.

    python scripts/cards.py            # rewrite what lies between the markers
    python scripts/cards.py --check    # exit 1 where something would change

A card has `<!-- measured:laptop -->` ... `<!-- /measured -->`, README.md has
`<!-- verdicts:laptop -->` ... `<!-- /verdicts -->`. No figure in them is typed by hand.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from assay import registry
from assay.ledger import Export
from assay.report import shipped_exports
from assay.study import Outcome, Scale, Verdict
from assay.verdicts import verdicts

ROOT = Path(__file__).parents[1]


def measured(slug: str, scale: Scale) -> str:
    """A paper's claims with what the shipped export of a scale says of them."""
    export = shipped(slug, scale)
    if export is None:
        return f"Nothing measured at {scale} scale is shipped: `assay run {slug} --scale {scale}`."
    lines = [
        f"Measured {export.date} on {export.machine}, at {scale} scale, with assay {export.assay}.",
        "",
        "| claim | what it says | the paper's figure | measured | protocol | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for verdict in judged(export):
        claim = registry.study(slug).claim(verdict.claim)
        cells = [
            claim.id,
            claim.statement,
            claim.figure,
            verdict.reason,
            str(verdict.protocol or ""),
            f"**{verdict.outcome}**",
        ]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def overview(scale: Scale) -> str:
    """All papers with how many of their claims got which verdict."""
    lines = ["| paper | what its method does | verdicts |", "| --- | --- | --- |"]
    for slug in registry.slugs():
        export = shipped(slug, scale)
        counts = Counter(v.outcome for v in judged(export)) if export else Counter()
        words = ", ".join(f"{counts[o]} {o}" for o in Outcome if counts[o]) or "not measured yet"
        paper = registry.paper(slug)
        link = f"[{slug}](src/assay/papers/{slug}/README.md)"
        lines.append(f"| {link}: {paper.title} | {paper.summary} | {words} |")
    return "\n".join(lines)


def shipped(slug: str, scale: Scale) -> Export | None:
    """The shipped export of a paper and scale by the study's present version."""
    version = registry.study(slug).version
    found = [e for e in shipped_exports(slug) if e.scale is scale and e.version == version]
    return found[0] if found else None


def judged(export: Export) -> list[Verdict]:
    """The verdicts that the study's present tests give on the export's trials."""
    return verdicts(export.slug, export.scale, export.results, here=False)


def rewrite(path: Path, name: str, content: Callable[[Scale], str], *, check: bool) -> bool:
    """Fills in the marked parts of a file; True where that changes it."""
    old = path.read_text("utf-8")
    pattern = re.compile(rf"(<!-- {name}:(\w+) -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new = pattern.sub(lambda m: f"{m[1]}{content(Scale(m[2]))}\n{m[3]}", old)
    if new != old and not check:
        path.write_text(new, "utf-8")
    return new != old


def main() -> int:
    """Rewrites or checks all of them."""
    check = "--check" in sys.argv[1:]
    changed = []
    for slug in registry.slugs():
        card = registry.room(slug) / "README.md"
        if rewrite(card, "measured", lambda scale, s=slug: measured(s, scale), check=check):
            changed.append(card)
    if rewrite(ROOT / "README.md", "verdicts", overview, check=check):
        changed.append(ROOT / "README.md")
    for path in changed:
        print(f"{'differs' if check else 'rewrote'}: {path.relative_to(ROOT)}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
