"""The CPU kernel where no compiler is: numba, for fp32 and bf16 weights.

numba knows no bf16, so weights come as the integers of their bits; shifted to 32 bits they are
fp32 numbers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from assay.papers.mglu.activation import ACTIVATIONS


@numba.njit(fastmath=True, cache=True)
def _products(x: Any, weight: Any, shift: Any, out: Any) -> Any:  # pragma: no cover
    bits = np.empty(len(x), np.uint32)
    for k in range(len(x)):
        bits[k] = np.uint32(weight[k]) << shift
    values = bits.view(np.float32)
    total = np.float32(0)
    for k in range(len(x)):
        out[k] = values[k] * x[k]
        total += out[k]
    return total


@numba.njit(parallel=True, fastmath=True, cache=True)
def _plane_sums(x: Any, weight: Any, shift: Any, masks: Any, out: Any) -> None:  # pragma: no cover
    n, rows, row_bytes = masks.shape
    for row in numba.prange(rows):
        products = np.zeros(row_bytes * 8, np.float32)
        out[0, row] = _products(x, weight[row], shift, products)
        for i in range(n):
            gate = np.float32(0)
            for byte in range(row_bytes):
                word = masks[i, row, byte]
                for j in range(8):
                    gate += products[8 * byte + j] * np.float32((word >> j) & 1)
            out[1 + i, row] = gate


@numba.njit(parallel=True, fastmath=True, cache=True)
def _byte_sums(x: Any, weight: Any, shift: Any, masks: Any, out: Any) -> None:  # pragma: no cover
    rows, columns = weight.shape
    for row in numba.prange(rows):
        products = np.empty(columns, np.float32)
        out[0, row] = _products(x, weight[row], shift, products)
        for i in range(out.shape[0] - 1):
            gate = np.float32(0)
            for k in range(columns):
                gate += products[k] * np.float32((masks[row, k] >> i) & 1)
            out[1 + i, row] = gate


@numba.njit(parallel=True, fastmath=True, cache=True)
def _row_sums(x: Any, weight: Any, shift: Any, out: Any) -> None:  # pragma: no cover
    for row in numba.prange(weight.shape[0]):
        products = np.empty(len(x), np.float32)
        out[row] = _products(x, weight[row], shift, products)


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
    sums: Any = _plane_sums if layout == "planes" else _byte_sums
    streams = np.empty((len(x), 1 + n_masks, len(weight)), np.float32)
    masks = mask_bits.contiguous().numpy()
    _each_token(x, weight, streams, lambda *row: sums(*row[:-1], masks, row[-1]))
    total, gate = torch.from_numpy(streams).split([1, n_masks], dim=1)
    terms = ACTIVATIONS[activation](gate) * (total - gate)
    if scale is not None:
        terms = terms * scale.T.unsqueeze(-1)
    return terms.sum(1).to(x.dtype)


def glu_hidden(x: Tensor, weight: Tensor, activation: str) -> Tensor:
    """``(b, d)``; see `kernels.glu_hidden`."""
    streams = np.empty((len(x), len(weight)), np.float32)
    _each_token(x, weight, streams, _row_sums)
    gate, value = torch.from_numpy(streams).chunk(2, dim=1)
    return (ACTIVATIONS[activation](gate) * value).to(x.dtype)


def _each_token(x: Tensor, weight: Tensor, streams: Any, sums: Any) -> None:
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(torch.get_num_threads(), most))
    half = weight.dtype == torch.bfloat16
    bits = weight.contiguous().view(torch.uint16 if half else torch.uint32).numpy()
    shift = np.uint32(16 if half else 0)
    for token, out in zip(x.float().contiguous().numpy(), streams, strict=True):
        sums(token, bits, shift, out)
