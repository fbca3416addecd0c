"""What this machine lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.runner import capture_environment, hardware, missing_needs
from assay.study import Need, NeedKind

MET = [
    Need.package("json"),
    Need(NeedKind.MEMORY, "0.001"),
    Need(NeedKind.VARIABLE, "ASSAY_HOME"),
    Need(NeedKind.COMMAND, Path(sys.executable).name),
]
UNMET = [
    Need.package("no_such_module"),
    Need.package("no_such_package.module"),
    Need(NeedKind.MEMORY, "1e6"),
    Need(NeedKind.VARIABLE, "ASSAY_NO_SUCH_VARIABLE"),
    Need(NeedKind.COMMAND, "no-such-command"),
    Need.data("absent.csv"),
    Need.gpu(64),
]


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    for function in (hardware.gpu_ids, hardware.nvidia_gpus):
        function.cache_clear()
    yield
    for function in (hardware.gpu_ids, hardware.nvidia_gpus):
        function.cache_clear()


def test_missing_needs_are_named_once():
    assert missing_needs("fake", [*MET, *UNMET, *UNMET]) == tuple(UNMET)


def test_a_need_that_makes_no_sense():
    with pytest.raises(ValueError, match="need gpu: got 'two', wants a number"):
        missing_needs("fake", [Need(NeedKind.GPU, "two")])


def test_gpus_are_counted_without_torch(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho 'NVIDIA X, 81559 MiB, 570.1'\necho 'NVIDIA X, 1 MiB, 570.1'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert missing_needs("fake", [Need.gpu(2), Need.gpu(3)]) == (Need.gpu(3),)
    assert capture_environment()["gpus"][0] == {
        "name": "NVIDIA X",
        "memory.total": "81559 MiB",
        "driver_version": "570.1",
    }


@pytest.mark.parametrize(
    ("visible", "count"), [("", 0), ("-1", 0), ("3", 1), ("0, 2", 2), ("GPU-1a,GPU-2b", 2)]
)
def test_hidden_gpus_do_not_count(monkeypatch, visible, count):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(hardware.gpu_ids()) == count


def test_planning_and_the_environment_import_nothing_heavy():
    program = (
        "import sys, assay.runner as r; r.capture_environment(); "
        "heavy = {'torch', 'numpy', 'sqlalchemy', 'pydantic'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    paths = {"PYTHONPATH": str(Path(hardware.__file__).parents[2]), "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", program], check=True, env=paths)


def test_the_environment_names_machine_and_versions():
    seen = capture_environment()
    assert seen["cpu"]["cores"] >= 1
    assert seen["memory_gb"] > 0
    assert seen["libraries"]["numpy"]
    assert seen["assay"]


@pytest.mark.parametrize(
    ("text", "quota"), [("200000 100000", 2), ("150000 100000", 2), ("max 100000", None)]
)
def test_a_container_may_grant_fewer_cores(tmp_path, text, quota):
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert hardware._quota(tmp_path / "cpu.max") == quota
    assert hardware._quota(tmp_path / "absent") is None
