"""`assay psmbench`: extract, score, draw and validate state machines in files."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Protocol state machines: extract them from an RFC, score, draw and validate them.",
)


class MetricName(StrEnum):
    """The metrics of `PSMScorer`."""

    OFFICIAL = "official"
    STRICT = "strict"


class MergerName(StrEnum):
    """The mergers of `PSMExtractor`."""

    DETERMINISTIC = "deterministic"
    LLM = "llm"
    HYBRID = "hybrid"


class LabelStyle(StrEnum):
    """How `draw` writes labels."""

    AUTO = "auto"
    FULL = "full"
    NUMBERED = "numbered"


Machine = Annotated[Path, typer.Argument(metavar="FILE", help="A machine as JSON.")]


@app.command()
def extract(
    source: Annotated[
        Path, typer.Argument(metavar="RFC", help="Text of an RFC, or a *_segments.json file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the machine goes (JSON).")],
    model: Annotated[
        str, typer.Option(help="The server's name of the model.", envvar="ASSAY_LLM_MODEL")
    ],
    base_url: Annotated[
        str | None,
        typer.Option(
            help="A server with the OpenAI chat interface. [default: OPENAI_BASE_URL, else OpenAI]",
            envvar="ASSAY_LLM_BASE_URL",
        ),
    ] = None,
    protocol: Annotated[str, typer.Option(help="Its name. [default: the file's]")] = "",
    merger: Annotated[MergerName, typer.Option(help="How sections' machines are merged.")] = (
        MergerName.DETERMINISTIC
    ),
    concurrency: Annotated[int, typer.Option(help="Calls at once.", min=1)] = 8,
    context_window: Annotated[
        int | None, typer.Option(help="Tokens that the model takes; longer sections are cut.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens of the longest reply.", min=1)] = 8192,
    cache: Annotated[
        Path | None, typer.Option(help="File of recorded replies: a second run goes on from it.")
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="US dollars; stops before more.")] = None,
    max_calls: Annotated[int | None, typer.Option(help="Calls; stops before more.")] = None,
    structured: Annotated[
        bool, typer.Option("--structured", help="Let the server enforce a JSON schema.")
    ] = False,
) -> None:
    """Extract the state machine of an RFC with a language model."""
    from assay.papers.psmbench.document import RFCDocument, read_sections
    from assay.papers.psmbench.extract import PSMExtractor
    from assay.toolkits.llm import Budget, Client, RemoteBackend, ReplyCache

    if not output.parent.is_dir():
        raise ValueError(f"--output: {output.parent} is no folder")
    if source.suffix == ".json":
        sections = read_sections(source)
    else:
        sections = RFCDocument.from_text(source).clean().sections()
    backend = RemoteBackend(model, base_url, context_window=context_window, concurrency=concurrency)
    client = Client(
        backend,
        cache=ReplyCache(cache) if cache else None,
        budget=Budget(max_cost, max_calls),
    )
    extractor = PSMExtractor(client, merger.value, max_tokens=max_tokens, structured=structured)
    extraction = extractor.extract(protocol or source.stem, sections)
    for error in extraction.errors:
        typer.echo(f"warning: {error}", err=True)
    if all(partial.error for partial in extraction.partials):
        raise ValueError(f"{source}: no section could be read, see the warnings; nothing written")
    extraction.psm.to_file(output)
    cost = "unknown" if extraction.cost is None else f"{extraction.cost:.4f} US dollars"
    typer.echo(
        f"{output}: {len(extraction.psm.states)} states, "
        f"{len(extraction.psm.transitions)} transitions from {len(extraction.partials)} calls, "
        f"cost {cost}"
    )


@app.command()
def score(
    pred: Annotated[Path, typer.Argument(metavar="PRED", help="The extracted machine.")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="The true machine.")],
    metric: Annotated[MetricName, typer.Option(help="The paper's, or the repaired one.")] = (
        MetricName.OFFICIAL
    ),
    threshold: Annotated[float, typer.Option(help="Least similarity of a match.")] = 0.5,
    matcher: Annotated[
        str, typer.Option(help="all-MiniLM-L6-v2, exact, token-sort or tfidf.")
    ] = "all-MiniLM-L6-v2",
    explain: Annotated[
        bool, typer.Option("--explain", help="List what matched, what was missed and what is new.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False,
) -> None:
    """Score an extracted machine against the true one."""
    from assay.papers.psmbench.machine import ProtocolStateMachine
    from assay.papers.psmbench.score import PSMScorer

    scorer = PSMScorer(matcher, threshold, metric.value)
    found = ProtocolStateMachine.from_file(pred, lenient=True)
    true = ProtocolStateMachine.from_file(gold)
    if found.repairs:
        first = found.repairs[0]
        typer.echo(f"warning: {pred}: {len(found.repairs)} repairs, first {first}", err=True)
    result = scorer.score(found, true)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2, ensure_ascii=False))
        return
    typer.echo(f"{'':12}{'matched':>8}{'found':>7}{'true':>6}{'P':>8}{'R':>8}{'F1':>8}")
    for name, prf in (("states", result.states), ("transitions", result.transitions)):
        typer.echo(
            f"{name:12}{prf.matched:8}{prf.extracted:7}{prf.gold:6}"
            f"{prf.precision:8.3f}{prf.recall:8.3f}{prf.f1:8.3f}"
        )
    if explain:
        for match in result.matches:
            typer.echo(
                f"= {match.kind} {match.gold}  <-  {match.predicted}  ({match.similarity:.2f})"
            )
        for kind, text in result.unmatched_gold:
            typer.echo(f"- {kind} {text}")
        for kind, text in result.spurious:
            typer.echo(f"+ {kind} {text}")


@app.command()
def draw(
    machine: Machine,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The ending names the format: svg, pdf, png, dot, scxml."
        ),
    ],
    title: Annotated[str, typer.Option(help="A line above the drawing.")] = "",
    labels: Annotated[LabelStyle, typer.Option(help="Texts at the arrows, or a numbered list.")] = (
        LabelStyle.AUTO
    ),
) -> None:
    """Draw a machine, or write it for Graphviz (dot) or as SCXML."""
    from assay.papers.psmbench import drawing
    from assay.papers.psmbench.machine import ProtocolStateMachine
    from assay.toolkits.files import write_text

    found = ProtocolStateMachine.from_file(machine, lenient=True)
    if output.suffix == ".dot":
        write_text(output, found.to_dot())
    elif output.suffix == ".scxml":
        write_text(output, found.to_scxml())
    else:
        drawing.draw(found, output, title=title, labels=labels.value)
    typer.echo(str(output))


@app.command()
def validate(
    machines: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Machines as JSON.")],
    errors_only: Annotated[
        bool, typer.Option("--errors-only", help="Leave out what is merely unusual.")
    ] = False,
) -> None:
    """Check machines: format, undeclared states, duplicates, states out of reach.

    Exits with 1 where a machine has errors, with 2 where a file cannot be read.
    """
    from assay.papers.psmbench.machine import ProtocolStateMachine

    broken = False
    for path in machines:
        machine = ProtocolStateMachine.from_file(path)
        issues = machine.check(strict=not errors_only)
        broken |= any(issue.severity == "error" for issue in issues)
        for issue in issues:
            typer.echo(f"{path}: {issue.severity}: {issue}")
        if not issues:
            typer.echo(
                f"{path}: {len(machine.states)} states, {len(machine.transitions)} transitions, "
                "nothing wrong"
            )
    if broken:
        raise typer.Exit(1)
