"""Episodes in a ring."""

from __future__ import annotations

import numpy as np
import pytest

from assay.papers.rac.replay import Episode, EpisodeReplay


def episode(steps, tag=1.0, epsilon=0.5):
    return Episode(
        obs=[np.full(2, tag + t) for t in range(steps + 1)],
        masks=[np.array([True, False, True])] * (steps + 1),
        actions=[2] * steps,
        rewards=[tag] * steps,
        terminated=[False] * (steps - 1) + [True],
        epsilons=[epsilon] * steps,
    )


def replay(capacity=3, max_len=4):
    return EpisodeReplay(capacity, obs_dim=2, max_len=max_len, n_actions=3)


def test_the_oldest_episode_makes_room_and_leaves_nothing_behind():
    kept = replay()
    kept.store(episode(4, tag=10.0))
    for tag in (20.0, 30.0, 40.0):
        kept.store(episode(2, tag))
    assert len(kept) == 3
    batch = kept.at([0, 1, 2])
    assert batch.rewards.sum(1).tolist() == [80.0, 40.0, 60.0]
    assert batch.obs.shape == (3, 3, 2), "cut after the longest"
    kept.store(episode(4, tag=50.0))
    batch = kept.at([0, 1])
    assert batch.filled.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch.rewards[0].tolist() == [40, 40, 0, 0]
    assert batch.obs[0, 3:].abs().sum() == 0
    assert batch.mask[0].tolist() == [[True, False, True]] * 3 + [[True] * 3] * 2
    assert batch.terminated[0].tolist() == [0, 1, 0, 0]


def test_a_draw_takes_each_episode_once():
    kept = replay(capacity=20)
    for tag in range(20):
        kept.store(episode(1, float(tag)))
    rng = np.random.default_rng(0)
    drawn = kept.sample(15, rng).rewards[:, 0].tolist()
    assert len(set(drawn)) == 15
    assert kept.sample(15, rng).rewards[:, 0].tolist() != drawn
    with pytest.raises(ValueError, match="episodes: got 21, wants 1 to 20"):
        kept.sample(21, rng)


def test_state_is_a_copy():
    kept, other = replay(), replay()
    for tag in range(5):
        kept.store(episode(3, float(tag), epsilon=tag / 10))
    other.load_state_dict(kept.state_dict())
    kept.store(episode(2, 99.0))
    assert 99.0 not in other.at([0, 1, 2]).rewards
    other.store(episode(2, 99.0))
    ours, theirs = (vars(one.at([0, 1, 2])) for one in (kept, other))
    for name, part in ours.items():
        assert (part == theirs[name]).all(), name
    assert (kept.epsilon == other.epsilon).all()


def test_a_state_holds_no_padding_and_leaves_nothing_behind():
    short, used = replay(), replay()
    short.store(episode(2, tag=5.0))
    state = short.state_dict()
    assert state["obs"].shape == (1, 3, 2)
    for tag in range(3):
        used.store(episode(4, float(tag)))
    used.load_state_dict(state)
    assert len(used) == 1
    used.store(episode(4, tag=6.0))
    short.store(episode(4, tag=6.0))
    ours, theirs = (vars(one.at([0, 1])) for one in (short, used))
    for name, part in ours.items():
        assert (part == theirs[name]).all(), name
    used.load_state_dict(replay().state_dict())
    assert len(used) == 0


def test_epsilon_is_constant_within_an_episode():
    changing = episode(3)
    changing.epsilons = [0.5, 0.5, 0.4]
    with pytest.raises(ValueError, match=r"epsilon from 0\.4 to 0\.5, wants the same"):
        replay().store(changing)
    kept = replay()
    kept.store(episode(3, epsilon=0.25))
    assert kept.epsilon[0] == 0.25


@pytest.mark.parametrize("steps", [0, 5])
def test_nothing_is_cut_silently(steps):
    with pytest.raises(ValueError, match=f"episode: got {steps} steps, wants 1 to max_len = 4"):
        replay().store(episode(steps))


@pytest.mark.parametrize("reward", [np.nan, np.inf, 1e39])
def test_rewards_are_finite(reward):
    kept, bad = replay(), episode(3)
    kept.store(episode(1))
    bad.rewards[1] = reward
    with pytest.raises(ValueError, match=r"rewards: got (nan|inf|1e\+39) at step 1 of episode 1"):
        kept.store(bad)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="capacity: got 0"):
        replay(capacity=0)
    with pytest.raises(ValueError, match="capacity, max_len: got 1000000000 and 1000000000, wants"):
        replay(capacity=10**9, max_len=10**9)


def test_a_state_of_other_sizes_is_refused_and_changes_nothing():
    kept = replay()
    for tag in range(5):
        kept.store(episode(3, float(tag)))
    state = kept.state_dict()
    wide = EpisodeReplay(3, obs_dim=4, max_len=4, n_actions=3)
    for other in (replay(capacity=2), replay(capacity=9), replay(max_len=2), wide):
        with pytest.raises(ValueError, match=r"state: got \w+ \(3, .* of 5 episodes, wants"):
            other.load_state_dict(state)
        assert len(other) == 0
    longer = replay(max_len=8)
    longer.load_state_dict(state)
    assert (longer.at([0, 1, 2]).rewards == kept.at([0, 1, 2]).rewards).all()
