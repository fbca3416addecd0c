"""What a running trial is given, and how chance is fixed for it."""

from __future__ import annotations

import importlib.util
import random
import shutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from assay.ledger.artifacts import FILE_NAME
from assay.toolkits.data import cache_dir, find_data

if TYPE_CHECKING:
    from assay.runner.plan import Planned


class TrialContext:
    """The `assay.study.Context` of a trial in a worker process.

    Making one seeds python, numpy and torch from the trial's seed alone, not from its params, so
    that trials of equal seed draw equal streams.
    """

    def __init__(self, planned: Planned, scratch: Path, threads: int) -> None:
        sequence = np.random.SeedSequence(planned.trial.seed)
        self.slug = planned.slug
        self.scale = planned.scale
        self.seed = int(sequence.generate_state(1)[0])
        self.threads = threads
        self.device = "cuda" if planned.trial.gpus else "cpu"
        self.series: dict[str, list[tuple[float, float]]] = {}
        self.files: dict[str, Path] = {}
        self._rng = np.random.default_rng(sequence)
        self._scratch = scratch
        seed_libraries(self.seed, threads)

    @property
    def rng(self) -> np.random.Generator:
        return self._rng

    def data(self, name: str = "") -> Path:
        return find_data(self.slug, name)

    def cache(self) -> Path:
        folder = cache_dir(self.slug)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def record(self, series: str, step: float, value: float) -> None:
        self.series.setdefault(series, []).append((float(step), float(value)))

    def save(self, name: str, content: bytes | str | Path) -> None:
        if not FILE_NAME.fullmatch(name):
            raise ValueError(f"name: got {name!r}, wants a file name of letters, digits, . _ -")
        path = self._scratch / name
        self._scratch.mkdir(parents=True, exist_ok=True)
        match content:
            case bytes():
                path.write_bytes(content)
            case str():
                path.write_text(content, "utf-8")
            case Path():
                shutil.copyfile(content, path)
            case _:
                raise TypeError(f"content: got {type(content).__name__}, wants bytes, str or Path")
        self.files[name] = path


def seed_libraries(seed: int, threads: int) -> None:
    """Seeds python, numpy and torch, and gives torch its threads.

    Torch takes seconds to import and many studies do without it: where it is not loaded yet it is
    seeded at the moment somebody imports it.

    Args:
        seed: 32 bits.
        threads: for torch, where an earlier trial left another number.
    """
    random.seed(seed)
    np.random.seed(seed)
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _SeedTorchOnImport)]
    if "torch" in sys.modules:
        _seed_torch(sys.modules["torch"], seed, threads)
    else:
        sys.meta_path.insert(0, _SeedTorchOnImport(seed, threads))


def _seed_torch(torch: ModuleType, seed: int, threads: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(threads)


class _SeedTorchOnImport(MetaPathFinder):
    """Lets the import of torch go its way and seeds it at the end."""

    def __init__(self, seed: int, threads: int) -> None:
        self._seed = seed
        self._threads = threads

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_seed(module: ModuleType) -> None:
                execute(module)
                _seed_torch(module, self._seed, self._threads)

            spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec
