"""Decode kernels behind two operators that torch.compile and export see as one node each."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable

import torch
from torch import Tensor

from assay.papers.mglu.activation import CODES
from assay.papers.mglu.kernels import dense, native
from assay.papers.mglu.packing import mask_shape
from assay.toolkits.checks import one_of

BACKENDS = ("auto", "triton", "cpu", "torch")
MAX_BATCH = 16
"""Tokens above which the dense path takes over: matrices are then read once for many tokens."""

_log = logging.getLogger(__name__)


def mglu_hidden(
    x: Tensor,
    weight: Tensor,
    mask_bits: Tensor,
    n_masks: int,
    layout: str = "planes",
    activation: str = "silu",
    scale: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Hidden activations ``sum_i scale_i g(s_i) (t - s_i)`` of packed weights.

    Here ``t = x W`` and ``s_i = x (M_i * W)``, both summed in fp32.

    Args:
        x: ``(b, h)``, of the weight's dtype.
        weight: ``(d, h)``.
        mask_bits: uint8, as `packing.pack_masks` made it.
        n_masks: n.
        layout: "planes" or "bytes".
        activation: "silu", "gelu" or "relu".
        scale: ``(n, b)`` fp32, or None for ones.
        backend: "triton", "cpu", "torch" or "auto". More than 16 tokens always go to torch.

    Returns:
        ``(b, d)`` of the dtype of `x`.

    Raises:
        ValueError: shapes or dtypes that do not fit, or a backend that cannot run here.
    """
    if weight.ndim != 2:
        raise ValueError(f"weight: got shape {tuple(weight.shape)}, wants (d, h)")
    rows, columns = weight.shape
    if x.ndim != 2 or x.shape[1] != columns or x.dtype != weight.dtype:
        raise ValueError(
            f"x: got {tuple(x.shape)} {x.dtype}, wants (batch, {columns}) {weight.dtype}"
        )
    wanted = mask_shape(n_masks, rows, columns, layout)
    if tuple(mask_bits.shape) != wanted or mask_bits.dtype != torch.uint8:
        raise ValueError(
            f"mask_bits: got {tuple(mask_bits.shape)} {mask_bits.dtype}, wants {wanted} uint8"
        )
    if scale is not None and tuple(scale.shape) != (n_masks, len(x)):
        raise ValueError(f"scale: got {tuple(scale.shape)}, wants {(n_masks, len(x))}")
    one_of("activation", activation, tuple(CODES))
    one_of("backend", backend, BACKENDS)
    return torch.ops.assay_mglu.mglu_hidden(
        x, weight, mask_bits, scale, n_masks, layout, activation, backend
    )


def glu_hidden(
    x: Tensor, weight: Tensor, activation: str = "silu", backend: str = "auto"
) -> Tensor:
    """Hidden activations ``g(x W_g) * (x W_v)`` of a plain GLU, by the same kind of kernel.

    It exists so that the cost of masks can be measured against equal loops without masks.

    Args:
        x: ``(b, h)``, of the weight's dtype.
        weight: ``(2 d, h)``, the rows of W_g first.
        activation: "silu", "gelu" or "relu".
        backend: as in `mglu_hidden`.

    Returns:
        ``(b, d)`` of the dtype of `x`.

    Raises:
        ValueError: shapes or dtypes that do not fit, or a backend that cannot run here.
    """
    if weight.ndim != 2 or weight.shape[0] % 2:
        raise ValueError(f"weight: got shape {tuple(weight.shape)}, wants (2 d, h)")
    if x.ndim != 2 or x.shape[1] != weight.shape[1] or x.dtype != weight.dtype:
        raise ValueError(
            f"x: got {tuple(x.shape)} {x.dtype}, wants (batch, {weight.shape[1]}) {weight.dtype}"
        )
    one_of("activation", activation, tuple(CODES))
    one_of("backend", backend, BACKENDS)
    return torch.ops.assay_mglu.glu_hidden(x, weight, activation, backend)


def choose_backend(backend: str, device: str, dtype: torch.dtype) -> str:
    """The backend that runs: "triton", "native", "numba" or "torch".

    Args:
        backend: what the user asked for, one of `BACKENDS`.
        device: "cpu" or "cuda".
        dtype: of the weights.

    Raises:
        ValueError: an unknown backend, or one that cannot run here.
    """
    one_of("backend", backend, BACKENDS)
    if backend == "triton" and not _triton_runs(device):
        raise ValueError(
            "backend: 'triton' wants the package triton and weights on a GPU "
            f"(or TRITON_INTERPRET=1); got weights on {device!r}"
        )
    if backend == "cpu" and device != "cpu":
        raise ValueError(f"backend: 'cpu' wants weights on the CPU, got {device!r}")
    if backend == "torch" or dtype == torch.float64:
        return "torch"
    if backend == "triton" or (backend == "auto" and device != "cpu" and _triton_runs(device)):
        return "triton"
    return _cpu_backend(dtype) if device == "cpu" else _fall_back("torch", "no Triton on a GPU")


@functools.cache
def _triton_runs(device: str) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    import assay.papers.mglu.kernels.triton_gpu as triton_gpu

    return device == "cuda" or triton_gpu.INTERPRETED


@functools.cache
def _cpu_backend(dtype: torch.dtype) -> str:
    if dtype not in native.DTYPES:
        return _fall_back("torch", f"no CPU kernel for {dtype}")
    if native.library() is not None:
        return "native"
    if importlib.util.find_spec("numba") is not None:
        return _fall_back("numba", native.reason())
    return _fall_back("torch", native.reason())


@functools.cache
def _fall_back(to: str, why: str) -> str:
    _log.warning("mglu decodes with %s: %s", to, why)
    return to


def _mglu_hidden(
    x: Tensor,
    weight: Tensor,
    mask_bits: Tensor,
    scale: Tensor | None,
    n_masks: int,
    layout: str,
    activation: str,
    backend: str,
) -> Tensor:
    backend = choose_backend(backend, x.device.type, weight.dtype)
    if len(x) > MAX_BATCH or backend == "torch":
        return dense.mglu_hidden(x, weight, mask_bits, scale, n_masks, layout, activation)
    arguments = (x, weight, mask_bits, scale, n_masks, layout, activation)
    if backend == "native":
        return native.mglu_hidden(*arguments)
    if backend == "numba":
        import assay.papers.mglu.kernels.numba_cpu as numba_cpu

        return numba_cpu.mglu_hidden(*arguments)
    import assay.papers.mglu.kernels.triton_gpu as triton_gpu

    return triton_gpu.mglu_hidden(*arguments)


def _fake_mglu_hidden(
    x: Tensor,
    weight: Tensor,
    mask_bits: Tensor,
    scale: Tensor | None,
    n_masks: int,
    layout: str,
    activation: str,
    backend: str,
) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _glu_hidden(x: Tensor, weight: Tensor, activation: str, backend: str) -> Tensor:
    backend = choose_backend(backend, x.device.type, weight.dtype)
    if len(x) > MAX_BATCH or backend == "torch":
        return dense.glu_hidden(x, weight, activation)
    if backend == "native":
        return native.glu_hidden(x, weight, activation)
    if backend == "numba":
        import assay.papers.mglu.kernels.numba_cpu as numba_cpu

        return numba_cpu.glu_hidden(x, weight, activation)
    import assay.papers.mglu.kernels.triton_gpu as triton_gpu

    return triton_gpu.glu_hidden(x, weight, activation)


def _fake_glu_hidden(x: Tensor, weight: Tensor, activation: str, backend: str) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0] // 2)


# `torch.library.custom_op` makes such operators too; it takes longer a call, and imports the
# compiler at the first one.
_LIBRARY = torch.library.Library("assay_mglu", "DEF")


def _operator(schema: str, run: Callable[..., Tensor], fake: Callable[..., Tensor]) -> None:
    name = _LIBRARY.define(schema)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"assay_mglu::{name}", fake, lib=_LIBRARY)


_operator(
    "mglu_hidden(Tensor x, Tensor weight, Tensor mask_bits, Tensor? scale, int n_masks, "
    "str layout, str activation, str backend) -> Tensor",
    _mglu_hidden,
    _fake_mglu_hidden,
)
_operator(
    "glu_hidden(Tensor x, Tensor weight, str activation, str backend) -> Tensor",
    _glu_hidden,
    _fake_glu_hidden,
)
