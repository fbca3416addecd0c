"""Drivers that are killed, interrupted, or doubled."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

import assay
from assay.ledger import Ledger
from assay.study import Scale

HERE = Path(__file__).parent
DRAWS = [{"params": {"do": "draw_slowly", "i": i}, "seed": i} for i in range(6)]


def drive(trials: list[dict[str, Any]], home: Path) -> subprocess.Popen[str]:
    paths = [str(Path(assay.__file__).parents[1]), str(HERE)]
    return subprocess.Popen(
        [sys.executable, str(HERE / "drive.py"), json.dumps(trials)],
        env={**os.environ, "ASSAY_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_ctrl_c,
    )


def _heed_ctrl_c() -> None:
    # What runs in the background of a shell without job control inherits a deaf ear.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lines(driver: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, _ = driver.communicate(timeout=60)
    return [json.loads(line) for line in out.splitlines()]


def read_until(driver: subprocess.Popen[str], event: str, count: int) -> None:
    assert driver.stdout is not None
    for line in driver.stdout:
        count -= json.loads(line)["event"] == event
        if count == 0:
            return
    raise AssertionError("the driver ended too early")


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def metrics(home: Path) -> dict[str, dict[str, float]]:
    with Ledger.open(str(home / "ledger.sqlite")) as ledger:
        return {r.key: dict(r.metrics) for r in ledger.results("fake", Scale.SMOKE, 3)}


def run_status(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "ledger.sqlite")) as database:
        return [status for (status,) in database.execute("SELECT status FROM runs ORDER BY id")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, dict[str, float]]:
    """The metrics of a run that nothing interrupted."""
    home = tmp_path_factory.mktemp("whole")
    events = lines(drive(DRAWS, home))
    assert [event["event"] for event in events].count("main") == 1, "main ran in a worker"
    return metrics(home)


def test_a_killed_run_goes_on_where_it_was(tmp_path, home, whole):
    pids = tmp_path / "pids"
    driver = drive([*DRAWS[:3], {"params": {"do": "spawn_child", "pids": str(pids)}}], home)
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    read_until(driver, "trial-finished", 3)
    worker, child = map(int, pids.read_text().split())
    assert psutil.pid_exists(worker)
    assert psutil.pid_exists(child)
    others = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.communicate()
    wait_for(lambda: not any(p.is_running() for p in others))
    assert not psutil.pid_exists(worker)
    assert not psutil.pid_exists(child)
    assert len(metrics(home)) == 3

    events = lines(drive(DRAWS, home))
    start = next(event for event in events if event["event"] == "run-started")
    assert (start["total"], start["skipped"]) == (3, 3)
    assert metrics(home) == whole


def test_ctrl_c_stops_the_workers_and_keeps_what_ended(home, whole):
    driver = drive(DRAWS, home)
    read_until(driver, "trial-finished", 2)
    workers = psutil.Process(driver.pid).children(recursive=True)
    assert workers
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=20)
    assert driver.returncode == 130
    assert not any(p.is_running() for p in workers)
    assert run_status(home) == ["interrupted"]
    kept = metrics(home)
    assert len(kept) >= 2
    assert kept.items() <= whole.items()


def test_two_drivers_fill_one_new_ledger(home):
    def trials(name):
        return [{"params": {"do": "nothing", "by": name, "i": i}} for i in range(40)]

    drivers = [drive(trials(name), home) for name in ("one", "other")]
    for driver in drivers:
        assert lines(driver)[-1]["counts"] == {"ok": 40}
    assert len(metrics(home)) == 80
    assert run_status(home) == ["finished"] * 2
