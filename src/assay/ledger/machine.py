"""A run's environment in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The hardware and system of an environment that `assay.runner.capture_environment` saw."""
    cpu = environment.get("cpu", {})
    return {
        "cpu": cpu.get("model", "unknown"),
        "cores": cpu.get("cores"),
        "memory_gb": environment.get("memory_gb"),
        "gpus": [gpu.get("name", "unknown") for gpu in environment.get("gpus", ())],
        "os": environment.get("os", "unknown"),
    }


def describe(environment: Mapping[str, Any]) -> str:
    """The machine of an environment in one line: CPU, cores, memory, accelerators."""
    known = machine(environment)
    parts = [known["cpu"]]
    if known["cores"] is not None:
        parts.append(f"{known['cores']} core{'s' if known['cores'] != 1 else ''}")
    if known["memory_gb"] is not None:
        parts.append(f"{known['memory_gb']:g} GiB")
    return ", ".join([*parts, *known["gpus"]])
