"""Many learners at once, against each on its own."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.papers.rac.batches import random_batch

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.batched import (
    BatchedLearners,
    BatchedMatrixGame,
    BatchedReplay,
    clip_each,
    play_episode,
    train_batched,
)
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.environments import BatchedPredatorPrey, climbing, paper_game, penalty
from assay.papers.rac.environments import partially_stochastic_climbing as lucky
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.methods import I2Q, IQL, RAC, Hysteretic

METHODS = {
    "iql": IQL(),
    "hysteretic": Hysteretic(beta=0.3),
    "i2q": I2Q(),
    "rac": RAC(context=ReturnContext(-3, 3, 5), beta=2.0),
    "concat": RAC(context=ReturnContext(-3, 3, 5), context_head="concat"),
    "phi": RAC(context=ReturnContext(-3, 3, 5), act_on="marginal"),
}


def one_by_one(nets, target, batches, method, max_norm):
    """What PyTorch's own optimiser and clipping make of each network alone."""
    for index, net in enumerate(nets):
        optimiser = torch.optim.RMSprop(net.parameters(), lr=1e-2, alpha=0.99, eps=1e-5)
        for batch in batches:
            alone = EpisodeBatch(**{name: part[index] for name, part in vars(batch).items()})
            optimiser.zero_grad()
            method.loss(net, target[index], alone)["loss"].backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm)
            optimiser.step()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("one_step", [False, True])
def test_stacked_learners_learn_what_each_does_alone(method, one_step):
    learners = BatchedLearners(
        method, 3, 2, obs_dim=3, n_actions=3, hidden=8, learning_rate=1e-2, max_grad_norm=0.5
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = [method.network(3, 3, 8, False) for _ in range(6)]
    targets = copy.deepcopy(nets)
    for name, parameter in learners.net.named_parameters():
        for net, row in zip(nets, parameter, strict=True):
            assert (dict(net.named_parameters())[name] == row).all()
    batches = []
    for step in range(5):
        parts = [random_batch(steps=1 if one_step else 4, seed=10 * step + i) for i in range(6)]
        joined = {k: torch.stack([vars(part)[k] for part in parts]) for k in vars(parts[0])}
        if one_step:
            joined["terminated"] = joined["filled"].clone()
        batches.append(EpisodeBatch(**joined))
    for batch in batches:
        learners.update(batch)
    one_by_one(nets, targets, batches, method, 0.5)
    for name, parameter in learners.net.named_parameters():
        for net, row in zip(nets, parameter, strict=True):
            assert torch.allclose(dict(net.named_parameters())[name], row, atol=1e-5), name


def test_clipping_is_of_each_learner_alone():
    parameters = [torch.zeros(3, 2, 2, requires_grad=True), torch.zeros(3, 5, requires_grad=True)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * torch.tensor([0.01, 1.0, 100.0]).view(
            3, *[1] * (parameter.dim() - 1)
        )
    expected = []
    for index in range(3):
        alone = [parameter[index].detach().clone() for parameter in parameters]
        for one, parameter in zip(alone, parameters, strict=True):
            one.grad = parameter.grad[index].clone()
        torch.nn.utils.clip_grad_norm_(alone, 1.0)
        expected.append([one.grad for one in alone])
    clip_each(parameters, 1.0)
    for index, alone in enumerate(expected):
        for one, parameter in zip(alone, parameters, strict=True):
            assert torch.allclose(one, parameter.grad[index])


def test_a_replay_keeps_each_learners_own_episodes():
    replay = BatchedReplay(4, learners=3, steps=2, obs_dim=1, n_actions=2)
    for number in range(6):
        tag = 10.0 * number + torch.arange(3.0)[:, None]
        replay.store(
            EpisodeBatch(
                obs=tag[..., None].expand(3, 3, 1),
                mask=torch.ones(3, 3, 2, dtype=torch.bool),
                actions=torch.zeros(3, 2, dtype=torch.long),
                rewards=tag.expand(3, 2),
                terminated=torch.ones(3, 2),
                filled=torch.tensor([[1.0, 0.0]] * 3),
            )
        )
    assert replay.size == 4
    batch = replay.sample(50)
    assert batch.obs.shape == (3, 50, 2, 1), "cut after the longest episode"
    for learner in range(3):
        assert set(batch.rewards[learner].unique().tolist()) == {
            10.0 * number + learner for number in (2, 3, 4, 5)
        }
    assert (batch.rewards[0] != batch.rewards[1] - 1).any(), "learners draw alone"
    together = replay.sample(50, groups=3)
    assert (together.rewards[0] == together.rewards[1] - 1).all(), "and as a group"


def test_matrix_games_pay_what_their_tables_say():
    game = BatchedMatrixGame(climbing(), 9)
    game.reset()
    joint = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    _, rewards, ends, cuts = game.step(joint)
    assert rewards.tolist() == climbing().expected.ravel().tolist()
    assert ends.all()
    assert not cuts.any()
    alone = BatchedMatrixGame(climbing(), 9, joint=True)
    alone.reset()
    assert (alone.step(torch.arange(9)[:, None])[1] == rewards).all()
    lottery = BatchedMatrixGame(lucky(), 1000)
    lottery.reset()
    drawn = lottery.step(torch.ones(1000, 2, dtype=torch.long))[1]
    assert set(drawn.tolist()) == {0.0, 14.0}
    assert drawn.mean() == pytest.approx(7, abs=0.8)


def test_an_episode_is_padded_and_agents_that_left_idle():
    game = BatchedPredatorPrey(batch=64, size=3, predators=3, preys=2, punishment=-1.0, limit=10)
    obs = game.reset()
    learners = BatchedLearners(IQL(), 64, 3, obs.shape[-1], game.n_actions, hidden=8)
    episode = play_episode(game, learners, 1.0)
    lengths = episode.filled.sum(-1)
    assert (episode.filled == (torch.arange(10) < lengths[:, None])).all()
    last = (lengths - 1).long()[:, None]
    ended = episode.terminated.gather(1, last)[:, 0] == 1
    assert (episode.terminated.sum(-1) == ended).all()
    assert (ended | (lengths == 10)).all(), "what was not ended ran into the limit"
    assert (episode.rewards * (1 - episode.filled) == 0).all()
    left = (episode.mask.sum(-1) == 1).view(64, 3, 11)
    assert left[..., 1:-1].any(), "somebody left early in some seed"
    padded = episode.actions.view(64, 3, 10)[left[..., :-1]]
    assert (padded == 0).all()
    assert (episode.obs.view(64, 3, 11, -1)[left] == 0).all()


def test_the_papers_game_is_solved_by_optimists_only():
    """Claim C1 with fewer steps; 8 is optimal and 6 the safe choice."""
    context = ReturnContext(edges=[-12, 0, 6, 8])
    final = {}
    for name, method in {
        "iql": IQL(),
        "hysteretic": Hysteretic(beta=0.01),
        "rac": RAC(context=context, beta=10.0),
        "phi": RAC(context=context, act_on="marginal"),
    }.items():
        game = BatchedMatrixGame(paper_game(), 5)
        _, history = train_batched(
            game, method, 800, 800, Epsilon(1, 0.05, 500), learning_rate=5e-3, hidden=32
        )
        final[name] = np.array(history.returns[-1])
    assert (final["rac"] == 8).all()
    assert (final["phi"] == 8).all()
    assert (final["hysteretic"] == 8).all()
    assert (final["iql"] != 8).all()


def test_training_is_the_same_for_the_same_seed():
    def curves(seed):
        game = BatchedMatrixGame(penalty(), 2)
        return train_batched(game, IQL(), 60, 20, Epsilon(1, 0.05, 50), seed, 8, eval_episodes=2)[1]

    first = curves(0)
    assert first.episodes == [20, 40, 60]
    assert np.array_equal(first.losses, curves(0).losses, equal_nan=True)
    assert not np.array_equal(first.losses, curves(1).losses, equal_nan=True)


def test_a_small_beta_is_warned_of():
    method = RAC(context=ReturnContext(edges=[-12, 0, 6, 8]), beta=0.0)
    game = BatchedMatrixGame(paper_game(), 4)
    with pytest.warns(UserWarning, match=r"the policies of \d of 8 learners differ"):
        train_batched(game, method, 800, 800, Epsilon(1, 0.5, 800), learning_rate=2e-3, hidden=16)


def test_bad_input_is_named():
    game = BatchedMatrixGame(paper_game(), 2)
    with pytest.raises(ValueError, match="episodes: got 0"):
        train_batched(game, IQL(), 0, 1)
    with pytest.raises(ValueError, match="batch: got 0"):
        BatchedMatrixGame(paper_game(), 0)
    with pytest.raises(TypeError, match="context: got None"):
        RAC()
    with pytest.raises(ValueError, match="beta: got -1"):
        RAC(context=ReturnContext(0, 1, 2), beta=-1)
    with pytest.raises(ValueError, match="act_on: got 'phi'"):
        RAC(context=ReturnContext(0, 1, 2), act_on="phi")
    with pytest.raises(ValueError, match="start: got 2"):
        Epsilon(start=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 20, "capacity": 10}, "batch_size: got 20, wants <= capacity = 10"),
        ({"groups": 0}, "groups: got 0, wants an integer >= 1"),
        ({"groups": 3}, "groups: got 3, wants a divisor of 4 learners"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        train_batched(BatchedMatrixGame(paper_game(), 2), IQL(), 40, 20, **options)
