from __future__ import annotations

import math
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from pettingzoo.test import parallel_api_test

from assay.papers.rac.adapters import (
    action_mask_of,
    from_gymnasium,
    from_smac,
    make,
    observation_of,
    shared_reward,
)


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
        ({"a": 1.0, "b": None}, "sum", "got None for b, wants a number"),
        ({"a": np.ones(2), "b": 1.0}, "sum", r"got array\(.*\) for a, wants a number"),
        ({}, "sum", "got none"),
        ({"a": 1.0}, "max", "team_reward: got 'max'"),
    ],
)
def test_bad_rewards_are_refused(rewards, team, message):
    with pytest.raises(ValueError, match=message):
        shared_reward(rewards, team)


class FakeTuples(gymnasium.Env):
    """Two agents that count steps; agent 1 dies after the second and can then only wait."""

    def __init__(self, rewards=(1.0, 3.0), length=4):
        self.action_space = Tuple([Discrete(2), Discrete(3)])
        self.observation_space = Tuple([Box(0, 9, (2,), np.float32)] * 2)
        self.rewards = rewards
        self.length = length
        self.n_actions = 3

    def _observations(self):
        return tuple(np.full(2, self.steps, np.float32) for _ in range(2))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observations(), {}

    def step(self, actions):
        assert [type(action) for action in actions] == [int, int]
        self.steps += 1
        return self._observations(), self.rewards, self.steps == self.length, False, {}

    def get_avail_actions(self):
        return [[1, 1, 0], [1, 0, 0] if self.steps > 1 else [1, 1, 1]]

    def get_state(self):
        return [self.steps]


class FakeSmac:
    """SMAC's interface: a battle that is won at the third step, or cut off at the limit."""

    def __init__(self, wins=True):
        self.wins = wins

    def get_env_info(self):
        sizes = {"state_shape": 4, "obs_shape": 3, "n_actions": 5, "n_agents": 2}
        return sizes | {"episode_limit": 3}

    def reset(self):
        self.steps = 0

    def get_obs(self):
        return [np.full(3, self.steps), np.full(3, -self.steps)]

    def get_state(self):
        return np.full(4, self.steps)

    def get_avail_actions(self):
        return [[0, 1, 1, 1, 1], [1, 0, 0, 0, 0]]

    def step(self, actions):
        self.steps += 1
        over = self.steps == 3
        return 2.5, over, {"episode_limit": True} if over and not self.wins else {}

    def close(self):
        pass


def play(env, steps):
    """What the last of `steps` steps gives, with the first allowed action of everyone."""
    observations, infos = env.reset(seed=0)
    answer = None
    for _ in range(steps):
        actions = {
            agent: int(
                np.flatnonzero(
                    action_mask_of(observations[agent], infos[agent], env.action_space(agent).n)
                )[0]
            )
            for agent in env.agents
        }
        answer = env.step(actions)
        observations, infos = answer[0], answer[4]
    return answer


def test_tuples_become_dictionaries_with_masks():
    env = from_gymnasium(FakeTuples())
    observations, rewards, ends, cuts, infos = play(env, 2)
    assert observations["agent_1"].tolist() == [2, 2]
    assert rewards == {"agent_0": 1, "agent_1": 3}
    assert not any(ends.values())
    assert not any(cuts.values())
    assert infos["agent_1"]["action_mask"].tolist() == [1, 0, 0]
    assert env.action_space("agent_0").n == 3
    assert env.state().tolist() == [2]
    *_, ends, cuts, _ = play(env, 4)
    assert all(ends.values())
    assert not any(cuts.values())
    assert env.agents == []


def test_one_number_is_everyones_reward():
    assert play(from_gymnasium(FakeTuples(rewards=0.5)), 1)[1] == {"agent_0": 0.5, "agent_1": 0.5}


def test_a_limit_truncates_but_an_end_at_the_limit_stays_an_end():
    *_, ends, cuts, _ = play(from_gymnasium(FakeTuples(), limit=3), 3)
    assert not any(ends.values())
    assert all(cuts.values())
    *_, ends, cuts, _ = play(from_gymnasium(FakeTuples(), limit=4), 4)
    assert all(ends.values())
    assert not any(cuts.values())


def test_what_speaks_smac_is_understood():
    env = from_smac(FakeSmac())
    observations, rewards, ends, cuts, infos = play(env, 3)
    assert env.observation_space("agent_1").contains(observations["agent_1"])
    assert observations["agent_1"].tolist() == [-3, -3, -3]
    assert rewards == {"agent_0": 2.5, "agent_1": 2.5}
    assert infos["agent_0"]["action_mask"].tolist() == [0, 1, 1, 1, 1]
    assert all(ends.values())
    assert not any(cuts.values())
    assert env.state().tolist() == [3, 3, 3, 3]
    *_, ends, cuts, _ = play(from_smac(FakeSmac(wins=False)), 3)
    assert not any(ends.values())
    assert all(cuts.values())


def test_adapters_refuse_what_they_cannot_adapt():
    with pytest.raises(TypeError, match="env: got spaces"):
        from_gymnasium(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match="limit: got 0"):
        from_gymnasium(FakeTuples(), limit=0)
    continuous = FakeTuples()
    continuous.action_space = Tuple([Box(0, 1, (1,))] * 2)
    with pytest.raises(TypeError, match="wants Discrete"):
        from_gymnasium(continuous)
    with pytest.raises(TypeError, match="has no get_env_info, get_obs"):
        from_smac(FakeTuples())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("matrix:paper", {}),
        ("matrix:climbing", {}),
        ("matrix:penalty-10", {}),
        ("matrix:penalty-0.5", {}),
        ("matrix:partially-stochastic-climbing", {}),
        ("matrix:stochastic-climbing", {}),
        ("tree", {"tree_seed": 3, "depth": 2}),
        ("predator-prey", {"punishment": -5.0}),
        ("lbf:8x8-2p-2f-coop", {"penalty": 0.1}),
        ("lbf:2s-8x8-3p-2f", {}),
        ("mpe:simple_spread_v3", {"local_ratio": 0.0}),
        ("assay.papers.rac.environments:climbing", {}),
    ],
)
def test_environments_are_made_by_name(name, options):
    env = make(name, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        parallel_api_test(env, num_cycles=60)
    observations, _ = env.reset(seed=1)
    for agent in env.agents:
        seen = observation_of(observations[agent])
        assert seen.shape == env.observation_space(agent).shape
    again = make(name, **options).reset(seed=1)[0]
    assert all(np.array_equal(again[agent], observations[agent]) for agent in env.agents)


def test_foraging_is_cut_off_at_its_limit_and_ends_when_all_is_eaten():
    env = make("lbf:8x8-2p-2f-coop", limit=7)
    assert env.metadata["name"] == "ForagingEnv"
    with pytest.raises(NotImplementedError):
        env.state()
    *_, ends, cuts, _ = play(env, 7)  # everyone waits
    assert not any(ends.values())
    assert all(cuts.values())
    env.reset(seed=0)
    env.env.unwrapped.field[:] = 0
    *_, ends, cuts, _ = env.step({"agent_0": 0, "agent_1": 0})
    assert all(ends.values())
    assert not any(cuts.values())


def test_the_penalty_of_foraging_is_paid_for_loading_alone():
    env = make("lbf:8x8-2p-1f-coop", penalty=0.25)
    env.reset(seed=0)
    inner = env.env.unwrapped
    row, column = np.argwhere(inner.field)[0]
    inner.players[0].position = (row, column - 1)
    inner.players[1].position = (0, 0)
    inner._gen_valid_moves()
    rewards = env.step({"agent_0": 5, "agent_1": 0})[1]
    assert rewards == {"agent_0": -0.25, "agent_1": 0}
    assert shared_reward(rewards, "sum") == -0.25


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chess", {}, "wants one of matrix:paper"),
        ("matrix:chess", {}, "no matrix game 'chess'"),
        ("matrix:penalty5", {}, "k: got 5"),
        ("lbf:8x9-2p", {}, "lbforaging has no '8x9-2p'"),
        ("mpe:chess_v0", {}, "mpe2 has no 'chess_v0'"),
        ("no.such.module:env", {}, "cannot be imported"),
        ("math:sqrt", {"x": 1}, "math:sqrt"),
        ("collections:OrderedDict", {}, "gives OrderedDict, wants a PettingZoo ParallelEnv"),
        ("predator-prey", {"colour": 3}, "colour"),
        ("predator-prey", {"size": 1}, "size: got 1"),
        ("tree:9", {}, "cannot be imported"),
    ],
)
def test_names_that_make_nothing_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, **options)


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "smaclite", None)
    with pytest.raises(ValueError, match="needs smaclite"):
        make("smaclite:2s3z")
