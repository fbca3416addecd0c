"""Runs plans and writes the ledger."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from assay.ledger.entry import Entry
from assay.ledger.home import LedgerError
from assay.runner.environment import capture_environment
from assay.runner.events import (
    Event,
    RunFinished,
    RunStarted,
    Summary,
    TrialFinished,
    TrialStarted,
    count,
)
from assay.runner.executor import Answer, Executor
from assay.runner.local import LocalExecutor
from assay.runner.plan import Plan, Planned
from assay.study import Status

if TYPE_CHECKING:
    from assay.ledger import Ledger


def execute(
    plans: Sequence[Plan],
    ledger: Ledger,
    *,
    jobs: int | None = None,
    executor: Executor | str = "local",
    on_event: Callable[[Event], None] = lambda event: None,
    command: Sequence[str] | None = None,
) -> Summary:
    """Runs what the plans have to do and records each trial as soon as it ends.

    Trials that want the machine for themselves come last, so that it is emptied once.

    Args:
        plans: of `make_plan` or `make_plans`.
        ledger: written by this process alone, one transaction a trial.
        jobs: most trials at a time; None for as many as there are cores.
        executor: "local", or an object that runs trials elsewhere.
        on_event: told what happens, in order, in this thread.
        command: how the run was called, for the ledger; None for the process's own arguments.

    Raises KeyboardInterrupt after the workers were stopped; what had ended by then is in the
    ledger. Raises LedgerError where it cannot be written.
    """
    todo = [planned for plan in plans for planned in plan.todo]
    todo.sort(key=lambda planned: planned.trial.exclusive)
    skipped = sum(len(plan.done) for plan in plans)
    blocked = sum(len(plan.blocked) for plan in plans)
    chosen = _executor(executor, ledger, jobs)
    start = time.monotonic()
    run = ledger.start_run(sys.argv if command is None else command, capture_environment())
    try:
        on_event(RunStarted(run, len(todo), skipped, blocked))
        counts = _run(chosen, todo, ledger, run, on_event)
    except BaseException as error:
        with suppress(LedgerError):  # what went wrong first is what the caller should see
            stopped = isinstance(error, KeyboardInterrupt)
            ledger.finish_run(run, "interrupted" if stopped else "broken")
        raise
    ledger.finish_run(run, "finished")
    summary = Summary(run, count(counts), skipped, blocked, time.monotonic() - start)
    on_event(RunFinished(summary))
    return summary


def _executor(executor: Executor | str, ledger: Ledger, jobs: int | None) -> Executor:
    if not isinstance(executor, str):
        return executor
    if executor != "local":
        raise ValueError(f"executor: got {executor!r}, wants 'local' or an Executor")
    return LocalExecutor(ledger.folder, jobs)


def _run(
    executor: Executor,
    todo: Sequence[Planned],
    ledger: Ledger,
    run: int,
    on_event: Callable[[Event], None],
) -> Counter[Status]:
    counts: Counter[Status] = Counter()
    with closing(executor.run(todo)) as progress:
        for item in progress:
            if isinstance(item, TrialStarted):
                on_event(item)
                continue
            result = ledger.record(run, _entry(item))
            counts[result.status] += 1
            on_event(TrialFinished(item.planned, result))
    return counts


def _entry(answer: Answer) -> Entry:
    planned = answer.planned
    return Entry(
        slug=planned.slug,
        version=planned.version,
        scale=planned.scale,
        result=answer.result,
        started=answer.started,
        finished=answer.finished,
    )
