"""The commands. Each imports what it needs when it is called, so that help stays instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from assay import __version__, registry
from assay.cli import options
from assay.cli.lazy import DefaultGroup, PapersGroup
from assay.study.vocabulary import Scale

app = typer.Typer(
    cls=PapersGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="NeurIPS 2025 papers made executable: use the method, run the claims, read the verdict.",
    epilog="Exit codes: 0 done, 1 some trial failed, 2 usage, 3 a claim did not hold (--strict).",
)
data_app = typer.Typer(
    cls=DefaultGroup,
    invoke_without_command=True,
    help="What data each scale needs, where it was looked for and what was found; or fetch it.",
)
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"assay {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks instead of one line.")] = False,
) -> None:
    pass


@app.command("list")
def list_papers(
    ledger: options.LedgerOption = None,
    scale: options.OneScale = Scale.LAPTOP,
    as_json: options.AsJson = False,
) -> None:
    """All papers, with their verdicts at a glance."""
    from assay.cli import show

    show.papers(ledger, scale, as_json)


@app.command("show")
def show_paper(paper: Annotated[str, typer.Argument(help="Slug.")]) -> None:
    """One paper: what its method does, how to use it, what it claims and how that is tested."""
    from assay.cli import show

    show.paper(paper)


@app.command()
def run(
    papers: options.Papers = None,
    scale: options.OneScale = Scale.LAPTOP,
    claims: Annotated[
        str | None,
        typer.Option("--claims", metavar="IDS", help="Only these: C1,C3 or mglu:C2."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="Claims that fit, the cheapest first: 90s, 10m, 1h30m."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="N|LIST", help="How many seeds, or which: 5 or 0,3,7."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a parameter of the trials."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Trials at a time. [default: cores]"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run again what the ledger holds.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, run nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 3 if a claim is contradicted or not reproduced.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report afterwards.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per event.")] = False,
    data: options.Data = None,
    ledger: options.LedgerOption = None,
) -> None:
    """Run the studies of papers, and print what they say of each claim.

    Trials that the ledger holds are not run again. Stop at any time; the same command goes on.
    """
    from assay.cli import run as command

    for slug in papers or ():
        registry.require(slug)
    code = command.run(
        options.chosen(papers),
        scale,
        claims=None if claims is None else options.parse_claims(claims),
        budget=None if budget is None else options.parse_duration(budget),
        seeds=None if seeds is None else options.parse_seeds(seeds),
        overrides=options.parse_overrides(overrides),
        jobs=jobs,
        fresh=fresh,
        dry_run=dry_run,
        strict=strict,
        report=report,
        as_json=as_json,
        data=data,
        ledger_url=ledger,
    )
    raise typer.Exit(code)


@app.command()
def verdicts(
    papers: options.Papers = None,
    scale: options.OneScale = Scale.LAPTOP,
    as_json: options.AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 3 if a claim is contradicted or not reproduced.")
    ] = False,
    data: options.Data = None,
    ledger: options.LedgerOption = None,
) -> None:
    """What the ledger says of each claim."""
    from assay.cli import tables

    options.use_data(data)
    raise typer.Exit(
        tables.print_verdicts(options.chosen(papers), scale, ledger, as_json=as_json, strict=strict)
    )


@app.command()
def report(
    papers: options.Papers = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. [default: .assay/report]")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    data: options.Data = None,
    ledger: options.LedgerOption = None,
) -> None:
    """Write the report: a web page with every claim, verdict, figure and picture."""
    from assay.cli import reporting

    options.use_data(data)
    page = reporting.write(options.chosen(papers), ledger, out)
    print(page)
    if open_it:
        typer.launch(page.as_uri())


@data_app.command("show", hidden=True)
def data_show(papers: options.Papers = None, data: options.Data = None) -> None:
    """What each scale needs and what was found."""
    from assay.cli import show

    options.use_data(data)
    show.data(options.chosen(papers))


@data_app.callback()
def _data(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        from assay.cli import show

        show.data(options.chosen(None))


@data_app.command("fetch")
def data_fetch(
    papers: Annotated[list[str], typer.Argument(metavar="PAPER...", help="Slugs.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Fetch a paper's data into the cache; address, licence and checksum are shown first."""
    from assay.cli import fetch

    fetch.fetch(options.chosen(papers), yes=yes)


@app.command()
def doctor(data: options.Data = None, as_json: options.AsJson = False) -> None:
    """This machine: hardware, installed extras, which scales can run and why others cannot."""
    from assay.cli import doctor as command

    options.use_data(data)
    command.doctor(as_json)


@app.command("export")
def export_results(
    papers: options.Papers = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder.")] = Path("results"),
    scale: Annotated[Scale | None, typer.Option("--scale", help="Only this one.")] = None,
    form: Annotated[
        Literal["json", "csv", "parquet"], typer.Option("--format", help="What to write.")
    ] = "json",
    ledger: options.LedgerOption = None,
) -> None:
    """Write the ledger's trials as files: OUT/<paper>/<scale>.json, .csv or .parquet."""
    from assay.cli import exchange

    exchange.export(options.chosen(papers), out, scale, form, ledger)


@app.command("import")
def import_results(
    source: Annotated[Path, typer.Argument(help="An export's file or folder.")],
    ledger: options.LedgerOption = None,
) -> None:
    """Read an export into the ledger; trials that it holds already are left as they are."""
    from assay.cli import exchange

    exchange.import_(source, ledger)
