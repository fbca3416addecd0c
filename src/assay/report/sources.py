"""Where measurements come from: the reader's ledger, and exports shipped with assay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import assay
from assay.ledger.machine import describe
from assay.report.findings import Measurement, Origin
from assay.report.numbers import count, duration
from assay.study import Results, Scale

if TYPE_CHECKING:
    from assay.ledger import Entry, Export, Ledger


def own_measurements(ledger: Ledger, slug: str) -> list[Measurement]:
    """One measurement for every scale and study version that the ledger holds of a paper."""
    groups: dict[tuple[Scale, int], list[Entry]] = {}
    for entry in ledger.entries(slug):
        groups.setdefault((entry.scale, entry.version), []).append(entry)
    found = []
    for (scale, version), entries in groups.items():
        days = [e.finished.date() for e in entries]
        machines = _distinct(describe(e.environment) for e in entries)
        origin = Origin(own=True, machine="; ".join(machines), date=_span(min(days), max(days)))
        results = ledger.results(slug, scale, version)
        facts = _facts(origin, version, results, entries)
        found.append(Measurement(scale, origin, results, version, facts))
    return found


def shipped_measurement(export: Export) -> Measurement:
    """An export as a measurement."""
    origin = Origin(own=False, machine=export.machine, date=export.date)
    facts = _facts(origin, export.version, export.results, export.entries)
    return Measurement(export.scale, origin, export.results, export.version, facts)


def shipped_exports(slug: str) -> list[Export]:
    """The measurements of a paper that come with assay, smallest scale first.

    They lie in `results/<slug>/` of the repository, or in the installed package.
    """
    from assay.ledger import read_export

    folder = results_folder() / slug
    paths = [folder / f"{scale}.json" for scale in Scale]
    return [read_export(path) for path in paths if path.is_file()]


def results_folder() -> Path:
    """The folder of shipped results; it need not exist."""
    package = Path(assay.__file__).parent
    installed = package / "_results"
    return installed if installed.is_dir() else package.parents[1] / "results"


def _facts(
    origin: Origin, version: int, results: Results, entries: Sequence[Entry]
) -> dict[str, str]:
    """The provenance of a measurement; what differed between its runs is listed side by side."""
    environments = [e.environment for e in entries]
    seeds = sorted({r.seed for r in results})
    broken = sum(not r.ok for r in results)
    trials = count(len(results), "trial")

    def seen(name: str) -> str:
        return ", ".join(_distinct(str(e[name]) for e in environments if e.get(name)))

    facts = {
        "machine": origin.machine,
        "measured": origin.date,
        "trials": f"{trials}, {broken} of them failed" if broken else trials,
        "time": f"{duration(sum(r.seconds for r in results))} of work",
        "seeds": _ranges(seeds),
        "study version": str(version),
        "assay": ", ".join(_distinct(_release(e) for e in environments)),
        "python": seen("python"),
        "system": seen("os"),
        "processor flags": ", ".join(_distinct(_flags(e) for e in environments)),
        "libraries": "; ".join(_distinct(_libraries(e) for e in environments)),
    }
    return {name: value for name, value in facts.items() if value}


def _release(environment: Mapping[str, Any]) -> str:
    if not environment.get("assay"):
        return ""
    commit = f", commit {environment['commit'][:10]}" if environment.get("commit") else ""
    return f"{environment['assay']}{commit}{' with changes' if environment.get('dirty') else ''}"


def _flags(environment: Mapping[str, Any]) -> str:
    return " ".join((environment.get("cpu") or {}).get("flags") or ())


def _libraries(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in (environment.get("libraries") or {}).items())


def _distinct(words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word]


def _span(first: date, last: date) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _ranges(numbers: Sequence[int]) -> str:
    """ "0 to 4, 7" for 0, 1, 2, 3, 4, 7."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    words = [f"{a} to {b}" if b > a + 1 else f"{a}, {b}" if b > a else str(a) for a, b in runs]
    return ", ".join(words)
