"""`assay doctor`: what this machine can run."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table
from rich.text import Text

from assay import registry
from assay.cli import tables
from assay.ledger import home
from assay.runner import capture_environment, missing_needs, package_needs
from assay.study import Scale
from assay.study.judge import describe


def doctor(as_json: bool) -> None:
    """Prints the machine, the extras, and per paper and scale what is missing."""
    environment = capture_environment()
    papers: dict[str, dict[str, Any]] = {
        slug: {
            "installed": not registry.missing_modules(slug),
            "scales": {str(scale): _missing(slug, scale) for scale in Scale},
        }
        for slug in registry.slugs()
    }
    if as_json:
        content = {"home": str(home()), "environment": environment, "papers": papers}
        print(json.dumps(content, indent=2))
        return
    _print_machine(environment)
    grid = Table(show_lines=True)
    for column in ("paper", "extra", *Scale):
        grid.add_column(column)
    for slug, found in papers.items():
        extra = Text("installed", "green") if found["installed"] else Text("missing", "red")
        grid.add_row(slug, extra, *(_cell(lines) for lines in found["scales"].values()))
    tables.console.print(grid)


def _missing(slug: str, scale: Scale) -> list[str]:
    """What some trial of the scale needs and this machine lacks."""
    trials = list(registry.study(slug).trials(scale))
    if not trials:
        return ["nothing to run"]
    needs = (*package_needs(slug), *(need for trial in trials for need in trial.needs))
    blocked = sum(bool(missing_needs(slug, trial.needs)) for trial in trials)
    lines = [describe(need) for need in missing_needs(slug, needs)]
    if lines and blocked < len(trials) and registry.missing_modules(slug) == []:
        lines.insert(0, f"{len(trials) - blocked} of {len(trials)} trials can run")
    return lines


def _cell(lines: list[str]) -> Text:
    return Text("\n".join(lines), "yellow") if lines else Text("can run", "green")


def _print_machine(environment: dict[str, Any]) -> None:
    cpu = environment["cpu"]
    gpus = ", ".join(gpu["name"] for gpu in environment["gpus"]) or "none"
    libraries = ", ".join(f"{k} {v}" for k, v in environment["libraries"].items())
    for line in (
        f"assay {environment['assay']}, Python {environment['python']}, {environment['os']}",
        f"CPU {cpu['model']}, {cpu['cores']} cores {' '.join(cpu['flags'])}",
        f"memory {environment['memory_gb']} GiB, GPU {gpus}",
        f"libraries: {libraries}",
        f"home: {home()}",
    ):
        tables.console.print(Text(line))
