"""Intervals of returns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.papers.rac.context import ReturnContext


def test_equal_intervals_clip_at_both_ends():
    context = ReturnContext(-12, 8, 4)
    assert context.index([-12, -7, 3, 8, -99, 99]).tolist() == [0, 1, 3, 3, 0, 3]


def test_intervals_of_the_papers_matrix_game():
    context = ReturnContext(edges=[-12, 0, 6, 8])
    assert context.index([-12, 0, 6, 8, 7.9, -1e-9, 1e9]).tolist() == [0, 1, 2, 3, 2, 0, 3]


@given(
    st.floats(-100, 100),
    st.floats(0.1, 100),
    st.integers(1, 40),
    st.lists(st.floats(-300, 300), min_size=1),
)
def test_the_index_is_the_floor_of_the_share(low, width, bins, returns):
    context = ReturnContext(low, low + width, bins)
    share = (np.array(returns) - low) / width * bins
    away = np.abs(share - np.round(share)) > 1e-6  # rounding decides at an edge
    expected = np.floor(share).clip(0, bins - 1)
    assert (context.index(returns) == expected)[away].all()


def test_onehot_and_shapes():
    context = ReturnContext(0, 1, 3)
    assert context.index(0.5).shape == ()
    assert context.onehot([[0.0, 0.5], [0.9, 2.0]]).tolist() == [
        [[1, 0, 0], [0, 1, 0]],
        [[0, 0, 1], [0, 0, 1]],
    ]


def test_bounds_from_returns_leave_the_tails_out():
    context = ReturnContext.from_returns(np.arange(101), 5, tail=0.1)
    assert context.edges.tolist() == pytest.approx([10, 26, 42, 58, 74])
    with pytest.raises(ValueError, match="low, high: got 3"):
        ReturnContext.from_returns([3.0] * 10, 5)


def test_state_survives_json():
    context = ReturnContext(edges=[-12, 0, 6, 8])
    context.count([7.0, -20.0])
    other = ReturnContext(0, 1, 2)
    other.load_state_dict(json.loads(json.dumps(context.state_dict())))
    assert other.state_dict() == context.state_dict()
    assert other.bins == 4
    assert other.clipped == 1
    bounded = ReturnContext(0, 1, 2)
    bounded.load_state_dict(ReturnContext(0, 5, 2).state_dict())
    bounded.count(6.0)
    assert bounded.clipped == 1


def test_returns_outside_the_bounds_are_counted_and_warned_of():
    context = ReturnContext(0, 10, 5)
    context.count(np.r_[np.linspace(0, 10, 95), [11.0] * 5])
    assert context.clipped == 5
    assert context.problem() is None
    context.count(-1.0)
    with pytest.warns(UserWarning, match=r"6% of the returns are outside \[0, 10\]"):
        context.warn()


def test_a_single_interval_in_use_is_warned_of():
    context = ReturnContext(0, 10, 5)
    context.count([1.0, 1.5])
    with pytest.warns(UserWarning, match="all 2 returns fall into one of 5"):
        context.warn()
    one = ReturnContext(0, 10, 1)
    one.count([1.0, 1.5])
    assert one.problem() is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"low": 1, "high": 1, "bins": 3}, ValueError, "low, high: got 1 and 1"),
        ({"low": 0, "high": float("inf"), "bins": 3}, ValueError, "finite low < high"),
        ({"low": 0, "high": 1, "bins": 0}, ValueError, "bins: got 0"),
        ({"low": 0, "high": 1, "bins": 2.5}, TypeError, r"bins: got 2\.5"),
        ({"low": 1, "high": 1 + 1e-15, "bins": 9}, ValueError, "bins: got 9, wants fewer"),
        ({"low": -1e308, "high": 1e308, "bins": 2}, ValueError, "bins: got 2, wants fewer"),
        ({"low": 0, "high": 1}, TypeError, "low, high, bins: wants all three"),
        ({"edges": [0, 2, 2]}, ValueError, "edges: got .* increasing"),
        ({"edges": []}, ValueError, "edges"),
        ({"edges": [0, float("nan")]}, ValueError, "edges"),
        ({"edges": [0, 1], "low": 0}, TypeError, "edges: got low"),
    ],
)
def test_bad_bounds_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        ReturnContext(**arguments)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_return_must_be_finite(value):
    with pytest.raises(ValueError, match="returns: got NaN or infinity"):
        ReturnContext(0, 1, 2).index([0.0, value])
