"""`assay mglu`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from assay.papers.mglu.cli import app
from assay.toolkits import timing

runner = CliRunner()


def test_bench_prints_every_kernel(monkeypatch):
    monkeypatch.setattr(timing, "MAX_FOREIGN", 2.0)
    monkeypatch.setattr(timing, "MAX_SPREAD", 1e9)
    answer = runner.invoke(app, ["bench", "--h", "64", "--d", "32", "--repeats", "4"])
    assert answer.exit_code == 0, answer.output
    for name in ("torch linear", "our GLU kernel", "MGLU, 1 mask", "MGLU, 4 masks, a byte"):
        assert name in answer.output


def test_bench_says_when_the_machine_is_busy(monkeypatch):
    monkeypatch.setattr(timing, "MAX_FOREIGN", -1.0)
    answer = runner.invoke(
        app, ["bench", "--h", "64", "--d", "32", "--repeats", "4", "--cache", "warm"]
    )
    assert answer.exit_code == 1
    assert "The machine was busy" in answer.output


def test_bad_input_is_an_error():
    assert runner.invoke(app, ["bench", "--h", "0"]).exit_code == 2
    with pytest.raises(ValueError, match="kind: got 'elu', wants one of gelu, swiglu, shared"):
        runner.invoke(app, ["tune", "--kind", "elu"], catch_exceptions=False)
