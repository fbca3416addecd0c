"""Interleaved timing and what it refuses."""

from __future__ import annotations

import math
import time

import pytest

from assay.toolkits import timing


def nap(seconds):
    return lambda: time.sleep(seconds)


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(timing, "MAX_FOREIGN", 2.0)
    monkeypatch.setattr(timing, "MAX_SPREAD", 1e9)


@pytest.mark.usefixtures("quiet")
def test_arms_are_called_in_turn_and_their_medians_returned():
    calls = []
    arms = {name: lambda name=name: calls.append(name) for name in "ab"}
    found = timing.interleave(arms, 4, between=lambda: calls.append("-"))
    assert "".join(calls) == "aabb" + "-a-b" * 4
    assert found.keys() == {"a_s", "b_s", "spread", "foreign", "rounds"}
    assert found["rounds"] == 1
    found = timing.interleave({"short": nap(0.001), "long": nap(0.005)}, 5)
    assert found["long_s"] > 2 * found["short_s"] > 0.001


def test_an_uneven_machine_gives_no_times(monkeypatch):
    monkeypatch.setattr(timing, "MAX_FOREIGN", 2.0)
    naps = iter([0.001, 0.02] * 100)
    found = timing.interleave({"a": lambda: time.sleep(next(naps))}, 4, rounds=2)
    # lower quartile over minimum: half of the calls take 20 times as long
    assert found["rounds"] in (1, 2)
    slow = timing.interleave({"a": _one_fast_call()}, 8, rounds=2)
    assert math.isnan(slow["a_s"])
    assert slow["spread"] > timing.MAX_SPREAD
    assert slow["rounds"] == 2


def test_three_repeats_show_an_uneven_machine_too(monkeypatch):
    monkeypatch.setattr(timing, "MAX_FOREIGN", 2.0)
    naps = iter([0, 0, 0.001, 0.02, 0.02])
    found = timing.interleave({"a": lambda: time.sleep(next(naps))}, 3, rounds=1)
    assert math.isnan(found["a_s"])


def _one_fast_call():
    calls = iter(range(10**6))
    return lambda: time.sleep(0.0005 if next(calls) % 10 == 2 else 0.01)


def test_a_busy_machine_gives_no_times(monkeypatch):
    monkeypatch.setattr(timing, "MAX_SPREAD", 1e9)
    monkeypatch.setattr(timing, "MAX_FOREIGN", -1.0)
    assert math.isnan(timing.interleave({"a": nap(0)}, 4)["a_s"])
