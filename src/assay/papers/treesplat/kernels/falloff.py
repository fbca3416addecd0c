"""``exp(-x)`` in a form that loops over pixels can be vectorised with."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba.extending import overload

MOST = 5.6
"""Larger x are taken as this: below the alpha cut whatever the opacity, exp(-5.6) < 1 / 255."""

_C0, _C1, _C2, _C3, _C4, _C5, _C6 = (
    np.float32(c)
    for c in (
        0.9999999980122285,
        -0.9999997434617346,
        0.49999445512924456,
        -0.16662087837623107,
        0.04148356492662444,
        -0.00794969617395803,
        0.0009749930407251871,
    )
)


def falloff(eighth: Any) -> Any:
    """``exp(-8 eighth)`` for eighth from 0 to `MOST` / 8.

    In float32 the eighth power of a polynomial that is least wrong on that range, 2e-6 off at
    most; libm's in float64.
    """
    raise NotImplementedError("falloff: called outside of numba, wants a kernel")


@overload(falloff, inline="always")
def _falloff(eighth: Any) -> Any:  # pragma: no cover
    if eighth == numba.float32:

        def single(eighth: Any) -> Any:
            x = eighth
            y = _C0 + x * (_C1 + x * (_C2 + x * (_C3 + x * (_C4 + x * (_C5 + x * _C6)))))
            y = y * y
            y = y * y
            return y * y

        return single

    def double(eighth: Any) -> Any:
        return math.exp(-8.0 * eighth)

    return double
