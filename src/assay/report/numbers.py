"""Numbers and times as a reader wants them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from assay.study import Need, NeedKind, Param

_PLAIN = re.compile(r"−?[\d,]+(\.\d{1,3})?")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Three decimals, more only below 0.1; "–" where undefined; powers of ten at the extremes.

    >>> number(1234.5), number(1.2345), number(0.012345), number(1e-7), number(float("nan"))
    ('1,234', '1.234', '0.0123', '1 × 10⁻⁷', '–')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-4:
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        if not exponent:
            mantissa, _, exponent = f"{value:.2e}".partition("e")
        text = f"{float(mantissa):g} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    elif size >= 1000 or value == round(value):
        text = f"{value:,.0f}"
    elif size >= 0.1:
        text = f"{value:.3f}".rstrip("0").rstrip(".")
    else:
        text = f"{float(f'{value:.3g}'):.10f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def column(values: Sequence[object]) -> list[str]:
    """The cells of one column of a table, numbers with equally many decimals where they fit.

    >>> column([0.5, 0.125, "none"]), column([1, 20])
    (['0.500', '0.125', 'none'], ['1', '20'])
    """
    cells = [cell(value) for value in values]
    plain = [c for v, c in zip(values, cells, strict=True) if is_number(v) and _PLAIN.fullmatch(c)]
    decimals = max((len(c.partition(".")[2]) for c in plain), default=0)
    return [_padded(c, decimals) if c in plain else c for c in cells]


def cells(rows: Sequence[Sequence[object]]) -> list[tuple[str, ...]]:
    """A table's rows as text, each column formatted as one."""
    return list(zip(*map(column, zip(*rows, strict=True)), strict=True))


def _padded(cell: str, decimals: int) -> str:
    if not decimals:
        return cell
    whole, _, fraction = cell.partition(".")
    return f"{whole}.{fraction:0<{decimals}}"


def cell(value: object) -> str:
    """A cell of a table: numbers formatted, the rest as text."""
    if not is_number(value):
        return "–" if value is None else str(value)
    return number(value)  # type: ignore[arg-type]


def is_number(value: object) -> bool:
    """True where a cell is set flush right."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def duration(seconds: float) -> str:
    """A time in its handiest unit.

    >>> duration(0.25), duration(42), duration(600), duration(9000)
    ('0.25 s', '42 s', '10 min', '2.5 h')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"


def count(n: int, noun: str) -> str:
    """ "1 trial", "3 trials"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def requirement(need: Need) -> str:
    """What a trial needs, in words: "1 accelerator", "package torch"."""
    match need.kind:
        case NeedKind.GPU:
            return count(int(need.name), "accelerator")
        case NeedKind.MEMORY:
            return f"{need.name} GiB of memory"
        case kind:
            return f"{kind} {need.name}"


def label(params: Mapping[str, Param], seed: int) -> str:
    """Which trial it was: "n_masks=4, seed 2"."""
    return ", ".join([*(f"{name}={value}" for name, value in params.items()), f"seed {seed}"])
