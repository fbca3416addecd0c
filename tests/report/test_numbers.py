from __future__ import annotations

import math

import pytest

from assay.report import numbers
from assay.study import Need, NeedKind


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1.2345, "1.234"),
        (-0.5, "−0.5"),
        (0.012345, "0.0123"),
        (0.00012345, "0.000123"),
        (1e-7, "1 × 10⁻⁷"),
        (-2.5e-7, "−2.5 × 10⁻⁷"),
        (1234.5, "1,234"),
        (12e9, "1.2 × 10¹⁰"),
        (0.0, "0"),
        (math.nan, "–"),
        (-math.inf, "−∞"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert numbers.number(value) == text


def test_a_column_keeps_text_and_gives_numbers_equal_decimals() -> None:
    column = numbers.column(["a", 3, 0.25, None, True, math.nan, 1e-9])
    assert column == ["a", "3.00", "0.25", "–", "True", "–", "1 × 10⁻⁹"]
    assert numbers.column([1, 2000]) == ["1", "2,000"]


def test_a_table_without_rows_has_no_cells() -> None:
    assert numbers.cells(()) == []
    assert numbers.cells((("x", 1), ("y", 2.5))) == [("x", "1.0"), ("y", "2.5")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (42, "42 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert numbers.duration(seconds) == text


def test_requirement_names_things_as_people_do() -> None:
    assert numbers.requirement(Need.gpu(2)) == "2 accelerators"
    assert numbers.requirement(Need.data("corpus")) == "data corpus"
    assert numbers.requirement(Need(NeedKind.MEMORY, "16")) == "16 GiB of memory"
