"""Scheduling by the status of what is cached (section 3.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.papers.kvflow.scheduler import FCFS, StatusAware


class Request:
    def __init__(self, loading: bool = False) -> None:
        self.loading = loading
        self.loads = 0
        self.skips = 0

    def ready(self, load: bool) -> bool:
        self.loads += load and self.loading
        return not self.loading


def test_what_is_ready_passes_what_is_loading():
    a, b, c, d = waiting = [Request(), Request(loading=True), Request(), Request()]
    assert StatusAware().pick(waiting, 2) == [a, c]
    assert [r.skips for r in waiting] == [0, 1, 0, 0]
    b.loading = False
    assert StatusAware().pick([b, d], 1) == [b]


def test_first_come_first_served_asks_nobody():
    waiting = [Request(loading=True), Request()]
    assert FCFS().pick(waiting, 1) == waiting[:1]
    assert waiting[0].loads == 0


def test_nobody_is_passed_more_often_than_allowed():
    slow = Request(loading=True)
    scheduler = StatusAware(max_skips=3)
    for _ in range(3):
        quick = Request()
        assert scheduler.pick([slow, quick], 1) == [quick]
    assert scheduler.pick([slow, Request()], 1) == []
    slow.loading = False
    assert scheduler.pick([slow, Request()], 1) == [slow]


def test_no_more_loads_than_there_is_room_for():
    waiting = [Request(loading=True) for _ in range(5)] + [Request()]
    assert StatusAware().pick(waiting, 2) == waiting[-1:]
    assert [r.loads for r in waiting] == [1, 1, 0, 0, 0, 0]


@given(st.lists(st.booleans(), max_size=8), st.integers(1, 8))
def test_with_nothing_to_load_it_is_first_come_first_served(flags, n):
    waiting = [Request() for _ in flags]
    assert StatusAware().pick(waiting, n) == FCFS().pick(waiting, n) == waiting[:n]


def test_a_bound_of_none_is_refused():
    with pytest.raises(ValueError, match="max_skips: got 0, wants an integer >= 1"):
        StatusAware(0)
