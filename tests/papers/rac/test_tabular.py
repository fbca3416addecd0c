"""Tables, against what can be computed by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from assay.papers.rac import environments
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.tabular import (
    TabularDistributedQ,
    TabularHysteretic,
    TabularI2Q,
    TabularIQL,
    TabularLenient,
    TabularRAC,
)
from assay.papers.rac.tabular_training import TabularMatrixGame, play, train_tabular

PAPER = np.array([[8, -12, -12], [-12, 6, 0], [-12, 0, 6]], dtype=float)
CLIMBING = np.array([[11, -30, 0], [-30, 7, 6], [0, 0, 5]], dtype=float)
EDGES = [-12, 0, 6, 8]


def visit_all(learner, payoffs, side=0, rounds=1):
    """One episode of each joint action, in order, the same in every run."""
    for joint in list(itertools.product(*map(range, payoffs.shape))) * rounds:
        ones = np.ones((1, learner.seeds))
        states = np.array([[0], [1]]).repeat(learner.seeds, 1)
        learner.learn(states, joint[side] * ones.astype(int), payoffs[joint] * ones)


@pytest.mark.parametrize("side", [0, 1])
def test_phi_of_the_papers_game_is_the_best_reward_of_each_action(side):
    learner = TabularRAC(2, 3, ReturnContext(edges=EDGES), seeds=2)
    visit_all(learner, PAPER, side)
    assert (learner.action_values()[:, 0] == [8, 6, 6]).all()
    assert learner.greedy(np.zeros(2, int)).tolist() == [0, 0]


def test_phi_of_climbing_by_side():
    for side, phi in ((0, [11, 7, 5]), (1, [11, 7, 6])):
        learner = TabularRAC(2, 3, ReturnContext(-30, 11, 41))
        visit_all(learner, CLIMBING, side)
        assert learner.action_values()[0, 0].tolist() == phi


def test_iql_learns_the_mean_over_a_random_partner():
    learner = TabularIQL(2, 3, alpha=0.01)
    visit_all(learner, PAPER, rounds=2000)
    assert learner.q[0, 0] == pytest.approx([-16 / 3, -2, -2], abs=0.15)


def test_phi_bounds_every_context_and_does_not_depend_on_nested_edges():
    coarse = TabularRAC(2, 3, ReturnContext(-30, 12, 6))
    fine = TabularRAC(2, 3, ReturnContext(-30, 12, 24))
    for learner in (coarse, fine):
        visit_all(learner, CLIMBING, rounds=20)
        phi = learner.action_values()[:, :, None]
        assert (phi >= np.where(learner.visits > 0, learner.q, -np.inf)).all()
    assert (fine.action_values() >= coarse.action_values() - 1e-12).all()
    assert fine.action_values()[0, 0].tolist() == [11, 7, 5]


def play_against_random(learner, game, episodes, seed):
    rng = np.random.default_rng(seed)
    for _ in range(episodes):
        state = game.reset(learner.seeds)
        states, actions, rewards, ends = [state], [], [], []
        while not (ends and ends[-1].all()):
            own = learner.act(state, 0.5)
            other = rng.integers(3, size=learner.seeds)
            state, reward, end = game.step(np.stack([own, other]))
            states, actions = [*states, state], [*actions, own]
            rewards, ends = [*rewards, reward], [*ends, end]
        learner.learn(*map(np.array, (states, actions, rewards, ends)))


def test_hysteretic_reaches_from_iql_to_distributed_q():
    game = environments.MatrixGame(PAPER, CLIMBING, PAPER.T)
    for one, other in (
        (TabularHysteretic(4, 3, beta=1.0, seeds=5), TabularIQL(4, 3, seeds=5)),
        (
            TabularHysteretic(4, 3, beta=0.0, alpha=1.0, seeds=5),
            TabularDistributedQ(4, 3, alpha=1.0, seeds=5),
        ),
    ):
        for learner in (one, other):
            learner.greedy = lambda states: np.zeros(5, dtype=int)  # the same episodes for both
            play_against_random(learner, TabularMatrixGame(game), 100, seed=3)
        assert (one.visits == other.visits).all()
        if isinstance(other, TabularDistributedQ):
            # Distributed Q keeps an action below the state's best at its first value.
            assert np.allclose(one.q.max(-1), other.q.max(-1))
        else:
            assert (one.q == other.q).all()


def solve(make, stages=(CLIMBING,), seeds=60, episodes=2000, **options):
    game = TabularMatrixGame(environments.MatrixGame(*stages), **options)
    learners = [make(game, seeds, agent) for agent in range(2)]
    train_tabular(game, learners, episodes, lambda e: max(0.05, 1 - e / (0.8 * episodes)))
    return np.isclose(play(game, learners)["rewards"].sum(0), game.best_return).mean()


def rac(game, seeds, agent):
    return TabularRAC(game.n_states, 3, ReturnContext(-30, 11, 20), seeds=seeds, rng=agent)


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (rac, 1, 1),
        (lambda g, s, a: TabularIQL(g.n_states, 3, seeds=s, rng=a), 0, 0.05),
        (lambda g, s, a: TabularHysteretic(g.n_states, 3, 0.01, seeds=s, rng=a), 0.99, 1),
        (lambda g, s, a: TabularDistributedQ(g.n_states, 3, seeds=s, rng=a), 1, 1),
        (lambda g, s, a: TabularLenient(g.n_states, 3, decay=0.9993, seeds=s, rng=a), 0.9, 1),
    ],
    ids=["rac", "iql", "hysteretic", "distributed", "lenient"],
)
def test_climbing_from_the_safe_action_to_the_best(make, low, high):
    assert low <= solve(make) <= high


def test_i2q_needs_a_state_that_tells_what_partners_did():
    def make(game, seeds, agent):
        return TabularI2Q(game.n_states, 3, 9, seeds=seeds, rng=agent)

    assert solve(make, seeds=50, show_joint_action=True) == 1
    assert solve(make, seeds=50) <= 0.1
    assert solve(make, [CLIMBING, PAPER], seeds=50, show_joint_action=True) == 1


def test_two_optima_need_the_memory_of_the_policy():
    penalty = np.array([[10, 0, -10], [0, 2, 0], [-10, 0, 10]])
    distributed = solve(
        lambda g, s, a: TabularDistributedQ(g.n_states, 3, seeds=s, rng=a), [penalty]
    )
    optimist = solve(rac, [penalty])
    assert distributed == 1
    assert 0.3 < optimist < 0.7


def test_luck_deceives_rac():
    ((odds, tables),) = environments.partially_stochastic_climbing().lotteries
    assert solve(rac, [list(zip(odds, tables, strict=True))]) < 0.1


def test_longer_games_are_learned_backwards_through_the_episode():
    rng = np.random.default_rng(0)
    stages = [PAPER[rng.permutation(3)][:, rng.permutation(3)] for _ in range(2)]

    def make(game, seeds, agent):
        return TabularRAC(game.n_states, 3, ReturnContext(-24, 16, 10), seeds=seeds, rng=agent)

    assert solve(make, stages) > 0.95


def test_a_step_limit_bootstraps_and_an_end_does_not():
    states, actions, rewards = np.array([[0], [1]]), np.array([[0]]), np.array([[1.0]])
    for ends, value in ((True, 1.0), (False, 1 + 0.5 * 4)):
        learner = TabularIQL(2, 1, gamma=0.5)
        learner.learn(np.array([[1], [1]]), actions, np.array([[4.0]]))
        learner.learn(states, actions, rewards, np.array([[ends]]))
        assert learner.q[0, 0, 0] == value


def test_steps_after_a_runs_end_teach_nothing():
    learner = TabularRAC(3, 1, ReturnContext(0, 10, 10), seeds=2)
    filled = np.array([[True, True], [True, False]])
    learner.learn(
        np.array([[0, 0], [1, 1], [2, 2]]),
        np.zeros((2, 2), dtype=int),
        np.array([[1.0, 1.0], [5.0, 5.0]]),
        np.array([[False, True], [True, True]]),
        filled,
    )
    assert learner.visits[0].sum() == 2
    assert learner.visits[1].sum() == 1
    assert learner.visits[0, 0, 6, 0] == learner.visits[1, 0, 1, 0] == 1


def test_bad_input_is_named():
    learner = TabularIQL(2, 3, seeds=2)
    states, actions = np.zeros((2, 2), int), np.zeros((1, 2), int)
    with pytest.raises(ValueError, match="rewards: got nan at step 0 of run 1"):
        learner.learn(states, actions, np.array([[0.0, np.nan]]))
    with pytest.raises(ValueError, match="states, rewards: got"):
        learner.learn(states[:1], actions, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="actions: got 1 runs, wants 2"):
        learner.learn(states[:, :1], actions[:, :1], np.zeros((1, 1)))
    with pytest.raises(ValueError, match=r"alpha: got 2\.0, wants a finite number from 0 to 1"):
        TabularIQL(2, 3, alpha=2.0)
    with pytest.raises(ValueError, match="beta: got -1"):
        TabularHysteretic(2, 3, beta=-1)
    learner = TabularI2Q(3, 1, 1)
    learner.learn(np.array([[0], [1]]), np.zeros((1, 1), int), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="n_successors: got 1"):
        learner.learn(np.array([[0], [2]]), np.zeros((1, 1), int), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="temperature: got 0, wants a finite number > 0"):
        TabularLenient(2, 3, temperature=0)
    game = TabularMatrixGame(environments.paper_game())
    with pytest.raises(ValueError, match="learners: got"):
        train_tabular(game, [TabularIQL(2, 3), TabularIQL(2, 3, seeds=2)], 1, 0)


@pytest.mark.parametrize(
    "make", [TabularIQL, lambda *a, **o: TabularRAC(*a, ReturnContext(-10, 10, 2), **o)]
)
def test_values_start_at_init_where_the_first_visit_does_not_set_them(make):
    states, actions = np.array([[0], [1]]), np.array([[0]])
    for first_visit, value in ((True, -10.0), (False, -0.1 * 10 + 0.9 * 2)):
        learner = make(2, 2, init=2.0, first_visit=first_visit)
        learner.learn(states, actions, np.array([[-10.0]]))
        assert learner.q.min() == pytest.approx(value)


@pytest.mark.parametrize("first_visit", [True, False])
def test_phi_is_of_contexts_that_an_episode_had(first_visit):
    """All returns are below `init`, which the contexts without an episode still hold."""
    game = TabularMatrixGame(environments.MatrixGame([[-1, -9], [-9, -3]]))
    sizes = (game.n_states, 2, ReturnContext(-10, 0, 10))
    learners = [TabularRAC(*sizes, first_visit=first_visit, seeds=20, rng=i) for i in range(2)]
    train_tabular(game, learners, 800, 1.0)
    for learner in learners:
        assert learner.action_values()[:, 0] == pytest.approx(np.array([[-1.0, -3.0]] * 20), 0.01)
