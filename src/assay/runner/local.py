"""Runs trials in worker processes on this machine (Linux, macOS)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path

import psutil

from assay.runner.events import TrialStarted
from assay.runner.executor import Answer, Progress
from assay.runner.hardware import cores, gpu_ids
from assay.runner.plan import Planned
from assay.runner.task import Reply, Task
from assay.study import Result, Status, Trial

_POLL_SECONDS = 0.1  # how often crashes and memory are looked for
_GRACE_SECONDS = 60.0  # a worker ends itself at the limit; after this much more it is ended
_FAREWELL_SECONDS = 2.0  # what a worker may take to exit by itself
_LOG_TAIL = 4000  # bytes of a failed trial's log that go to the ledger
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class LocalExecutor:
    """Runs as many trials at a time as the cores allow, each in a worker process.

    A worker is started when it is needed and then reused by trials of as many threads and the same
    accelerators. It is replaced after a crash, a timeout, or when it held too much memory, and
    ends when the driver does.

    Args:
        folder: where logs and what trials save are put, in `logs/` and `scratch/`.
        jobs: most trials at a time; None for as many as there are cores.
    """

    def __init__(self, folder: Path, jobs: int | None = None) -> None:
        self._jobs = jobs or cores()
        self._logs = folder / "logs"
        self._scratch = folder / "scratch" / str(os.getpid())
        self._busy: list[_Worker] = []
        self._idle: list[_Worker] = []

    def run(self, trials: Sequence[Planned]) -> Generator[Progress, None, None]:
        """Runs the trials in the order given. See `assay.runner.Executor.run`."""
        _sweep(self._scratch.parent)
        self._logs.mkdir(parents=True, exist_ok=True)
        waiting = list(reversed(trials))
        try:
            while waiting or self._busy:
                while waiting and self._has_room(waiting[-1].trial):
                    planned = waiting.pop()
                    self._start(planned)
                    yield TrialStarted(planned)
                for answer in self._collect():
                    yield answer
                    shutil.rmtree(self._scratch / answer.planned.key, ignore_errors=True)
        except BaseException:
            for worker in self._idle + self._busy:
                worker.kill()
            raise
        finally:
            for worker in self._idle:
                worker.dismiss()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _has_room(self, trial: Trial) -> bool:
        running = [worker.trial for worker in self._busy]
        if not running:
            return True
        return (
            not trial.exclusive
            and not any(t.exclusive for t in running)
            and len(running) < self._jobs
            and sum(map(_threads, running)) + _threads(trial) <= cores()
            and (not trial.gpus or len(self._free_gpus()) >= trial.gpus)
        )

    def _free_gpus(self) -> list[str]:
        taken = {gpu for worker in self._busy for gpu in worker.gpus}
        return [gpu for gpu in gpu_ids() if gpu not in taken]

    def _start(self, planned: Planned) -> None:
        trial = planned.trial
        gpus = tuple(self._free_gpus()[: trial.gpus]) if trial.gpus else ()
        worker = self._worker(trial, _threads(trial), gpus)
        self._busy.append(worker)
        log = self._logs / f"{planned.key}.log"
        worker.start(Task(planned, log, self._scratch / planned.key, worker.threads))

    def _worker(self, trial: Trial, threads: int, gpus: tuple[str, ...]) -> _Worker:
        if not trial.fresh_process:
            for worker in self._idle:
                fits = (worker.threads, worker.gpus) == (threads, gpus)
                if fits and worker.can_take(trial):
                    self._idle.remove(worker)
                    return worker
        # Idle workers of another kind hold memory that this trial may want.
        while self._idle and len(self._idle) + len(self._busy) >= self._jobs:
            self._idle.pop(0).dismiss()
        return _Worker(threads, gpus)

    def _collect(self) -> list[Answer]:
        """Waits a moment for answers, and looks after workers that give none."""
        wait([worker.connection for worker in self._busy], timeout=_POLL_SECONDS)
        answers = []
        for worker in list(self._busy):
            reply = worker.poll()
            if reply is None:
                continue
            self._busy.remove(worker)
            answers.append(worker.answer(reply))
            if worker.is_broken:
                worker.kill()
            elif worker.trial.fresh_process:
                worker.dismiss()
            else:
                self._idle.append(worker)
        return answers


def _threads(trial: Trial) -> int:
    return min(trial.cpus, cores())


class _Worker:
    """A worker process, and the trial it runs."""

    task: Task

    def __init__(self, threads: int, gpus: tuple[str, ...]) -> None:
        self.threads = threads
        self.gpus = gpus
        self.is_broken = False
        self.connection, theirs = Pipe()
        # An interpreter of its own and not multiprocessing's: the environment holds from the first
        # import on, the caller's main module is not run again, and Ctrl-C does not reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _program(theirs.fileno())],
            env={**os.environ, **_environment(threads, gpus)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    @property
    def trial(self) -> Trial:
        return self.task.planned.trial

    def start(self, task: Task) -> None:
        self.task = task
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        with suppress(OSError):  # it died while idle; `poll` says how
            self.connection.send(task)

    def poll(self) -> Reply | None:
        """The reply to the task, made up where the worker cannot give one; None while it runs."""
        try:
            if self.connection.poll():
                reply: Reply = self.connection.recv()
                return reply
        except (EOFError, OSError):
            self._process.wait()
        if (code := self._process.poll()) is not None:
            return self._fail(*self._death(code))
        limit, memory = self.trial.time_limit, self.trial.memory_gb
        if time.monotonic() - self._clock > limit + _GRACE_SECONDS:
            return self._fail(Status.TIMEOUT, _too_long(limit))
        if memory is not None and (held := self._memory_gb()) > memory:
            return self._fail(
                Status.MEMORY, f"stopped: it held {held:.2f} GiB, its limit is {memory:g} GiB"
            )
        return None

    def can_take(self, trial: Trial) -> bool:
        """False where it died, or where what earlier trials left counts too much as memory."""
        if self._process.poll() is not None:
            return False
        return trial.memory_gb is None or self._memory_gb() < trial.memory_gb / 2

    def answer(self, reply: Reply) -> Answer:
        planned = self.task.planned
        result = Result(
            key=planned.key,
            params=planned.trial.params,
            seed=planned.trial.seed,
            status=reply.status,
            metrics=reply.metrics,
            series=reply.series,
            files=reply.files,
            error=self._with_log(reply.error),
            seconds=reply.seconds,
        )
        return Answer(planned, result, self._started, datetime.now(UTC))

    def dismiss(self) -> None:
        """Lets the worker exit by itself, and ends it where it does not."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends the worker and the processes that its trial started."""
        self.connection.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _fail(self, status: Status, error: str) -> Reply:
        self.is_broken = True
        return Reply(status, error=error, seconds=time.monotonic() - self._clock)

    def _death(self, code: int) -> tuple[Status, str]:
        limit = self.trial.time_limit
        if time.monotonic() - self._clock >= limit and "Timeout (" in self._log():
            return Status.TIMEOUT, _too_long(limit)
        if code >= 0:
            return Status.CRASHED, f"its process exited with code {code}"
        name = next((s.name for s in signal.Signals if s == -code), f"signal {-code}")
        hint = ": the system may have run out of memory" if name == "SIGKILL" else ""
        return Status.CRASHED, f"its process was ended by {name}{hint}"

    def _memory_gb(self) -> float:
        """What the process holds; of those that it started what they do not share."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            held: int = process.memory_info().rss
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    held += child.memory_full_info().uss
            return held / 2**30
        return 0.0

    def _log(self) -> str:
        """The end of what the trial printed."""
        try:
            with self.task.log.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _LOG_TAIL))
                return file.read().decode("utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""

    def _with_log(self, error: str) -> str:
        log = self._log()
        if not log:
            self.task.log.unlink(missing_ok=True)
        return f"{error}\n\nIt printed last:\n{log}" if error and log else error


def _too_long(limit: float) -> str:
    return f"stopped at its time limit of {limit:g} s"


def _program(descriptor: int) -> str:
    return (
        f"import sys; sys.path[:] = {sys.path!r}; from assay.runner.worker import main; "
        f"main({descriptor}, {os.getpid()})"
    )


def _environment(threads: int, gpus: tuple[str, ...]) -> dict[str, str]:
    return {
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "MPLBACKEND": "agg",
        "PYTHONHASHSEED": "0",  # the order of sets is part of what a seed fixes
    }


def _sweep(scratch: Path) -> None:
    """Removes what drivers that were killed left behind."""
    for folder in scratch.glob("*"):
        if not (folder.name.isdigit() and psutil.pid_exists(int(folder.name))):
            shutil.rmtree(folder, ignore_errors=True)
