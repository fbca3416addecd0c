"""The C++ kernel: compiled on first use by torch's extension loader, kept in the user's cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import sysconfig
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from assay.papers.mglu.activation import CODES
from assay.papers.mglu.instructions import ISAS
from assay.papers.mglu.packing import LAYOUTS
from assay.toolkits.data import cache_dir

DTYPES = (torch.float32, torch.bfloat16)
_SOURCE = Path(__file__).with_name("decode.cpp")
_FLAGS = ("-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")

_failure = ""


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they cannot be had; `reason` then says why."""
    global _failure
    try:
        path = library_path()
        if not path.exists():
            _compile(path)
        loaded = ctypes.CDLL(str(path))
    except Exception as error:
        _failure = f"its C++ kernel did not compile ({str(error).strip().splitlines()[0][:120]})"
        return None
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    loaded.assay_mglu_decode.argtypes = [pointer] * 5 + [size] * 3 + [number] * 6
    loaded.assay_glu_decode.argtypes = [pointer] * 3 + [size] * 3 + [number] * 4
    for function in (loaded.assay_mglu_decode, loaded.assay_glu_decode):
        function.restype = None
    return loaded


def library_path() -> Path:
    """Where the compiled kernels lie; the name holds what they were made from."""
    content = [_SOURCE.read_text("utf-8"), *_FLAGS, torch.__version__, sysconfig.get_platform()]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
    return cache_dir("mglu") / f"decode-{digest}.so"


def reason() -> str:
    """Why there is no library; empty where there is one."""
    library()
    return _failure


def isas() -> tuple[str, ...]:
    """The instruction sets that this CPU has; none where there is no library."""
    loaded = library()
    return () if loaded is None else ISAS[: loaded.assay_best_isa() + 1]


def best_isa() -> str:
    """The instruction set the kernels use: the best of this CPU, or what ASSAY_MGLU_ISA names.

    Raises:
        RuntimeError: there is no library.
        ValueError: ASSAY_MGLU_ISA names none, or one that this CPU lacks.
    """
    _loaded()
    wanted = os.environ.get("ASSAY_MGLU_ISA", "")
    if not wanted:
        return isas()[-1]
    if wanted not in isas():
        raise ValueError(f"ASSAY_MGLU_ISA: got {wanted!r}, wants one of {', '.join(isas())} here")
    return wanted


def mglu_hidden(
    x: Tensor,
    weight: Tensor,
    mask_bits: Tensor,
    scale: Tensor | None,
    n_masks: int,
    layout: str,
    activation: str,
) -> Tensor:
    """``(b, d)``; see `kernels.mglu_hidden`."""
    x, weight, mask_bits = x.contiguous(), weight.contiguous(), mask_bits.contiguous()
    scale = None if scale is None else scale.float().contiguous()
    (batch, columns), rows = x.shape, len(weight)
    out = torch.empty(batch, rows)
    _loaded().assay_mglu_decode(
        x.data_ptr(),
        weight.data_ptr(),
        mask_bits.data_ptr(),
        None if scale is None else scale.data_ptr(),
        out.data_ptr(),
        batch,
        rows,
        columns,
        n_masks,
        LAYOUTS.index(layout),
        x.dtype == torch.bfloat16,
        CODES[activation],
        ISAS.index(best_isa()),
        torch.get_num_threads(),
    )
    return out.to(x.dtype)


def glu_hidden(x: Tensor, weight: Tensor, activation: str) -> Tensor:
    """``(b, d)``; see `kernels.glu_hidden`."""
    x, weight = x.contiguous(), weight.contiguous()
    (batch, columns), rows = x.shape, len(weight) // 2
    out = torch.empty(batch, rows)
    _loaded().assay_glu_decode(
        x.data_ptr(),
        weight.data_ptr(),
        out.data_ptr(),
        batch,
        rows,
        columns,
        x.dtype == torch.bfloat16,
        CODES[activation],
        ISAS.index(best_isa()),
        torch.get_num_threads(),
    )
    return out.to(x.dtype)


def _loaded() -> ctypes.CDLL:
    loaded = library()
    if loaded is None:
        raise RuntimeError(f"no native kernel: {_failure}")
    return loaded


def _compile(path: Path) -> None:
    # torch's loader guards a shared folder by a lock file that a killed process leaves behind;
    # a folder of its own and a rename need no lock.
    from torch.utils.cpp_extension import load

    scripts = sysconfig.get_path("scripts")
    if shutil.which("ninja") is None and shutil.which("ninja", path=scripts):
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), scripts])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built = load(
                path.stem.replace("-", "_"),
                [str(_SOURCE)],
                extra_cflags=list(_FLAGS),
                extra_ldflags=["-fopenmp"],
                build_directory=folder,
                is_python_module=False,
            )
        Path(built).replace(path)
