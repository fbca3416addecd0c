"""Arguments are checked at the boundary, with messages that say what is wanted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.toolkits.checks import flag, number, one_of, whole


def test_what_is_allowed_comes_back():
    assert whole("n", 1) == whole("n", np.int64(1)) == 1
    assert whole("n", 0, least=0) == 0
    assert number("x", 2) == number("x", np.float32(2)) == 2.0
    assert number("x", 0, least=0, most=1) == 0.0
    assert one_of("mode", "a", ("a", "b")) == "a"


@pytest.mark.parametrize(
    ("value", "bounds", "wants"),
    [
        (math.nan, {}, "a finite number$"),
        (math.inf, {"least": 0}, "a finite number >= 0$"),
        (-1, {"least": 0}, "a finite number >= 0$"),
        (0.0, {"above": 0}, "a finite number > 0$"),
        (1.5, {"least": 0, "most": 1}, "a finite number from 0 to 1$"),
        (1.5, {"above": 0, "most": 1}, "a finite number > 0, <= 1$"),
    ],
)
def test_numbers_out_of_bounds(value, bounds, wants):
    with pytest.raises(ValueError, match=f"x: got {value}, wants {wants}"):
        number("x", value, **bounds)


@pytest.mark.parametrize("value", [True, "1", None, [1.0], 1j])
def test_what_is_no_number(value):
    with pytest.raises(TypeError, match=r"x: got .*, wants one number > 0$"):
        number("x", value, above=0)


def test_integers():
    for value in (0, -3):
        with pytest.raises(ValueError, match=f"n: got {value}, wants an integer >= 1"):
            whole("n", value)
    for value in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match=r"n: got .*, wants an integer >= 1"):
            whole("n", value)


def test_flags():
    assert flag("x", True) is True
    assert flag("x", False) is False
    for value in (1, 0, "false", None):
        with pytest.raises(TypeError, match=r"x: got .*, wants True or False"):
            flag("x", value)


def test_names():
    with pytest.raises(ValueError, match="mode: got 'c', wants one of a, b"):
        one_of("mode", "c", ("a", "b"))
