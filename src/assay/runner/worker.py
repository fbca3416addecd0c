"""What runs in a worker process: one trial after another, until the driver hangs up."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from assay.runner.context import TrialContext
from assay.runner.plan import load_study
from assay.runner.task import Reply, Task
from assay.study import Status, Study

_WATCH_SECONDS = 0.5


def main(descriptor: int, driver: int) -> None:
    """Answers tasks on a connection, until it is closed or the driver is gone.

    Args:
        descriptor: file descriptor of this end of the connection.
        driver: process id of the driver.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    threading.Thread(target=_watch, args=(driver,), daemon=True).start()
    faulthandler.enable()
    folder = Path.cwd()
    connection = Connection(descriptor)
    while True:
        try:
            task = connection.recv()
        except (EOFError, ConnectionError):
            return
        os.chdir(folder)
        connection.send(_run(task))


def _watch(driver: int) -> None:
    """Ends this process and those that it started once the driver is gone, however it went."""
    while os.getppid() == driver:
        time.sleep(_WATCH_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _run(task: Task) -> Reply:
    _redirect(task.log)
    start = time.perf_counter()
    try:
        return _attempt(task)
    except BaseException as error:
        # Also SystemExit and the like: nothing a trial raises may end its worker.
        seconds = time.perf_counter() - start
        return Reply(Status.RAISED, error=_explain(error), seconds=seconds)
    finally:
        faulthandler.cancel_dump_traceback_later()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _redirect(log: Path) -> None:
    """Sends what this process prints, from Python or below it, to the trial's log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _attempt(task: Task) -> Reply:
    planned = task.planned
    study = load_study(planned.study)
    context = TrialContext(planned, task.scratch, task.threads)
    # A thread of faulthandler's own, below the interpreter: it also ends a trial that holds the
    # global lock, or whose driver is gone, and first prints where the trial was.
    faulthandler.dump_traceback_later(planned.trial.time_limit, exit=True)
    start = time.perf_counter()
    answer = study.run(planned.trial, context)
    seconds = time.perf_counter() - start
    return Reply(Status.OK, _metrics(study, answer), context.series, context.files, seconds=seconds)


def _metrics(study: Study, answer: object) -> dict[str, float]:
    """The metrics as floats. Raises TypeError, saying what is wrong with them."""
    where = f"{type(study).__name__}.run"
    if not isinstance(answer, Mapping):
        raise TypeError(f"{where}: returned {type(answer).__name__}, wants a mapping of metrics")
    for name, value in answer.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"{where}: metric {name!r}: wants a name")
        if not _is_number(value):
            raise TypeError(f"{where}: metric {name!r}: got {type(value).__name__}, wants a number")
    return {name: float(value) for name, value in answer.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def _explain(error: BaseException) -> str:
    """One line that says what happened, then the traceback from the study's own code on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    first = " ".join("".join(traceback.format_exception_only(error)).split())
    return "".join(
        [f"{first}\n\n", *traceback.format_exception(type(error), error, frames)]
    ).rstrip()
