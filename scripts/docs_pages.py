"""MkDocs hook: the pages that are made from what they describe.

A page for each paper (its card, its claims with the shipped verdicts, its public names), the
gallery of all papers, and the references of the command line and of the toolkits.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from assay import registry, toolkits
from assay.report import shipped_exports
from assay.report.findings import ClaimFindings, Finding, examine
from assay.report.numbers import number
from assay.report.sources import shipped_measurement
from assay.report.style import css_name
from assay.study import Outcome, Paper

_NO_HEADING = "show_root_heading: false, show_root_toc_entry: false"
_SIGNS = {
    Outcome.SUPPORTED: "✓",
    Outcome.CONTRADICTED: "✕",
    Outcome.NOT_REPRODUCED: "≠",
    Outcome.INCONCLUSIVE: "~",
    Outcome.NEEDS: "+",
    Outcome.FAILED: "!",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the papers to the navigation."""
    for entry in config.nav or []:
        if isinstance(entry, dict) and "Papers" in entry:
            # Behind the gallery, before what is proved of single papers.
            entry["Papers"][1:1] = [{slug: f"papers/{slug}.md"} for slug in registry.slugs()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    pages: dict[str, Callable[[], str]] = {
        "papers/index.md": _gallery,
        "command-line.md": _command_line,
        "reference/toolkits.md": _toolkits,
        **{f"papers/{slug}.md": lambda slug=slug: _paper_page(slug) for slug in registry.slugs()},
    }
    for path, write in pages.items():
        files.append(File.generated(config, path, content=write()))
    return files


def _gallery() -> str:
    rule = "[how a verdict is reached](../concepts.md#the-verdict-rule)"
    parts = ["# Papers", f"What the shipped measurements say of each claim: {rule}."]
    for slug in registry.slugs():
        paper = registry.paper(slug)
        claims = _claims(slug)
        parts += [f"## [{paper.title}]({slug}.md)", paper.summary, _counts(claims), _table(claims)]
    return "\n\n".join(parts)


def _paper_page(slug: str) -> str:
    paper = registry.paper(slug)
    title, _, card = (registry.room(slug) / "README.md").read_text("utf-8").partition("\n")
    claims = _claims(slug)
    return "\n\n".join(
        [
            title,
            _identity(paper),
            card.strip(),
            "## Claims",
            _counts(claims),
            _table(claims),
            "## Public names",
            *(f"::: assay.papers.{slug}.{name}" for name in _names(registry.room(slug))),
        ]
    )


def _identity(paper: Paper) -> str:
    links = [f"[paper]({paper.url})"]
    links += [f"[arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})"] if paper.arxiv else []
    links += [f"[official code]({paper.code}) ({paper.licence})"] if paper.code else []
    return f"{', '.join(paper.authors)}. {paper.venue}. {' · '.join(links)}"


def _toolkits() -> str:
    parts = [
        "# Toolkits",
        "What two or more papers share. A method may use them, and so may you.",
    ]
    for path in sorted(Path(toolkits.__path__[0]).iterdir()):
        module = f"assay.toolkits.{path.stem}"
        if path.suffix == ".py" and path.stem != "__init__":
            parts += [f"## {path.stem}", f"::: {module}\n    options: {{{_NO_HEADING}}}"]
        elif (path / "__init__.py").is_file():
            summary = ast.get_docstring(ast.parse((path / "__init__.py").read_text("utf-8"))) or ""
            parts += [f"## {path.stem}", summary, *(f"::: {module}.{n}" for n in _names(path))]
    return "\n\n".join(parts)


def _names(package: Path) -> list[str]:
    """What a package's `__all__` lists, read and not imported: the build needs no extras."""
    tree = ast.parse((package / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{package}: __all__ is missing")


def _claims(slug: str) -> list[ClaimFindings]:
    shipped = [shipped_measurement(export) for export in shipped_exports(slug)]
    return examine(slug, registry.study(slug), shipped)


def _counts(claims: Iterable[ClaimFindings]) -> str:
    # Not `tally`: what the machine that builds the pages lacks is no verdict.
    counts = Counter(c.headline.verdict.outcome if c.headline else None for c in claims)
    return " ".join(_badge(o, counts[o]) for o in (*Outcome, None) if counts[o])


def _table(claims: Iterable[ClaimFindings]) -> str:
    rows = ["| claim | the paper reports | measured | verdict |", "| --- | --- | --- | --- |"]
    for item in claims:
        claim, found = item.claim, item.headline
        cells = [
            f"**{claim.id}** {claim.statement}",
            f"**{claim.figure}**<br>{claim.setting}",
            _measured(found) if found else "",
            _badge(found.verdict.outcome) + f"<br>{found.verdict.reason}"
            if found
            else _badge(None),
        ]
        rows.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join(rows)


def _measured(found: Finding) -> str:
    verdict, measurement = found.verdict, found.measurement
    where = f"{measurement.scale} scale, {verdict.protocol}<br>{measurement.origin.label}"
    if verdict.effect != verdict.effect:
        return where
    kind = "range" if found.is_range else "95 % interval"
    interval = f"{kind} {number(verdict.low)} to {number(verdict.high)}, n = {verdict.n}"
    return f"**{number(verdict.effect)}** ({found.quantity})<br>{interval}<br>{where}"


def _badge(outcome: Outcome | None, n: int | None = None) -> str:
    word = f"{n} {outcome or 'not run'}" if n is not None else str(outcome or "not run")
    if outcome is None:
        return f'<span class="badge">{word}</span>'
    return f'<span class="badge {css_name(outcome)}">{_SIGNS[outcome]} {word}</span>'


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _command_line() -> str:
    import typer
    from typer.cli import get_docs_for_click

    from assay.cli.app import app

    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="assay")
    text = get_docs_for_click(obj=command, ctx=context, name="assay")
    return text.replace("# `assay`", "# Command line", 1)
