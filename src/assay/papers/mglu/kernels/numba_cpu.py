"""The CPU kernel where no compiler is: numba, fp32 only."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from assay.papers.mglu.activation import ACTIVATIONS


@numba.njit(parallel=True, fastmath=True, cache=True)
def _plane_sums(x: Any, weight: Any, bits: Any, out: Any) -> None:  # pragma: no cover
    n, rows, row_bytes = bits.shape
    columns = weight.shape[1]
    for row in numba.prange(rows):
        products = np.empty(row_bytes * 8, np.float32)
        total = np.float32(0)
        for k in range(columns):
            products[k] = weight[row, k] * x[k]
            total += products[k]
        products[columns:] = 0
        out[0, row] = total
        for i in range(n):
            gate = np.float32(0)
            for byte in range(row_bytes):
                word = bits[i, row, byte]
                for j in range(8):
                    gate += products[8 * byte + j] * np.float32((word >> j) & 1)
            out[1 + i, row] = gate


@numba.njit(parallel=True, fastmath=True, cache=True)
def _byte_sums(x: Any, weight: Any, bits: Any, out: Any) -> None:  # pragma: no cover
    rows, columns = weight.shape
    for row in numba.prange(rows):
        products = np.empty(columns, np.float32)
        total = np.float32(0)
        for k in range(columns):
            products[k] = weight[row, k] * x[k]
            total += products[k]
        out[0, row] = total
        for i in range(out.shape[0] - 1):
            gate = np.float32(0)
            for k in range(columns):
                gate += products[k] * np.float32((bits[row, k] >> i) & 1)
            out[1 + i, row] = gate


@numba.njit(parallel=True, fastmath=True, cache=True)
def _row_sums(x: Any, weight: Any, out: Any) -> None:  # pragma: no cover
    for row in numba.prange(weight.shape[0]):
        total = np.float32(0)
        for k in range(weight.shape[1]):
            total += weight[row, k] * x[k]
        out[row] = total


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
    _set_threads()
    sums: Any = _plane_sums if layout == "planes" else _byte_sums
    streams = np.empty((len(x), 1 + n_masks, len(weight)), np.float32)
    w, bits = weight.contiguous().numpy(), mask_bits.contiguous().numpy()
    for token, out in zip(x.contiguous().numpy(), streams, strict=True):
        sums(token, w, bits, out)
    total, gate = torch.from_numpy(streams).split([1, n_masks], dim=1)
    terms = ACTIVATIONS[activation](gate) * (total - gate)
    if scale is not None:
        terms = terms * scale.T.unsqueeze(-1)
    return terms.sum(1)


def glu_hidden(x: Tensor, weight: Tensor, activation: str) -> Tensor:
    """``(b, d)``; see `kernels.glu_hidden`."""
    _set_threads()
    streams = np.empty((len(x), len(weight)), np.float32)
    w = weight.contiguous().numpy()
    for token, out in zip(x.contiguous().numpy(), streams, strict=True):
        _row_sums(token, w, out)
    gate, value = torch.from_numpy(streams).chunk(2, dim=1)
    return ACTIVATIONS[activation](gate) * value


def _set_threads() -> None:
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(torch.get_num_threads(), most))
