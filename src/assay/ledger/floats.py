"""Floats in JSON, which knows neither NaN nor infinity."""

from __future__ import annotations

import math
from typing import Any


def encode_float(value: float) -> float | str:
    """The number itself where finite, else "nan", "inf" or "-inf"."""
    return value if math.isfinite(value) else str(value)


def decode_float(value: Any) -> float:
    """What `encode_float` made. Raises ValueError for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("got an integer too large for a float") from None
    if value in ("nan", "inf", "-inf"):
        return float(value)
    raise ValueError(f'got {value!r}, wants a number, "nan", "inf" or "-inf"')
