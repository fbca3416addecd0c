"""The JSON of an export, checked field by field when it is read."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    StrictInt,
    ValidationError,
)

from assay.ledger.artifacts import FILE_NAME
from assay.ledger.floats import decode_float
from assay.ledger.machine import describe
from assay.study import Scale, Status, Trial

SCHEMA = 1
"""Raised when the layout changes in a way that an older assay cannot read."""


class ExportError(ValueError):
    """An export that cannot be read or written; the message names the place inside the file."""


def _param(value: Any) -> Any:
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"got {value!r}, wants text, a finite number, true or false")


def _file_name(name: str) -> str:
    if not FILE_NAME.fullmatch(name):
        raise ValueError(f"got {name!r}, wants a file name of letters, digits, . _ -")
    return name


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"got {text[:40]!r}, wants text that UTF-8 can hold") from error
    return text


def _after_year_one(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"got {moment}, wants a moment within the years 1 to 9999") from error


def _environment(environment: dict[str, Any]) -> dict[str, Any]:
    try:
        describe(environment)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"its machine cannot be read ({error})") from error
    return environment


Moment = Annotated[AwareDatetime, AfterValidator(_after_year_one)]
Text = Annotated[str, AfterValidator(_text)]
Float = Annotated[float, BeforeValidator(decode_float)]
Param = Annotated[Any, AfterValidator(_param)]
Seconds = Annotated[float, BeforeValidator(decode_float), Field(ge=0, allow_inf_nan=False)]


class FileModel(BaseModel):
    """A file that a trial saved."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[StrictInt, Field(ge=0)]


class TrialModel(BaseModel):
    """One trial; what is empty may be left out."""

    key: str
    params: dict[str, Param] = {}
    seed: Annotated[StrictInt, Field(ge=0)]
    status: Status
    seconds: Seconds
    started: Moment
    finished: Moment
    environment: Annotated[StrictInt, Field(ge=0)]
    metrics: dict[str, Float] = {}
    series: dict[str, list[tuple[Float, Float]]] = {}
    files: dict[Annotated[str, AfterValidator(_file_name)], FileModel] = {}
    error: Text = ""


class ExportModel(BaseModel):
    """The whole file. `machine` and `verdicts` are for human readers."""

    paper: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    study_version: Annotated[StrictInt, Field(ge=0)]
    scale: Scale
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]
    assay: str
    verdicts: list[dict[str, Any]] = []
    environments: Annotated[
        list[Annotated[dict[str, Any], AfterValidator(_environment)]], Field(min_length=1)
    ]
    trials: Annotated[list[TrialModel], Field(min_length=1)]


def read_model(path: Path) -> ExportModel:
    """The export at `path`. Raises ExportError."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ExportError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise ExportError(f"{path}: is not JSON ({error})") from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ExportError(f"{path}: schema: missing; this is no export of assay")
    if schema > SCHEMA:
        raise ExportError(
            f"{path}: schema: got {schema}, this assay reads {SCHEMA}; pip install -U assay"
        )
    try:
        model = ExportModel.model_validate(content)
    except ValidationError as error:
        raise ExportError(f"{path}: {_first(error)}") from error
    for index, trial in enumerate(model.trials):
        _check(model, trial, f"{path}: trials[{index}]")
    return model


def _first(error: ValidationError) -> str:
    """Where the first of the errors is, and what it is."""
    first = error.errors(include_url=False)[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    others = error.error_count() - 1
    more = f" (and {others} more)" if others else ""
    return f"{where.lstrip('.')}: {first['msg'].removeprefix('Value error, ')}{more}"


def _check(export: ExportModel, trial: TrialModel, where: str) -> None:
    if trial.environment >= len(export.environments):
        raise ExportError(
            f"{where}.environment: got {trial.environment}, there are {len(export.environments)}"
        )
    key = Trial(trial.params, trial.seed).key(export.paper, export.study_version, export.scale)
    if trial.key != key:
        raise ExportError(f"{where}.key: does not belong to these params and this seed")
