"""Training on parallel environments."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from gymnasium.spaces import MultiBinary
from pettingzoo.classic import tictactoe_v3
from tests.papers.rac.games import Corridor, Roster

from assay.papers.rac.adapters import make
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.environments import PredatorPrey, paper_game
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.training import (
    History,
    Trainer,
    make_learners,
    play_parallel,
    random_returns,
    train,
)

SMALL = {"hidden": 8, "batch_size": 4, "capacity": 40, "max_len": 20, "target_every": 5}


def team(env, algo="iql", **options):
    return make_learners(env, algo, **{**SMALL, **options})


@pytest.mark.parametrize("cut", [False, True])
def test_an_agent_that_left_keeps_the_shared_return_to_the_end(cut):
    env = Corridor(cut=cut)
    learners = team(env, recurrent=False)
    total, steps = play_parallel(env, learners, epsilon=1.0, training=True)
    assert (total, steps) == (10, 4)
    assert [set(actions) for actions in env.taken] == [{"agent_0", "agent_1"}] * 2 + [
        {"agent_0"}
    ] * 2
    stays, left = (one.replay.at([0]) for one in learners.values())
    assert stays.rewards.tolist() == left.rewards.tolist() == [[1, 2, 3, 4]]
    assert stays.terminated.tolist() == left.terminated.tolist() == [[0, 0, 0, float(not cut)]]
    assert stays.obs[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert left.obs[0].tolist() == [[0, 1], [1, 1], [2, 1], [0, 0], [0, 0]]
    assert stays.mask[0].tolist() == [[True, True, False]] * 4 + [[True, cut, False]]
    assert left.mask[0].tolist() == [[True, True, False]] * 2 + [[True, False, False]] * 3
    assert left.actions[0, 2:].tolist() == [0, 0]
    for one in learners.values():
        assert one.replay.at([0]).filled.tolist() == [[1, 1, 1, 1]]


def test_rewards_that_differ_need_a_word():
    env = Corridor(rewards=lambda t: (1.0, 3.0))
    with pytest.raises(ValueError, match=r"episode 0, step 0: rewards: got .* wants equal ones"):
        train(env, team(env), 8, 8)
    history = train(env, team(env), 8, 8, team_reward="sum", eval_episodes=2)
    assert history.returns[-1] == 4 + 4 + 1 + 1, "agent_1 is not paid after it left"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reward_must_be_finite(bad):
    env = Corridor(rewards=lambda t: (bad, bad) if t == 3 else (0.0, 0.0))
    with pytest.raises(ValueError, match=r"episode 0, step 2: rewards: got (nan|inf)"):
        train(env, team(env), 8, 8)


def test_an_episode_must_fit_the_replay():
    env = Corridor(length=6)
    with pytest.raises(ValueError, match="max_len: got 5, and an episode of more steps"):
        train(env, team(env, max_len=5), 8, 8)


def test_a_game_without_end_is_noticed():
    env = Corridor(length=-1)
    with pytest.raises(ValueError, match="max_len: got 5, and an episode of more steps"):
        train(env, team(env, max_len=5), 8, 8)
    with pytest.raises(ValueError, match="max_len: got 50, and an episode of random actions"):
        random_returns(env, 1, max_len=50)


def test_agents_and_learners_must_agree():
    env = Corridor()
    learners = team(env)
    del learners["agent_1"]
    with pytest.raises(ValueError, match=r"learners: got \['agent_0'\], wants one for each"):
        train(env, learners, 8, 8)
    with pytest.raises(ValueError, match="eval_every: got 0"):
        train(env, team(env), 8, 0)
    with pytest.raises(ValueError, match="turn_episodes: got 0"):
        train(env, team(env), 8, 8, turn_episodes=0)


def test_epsilon_changes_between_episodes_only():
    env = Corridor()
    learners = team(env)
    history = train(env, learners, 40, 12, epsilon=Epsilon(1.0, 0.0, 40), eval_episodes=1)
    kept = next(iter(learners.values())).replay.epsilon[:10]
    assert kept.tolist() == pytest.approx([1 - 0.1 * episode for episode in range(10)])
    assert history.steps == [12, 24, 36, 40]
    assert history.epsilon == pytest.approx([0.8, 0.5, 0.2, 0.1])


@pytest.mark.parametrize("algo", ["rac", "lenient"])
def test_a_resumed_run_is_the_same_as_one_that_went_on(algo, tmp_path):
    def trainer():
        env = PredatorPrey(size=3, limit=6)
        options = {"context": ReturnContext(-60, 20, 4)} if algo == "rac" else {}
        learners = team(env, algo, seed=3, **options)
        return Trainer(env, learners, 40, seed=5, epsilon=Epsilon(steps=60), eval_episodes=2)

    whole, first, second = trainer(), trainer(), trainer()
    whole.run(100)
    first.run(50)
    first.save(tmp_path)
    second.resume(tmp_path)
    second.run(100)
    # The first part ended with an evaluation of its own, which the whole run did not have.
    own = whole.history.steps
    kept = [second.history.steps.index(step) for step in own]
    assert [second.history.returns[i] for i in kept] == whole.history.returns
    for agent, learner in whole.learners.items():
        for name, weight in learner.core.net.state_dict().items():
            assert torch.equal(weight, second.learners[agent].core.net.state_dict()[name])
        obs = np.arange(learner.obs_dim) % 2
        assert (learner.action_values(obs) == second.learners[agent].action_values(obs)).all()


def test_a_run_killed_at_a_checkpoint_goes_on(tmp_path):
    def trainer():
        env = paper_game()
        learners = team(env, recurrent=False)
        return Trainer(env, learners, 20, epsilon=Epsilon(steps=60), eval_episodes=1)

    class Killed(Exception):
        pass

    def save_then_die(running):
        running.save(tmp_path)
        if running.step == 60:
            raise Killed

    whole, killed, resumed = trainer(), trainer(), trainer()
    expected = whole.run(100)
    with pytest.raises(Killed):
        killed.run(100, save_then_die)
    resumed.resume(tmp_path)
    found = resumed.run(100)
    assert found.to_json() == expected.to_json()


def test_turns_update_one_learner_at_a_time():
    env = Corridor()
    learners = team(env)
    updated = []
    for agent, one in learners.items():
        one.update = lambda agent=agent: updated.append(agent) or {}
    train(env, learners, 4 * 8, 99, turn_episodes=2, eval_episodes=1)
    assert updated == ["agent_0"] * 2 + ["agent_1"] * 2 + ["agent_0"] * 2 + ["agent_1"] * 2


def test_a_history_survives_json():
    history = History([1, 2], [0.5, 1.0], [float("nan"), 3.0], [1.0, 0.9])
    text = history.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert History.from_json(text).to_json() == text
    for bad in ("[]", "{", '{"steps": 3}', '{"other": []}'):
        with pytest.raises(ValueError, match="text: no history"):
            History.from_json(bad)


def test_random_play_respects_masks_and_is_repeatable():
    env = Corridor()
    assert (random_returns(env, 3) == 10).all()
    assert all(action in (0, 1) for taken in env.taken for action in taken.values())
    assert (random_returns(paper_game(), 20) == random_returns(paper_game(), 20)).all()


def test_the_papers_game_is_solved_by_rac_and_not_by_iql():
    final = {}
    for algo in ("rac", "iql"):
        env = paper_game()
        options = {"recurrent": False, "hidden": 32, "learning_rate": 5e-3}
        if algo == "rac":
            options |= {"context": ReturnContext(edges=[-12, 0, 6, 8]), "beta": 10.0}
        learners = make_learners(env, algo, seed=1, **options)
        history = train(env, learners, 600, 600, epsilon=Epsilon(steps=400), eval_episodes=1)
        final[algo] = history.returns[-1]
    assert final["rac"] == 8
    assert final["iql"] < 8


@pytest.mark.parametrize("name", ["lbf:5x5-2p-1f-coop", "mpe:simple_spread_v3", "tree"])
def test_environments_of_all_kinds_train(name):
    env = make(name)
    learners = make_learners(env, "iql", hidden=8, batch_size=2, max_len=100)
    history = train(env, learners, 60, 60, team_reward="mean", eval_episodes=1)
    assert np.isfinite(history.returns).all()
    assert np.isfinite(history.losses).all()


def test_an_agent_that_arrives_late_sees_nothing_before():
    env = Roster({"a"}, {"a", "b"}, {"a", "b"}, {"a"})
    learners = team(env, recurrent=False)
    total, steps = play_parallel(env, learners, epsilon=1.0, training=True)
    assert (total, steps) == (4, 4)
    assert [set(actions) for actions in env.taken] == [{"a"}, {"a", "b"}, {"a", "b"}, {"a"}]
    late = learners["b"].replay.at([0])
    assert late.obs[0, :, 0].tolist() == [0, 2, 3, 4, 0]
    assert (
        late.mask[0].tolist() == [[True, False], [True, True], [True, True]] + [[True, False]] * 2
    )
    assert late.rewards.tolist() == [[1, 1, 1, 1]]


def test_an_agent_that_is_cut_off_before_the_others_idles():
    env = Roster({"a", "b"}, {"a"}, {"a"}, cut={"b"})
    learners = team(env, recurrent=False)
    play_parallel(env, learners, epsilon=1.0, training=True)
    left = learners["b"].replay.at([0])
    assert left.obs[0, :, 0].tolist() == [1, 2, 0, 0]
    assert left.mask[0].tolist() == [[True, True]] + [[True, False]] * 3
    assert left.terminated.tolist() == [[0, 0, 1]]


def test_actions_are_counted_from_where_the_space_starts():
    env = Roster(*[{"a", "b"}] * 4)
    train(env, team(env), 40, 40)
    assert {action for actions in env.taken for action in actions.values()} == {1, 2}


def test_an_episode_has_steps():
    env = Roster()
    with pytest.raises(ValueError, match=r"step 0: env: got no agents after reset\(\)"):
        train(env, team(env), 8, 8)


@pytest.mark.parametrize(
    "env", [tictactoe_v3.env(), "climbing", None], ids=["turns", "name", "none"]
)
def test_environments_of_another_kind_are_refused(env):
    with pytest.raises(TypeError, match=r"env: got .* wants a PettingZoo parallel environment"):
        make_learners(env, "iql")
    with pytest.raises(TypeError, match=r"env: got .* wants a PettingZoo parallel environment"):
        Trainer(env, {}, 8)


def test_actions_are_one_of_a_number():
    env = Corridor()
    env.action_space = lambda agent: MultiBinary(3)
    with pytest.raises(TypeError, match=r"got actions MultiBinary\(3\) for agent_0"):
        team(env)


def test_an_error_at_a_step_names_the_agent_and_keeps_its_cause():
    env = Corridor()
    learners = team(env)
    seen = env._seen
    env._seen = lambda: "a word" if env.t == 2 else seen()
    with pytest.raises(ValueError, match="episode 0, step 1: agent_0: obs_value: got str"):
        train(env, learners, 8, 8)
    env = Corridor()
    bug = ValueError("a bug of the environment")
    env.step = lambda actions: (_ for _ in ()).throw(bug)
    with pytest.raises(ValueError, match="episode 0, step 0: a bug") as caught:
        train(env, learners, 8, 8)
    assert caught.value.__cause__.__cause__ is bug


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, ValueError])
def test_training_goes_on_after_an_episode_was_broken_off(error):
    env = Corridor()
    trainer = Trainer(env, team(env), 8)
    step, made = env.step, []

    def interrupted(actions):
        made.append(actions)
        if len(made) == 6:
            raise error
        return step(actions)

    env.step = interrupted
    with pytest.raises(error):
        trainer.run(16)
    assert trainer.run(16).steps == [8, 16]
    replay = trainer.learners["agent_0"].replay
    assert len(replay) == 4
    assert replay.at(range(4)).filled.min() == 1, "the part of an episode is not kept"


def test_a_loss_that_is_no_number_ends_the_training():
    env = Roster(*[{"a", "b"}] * 4, reward=1e30)
    with pytest.raises(ValueError, match="loss: got inf, wants a finite number"):
        train(env, team(env), 400, 400)


def test_a_checkpoint_of_another_team_is_refused(tmp_path):
    env = Corridor()
    Trainer(env, team(env), 8).save(tmp_path)
    for options in ({"hidden": 9}, {"algo": "hysteretic"}, {"recurrent": False}):
        with pytest.raises(ValueError, match="training: does not fit this team: "):
            Trainer(env, team(env, **options), 8).resume(tmp_path)


def test_bad_arguments_are_named():
    env = Corridor()
    with pytest.raises(ValueError, match="seed: got -1, wants an integer >= 0"):
        team(env, seed=-1)
    with pytest.raises(TypeError, match="share_parameters: got 'no', wants True or False"):
        team(env, share_parameters="no")
    with pytest.raises(ValueError, match="turn_episodes: got 1 for learners that share"):
        Trainer(env, team(env, share_parameters=True), 8, turn_episodes=1)
    with pytest.raises(TypeError, match=r"epsilon: got 0\.1, wants an Epsilon"):
        train(env, team(env), 8, 8, epsilon=0.1)
    with pytest.raises(ValueError, match="context: got none, and 10 from all random episodes"):
        team(env, "rac")
