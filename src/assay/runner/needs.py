"""Which needs of a trial this machine cannot meet."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable

import psutil

from assay import registry
from assay.runner.hardware import gpu_ids
from assay.study import Need, NeedKind
from assay.toolkits.data import MissingData, find_data


def missing_needs(slug: str, needs: Iterable[Need]) -> tuple[Need, ...]:
    """Those of the needs that are not met here, each once.

    Args:
        slug: the paper, below whose folder data are looked for.
        needs: what a trial or study asks for.

    Raises ValueError for a need whose name makes no sense, such as "two" GPUs.
    """
    return tuple(need for need in dict.fromkeys(needs) if not _is_met(slug, need))


def package_needs(slug: str) -> tuple[Need, ...]:
    """What every trial of a paper needs: the modules of its extra. Raises UnknownPaper."""
    hint = f"pip install 'assay[{slug}]'"
    return tuple(Need.package(module, hint) for module in registry.paper(slug).modules)


def _is_met(slug: str, need: Need) -> bool:
    match need.kind:
        case NeedKind.DATA:
            return _has_data(slug, need.name)
        case NeedKind.PACKAGE:
            return _has_module(need.name)
        case NeedKind.GPU:
            return len(gpu_ids()) >= _number(need)
        case NeedKind.MEMORY:
            return psutil.virtual_memory().total >= _number(need) * 2**30
        case NeedKind.VARIABLE:
            return bool(os.environ.get(need.name))
        case NeedKind.COMMAND:
            return shutil.which(need.name) is not None


def _has_data(slug: str, name: str) -> bool:
    try:
        find_data(slug, name)
    except MissingData:
        return False
    return True


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of "a.b" where there is no "a"
        return False


def _number(need: Need) -> float:
    try:
        return float(need.name)
    except ValueError:
        raise ValueError(f"need {need.kind}: got {need.name!r}, wants a number") from None
