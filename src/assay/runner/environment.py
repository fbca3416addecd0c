"""Under which conditions a run measures."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import assay
from assay.runner.hardware import cores, nvidia_gpus

_LIBRARIES = (
    "accelerate",
    "numba",
    "numpy",
    "openai",
    "pandas",
    "scikit-learn",
    "scipy",
    "sentence-transformers",
    "torch",
    "transformers",
    "triton",
)
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")


def capture_environment() -> dict[str, Any]:
    """The versions and the machine, as values that JSON can hold.

    Nothing is imported to find the versions of libraries.
    """
    return {
        "assay": assay.__version__,
        **_commit(),
        "python": platform.python_version(),
        "os": _system(),
        "cpu": _cpu(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": [dict(gpu) for gpu in nvidia_gpus()],
        "libraries": {name: v for name in _LIBRARIES if (v := _version(name))},
    }


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:  # not Linux
        name = platform.platform(terse=True)
    return f"{name}, {platform.machine()}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> dict[str, Any]:
    """The commit of the checkout assay runs from; nothing where it was installed from a wheel."""
    root = Path(assay.__file__).parents[2]
    if not (root / ".git").exists():
        return {}
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "dirty": bool(changes)}


def _git(root: Path, *command: str) -> str:
    answer = subprocess.run(
        ["git", "-C", str(root), *command], capture_output=True, text=True, timeout=10, check=True
    )
    return answer.stdout.strip()


def _cpu() -> dict[str, Any]:
    model, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        fields = dict(_fields(info.read_text("utf-8", errors="replace")))
        model = fields.get("model name", model)
        flags = set(fields.get("flags", fields.get("Features", "")).split())
    return {"model": model, "cores": cores(), "flags": [f for f in _FLAGS if f in flags]}


def _fields(text: str) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, _, value in lines]
