"""Results as files: JSON that people read and assay reads back, CSV and Parquet for other tools.

`results/<slug>/<scale>.json` holds of every trial the newest result. It depends on nothing but the
results, so that exporting again what did not change writes the same bytes.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from assay.ledger.artifacts import file_sha256, write_whole
from assay.ledger.entry import Entry
from assay.ledger.exports_schema import SCHEMA, ExportError, FileModel, read_model
from assay.ledger.floats import encode_float
from assay.ledger.ledger import Ledger, newest
from assay.ledger.machine import describe, machine
from assay.study import Result, Results, Scale, Status, Verdict

Format: TypeAlias = Literal["json", "csv", "parquet"]
Judge: TypeAlias = Callable[[str, Scale], Sequence[Verdict]]

_SMALL = 200_000  # bytes; larger files are named with their hash and left where they are
_WIDTH = 100
_COPY = re.compile(r"[0-9a-f]{12}-.+")


def export(
    ledger: Ledger,
    folder: Path,
    slugs: Sequence[str],
    scale: Scale | None = None,
    format: Format = "json",
    verdicts: Judge | None = None,
) -> list[Path]:
    """Writes `folder/<slug>/<scale>.<format>` for each paper and scale that has results.

    Only trials of the newest study version in the ledger are written. JSON comes with the files
    that trials saved, where they are small, in `<scale>-files/` beside it.

    Args:
        ledger: where the results are.
        folder: made where it is missing.
        slugs: papers.
        scale: None for all.
        format: "json", "csv" (a row for each trial) or "parquet" (the same; needs pyarrow).
        verdicts: called with slug and scale; what it returns is written for human readers.

    Returns the files written, sorted. Raises ValueError for another format, ExportError where
    something cannot be written or pyarrow is missing.
    """
    if format not in ("json", "csv", "parquet"):
        raise ValueError(f"format: got {format!r}, wants 'json', 'csv' or 'parquet'")
    written = []
    for slug in dict.fromkeys(slugs):
        for at in Scale if scale is None else (scale,):
            entries = _current(ledger.entries(slug, at))
            if entries:
                path = folder / slug / f"{at}.{format}"
                judged = verdicts(slug, at) if verdicts and format == "json" else ()
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, _content(entries, path, format, judged))
                except OSError as error:
                    raise ExportError(f"{path}: cannot be written ({error.strerror})") from error
                written.append(path)
    return sorted(written)


@dataclass(frozen=True)
class Export:
    """What an export says.

    Args:
        path: the JSON file.
        slug, version, scale: paper, version of its study, scale.
        date: day on which the newest trial ended, as YYYY-MM-DD.
        assay: version of assay that ran it.
        machine: on what, in one line.
        environment: the conditions of the newest trial.
        entries: its trials; `files` of a result holds those that were exported with it.
        verdicts: what was judged when it was written; for reading only.
    """

    path: Path
    slug: str
    version: int
    scale: Scale
    date: str
    assay: str
    machine: str
    environment: Mapping[str, Any]
    entries: tuple[Entry, ...]
    verdicts: tuple[Mapping[str, Any], ...]

    @property
    def results(self) -> Results:
        return Results([entry.result for entry in self.entries])


@dataclass(frozen=True)
class Imported:
    """How many trials an import added, and how many the ledger had already."""

    added: int
    skipped: int


def read_export(path: Path) -> Export:
    """Reads a JSON export.

    Raises ExportError naming the place inside the file that is wrong, where a key does not belong
    to its trial, or where a file beside it is not the one that was exported.
    """
    model = read_model(path)
    entries = []
    for index, trial in enumerate(model.trials):
        files = {
            name: copy
            for name, file in trial.files.items()
            if (copy := _copy(path, name, file, f"trials[{index}].files.{name}"))
        }
        result = Result(
            key=trial.key,
            params=trial.params,
            seed=trial.seed,
            status=Status(trial.status),
            metrics=trial.metrics,
            series=trial.series,
            files=files,
            error=trial.error,
            seconds=trial.seconds,
        )
        entries.append(
            Entry(
                slug=model.paper,
                version=model.study_version,
                scale=model.scale,
                result=result,
                started=trial.started,
                finished=trial.finished,
                environment=model.environments[trial.environment],
            )
        )
    last = max(entries, key=lambda entry: entry.finished)
    return Export(
        path=path,
        slug=model.paper,
        version=model.study_version,
        scale=model.scale,
        date=model.date,
        assay=model.assay,
        machine=describe(last.environment),
        environment=last.environment,
        entries=tuple(entries),
        verdicts=tuple(model.verdicts),
    )


def import_export(ledger: Ledger, source: Path) -> Imported:
    """Adds the trials of an export, or of all exports below a folder, to a ledger.

    A trial that the ledger holds already is added only if it is newer. All files are read before
    the first trial is written. Raises ExportError.
    """
    paths = [source] if source.is_file() else _exports_below(source)
    added = skipped = 0
    for export in [read_export(path) for path in paths]:
        held = {e.result.key: e.finished for e in ledger.entries(export.slug, export.scale)}
        fresh = [
            e for e in export.entries if e.result.key not in held or e.finished > held[e.result.key]
        ]
        skipped += len(export.entries) - len(fresh)
        for environment, entries in _by_environment(fresh):
            run = ledger.start_run(["assay", "import", str(export.path)], environment)
            for entry in entries:
                ledger.record(run, entry)
            ledger.finish_run(run, "imported")
            added += len(entries)
    return Imported(added, skipped)


def _exports_below(folder: Path) -> list[Path]:
    paths = [p for p in sorted(folder.glob("**/*.json")) if p.stem in set(Scale)]
    if not paths:
        wants = "an export, or a folder with exports such as mglu/laptop.json"
        raise ExportError(f"{folder}: nothing to import there; wants {wants}")
    return paths


def _current(entries: Iterable[Entry]) -> list[Entry]:
    """Of every key of the newest study version the newest entry."""
    found = list(entries)
    version = max((entry.version for entry in found), default=0)
    return newest(entry for entry in found if entry.version == version)


def _by_environment(entries: Sequence[Entry]) -> list[tuple[Mapping[str, Any], list[Entry]]]:
    """The entries of each distinct environment, that of the oldest entry first."""
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.finished, entry.result.key)):
        groups.setdefault(json.dumps(entry.environment, sort_keys=True), []).append(entry)
    return [(group[0].environment, group) for group in groups.values()]


def _content(
    entries: Sequence[Entry], path: Path, format: Format, verdicts: Sequence[Verdict]
) -> bytes:
    if format == "json":
        return _json(entries, path, verdicts)
    rows = [_row(entry) for entry in entries]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns.sort(key=lambda name: [name in _COLUMNS, name.startswith("params.")], reverse=True)
    return _csv(rows, columns) if format == "csv" else _parquet(rows, columns)


def _json(entries: Sequence[Entry], path: Path, verdicts: Sequence[Verdict]) -> bytes:
    last = max(entries, key=lambda entry: entry.finished)
    groups = _by_environment(entries)
    index = {id(entry): i for i, (_, group) in enumerate(groups) for entry in group}
    content = {
        "schema": SCHEMA,
        "paper": last.slug,
        "study_version": last.version,
        "scale": str(last.scale),
        "date": last.finished.date().isoformat(),
        "assay": last.environment.get("assay", "unknown"),
        "machine": machine(last.environment),
        "verdicts": [_verdict(verdict) for verdict in verdicts],
        "environments": [environment for environment, _ in groups],
        "trials": [_trial(entry, index[id(entry)]) for entry in entries],
    }
    _copy_files(entries, _folder(path))
    return (_pretty(content) + "\n").encode()


def _trial(entry: Entry, environment: int) -> dict[str, Any]:
    result = entry.result
    trial = {
        "key": result.key,
        "params": dict(result.params),
        "seed": result.seed,
        "status": str(result.status),
        "seconds": result.seconds,
        "started": entry.started.isoformat(),
        "finished": entry.finished.isoformat(),
        "environment": environment,
        "metrics": {name: encode_float(value) for name, value in result.metrics.items()},
        "series": {
            name: [[encode_float(x), encode_float(y)] for x, y in points]
            for name, points in sorted(result.series.items())
        },
        "files": {
            name: {"sha256": file_sha256(file), "bytes": file.stat().st_size}
            for name, file in sorted(result.files.items())
            if file.is_file()
        },
        # A traceback holds paths of the machine; its first line says what happened.
        "error": result.error.partition("\n")[0],
    }
    return {name: value for name, value in trial.items() if value not in ({}, "")}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "claim": verdict.claim,
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "protocol": None if verdict.protocol is None else str(verdict.protocol),
        "effect": encode_float(verdict.effect),
        "low": encode_float(verdict.low),
        "high": encode_float(verdict.high),
        "n": verdict.n,
        "asked": verdict.asked,
    }


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.stem}-files")


def _copy_name(name: str, sha256: str) -> str:
    return f"{sha256[:12]}-{name}"


def _copy_files(entries: Sequence[Entry], folder: Path) -> None:
    """Copies small files beside the export and removes those of an earlier one."""
    wanted = {
        _copy_name(name, file_sha256(file)): file
        for entry in entries
        for name, file in entry.result.files.items()
        if file.is_file() and file.stat().st_size <= _SMALL
    }
    if folder.is_dir():
        for old in folder.iterdir():
            if old.name not in wanted and _COPY.fullmatch(old.name):
                old.unlink()
    for name, file in wanted.items():
        folder.mkdir(exist_ok=True)
        if not (folder / name).exists():
            write_whole(folder / name, file)


def _copy(path: Path, name: str, file: FileModel, where: str) -> Path | None:
    copy = _folder(path) / _copy_name(name, file.sha256)
    if not copy.is_file():
        return None
    if file_sha256(copy) != file.sha256:
        raise ExportError(f"{path}: {where}: {copy.name} is not the file that was exported")
    return copy


def _pretty(value: Any, indent: int = 0) -> str:
    """JSON with what fits on a line, and every list of numbers, on one line."""
    compact = json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = list(value.values()) if isinstance(value, dict) else value
    is_list_of_dicts = isinstance(value, list) and any(isinstance(v, dict) for v in value)
    if not (is_list_of_dicts or isinstance(value, dict)) or not inner:
        return compact
    if indent > 0 and len(compact) + indent <= _WIDTH:
        return compact
    pad = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        items = [
            f"{json.dumps(k, ensure_ascii=False)}: {_pretty(v, indent + 1)}"
            for k, v in value.items()
        ]
        return "{" + pad + f",{pad}".join(items) + pad[:-1] + "}"
    return "[" + pad + f",{pad}".join(_pretty(v, indent + 1) for v in value) + pad[:-1] + "]"


_COLUMNS = ("paper", "study_version", "scale", "key", "seed", "status", "seconds", "error")


def _row(entry: Entry) -> dict[str, Any]:
    result = entry.result
    fixed = (
        entry.slug,
        entry.version,
        str(entry.scale),
        result.key,
        result.seed,
        str(result.status),
        result.seconds,
        result.error.partition("\n")[0],
    )
    return {
        **dict(zip(_COLUMNS, fixed, strict=True)),
        **{f"params.{name}": value for name, value in result.params.items()},
        **{f"metrics.{name}": value for name, value in result.metrics.items()},
    }


def _csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    if importlib.util.find_spec("pyarrow") is None:
        raise ExportError("format parquet: needs pyarrow: pip install pyarrow, or choose csv")
    import pyarrow
    from pyarrow import parquet

    values = {name: _of_one_type([row.get(name) for row in rows]) for name in columns}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(values), buffer)
    return buffer.getvalue()


def _of_one_type(values: list[Any]) -> list[Any]:
    """The values, as text where a parameter is now a number and now a word."""
    kinds = {type(v) for v in values if v is not None}
    if len(kinds) < 2 or kinds == {int, float}:
        return values
    return [None if v is None else str(v) for v in values]
