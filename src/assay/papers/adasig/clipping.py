"""How much of a per-sample gradient is kept, as a function of its norm.

A weight w(x) multiplies a gradient of norm x. Every weight here keeps ``w(x) x <= C``, with C the
`max_grad_norm`, so that one sample moves the sum of clipped gradients by at most C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from assay.toolkits.checks import number

_BLOCK = 256
_SQUARES = (1e-30, 1e38)
ROUNDING = 2.0**-16
"""How far norms are rounded up, relatively.

The squares of at most 256 float32 numbers are summed in float32, which errs by at most
128 * 2^-24 in the root whatever the order, and blocks are added in float64. Rounding a weight
to float32, multiplying by it and the root itself add 3 * 2^-24: little more than half of 2^-16.
"""


def per_sample_norms(grad_samples: Sequence[Tensor]) -> Tensor:
    """Norms of per-sample gradients over all parameters, never below the exact norm.

    A norm that rounding made too small would let a clipped gradient exceed its bound, and with it
    the sensitivity that the noise is made for. Norms are therefore summed with a known error and
    rounded up by it (`ROUNDING`), also for bf16 and fp16, whose entries are taken to float32.

    Args:
        grad_samples: one tensor per parameter, ``(b, *shape)``, of any floating dtype.

    Returns:
        ``(b,)``, float64; inf or NaN where a gradient holds such a value.

    Raises:
        ValueError: there is no tensor, or they hold different numbers of samples.
    """
    samples = [len(gradient) for gradient in grad_samples]
    if len(set(samples)) != 1:
        raise ValueError(f"grad_samples: got tensors of {samples} samples, wants as many in each")
    device = grad_samples[0].device
    norms = [blocks.to(device) for gradient in grad_samples for blocks in _block_norms(gradient)]
    squares = torch.cat(norms, dim=1).double().square().sum(1)
    # Where float32 squares overflow or lose digits: once more, a few rows at a time.
    exact = ((squares > _SQUARES[0]) & (squares < _SQUARES[1])) | (squares == 0)
    for few in (~exact).nonzero().flatten().split(32):
        rows = [_rows(gradient[few.to(gradient.device)]) for gradient in grad_samples]
        squares[few] = sum(r.double().square().sum(1).to(device) for r in rows)
    return squares.sqrt() * (1 + ROUNDING)


def _rows(gradient: Tensor) -> Tensor:
    return gradient.reshape(len(gradient), math.prod(gradient.shape[1:]))


def _block_norms(gradient: Tensor) -> Iterator[Tensor]:
    """Norms ``(b, k)`` of blocks of at most `_BLOCK` numbers."""
    rows = _rows(gradient)
    if rows.dtype.itemsize < 4:
        rows = rows.float()
    size = rows.shape[1]
    # Blocks without a rest are read in one sweep.
    block = next((n for n in range(_BLOCK, _BLOCK // 2, -1) if size % n == 0), _BLOCK)
    split = size // block * block
    if split:
        yield torch.linalg.vector_norm(rows[:, :split].unflatten(1, (split // block, block)), dim=2)
    if split < size:
        yield torch.linalg.vector_norm(rows[:, split:], dim=1, keepdim=True)


def adasig_weight(norms: Tensor, slope: float, max_grad_norm: float = 1.0) -> Tensor:
    """Sigmoid clipping: ``C tanh(alpha x / 2) / x``, and its limit ``C alpha / 2`` at 0.

    The clipped norm ``C (2 / (1 + exp(-alpha x)) - 1)`` grows like ``C alpha x / 2`` for small x
    and saturates at C.

    Args:
        norms: x, ``(b,)``, >= 0.
        slope: alpha, the saturation slope, > 0.
        max_grad_norm: C, > 0.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: a slope or bound that is no finite number > 0.

    Source: the paper's section 5.1.
    """
    x, bound = _checked(norms, max_grad_norm)
    limit = bound * number("slope", slope, above=0) / 2
    # tanh(y) <= y, which rounding among subnormal numbers breaks.
    sigmoid = (bound * torch.tanh(slope * x / 2) / x).clamp(max=limit)
    return torch.where(x > 0, sigmoid, limit)


def adasig_slope_weight(norms: Tensor, slope: float) -> Tensor:
    """Weight of a gradient in the slope direction: ``sech^2(alpha x / 2) / 2``.

    It is the derivative of `adasig_weight` at C = 1 with respect to alpha. The norm
    ``x sech^2(alpha x / 2) / 2`` is never over `sensitivity(slope)`.

    Args:
        norms: x, ``(b,)``, >= 0.
        slope: alpha, > 0.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: a slope that is no finite number > 0.

    Source: the paper's section 5.2, ``2 exp(-alpha x) / (1 + exp(-alpha x))^2``.
    """
    x, _ = _checked(norms, 1.0)
    e = torch.exp(-number("slope", slope, above=0) * x)
    return 2 * e / (1 + e).square()


def flat_weight(norms: Tensor, max_grad_norm: float = 1.0) -> Tensor:
    """Constant clipping: ``min(1, C / x)``.

    Args:
        norms: x, ``(b,)``, >= 0.
        max_grad_norm: C, > 0.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: a bound that is no finite number > 0.

    Source: Abadi et al. 2016, "Deep Learning with Differential Privacy", algorithm 1.
    """
    x, bound = _checked(norms, max_grad_norm)
    return (bound / x).clamp(max=1.0)


def nsgd_weight(norms: Tensor, max_grad_norm: float = 1.0, *, r: float) -> Tensor:
    """Normalisation: ``C / (x + r)``.

    Args:
        norms: x, ``(b,)``, >= 0.
        max_grad_norm: C, > 0.
        r: regulariser, > 0, in units of a gradient's norm.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: `max_grad_norm` or `r` is no finite number > 0.

    Source: Yang et al. 2022, "Normalized/Clipped SGD with Perturbation for Differentially
    Private Non-Convex Optimization", DP-NSGD.
    """
    x, bound = _checked(norms, max_grad_norm)
    return bound / (x + number("r", r, above=0))


def auto_s_weight(norms: Tensor, max_grad_norm: float = 1.0, *, r: float = 0.01) -> Tensor:
    """Automatic clipping with its stability constant: ``C / (x + r)``.

    Args:
        norms: x, ``(b,)``, >= 0.
        max_grad_norm: C, > 0.
        r: the stability constant, > 0, called gamma at the source.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: `max_grad_norm` or `r` is no finite number > 0.

    Source: Bu et al. 2023, "Automatic Clipping: Differentially Private Deep Learning Made Easier
    and Stronger", AUTO-S. The formula is that of DP-NSGD; the constant is fixed.
    """
    return nsgd_weight(norms, max_grad_norm, r=r)


def auto_v_weight(norms: Tensor, max_grad_norm: float = 1.0) -> Tensor:
    """Automatic clipping without a constant: ``C / x``, and 0 at 0.

    Args:
        norms: x, ``(b,)``, >= 0.
        max_grad_norm: C, > 0.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: a bound that is no finite number > 0.

    Source: Bu et al. 2023, AUTO-V.
    """
    x, bound = _checked(norms, max_grad_norm)
    return torch.where(x > 0, bound / x, 0.0)


def psac_weight(norms: Tensor, max_grad_norm: float = 1.0, *, r: float = 0.1) -> Tensor:
    """Per-sample adaptive clipping: ``C / (x + r / (x + r))``.

    Args:
        norms: x, ``(b,)``, >= 0.
        max_grad_norm: C, > 0.
        r: > 0; keeps the weight of small gradients near C.

    Returns:
        ``(b,)``, in float32 or the dtype of `norms`, whichever is wider.

    Raises:
        TypeError, ValueError: `max_grad_norm` or `r` is no finite number > 0.

    Source: Xia et al. 2023, "Differentially Private Learning with Per-Sample Adaptive Clipping".
    """
    x, bound = _checked(norms, max_grad_norm)
    return bound / (x + number("r", r, above=0) / (x + r))


def _checked(norms: Tensor, max_grad_norm: float) -> tuple[Tensor, float]:
    if not isinstance(norms, Tensor) or not norms.is_floating_point():
        raise TypeError(f"norms: got {norms!r}, wants a floating tensor")
    bound = number("max_grad_norm", max_grad_norm, above=0)
    return norms.to(torch.promote_types(norms.dtype, torch.float32)), bound
