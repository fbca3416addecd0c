"""The GPU kernel: one program computes the hidden activations of a block of rows, with no atomics.

Its tile of W is read once for all 2 n streams. Accumulators keep one partial sum for each thread
until the end, so that no step of the loop needs a reduction.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.papers.mglu.activation import CODES

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels run on the CPU, in Triton's interpreter; read when this module is imported."""


@triton.jit
def _activate(x: Any, ACTIVATION: tl.constexpr) -> Any:
    if ACTIVATION == 0:
        return x / (1.0 + tl.exp(-x))
    if ACTIVATION == 1:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return tl.maximum(x, 0.0)


@triton.jit
def _mglu_kernel(
    x_ptr: Any,
    w_ptr: Any,
    bits_ptr: Any,
    scale_ptr: Any,
    out_ptr: Any,
    rows: Any,
    columns: Any,
    row_bytes: Any,
    batch: Any,
    N: tl.constexpr,
    N_PADDED: tl.constexpr,
    PLANES: tl.constexpr,
    SCALED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    row = (tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)).to(tl.int64)
    token = tl.program_id(1)
    mask = tl.arange(0, N_PADDED)
    gate = tl.zeros((N_PADDED, BLOCK_D, BLOCK_H), tl.float32)
    total = tl.zeros((BLOCK_D, BLOCK_H), tl.float32)
    for start in range(0, columns, BLOCK_H):
        column = start + tl.arange(0, BLOCK_H)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + token * columns + column, mask=column < columns, other=0.0)
        w = tl.load(w_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        v = w.to(tl.float32) * x.to(tl.float32)[None, :]
        total += v
        if PLANES:
            at = mask[:, None, None] * rows * row_bytes + (
                row[:, None] * row_bytes + (column >> 3)[None, :]
            )
            here = inside[None, :, :] & (mask < N)[:, None, None]
            byte = tl.load(bits_ptr + at, mask=here, other=0).to(tl.int32)
            bit = (byte >> (column & 7)[None, None, :]) & 1
        else:
            byte = tl.load(
                bits_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0
            ).to(tl.int32)
            bit = (byte[None, :, :] >> mask[:, None, None]) & 1
        gate += tl.where(bit != 0, v[None, :, :], 0.0)
    s = tl.sum(gate, axis=2)
    t = tl.sum(total, axis=1)
    term = _activate(s, ACTIVATION) * (t[None, :] - s)
    if SCALED:
        scale = tl.load(scale_ptr + mask * batch + token, mask=mask < N, other=0.0)
        term *= scale[:, None]
    hidden = tl.sum(tl.where((mask < N)[:, None], term, 0.0), axis=0)
    tl.store(out_ptr + token * rows + row, hidden, mask=row < rows)


@triton.jit
def _glu_kernel(
    x_ptr: Any,
    w_ptr: Any,
    out_ptr: Any,
    rows: Any,
    columns: Any,
    ACTIVATION: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
) -> None:
    row = (tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)).to(tl.int64)
    token = tl.program_id(1)
    gate = tl.zeros((BLOCK_D, BLOCK_H), tl.float32)
    value = tl.zeros((BLOCK_D, BLOCK_H), tl.float32)
    for start in range(0, columns, BLOCK_H):
        column = start + tl.arange(0, BLOCK_H)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + token * columns + column, mask=column < columns, other=0.0)
        x = x.to(tl.float32)[None, :]
        at = row[:, None] * columns + column[None, :]
        gate += tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32) * x
        at += rows.to(tl.int64) * columns
        value += tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32) * x
    hidden = _activate(tl.sum(gate, axis=1), ACTIVATION) * tl.sum(value, axis=1)
    tl.store(out_ptr + token * rows + row, hidden, mask=row < rows)


def mglu_hidden(
    x: Tensor,
    weight: Tensor,
    mask_bits: Tensor,
    scale: Tensor | None,
    n_masks: int,
    layout: str,
    activation: str,
    block_d: int = 8,
    block_h: int = 256,
) -> Tensor:
    """``(b, d)``; see `kernels.mglu_hidden`. Block sizes are powers of two."""
    (batch, columns), rows = x.shape, len(weight)
    out = torch.empty(batch, rows, dtype=x.dtype, device=x.device)
    bits = mask_bits.contiguous()
    _mglu_kernel[triton.cdiv(rows, block_d), batch](
        x.contiguous(),
        weight.contiguous(),
        bits,
        bits if scale is None else scale.float().contiguous(),
        out,
        rows,
        columns,
        bits.shape[-1],
        batch,
        N=n_masks,
        N_PADDED=triton.next_power_of_2(n_masks),
        PLANES=layout == "planes",
        SCALED=scale is not None,
        ACTIVATION=CODES[activation],
        BLOCK_D=block_d,
        BLOCK_H=block_h,
    )
    return out


def glu_hidden(
    x: Tensor, weight: Tensor, activation: str, block_d: int = 8, block_h: int = 256
) -> Tensor:
    """``(b, d)``; see `kernels.glu_hidden`. Block sizes are powers of two."""
    (batch, columns), rows = x.shape, len(weight) // 2
    out = torch.empty(batch, rows, dtype=x.dtype, device=x.device)
    _glu_kernel[triton.cdiv(rows, block_d), batch](
        x.contiguous(),
        weight.contiguous(),
        out,
        rows,
        columns,
        ACTIVATION=CODES[activation],
        BLOCK_D=block_d,
        BLOCK_H=block_h,
    )
    return out
