"""The cores and accelerators this process may use."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path


def cores() -> int:
    """How many cores this process may use, at least 1; a container's quota is rounded up."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return min(len(os.sched_getaffinity(0)), _quota() or sys.maxsize)
    return os.cpu_count() or 1


def _quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> int | None:
    """The cores that control groups (version 2) grant; None for no limit."""
    try:
        quota, period = map(int, path.read_text("ascii").split())
    except (OSError, ValueError):  # no control groups, or "max"
        return None
    return -(-quota // period)


@cache
def nvidia_gpus() -> tuple[dict[str, str], ...]:
    """Name, memory and driver of each NVIDIA GPU; empty where there is none."""
    fields = ("name", "memory.total", "driver_version")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return ()
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [line.split(", ") for line in answer.stdout.splitlines() if line.strip()]
    return tuple(dict(zip(fields, row, strict=False)) for row in rows)


@cache
def gpu_ids() -> tuple[str, ...]:
    """What `CUDA_VISIBLE_DEVICES` may name: one id for each accelerator.

    Only where no nvidia-smi answers is torch imported to find accelerators of other makers.
    """
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return tuple(
            part for name in visible.split(",") if (part := name.strip()) not in ("", "-1")
        )
    if nvidia_gpus():
        return tuple(map(str, range(len(nvidia_gpus()))))
    if importlib.util.find_spec("torch") is None:
        return ()
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))
