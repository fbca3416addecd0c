"""What trials left behind, as judges and figures read it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, overload

from assay.study.vocabulary import Param, Trial


def identity(params: Mapping[str, Param], seed: int) -> Hashable:
    """What tells one trial of a study and scale from another.

    1, 1.0 and True are equal in Python but different parameters in the ledger's key.
    """
    return seed, tuple(sorted((k, type(v).__name__, v) for k, v in params.items()))


class Status(StrEnum):
    """How a trial ended."""

    OK = "ok"
    RAISED = "raised"  # its code raised an exception
    CRASHED = "crashed"  # its process ended without an answer
    TIMEOUT = "timeout"
    MEMORY = "memory"  # its process held more than its limit


@dataclass(frozen=True)
class Result:
    """One trial of the ledger.

    `metrics` are scalars (NaN where undefined); `series` are curves, name -> [(step, value), ...];
    `files` are what the trial saved, name -> path. `error` is empty unless the trial failed: one
    line that says what happened, then the traceback and what was printed last.
    """

    key: str
    params: Mapping[str, Param]
    seed: int
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def what_happened(self) -> str:
        """The first line of the error, else the status."""
        return next(iter(self.error.strip().splitlines()), str(self.status))

    def value(self, name: str) -> Param | None:
        """The parameter `name`, or the seed for "seed"; None where the trial has no such one."""
        return self.seed if name == "seed" else self.params.get(name)


class Results(Sequence[Result]):
    """An immutable list of results that can be narrowed by parameters."""

    def __init__(self, items: Sequence[Result] = ()) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        return Results(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._items)

    def where(self, **params: Param) -> Results:
        """Those whose params (or `seed`) equal all the given ones."""
        return Results([r for r in self if all(r.value(k) == v for k, v in params.items())])

    def of(self, trials: Iterable[Trial]) -> Results:
        """Those of the given trials: of equal params, also in type, and equal seed."""
        wanted = {identity(trial.params, trial.seed) for trial in trials}
        return Results([r for r in self if identity(r.params, r.seed) in wanted])

    @property
    def ok(self) -> Results:
        """Those that ended well."""
        return Results([r for r in self if r.ok])

    def metric(self, name: str) -> list[float]:
        """The metric's value in every result that has it, in order."""
        return [r.metrics[name] for r in self if name in r.metrics]

    def distinct(self, param: str) -> list[Param]:
        """The values that a parameter takes, in order of first appearance."""
        return list(dict.fromkeys(v for r in self if (v := r.value(param)) is not None))


def grouped(found: Iterable[Result], param: str, order: Iterable[Param] = ()) -> dict[Any, Results]:
    """Results by the value of a parameter.

    Args:
        found: The results.
        param: The parameter's name, or "seed".
        order: Values that come first, as far as they are there; the others follow, rising.
    """
    groups: dict[Any, list[Result]] = {}
    for result in found:
        groups.setdefault(result.value(param), []).append(result)
    first = [value for value in order if value in groups]
    rest = sorted(groups.keys() - set(first))
    return {value: Results(groups[value]) for value in [*first, *rest]}
