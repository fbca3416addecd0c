"""What the study plays: games as tables, centralized baselines, foraging for many runs."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.batched import BatchedMatrixGame, train_batched
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.environments import MatrixGame
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.loss import iql_loss
from assay.papers.rac.mixing import QMIX, VDN, QMIXNet
from assay.papers.rac.network import QNet, RACNet, stack
from assay.papers.rac.network_games import (
    EDGES,
    BatchedForaging,
    LenientForager,
    SeenRAC,
    foraging_states,
    marginal_error,
    possible_contexts,
)
from assay.papers.rac.tabular_games import GAMES, StillPrey, annealed, matrix_runs
from assay.study import Scale


def one_step(learners, episodes=6, actions=3, rewards=None, seed=0):
    """Episodes of one step for stacked learners of a game with one state."""
    g = torch.Generator().manual_seed(seed)
    ones = torch.ones(learners, episodes, 1)
    if rewards is None:
        rewards = torch.randn(learners // 2, episodes, 1, generator=g).repeat_interleave(2, 0)
    return EpisodeBatch(
        obs=torch.ones(learners, episodes, 2, 1),
        mask=torch.ones(learners, episodes, 2, actions, dtype=torch.bool),
        actions=torch.randint(actions, (learners, episodes, 1), generator=g),
        rewards=rewards,
        terminated=ones,
        filled=ones,
    )


# VDN and QMIX


@pytest.mark.parametrize("method", [VDN(), QMIX()])
def test_centralized_learners_find_the_best_sum(method):
    """Where payoffs are sums of what each contributes, both can represent them."""
    game = BatchedMatrixGame(MatrixGame([[0, 1, 3], [2, 3, 5], [1, 2, 4]]), 4)
    _, history = train_batched(
        game, method, 1500, 1500, Epsilon(steps=1000), learning_rate=2e-3, groups=2
    )
    assert history.returns[-1] == [5.0] * 4


def test_vdn_fits_the_sum_of_what_the_agents_of_a_group_say():
    net = stack([QNet(1, 3, 8, recurrent=False) for _ in range(4)])
    batch = one_step(4)
    values, _ = net.behaviour(batch.obs[:, :, :1])
    own = values.gather(-1, batch.actions.unsqueeze(-1))[..., 0]
    error = own[0::2] + own[1::2] - batch.rewards[::2]
    losses = VDN().loss(net, net, batch)["loss"]
    assert losses.shape == (4,)
    torch.testing.assert_close(losses.view(2, 2).sum(1), (error**2).mean((1, 2)))


def test_qmix_never_falls_as_an_agents_value_rises():
    torch.manual_seed(0)
    net = QMIXNet(2, 3, 8, agents=2)
    own = torch.randn(200, 1, 2)
    state = torch.randn(200, 1, 2)
    before = net.mix(own, state)
    for agent in range(2):
        raised = own.clone()
        raised[..., agent] += 1.0
        assert (net.mix(raised, state) >= before).all()
    assert not torch.allclose(net.mix(own, state), net.mix(own, state + 1))


def test_centralized_learners_are_for_games_of_one_step():
    batch = one_step(2)
    longer = EpisodeBatch(**{**vars(batch), "terminated": torch.zeros(2, 6, 1)})
    net = stack([QNet(1, 3, 8, recurrent=False) for _ in range(2)])
    with pytest.raises(ValueError, match="wants a one-step game"):
        VDN().loss(net, net, longer)


# RAC on the matrix game


def test_contexts_that_an_action_can_come_with():
    assert possible_contexts().T.tolist() == [
        [True, False, False, True],
        [True, True, True, False],
        [True, True, True, False],
    ]


def test_error_of_the_marginal_values():
    right = np.array([[8.0, 6.0, 6.0]] * 2)
    assert marginal_error(right) == 0
    right[1, 2] += 0.5
    assert marginal_error(right) == 0.5


def test_seen_contexts_alone_are_followed():
    torch.manual_seed(0)
    method = SeenRAC(context=ReturnContext(edges=EDGES), beta=1.0)
    net = stack([RACNet(1, 3, 4, 8, recurrent=False) for _ in range(2)])
    batch = one_step(2, episodes=2, rewards=torch.full((2, 2, 1), -12.0))
    method.loss(net, net, batch)
    seen = method.seen["seen"]
    assert not seen[:, 1:].any()
    for learner in range(2):
        taken = set(batch.actions[learner].flatten().tolist())
        assert set(seen[learner, 0].nonzero().flatten().tolist()) == taken


# Tables


def test_the_still_preys_table_holds_every_joint_action_of_every_start():
    game = StillPrey(-10.0, np.random.default_rng(0))
    starts = np.unique(game.reset(20_000))
    assert len(starts) == 15 * 14  # two predators and a prey on different cells of 4 x 4
    for first in range(6):
        for second in range(6):
            game._state = starts
            states, rewards, ends = game.step(np.full((2, len(starts)), [[first], [second]]))
            assert set(np.unique(rewards)) <= {-10.0, 0.0, 10.0}
            assert (ends == (rewards == 10.0)).all()
            assert np.isin(states[~ends], starts).all()
    beside = 1  # right of the prey; the other predator below it
    game._state = np.array([beside * 16 + 4, beside * 16 + 5])
    _, rewards, ends = game.step(np.full((2, 2), 5))
    assert rewards.tolist() == [10.0, -10.0]
    assert ends.tolist() == [True, False]


def test_a_block_of_runs_depends_on_its_seed_alone():
    args = ("penalty-10", "rac", 20.0, 30, 100)
    one, same, other = (matrix_runs(*args, seed) for seed in (0, 0, 1))
    assert (one["returns"] == same["returns"]).all()
    assert (one["returns"] != other["returns"]).any()


@pytest.mark.parametrize("game", GAMES)
def test_what_counts_as_optimal_pays_the_most(game):
    found = matrix_runs(game, "hysteretic", 0.1, 40, 60, 0)
    best = GAMES[game]().best_return
    assert (found["optimal"] == np.isclose(found["returns"], best)).all()
    assert (found["returns"] <= best + 1e-9).all()


def test_epsilon_falls_over_two_thirds():
    assert annealed(0, 900) == 1.0
    assert annealed(300, 900) == pytest.approx(0.525)
    assert annealed(600, 900) == pytest.approx(0.05)
    assert annealed(899, 900) == 0.05


# Foraging


def test_foraging_pays_nothing_after_the_end_and_starts_anew():
    game = BatchedForaging(2, seed=0, limit=4, penalty=0.5)
    obs = game.reset()
    assert obs.shape == (2, 2, 46)
    assert (obs.sum(-1) == 6).all()
    for step in range(4):
        obs, rewards, ends, cuts = game.step(torch.zeros(2, 2, dtype=torch.long))
        assert cuts.all() == (step == 3)
        assert not ends.any()
    _, rewards, ends, cuts = game.step(torch.zeros(2, 2, dtype=torch.long))
    for nothing in (rewards, ends, cuts):
        assert not nothing.any()
    assert not torch.equal(game.reset(), obs)


def test_runs_of_foraging_differ_and_repeat():
    first, again, other = (BatchedForaging(3, seed).reset() for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


def test_foraging_is_seen_from_where_an_agent_stands():
    game = BatchedForaging(20, seed=0)
    obs = game.reset()
    raw = game._seen
    width = 9
    for run in range(20):
        for agent in range(2):
            rows, columns = obs[run, agent, : 2 * width].view(2, width).argmax(-1) - 4
            assert (rows, columns) == tuple(raw[run, agent, :2] - raw[run, agent, 3:5])
            number = int(foraging_states(obs[run, agent]))
            to_food, to_partner = divmod(number, width**2)
            assert divmod(to_food, width) == (rows + 4, columns + 4)
            expected = raw[run, agent, 6:8] - raw[run, agent, 3:5] + 4
            assert divmod(to_partner, width) == tuple(expected.tolist())
            assert (raw[run, agent, 3:5] == raw[run, 1 - agent, 6:8]).all()


def test_a_lenient_forager_forgives_at_first_and_not_for_ever():
    torch.manual_seed(0)
    net = stack([QNet(46, 6, 8, recurrent=False) for _ in range(2)])
    obs = BatchedForaging(2, seed=0).reset()[:, :1].unsqueeze(2).expand(2, 5, 2, 46)
    ones = torch.ones(2, 5, 1)
    batch = EpisodeBatch(
        obs=obs,
        mask=torch.ones(2, 5, 2, 6, dtype=torch.bool),
        actions=torch.zeros(2, 5, 1, dtype=torch.long),
        rewards=-ones,
        terminated=ones,
        filled=ones,
    )
    method = LenientForager(decay=0.5, learners=2)
    plain = iql_loss(net, net, batch, 0.99)["loss"]
    assert (method.loss(net, net, batch)["loss"] < 0.5 * plain).all()
    for _ in range(20):
        last = method.loss(net, net, batch)["loss"]
    torch.testing.assert_close(last, plain)
    assert method.learned.sum() == 21 * 2 * 5


# SMAC


def test_a_win_rate_is_that_of_greedy_battles_after_training(monkeypatch):
    class Battle:
        """Agents that attack at once (action 1) win; the limit is two steps."""

        def __init__(self, map_name, seed, continuing_episode):
            assert map_name == "2s3z"
            self.won = 0

        def get_env_info(self):
            return {"obs_shape": 2, "n_actions": 2, "n_agents": 2, "episode_limit": 2}

        def reset(self):
            self.steps = 0

        def get_obs(self):
            return [np.full(2, self.steps)] * 2

        def get_state(self):
            return np.zeros(1)

        def get_avail_actions(self):
            return [[0, 1]] * 2

        def step(self, actions):
            assert actions == [1, 1]
            self.steps += 1
            self.won += self.steps == 2
            return 10.0, self.steps == 2, {}

        def get_stats(self):
            return {"battles_won": self.won}

        def close(self):
            pass

    package, module = ModuleType("smac"), ModuleType("smac.env")
    module.StarCraft2Env = Battle
    monkeypatch.setitem(sys.modules, "smac", package)
    monkeypatch.setitem(sys.modules, "smac.env", module)
    from assay.papers.rac.measurements import PARTS

    points = []
    context = SimpleNamespace(scale=Scale.PAPER, record=lambda *point: points.append(point))
    params = {"part": "smac", "map": "2s3z", "learner": "rac", "value": 0.0, "steps": 20}
    found = PARTS["smac"](params, 0, context)
    assert found == {"win_rate": 1.0, "final_return": 20.0}
    assert points[-1][0] == "return"
