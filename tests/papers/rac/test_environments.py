from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from pettingzoo.test import parallel_api_test, parallel_seed_test

from assay.papers.rac.environments import (
    BatchedPredatorPrey,
    MatrixGame,
    PredatorPrey,
    RandomTree,
    climbing,
    paper_game,
    partially_stochastic_climbing,
    penalty,
    stochastic_climbing,
)
from assay.papers.rac.environments.predator_prey import ACTIONS

NORTH, SOUTH, EAST, WEST, STAY, CATCH = range(6)
SMALL = {"size": 4, "predators": 2, "preys": 1, "limit": 15}
LARGE = {"size": 10, "predators": 8, "preys": 8, "limit": 200, "punishment": -2.0}
MAKERS = {
    "paper": paper_game,
    "climbing": climbing,
    "penalty": penalty,
    "partially stochastic": partially_stochastic_climbing,
    "stochastic": stochastic_climbing,
    "three agents, two stages": lambda: MatrixGame(np.ones((2, 3, 4)), np.zeros((2, 3, 4))),
    "shown": lambda: paper_game(show_joint_action=True),
    "tree": RandomTree,
    "predator-prey": PredatorPrey,
    "8 and 8": lambda: PredatorPrey(prey_moves=True, observation="window", **LARGE),
}


@pytest.mark.parametrize("name", MAKERS)
def test_pettingzoo_accepts_it(name, capsys):
    make = MAKERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(make(), num_cycles=300)
        parallel_seed_test(make, num_cycles=300)


@pytest.mark.parametrize("name", MAKERS)
def test_observations_lie_in_their_spaces_and_runs_repeat(name):
    def play(env):
        found = []
        observations, _ = env.reset(seed=3)
        random = np.random.default_rng(0)
        while env.agents:
            for agent in env.agents:
                assert env.observation_space(agent).contains(observations[agent]), agent
            assert env.state_space.contains(env.state())
            actions = {a: int(random.integers(env.action_space(a).n)) for a in env.agents}
            observations, rewards, ends, cuts, _ = env.step(actions)
            assert len(set(rewards.values())) == 1, "the reward is shared"
            found.append((rewards, ends, cuts, {a: o.tolist() for a, o in observations.items()}))
        return found

    env = MAKERS[name]()
    first = play(env)
    assert first == play(env) == play(MAKERS[name]())


def outcomes(env, plays):
    """Rewards of every joint action of a matrix game, played `plays` times."""
    shape = env.expected.shape[1:]
    found = {}
    env.reset(seed=0)
    for joint in itertools.product(*map(range, shape)):
        found[joint] = []
        for _ in range(plays):
            env.reset()
            rewards = env.step(dict(zip(env.possible_agents, joint, strict=True)))[1]
            found[joint].append(rewards["agent_0"])
    return found


def test_matrix_games_pay_what_their_tables_say():
    table = [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]
    for joint, rewards in outcomes(climbing(), 1).items():
        assert rewards == [table[joint[0]][joint[1]]]
    assert outcomes(paper_game(), 1)[0, 0] == [8]
    assert outcomes(penalty(-50), 1)[0, 2] == [-50]
    assert [g().best_return for g in (paper_game, climbing, penalty)] == [8, 11, 10]


def test_stochastic_climbing_has_the_expectation_of_climbing():
    for game in (partially_stochastic_climbing(), stochastic_climbing()):
        assert game.expected.tolist() == climbing().expected.tolist()
    partial = outcomes(partially_stochastic_climbing(), 200)
    assert set(partial[1, 1]) == {0, 14}
    assert np.mean(partial[1, 1]) == pytest.approx(7, abs=3 * 7 / math.sqrt(200))
    assert set(partial[1, 2]) == {6}
    full = outcomes(stochastic_climbing(), 60)
    assert set(full[0, 1]) == {5, -65}
    assert all(len(set(rewards)) == 2 for rewards in full.values())


def test_a_sequence_of_stages_shows_where_it_is():
    env = MatrixGame([[1, 2]], [[3, 4]])
    observations, _ = env.reset()
    assert observations["agent_0"].tolist() == [1, 0]
    observations, rewards, ends, _, _ = env.step({"agent_0": 0, "agent_1": 1})
    assert rewards["agent_1"] == 2
    assert not ends["agent_0"]
    assert observations["agent_1"].tolist() == [0, 1]
    observations, rewards, ends, _, _ = env.step({"agent_0": 0, "agent_1": 0})
    assert rewards["agent_0"] == 3
    assert ends == {"agent_0": True, "agent_1": True}
    assert observations["agent_0"].tolist() == [0, 0]
    assert env.best_return == 6


def test_the_joint_action_is_shown_where_asked_for():
    env = paper_game(show_joint_action=True)
    observations, _ = env.reset()
    assert observations["agent_0"].tolist() == [1, 0, 0, 0, 0, 0, 0]
    observations, *_ = env.step({"agent_0": 1, "agent_1": 2})
    assert observations["agent_0"].tolist() == [0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "got none"),
        ((3.0,), "an axis for each agent"),
        (([[1, 2], [3]],), "one shape"),
        (([[1, 2]], [[1], [2]]), "one shape"),
        (([[1, math.nan]],), "NaN"),
        (([(0.5, [[1]]), (0.6, [[1]])],), "add up to 1"),
        (([(1.5, [[1]]), (-0.5, [[1]])],), "add up to 1"),
    ],
)
def test_bad_tables_are_refused(stages, message):
    with pytest.raises(ValueError, match=f"stages: .*{message}"):
        MatrixGame(*stages)


def test_the_trees_best_return_is_the_best_of_all_paths():
    tree = RandomTree(tree_seed=1, actions=2, depth=4)

    def play(path):
        tree.reset()
        total = 0.0
        for first, second in path:
            _, rewards, ends, _, _ = tree.step({"agent_0": first, "agent_1": second})
            total += rewards["agent_0"]
        assert all(ends.values())
        return total

    joint = list(itertools.product((0, 1), repeat=2))
    returns = [play(path) for path in itertools.product(joint, repeat=4)]
    assert tree.best_return == pytest.approx(max(returns), abs=1e-12)
    assert RandomTree(tree_seed=2).best_return != RandomTree(tree_seed=3).best_return


def test_the_trees_observation_tells_every_path_apart():
    tree = RandomTree(actions=2, depth=2)
    seen = set()
    for path in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        tree.reset()
        for first, second in path:
            observations, *_ = tree.step({"agent_0": first, "agent_1": second})
        seen.add(observations["agent_0"].tobytes())
    assert len(seen) == 16


@pytest.mark.parametrize(
    "bad", [{"agents": 0}, {"actions": 1}, {"depth": 0}, {"depth": 30}, {"render_mode": "human"}]
)
def test_bad_trees_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        RandomTree(**bad)


@pytest.mark.parametrize("make", [paper_game, RandomTree, PredatorPrey])
@pytest.mark.parametrize("bad", [-1, 6])
def test_an_action_out_of_range_is_refused(make, bad):
    env = make()
    env.reset(seed=0)
    first, second = env.possible_agents
    with pytest.raises(ValueError, match=f"actions: got {bad} for {second}"):
        env.step({first: 0, second: bad})


def placed(predators, preys, **options):
    """A game with every animal where it is wanted."""
    sizes = {"size": 6, "predators": len(predators), "preys": len(preys)}
    env = PredatorPrey(**sizes | options)
    env.reset(seed=0)
    env._cells = np.array([*predators, *preys])
    return env


def act(env, *actions):
    return env.step(dict(zip(env.agents, actions, strict=True)))


def test_two_catch_what_one_is_punished_for():
    env = placed([(0, 1), (1, 0)], [(0, 0)])
    _, rewards, ends, cuts, _ = act(env, CATCH, STAY)
    assert rewards["predator_0"] == rewards["predator_1"] == -10
    assert not any(ends.values())
    _, rewards, ends, cuts, _ = act(env, CATCH, CATCH)
    assert rewards["predator_0"] == 10
    assert all(ends.values())
    assert not any(cuts.values())
    assert env.agents == []


def test_a_catch_reaches_over_the_edge_but_not_across_corners():
    env = placed([(0, 5), (5, 0)], [(0, 0)])
    assert act(env, CATCH, CATCH)[1]["predator_0"] == 10
    env = placed([(1, 1), (5, 5)], [(0, 0)])
    assert act(env, CATCH, CATCH)[1]["predator_0"] == 0


def test_one_at_each_of_two_prey_is_punished_twice_and_one_between_two_as_well():
    env = placed([(0, 1), (3, 1)], [(0, 0), (3, 0)])
    assert act(env, CATCH, CATCH)[1]["predator_0"] == -20
    env = placed([(0, 1), (3, 3)], [(0, 0), (0, 2)])
    assert act(env, CATCH, STAY)[1]["predator_0"] == -20


def test_catchers_leave_with_their_prey_and_the_game_goes_on():
    env = placed([(0, 1), (1, 0), (3, 3)], [(0, 0), (3, 4)])
    observations, rewards, ends, _, _ = act(env, CATCH, CATCH, STAY)
    assert rewards == dict.fromkeys(env.possible_agents, 10)
    assert ends == {"predator_0": True, "predator_1": True, "predator_2": False}
    assert env.agents == ["predator_2"]
    assert env.state().sum() == 2
    observations, rewards, *_ = act(env, CATCH)
    assert set(observations) == set(rewards) == {"predator_2"}
    assert rewards["predator_2"] == -10


def test_the_limit_is_a_truncation():
    env = PredatorPrey(limit=3)
    env.reset(seed=0)
    for _ in range(3):
        _, _, ends, cuts, _ = act(env, STAY, STAY)
    assert not any(ends.values())
    assert all(cuts.values())
    assert env.agents == []


def test_a_catch_at_the_limit_is_a_termination():
    env = placed([(0, 1), (1, 0)], [(0, 0)], limit=1)
    _, _, ends, cuts, _ = act(env, CATCH, CATCH)
    assert all(ends.values())
    assert not any(cuts.values())


def test_predators_walk_round_the_torus_but_not_onto_others():
    env = placed([(0, 0), (3, 3)], [(0, 1)])
    act(env, NORTH, STAY)
    assert env._cells[0].tolist() == [5, 0]
    env = placed([(0, 0), (3, 3)], [(0, 1)])
    act(env, EAST, WEST)
    assert env._cells.tolist() == [[0, 0], [3, 2], [0, 1]]
    env = placed([(3, 2), (3, 3)], [(0, 1)])
    act(env, EAST, SOUTH)  # the first is blocked by where the second still stands
    assert env._cells.tolist() == [[3, 2], [4, 3], [0, 1]]


def test_prey_walk_evenly_to_free_neighbours():
    env = placed([(0, 1), (5, 0)], [(0, 0)], prey_moves=True)
    steps = {}
    for _ in range(400):
        env._cells = np.array([(0, 1), (5, 0), (0, 0)])
        env._advance(np.array([STAY, STAY]), env._random.random((1, 4)))
        cell = tuple(env._cells[2].tolist())
        steps[cell] = steps.get(cell, 0) + 1
    assert set(steps) == {(1, 0), (0, 5)}
    assert min(steps.values()) > 150


def test_a_window_shows_others_around_the_agent():
    env = placed([(0, 0), (5, 1)], [(2, 0), (3, 3)], observation="window")
    window = act(env, STAY, STAY)[0]["predator_0"].reshape(2, 5, 5)
    assert np.argwhere(window[0]).tolist() == [[1, 3]]
    assert np.argwhere(window[1]).tolist() == [[4, 2]]


def test_the_state_is_a_plane_for_each_animal():
    env = placed([(0, 0), (5, 1)], [(2, 3)])
    planes = env.state().reshape(3, 6, 6)
    assert np.argwhere(planes).tolist() == [[0, 0, 0], [1, 5, 1], [2, 2, 3]]


def test_the_picture_shows_who_is_there():
    env = placed([(0, 0), (5, 1)], [(2, 3)], render_mode="rgb_array")
    picture = env.render()
    side = picture.shape[0] // 6
    assert picture.shape == (6 * side, 6 * side, 3)
    assert picture.dtype == np.uint8

    def colours(row, column):
        cell = picture[row * side : (row + 1) * side, column * side : (column + 1) * side]
        return len(np.unique(cell.reshape(-1, 3), axis=0))

    assert colours(0, 0) > 3
    assert colours(2, 3) > 3
    assert colours(4, 4) == 1


def wishing(game, wishes):
    """Lets the prey of a game walk by given wishes at its next step."""
    advance = type(game)._advance
    game._advance = lambda actions, _: advance(game, actions, wishes)


@pytest.mark.parametrize(
    ("batch", "options"),
    [(200, SMALL), (16, LARGE | {"observation": "window"})],
    ids=["small", "large"],
)
@pytest.mark.parametrize("moves", [False, True])
def test_the_batched_game_is_the_single_one(batch, options, moves):
    options = options | {"prey_moves": moves}
    many = BatchedPredatorPrey(batch, seed=5, **options)
    observed = many.reset()
    singles = []
    for game in range(batch):
        env = PredatorPrey(**options)
        env.reset(seed=0)
        env._cells = np.stack(np.divmod(many._cells[game].numpy(), env.size), axis=1)
        singles.append(env)
    random = np.random.default_rng(7)
    catches = 0
    weights = (0.15, 0.15, 0.15, 0.15, 0.05, 0.35)
    for _ in range(options["limit"]):
        actions = random.choice(len(ACTIONS), (batch, options["predators"]), p=weights)
        wishes = random.random((batch, options["preys"], 4))
        wishing(many, torch.as_tensor(wishes) if moves else None)
        running = ~many.over
        observed, rewards, ends, cuts = many.step(torch.as_tensor(actions))
        for game, env in enumerate(singles):
            if not running[game]:
                assert not env.agents
                assert rewards[game] == 0
                assert not ends[game].any()
                assert not cuts[game].any()
                continue
            wishing(env, wishes[game] if moves else None)
            numbers = [env.possible_agents.index(agent) for agent in env.agents]
            seen, paid, ended, cut, _ = env.step(
                {f"predator_{i}": int(actions[game, i]) for i in numbers}
            )
            catches += sum(ended.values())
            for i in numbers:
                agent = f"predator_{i}"
                assert rewards[game] == paid[agent]
                assert ends[game, i] == ended[agent]
                assert cuts[game, i] == cut[agent]
                if not ended[agent]:
                    assert observed[game, i].tolist() == seen[agent].tolist()
            assert many.present[game].tolist() == [a in env.agents for a in env.possible_agents]
    assert catches > 0
    assert many.over.all() == (not any(env.agents for env in singles))


def test_batched_games_repeat_by_seed_and_do_not_start_alike():
    first, again, other = (BatchedPredatorPrey(8, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.reset(), again.reset())
    assert not torch.equal(first.reset(), other.reset())
    assert len(torch.unique(first.reset().flatten(1), dim=0)) > 1
    assert first.observation_size == first.reset().shape[2]


@pytest.mark.parametrize(
    "bad",
    [
        {"size": 1},
        {"predators": 1},
        {"preys": 0},
        {"limit": 0},
        {"size": 2, "preys": 3},
        {"punishment": 1.0},
        {"punishment": math.nan},
        {"reward": 0.0},
        {"observation": "radar"},
        {"size": 4, "observation": "window"},
    ],
)
def test_bad_rules_are_refused(bad):
    name = next(iter(bad))
    with pytest.raises(ValueError, match=f"^{name}: "):
        PredatorPrey(**bad)
    with pytest.raises(ValueError, match=f"^{name}: "):
        BatchedPredatorPrey(3, **bad)


def test_bad_batches_are_refused():
    with pytest.raises(ValueError, match="batch: got 0"):
        BatchedPredatorPrey(0)
    games = BatchedPredatorPrey(2)
    games.reset()
    with pytest.raises(ValueError, match=r"actions: got shape \(2, 1\)"):
        games.step(torch.zeros(2, 1, dtype=torch.long))


def test_words_and_fractions_are_no_sizes():
    for wrong in ({"size": "4"}, {"limit": 1.5}, {"prey_moves": "false"}):
        (name,) = wrong
        with pytest.raises(TypeError, match=f"^{name}: got"):
            PredatorPrey(**wrong)
    with pytest.raises(TypeError, match=r"^depth: got 2\.5"):
        RandomTree(depth=2.5)
    with pytest.raises(TypeError, match=r"^show_joint_action: got 'no'"):
        paper_game(show_joint_action="no")
