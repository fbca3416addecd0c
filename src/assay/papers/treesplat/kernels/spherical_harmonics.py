"""Real spherical harmonics up to degree 3 as polynomials in x, y, z of a unit vector.

Order and signs are those of gsplat and of PLY files of Gaussians.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numba
import numpy as np

COUNT = 16
"""Of the functions of degree 0 to 3."""

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

_A0 = 0.2820947917738781
_A1 = 0.48860251190292
_A2, _B2, _C2, _D2 = 0.5462742152960395, 1.092548430592079, 0.9461746957575601, 0.3153915652525201
_A3, _B3, _C3, _D3 = 0.5900435899266435, 1.445305721320277, 2.285228997322329, 0.4570457994644658
_E3, _F3 = 1.865881662950577, 1.119528997770346


@numba.njit(nogil=True, error_model="numpy")
def _values(degree: Any, x: Any, y: Any, z: Any, out: Any) -> None:  # pragma: no cover
    out[0] = _A0
    if degree > 0:
        out[1], out[2], out[3] = -_A1 * y, _A1 * z, -_A1 * x
    if degree > 1:
        out[4], out[5] = 2 * _A2 * x * y, -_B2 * y * z
        out[6] = _C2 * z * z - _D2
        out[7], out[8] = -_B2 * x * z, _A2 * (x * x - y * y)
    if degree > 2:
        out[9] = -_A3 * y * (3 * x * x - y * y)
        out[10] = 2 * _B3 * x * y * z
        out[11] = y * (_D3 - _C3 * z * z)
        out[12] = z * (_E3 * z * z - _F3)
        out[13] = x * (_D3 - _C3 * z * z)
        out[14] = _B3 * z * (x * x - y * y)
        out[15] = -_A3 * x * (x * x - 3 * y * y)


@numba.njit(nogil=True, error_model="numpy")
def _slope(degree: Any, x: Any, y: Any, z: Any, g: Any) -> Any:  # pragma: no cover
    """Derivatives of ``sum_j g[j] value[j]`` by x, y and z."""
    gx, gy, gz = 0.0, 0.0, 0.0
    if degree > 0:
        gx, gy, gz = -_A1 * g[3], -_A1 * g[1], _A1 * g[2]
    if degree > 1:
        gx += 2 * _A2 * (y * g[4] + x * g[8]) - _B2 * z * g[7]
        gy += 2 * _A2 * (x * g[4] - y * g[8]) - _B2 * z * g[5]
        gz += 2 * _C2 * z * g[6] - _B2 * (y * g[5] + x * g[7])
    if degree > 2:
        flat, belt = 3 * (x * x - y * y), _D3 - _C3 * z * z
        gx += -_A3 * (6 * x * y * g[9] + flat * g[15]) + 2 * _B3 * z * (y * g[10] + x * g[14])
        gx += belt * g[13]
        gy += -_A3 * (flat * g[9] - 6 * x * y * g[15]) + 2 * _B3 * z * (x * g[10] - y * g[14])
        gy += belt * g[11]
        gz += _B3 * (2 * x * y * g[10] + (x * x - y * y) * g[14])
        gz += -2 * _C3 * z * (y * g[11] + x * g[13]) + (3 * _E3 * z * z - _F3) * g[12]
    return gx, gy, gz


@numba.njit(nogil=True, error_model="numpy")
def _direction(means: Any, campos: Any, c: Any, i: Any) -> Any:  # pragma: no cover
    x = means[i, 0] * 1.0 - campos[c, 0]
    y = means[i, 1] * 1.0 - campos[c, 1]
    z = means[i, 2] * 1.0 - campos[c, 2]
    inverse = 1 / max(sqrt(x * x + y * y + z * z), 1e-12)
    return x * inverse, y * inverse, z * inverse, inverse


@_jit
def shade(
    first: Any,
    end: Any,
    degree: Any,
    means: Any,
    campos: Any,
    coeffs: Any,
    radii: Any,
    colors: Any,
) -> None:  # pragma: no cover
    """Fills colors (C, N, 3), which hold zeros, of visible Gaussians; coeffs (1 or C, N, K, 3)."""
    value = np.empty(COUNT)
    for c in range(len(campos)):
        own = coeffs[c % len(coeffs)]
        for i in range(first, end):
            if radii[c, i, 0] > 0:
                x, y, z, _ = _direction(means, campos, c, i)
                _values(degree, x, y, z, value)
                for k in range(3):
                    color = 0.5
                    for j in range((degree + 1) * (degree + 1)):
                        color += value[j] * own[i, j, k]
                    colors[c, i, k] = max(color, 0.0)


@_jit
def shade_backward(
    first: Any,
    end: Any,
    degree: Any,
    means: Any,
    campos: Any,
    coeffs: Any,
    radii: Any,
    colors: Any,
    g_colors: Any,
    g_means: Any,
    g_campos: Any,
    g_coeffs: Any,
) -> None:  # pragma: no cover
    """Adds to gradients that hold zeros; `g_campos` (C, N, 3) is left alone if it is empty."""
    value, pull = np.empty(COUNT), np.empty(COUNT)
    for c in range(len(campos)):
        own, g_own = coeffs[c % len(coeffs)], g_coeffs[c % len(coeffs)]
        for i in range(first, end):
            if radii[c, i, 0] <= 0:
                continue
            x, y, z, inverse = _direction(means, campos, c, i)
            _values(degree, x, y, z, value)
            pull[:] = 0
            for k in range(3):
                if colors[c, i, k] > 0:
                    g = g_colors[c, i, k]
                    for j in range((degree + 1) * (degree + 1)):
                        g_own[i, j, k] += value[j] * g
                        pull[j] += own[i, j, k] * g
            gx, gy, gz = _slope(degree, x, y, z, pull)
            # Only what is across the direction counts, as it is normalised.
            along = gx * x + gy * y + gz * z
            turned = (
                inverse * (gx - along * x),
                inverse * (gy - along * y),
                inverse * (gz - along * z),
            )
            for k in range(3):
                g_means[i, k] += turned[k]
                if g_campos.size:
                    g_campos[c, i, k] = -turned[k]
