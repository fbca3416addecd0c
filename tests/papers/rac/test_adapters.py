from __future__ import annotations

import math

import numpy as np
import pytest

from assay.papers.rac.adapters import action_mask_of, observation_of, shared_reward


def test_an_observation_becomes_a_float32_vector():
    image = np.arange(6, dtype=np.int64).reshape(1, 2, 3)
    for given in (image, {"observation": image, "action_mask": np.ones(2)}):
        vector = observation_of(given)
        assert vector.dtype == np.float32
        assert vector.tolist() == [0, 1, 2, 3, 4, 5]
    assert observation_of(3).tolist() == [3]


@pytest.mark.parametrize("bad", ["text", {"pixels": np.ones(2)}, [[1], [1, 2]], None])
def test_what_is_no_array_of_numbers_is_refused(bad):
    with pytest.raises((TypeError, ValueError), match="obs_value"):
        observation_of(bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_observation_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="obs_value"):
        observation_of(np.array([0.0, bad]))


def test_the_mask_is_found_in_the_observation_or_the_info():
    mask = np.array([0, 1, 1], dtype=np.int8)
    expected = [False, True, True]
    assert action_mask_of({"observation": 0, "action_mask": mask}, {}, 3).tolist() == expected
    assert action_mask_of(np.zeros(2), {"action_mask": mask}, 3).tolist() == expected
    assert action_mask_of({"observation": 0}, {"action_mask": mask}, 3).tolist() == expected
    assert action_mask_of(np.zeros(2), {}, 3).tolist() == [True] * 3
    assert action_mask_of(np.zeros(2), None, 3).tolist() == [True] * 3


@pytest.mark.parametrize(
    ("obs", "info", "message"),
    [
        (0, {"action_mask": [0, 0, 0]}, "no action is available"),
        (0, {"action_mask": [1, 1]}, r"shape \(2,\)"),
        (0, {"action_mask": [1, 2, 0]}, "0 or 1"),
        (0, {"action_mask": [1, math.nan, 0]}, "0 or 1"),
        ({"observation": 0}, {}, "in neither"),
    ],
)
def test_bad_masks_are_refused(obs, info, message):
    with pytest.raises(ValueError, match=f"action_mask: .*{message}"):
        action_mask_of(obs, info, 3)


def test_the_shared_reward():
    assert shared_reward({"a": 2.0, "b": 2.0}) == 2.0
    assert shared_reward({"a": 1.0, "b": 3.0}, "sum") == 4.0
    assert shared_reward({"a": 1.0, "b": 3.0}, "mean") == 2.0


@pytest.mark.parametrize(
    ("rewards", "team", "message"),
    [
        ({"a": 1.0, "b": 2.0}, None, "team_reward"),
        ({"a": 1.0, "b": math.nan}, "sum", "nan for b"),
        ({"a": math.inf, "b": math.inf}, None, "inf for a"),
        ({}, "sum", "got none"),
        ({"a": 1.0}, "max", "team_reward: got 'max'"),
    ],
)
def test_bad_rewards_are_refused(rewards, team, message):
    with pytest.raises(ValueError, match=message):
        shared_reward(rewards, team)
