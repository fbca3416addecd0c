"""What each page shows, and the files it links to. Templates turn it into HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.report.card import Card
from assay.report.figures import Drawn, draw, file_name, listed
from assay.report.findings import ClaimFindings, Measurement, examine, order, tally
from assay.report.numbers import label
from assay.study import Outcome, Paper, Result, Results, Scale, Study, Table

PICTURES = frozenset({".png", ".gif", ".jpg", ".jpeg", ".webp", ".svg"})
MOST_PICTURES = 24
WIDE = 700  # CSS pixels; half a page is about 580
TRACEBACK_LINES = 30


@dataclass(frozen=True)
class Plot:
    """A drawn figure and the addresses of its files."""

    drawn: Drawn
    light: str
    dark: str

    @property
    def wide(self) -> bool:
        """True where its words would be too small in half the width of the page."""
        return self.drawn.width > WIDE


@dataclass(frozen=True)
class Picture:
    """An image that a trial saved."""

    address: str
    name: str
    trial: str


@dataclass(frozen=True)
class Failure:
    """A trial that broke, with the end of its traceback."""

    trial: str
    status: str
    summary: str
    traceback: str


@dataclass(frozen=True)
class Shown:
    """One measurement with all that is shown of it. `pictures_left_out` are beyond the limit."""

    measurement: Measurement
    plots: tuple[Plot, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    pictures_left_out: int
    failures: tuple[Failure, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class PaperPage:
    """One paper's page. `outdated` are measurements of an earlier version of its study."""

    paper: Paper
    version: int
    claims: tuple[ClaimFindings, ...]
    shown: tuple[Shown, ...]
    outdated: tuple[Measurement, ...]
    card: Card
    assets: dict[str, bytes | Path] = field(repr=False)

    @property
    def slug(self) -> str:
        return self.paper.slug

    @property
    def tally(self) -> dict[Outcome | None, int]:
        return tally(self.claims)

    @property
    def scales(self) -> list[Scale]:
        """The scales that stand behind the outcomes, smallest first."""
        used = {c.headline.measurement.scale for c in self.claims if c.headline}
        return [scale for scale in Scale if scale in used]

    @property
    def plotted(self) -> list[Shown]:
        """Measurements with something to look at."""
        return [s for s in self.shown if s.plots or s.pictures or s.tables]

    @property
    def failed(self) -> list[Shown]:
        return [s for s in self.shown if s.failures]


def paper_page(
    paper: Paper, study: Study, card: Card, measurements: Sequence[Measurement]
) -> PaperPage:
    """Judges a paper's claims, draws its figures and gathers what its page links to."""
    ordered = sorted(measurements, key=order)
    assets: dict[str, bytes | Path] = {}
    return PaperPage(
        paper=paper,
        version=study.version,
        claims=tuple(examine(paper.slug, study, ordered)),
        shown=tuple(
            _show(paper.slug, study, m, assets) for m in ordered if m.version == study.version
        ),
        outdated=tuple(m for m in ordered if m.version != study.version),
        card=card,
        assets=assets,
    )


def _show(
    slug: str, study: Study, measurement: Measurement, assets: dict[str, bytes | Path]
) -> Shown:
    # Trials of other settings, as --set and --seeds run them, belong in no figure of the study.
    results, problems = measurement.results.of(study.trials(measurement.scale)), []
    folder = f"{slug}/{measurement.name}"
    figures, problem = listed(study.figures(results.ok))
    problems += [f"figures: {problem}"] if problem else []
    plots = tuple(_plot(draw(figure), folder, assets) for figure in figures)
    tables, problem = _tables(study, results.ok)
    problems += [f"tables: {problem}"] if problem else []
    pictures, lost = _pictures(results.ok, folder, assets)
    problems += lost
    return Shown(
        measurement=measurement,
        plots=plots,
        tables=tables,
        pictures=pictures[:MOST_PICTURES],
        pictures_left_out=max(0, len(pictures) - MOST_PICTURES),
        failures=tuple(_failure(r) for r in results if not r.ok),
        problems=tuple(problems),
    )


def _plot(drawn: Drawn, folder: str, assets: dict[str, bytes | Path]) -> Plot:
    name = f"{folder}/{file_name(drawn.figure.name)}"
    plot = Plot(drawn, f"{name}.light.svg", f"{name}.dark.svg")
    if not drawn.error:
        assets[plot.light], assets[plot.dark] = drawn.light, drawn.dark
    return plot


def _tables(study: Study, results: Results) -> tuple[tuple[Table, ...], str]:
    try:
        return tuple(study.tables(results)), ""
    except Exception as error:  # a study's broken table must not cost the reader the page
        return (), f"{type(error).__name__}: {error}"


def _pictures(
    results: Iterable[Result], folder: str, assets: dict[str, bytes | Path]
) -> tuple[tuple[Picture, ...], list[str]]:
    found: list[Picture] = []
    lost: list[str] = []
    for result in results:
        trial = label(result.params, result.seed)
        for name, path in sorted(result.files.items()):
            suffix = Path(name).suffix.lower()
            if suffix not in PICTURES:
                continue
            if not path.is_file():
                lost.append(f"picture {name} of {trial}: its file is gone")
                continue
            stem = file_name(f"{result.key[:12]}-{name.removesuffix(Path(name).suffix)}")
            address = f"{folder}/{stem}{suffix}"
            if len(found) < MOST_PICTURES:
                assets[address] = path
            found.append(Picture(address, name, trial))
    return tuple(found), lost


def _failure(result: Result) -> Failure:
    lines = result.error.strip().splitlines()
    tail = lines[-TRACEBACK_LINES:]
    if len(lines) > len(tail):
        tail = [f"... {len(lines) - len(tail)} lines before", *tail]
    return Failure(
        trial=label(result.params, result.seed),
        status=str(result.status),
        summary=lines[-1] if lines else "no message",
        traceback="\n".join(tail),
    )
