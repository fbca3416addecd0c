from __future__ import annotations

import math

import pytest

from assay.report.interval import asked_range, is_range, quantity, strips
from assay.study import Compare, Holds, Outcome, Sample, Scale, Test, Threshold, Trend, Verdict

A, B = Sample("a"), Sample("b")


def _verdict(effect: float, low: float, high: float) -> Verdict:
    return Verdict("C1", Scale.LAPTOP, Outcome.SUPPORTED, "", effect=effect, low=low, high=high)


@pytest.mark.parametrize(
    ("test", "asked", "name"),
    [
        (Compare(A, B, ">", 1.1, how="ratio"), (1.1, math.inf), "ratio"),
        (Compare(A, B, "<", 0.0, each=("size",)), (-math.inf, 0.0), "difference, weakest group"),
        (Threshold(A, "<", 2.0, interval="exact"), (-math.inf, 2.0), "worst value"),
        (Threshold(A, ">", 0.9, interval="proportion"), (0.9, math.inf), "proportion"),
        (Trend("n", A, low=0), (0, math.inf), "slope"),
        (Trend("n", A, low=1, high=2, log_x=True, log_y=True), (1, 2), "exponent"),
        (Trend("n", A, high=-0.9, method="spearman"), (-math.inf, -0.9), "rank correlation"),
        (Holds(A, at_least=1), (1, math.inf), "worst value"),
    ],
)
def test_each_kind_of_test_has_a_range_and_a_name(
    test: Test, asked: tuple[float, float], name: str
) -> None:
    assert asked_range(test) == asked
    assert quantity(test) == name


def test_extremes_are_not_called_an_interval() -> None:
    assert is_range(Holds(A, at_least=1))
    assert is_range(Threshold(A, ">", 1, interval="exact"))
    assert not is_range(Threshold(A, ">", 1))


def test_strips_share_one_axis_and_keep_the_order() -> None:
    test = Threshold(A, ">", 1.0)
    first, second = strips(test, [_verdict(1.5, 1.2, 1.8), _verdict(0.8, 0.6, 1.1)])
    assert first is not None
    assert second is not None
    assert first.margins == second.margins
    (margin,) = first.margins
    assert 0 < second.low < second.effect < margin < second.high < first.low < first.high < 100
    assert first.asked == (margin, 100)


def test_a_single_value_and_undefined_ones_are_drawn_or_left_out() -> None:
    test = Holds(A, at_least=3, at_most=3)
    point, nothing = strips(test, [_verdict(3, 3, 3), _verdict(math.nan, math.nan, math.nan)])
    assert point is not None
    assert point.low == point.effect == point.high == 50
    assert nothing is None
    assert strips(test, [_verdict(math.nan, 0, 1)]) == [None]
