"""`assay run`: plan, execute, print the verdicts, write the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from assay.cli import options, progress, tables
from assay.ledger import Ledger
from assay.runner import Plan, execute, make_plans
from assay.study import Scale
from assay.study.judge import describe


def run(
    slugs: Sequence[str],
    scale: Scale,
    *,
    claims: Sequence[str] | None,
    budget: float | None,
    seeds: Sequence[int] | None,
    overrides: dict[str, str],
    jobs: int | None,
    fresh: bool,
    dry_run: bool,
    strict: bool,
    report: bool,
    as_json: bool,
    data: Path | None,
    ledger_url: str | None,
) -> int:
    """Runs the studies; the arguments are the options of `assay run`. Returns the exit code."""
    options.use_data(data)
    with Ledger.open(ledger_url) as ledger:
        plans = make_plans(
            slugs,
            scale,
            ledger=ledger,
            seeds=seeds,
            overrides=overrides or None,
            claims=claims,
            budget=budget,
            fresh=fresh,
            jobs=jobs,
        )
        say = progress.json_lines if as_json else tables.console.print
        for line in _plan_lines(plans):
            say(line)
        if dry_run:
            return 0
        try:
            with progress.watching(plans, as_json) as watch:
                summary = execute(plans, ledger, jobs=jobs, on_event=watch)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("finished trials are kept") from None
        found = {plan.slug: tables.of_paper(plan.slug, scale, ledger) for plan in plans}

    every = [verdict for some in found.values() for verdict in some]
    if as_json:
        for slug, some in found.items():
            for verdict in some:
                print(json.dumps({"event": "verdict", **tables.as_dict(slug, verdict)}))
    else:
        for slug, some in found.items():
            tables.console.print(tables.table(slug, scale, some))
    if seeds or overrides:
        say("verdicts are those of the study's own trials: --seeds and --set ran others")
    if report:
        from assay.cli import reporting  # matplotlib and templates, for those who want the page

        page = reporting.write(slugs, ledger_url, None)
        say({"event": "report", "path": str(page)} if as_json else f"report: {page}")
    return 1 if summary.failed else tables.exit_code(every, strict=strict)


def _plan_lines(plans: Sequence[Plan]) -> list[str]:
    """What will be run, what not, and why, a line each."""
    lines = []
    for plan in plans:
        counts = f"{len(plan.todo)} trials to run (about {progress.duration(plan.seconds)})"
        lines.append(f"{plan.slug}: {counts}, {len(plan.done)} already in the ledger")
        needs = dict.fromkeys(describe(need) for p in plan.blocked for need in p.missing)
        lines += [f"{plan.slug}: {len(plan.blocked)} trials wait for {need}" for need in needs]
        lines += [
            f"{plan.slug}: {left.claim} left out, it takes about {progress.duration(left.seconds)}"
            for left in plan.left_out
        ]
    return lines
