"""gsplat's CUDA kernels, where they run."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def cuda_fault() -> str | None:
    """Why gsplat's CUDA kernels cannot run on this machine; None if they can.

    The first call may compile them, which takes minutes.
    """
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    try:
        from gsplat.cuda._backend import _C
    except Exception as error:  # whatever a compiler can do wrong
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"gsplat's CUDA kernels could not be built: {lines[-1]}"
    if _C is None:
        return "gsplat found no CUDA toolkit (nvcc) to build its kernels with"
    return None


@cache
def _warn_once(cause: str) -> None:
    warnings.warn(f"backend: falling back to the slower 'cpu', as {cause}", stacklevel=4)


def choose(backend: str, device: torch.device, dtype: torch.dtype) -> str:
    """The backend that "auto" stands for, and else the one that was named.

    Args:
        backend: "auto", "gsplat", "cpu" or "reference".
        device: where the tensors are.
        dtype: theirs.

    Raises:
        RuntimeError: backend="gsplat" cannot run here.
    """
    if backend in ("cpu", "reference") or (backend == "auto" and device.type != "cuda"):
        return "cpu" if backend == "auto" else backend
    cause = cuda_fault()
    if cause is None and device.type != "cuda":
        cause = f"the tensors are on {device}, and gsplat takes those on a CUDA device"
    if cause is None and dtype != torch.float32:
        cause = f"the tensors are {dtype}, and gsplat takes torch.float32"
    if cause is None:
        return "gsplat"
    if backend == "gsplat":
        raise RuntimeError(f"backend: 'gsplat' cannot run, as {cause}")
    _warn_once(cause)
    return "cpu"


def rasterize(*args: Any, **options: Any) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """`gsplat.rasterization`, its results not packed."""
    from gsplat import rasterization

    return rasterization(*args, packed=False, **options)
