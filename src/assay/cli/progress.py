"""What a run shows while it goes on: a live line, plain lines, or JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from assay.cli import tables
from assay.runner import Event, Plan, RunFinished, RunStarted, TrialFinished, TrialStarted
from assay.runner.plan import Planned
from assay.study import Result


@contextmanager
def watching(plans: Sequence[Plan], as_json: bool) -> Iterator[Callable[[Event], None]]:
    """What suits: JSON lines where asked for, a live line on a terminal, else plain lines."""
    if as_json:
        yield lambda event: json_lines(event.to_json())
    elif tables.console.is_terminal:
        live = _Live(plans)
        try:
            yield live
        finally:
            live.progress.stop()
    else:
        yield _Plain(plans)


def json_lines(content: str | dict[str, Any]) -> None:
    """Prints one object; text becomes a note."""
    line = {"event": "note", "text": content} if isinstance(content, str) else content
    print(json.dumps(line, ensure_ascii=False), flush=True)


def duration(seconds: float) -> str:
    """Such as "8 s", "3 min", "1 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


class _Remaining:
    """How long a run may still take: its declared cost, corrected by what finished trials took."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.started = time.monotonic()
        self.planned = sum(plan.seconds for plan in plans)
        self.cost = sum(p.trial.cost * p.trial.cpus for plan in plans for p in plan.todo)
        self.done = 0.0

    def finished(self, planned: Planned) -> None:
        self.done += planned.trial.cost * planned.trial.cpus

    def __str__(self) -> str:
        if not self.done or not self.cost:
            return f"about {duration(self.planned)} left"
        part = min(1.0, self.done / self.cost)
        return f"about {duration((time.monotonic() - self.started) * (1 - part) / part)} left"


class _Plain:
    """A line per finished trial, for logs."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.remaining = _Remaining(plans)
        self.total = self.finished = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.total = event.total
        elif isinstance(event, TrialFinished):
            self.finished += 1
            self.remaining.finished(event.planned)
            line = f"[{self.finished}/{self.total}] {outcome_line(event.planned, event.result)}"
            print(f"{line}, {self.remaining}", flush=True)


class _Live:
    """One live line on a terminal; failures stay above it."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.remaining = _Remaining(plans)
        self.running: dict[str, Planned] = {}
        self.progress = Progress(
            TextColumn("trials"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=tables.console,
            transient=True,
        )
        self.task: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            if event.total:
                self.task = self.progress.add_task("", total=event.total)
                self.progress.start()
            return
        if self.task is None or isinstance(event, RunFinished):
            return
        if isinstance(event, TrialStarted):
            self.running[event.planned.key] = event.planned
        else:
            self.running.pop(event.planned.key, None)
            self.remaining.finished(event.planned)
            self.progress.advance(self.task)
            if not event.result.ok:
                self.progress.console.print(outcome_line(event.planned, event.result), style="red")
        now = next(iter(self.running.values()), None)
        label = f"{len(self.running)} running: {name(now)}" if now else ""
        self.progress.update(self.task, description=f"{self.remaining}  {label}"[:100])


def name(planned: Planned) -> str:
    """A trial in a few words."""
    params = " ".join(f"{k}={v}" for k, v in planned.trial.params.items())
    return f"{planned.slug} {params} seed={planned.trial.seed}"


def outcome_line(planned: Planned, result: Result) -> str:
    """How a trial ended."""
    line = f"{name(planned)}: {result.status} in {duration(result.seconds)}"
    return line if result.ok else f"{line}: {result.what_happened}"
