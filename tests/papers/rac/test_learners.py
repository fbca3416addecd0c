"""Single learners: independent of each other, and alike where their methods meet."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from tests.papers.rac.games import Corridor

from assay.papers.rac.context import ReturnContext
from assay.papers.rac.environments import PredatorPrey, paper_game
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.learners import (
    HystereticLearner,
    I2QLearner,
    IQLearner,
    LenientLearner,
    RACLearner,
    Step,
)
from assay.papers.rac.training import make_learners, train
from assay.papers.rac.visits import Visits

CONTEXT = ReturnContext(0, 1, 4)
KINDS = {
    "iql": (IQLearner, {}),
    "hysteretic": (HystereticLearner, {"beta": 0.3}),
    "lenient": (LenientLearner, {"decay": 0.5}),
    "i2q": (I2QLearner, {}),
    "rac": (RACLearner, {"context": CONTEXT}),
    "concat": (RACLearner, {"context": CONTEXT, "context_head": "concat"}),
    "phi": (RACLearner, {"context": CONTEXT, "act_on": "marginal"}),
    "support": (RACLearner, {"context": CONTEXT, "support": "count", "act_on": "marginal"}),
    "distilled support": (RACLearner, {"context": CONTEXT, "support": "count"}),
}
SMALL = {"hidden": 8, "batch_size": 4, "capacity": 20, "max_len": 6, "target_every": 5}
ALL = np.ones(3, dtype=bool)


def make(kind, **options):
    cls, own = KINDS[kind]
    return cls(2, 3, **{**SMALL, **own, **options})


def live(learner, episodes, seed=0, reward=1.0, epsilon=0.5, steps=4):
    """Random episodes with masks, of different lengths; returns all losses."""
    rng = np.random.default_rng(seed)
    losses = []
    for _ in range(episodes):
        obs, mask = rng.integers(3, size=2).astype(np.float32), ALL
        length = rng.integers(1, steps + 1)
        for t in range(length):
            learner.act(obs, mask, epsilon)
            obs = rng.integers(3, size=2).astype(np.float32)
            mask = rng.random(3) < 0.6
            mask[rng.integers(3)] = True
            end = t + 1 == length and bool(rng.random() < 0.5)
            learner.observe(Step(reward * rng.random(), obs, mask, end))
        learner.end_episode()
        losses.append(learner.update())
    return losses


def parts(thing, found=None):
    """Everything mutable that hangs on an object, by identity and by storage of its tensors."""
    found = {} if found is None else found
    if thing is None or isinstance(thing, bool | int | float | str | bytes | type | torch.dtype):
        return found
    if id(thing) in found:
        return found
    found[id(thing)] = thing
    if isinstance(thing, torch.Tensor):
        found[("storage", thing.untyped_storage().data_ptr())] = thing
    elif isinstance(thing, np.ndarray):
        found[("storage", thing.__array_interface__["data"][0])] = thing
    elif isinstance(thing, dict):
        for key, value in thing.items():
            parts(key, found)
            parts(value, found)
    elif isinstance(thing, list | tuple | set):
        for value in thing:
            parts(value, found)
    elif isinstance(thing, np.random.Generator):
        parts(thing.bit_generator, found)
    elif hasattr(thing, "__dict__"):
        parts(vars(thing), found)
    return found


def owned(learner):
    state = (torch.Tensor, np.ndarray, torch.nn.Module, torch.optim.Optimizer)
    state += (np.random.Generator, np.random.BitGenerator, ReturnContext, Visits)
    return {key for key, thing in parts(vars(learner)).items() if isinstance(thing, state)}


@pytest.mark.parametrize("algo", ["rac", "iql", "hysteretic", "lenient", "i2q"])
def test_learners_share_nothing(algo):
    env = PredatorPrey(size=3, limit=5)
    options = {"context": ReturnContext(-60, 20, 4), "support": "count"} if algo == "rac" else {}
    learners = make_learners(env, algo, hidden=8, batch_size=2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # after so few steps no policy follows phi
        train(env, learners, 30, 30, epsilon=Epsilon(steps=10), eval_episodes=1)
    one, two = learners.values()
    mine, yours = owned(one), owned(two)
    assert len(mine) > 40, "the walk finds networks, moments, episodes and generators"
    assert not mine & yours
    kinds = {type(thing).__name__ for thing in parts(vars(one)).values()}
    assert {"RMSprop", "Generator", "PCG64", "Parameter"} <= kinds
    weights = [learner.core.net.head.weight for learner in (one, two)]
    assert not torch.equal(*weights), "and are not copies of each other"


def test_the_walk_sees_what_is_shared():
    env = PredatorPrey(size=3, limit=5)
    learners = make_learners(env, "iql", share_parameters=True, hidden=8, batch_size=2)
    one, two = learners.values()
    assert owned(one) & owned(two)
    assert one.core is two.core
    assert one.replay is not two.replay
    before = copy.deepcopy(one.core.net.state_dict())
    train(env, learners, 30, 30, epsilon=Epsilon(steps=10), eval_episodes=1)
    moved = [not torch.equal(v, before[k]) for k, v in one.core.net.state_dict().items()]
    assert all(moved)
    steps = {int(s["step"]) for s in one.core.optimiser.state.values()}
    assert steps == {one.episodes - 1}, "one step an episode for the whole team"


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("head", ["hyper", "concat"])
def test_rac_with_one_context_and_no_distillation_is_iql_bit_for_bit(recurrent, head):
    iql = IQLearner(2, 3, seed=7, recurrent=recurrent, **SMALL)
    rac = RACLearner(
        2,
        3,
        ReturnContext(0, 9, 1),
        beta=0.0,
        context_head=head,
        seed=7,
        recurrent=recurrent,
        # Both losses share one clipped step; where the norm stays below the bound they are apart.
        max_grad_norm=1e9,
        **SMALL,
    )
    one, two = live(iql, 40), live(rac, 40)
    assert iql.replay.at(range(20)).actions.tolist() == rac.replay.at(range(20)).actions.tolist()
    assert [x["loss"] for x in one if x] == [x["td_s"] for x in two if x]
    for name, weight in iql.core.net.state_dict().items():
        assert torch.equal(weight, rac.core.net.state_dict()[name]), name
    assert iql._explore.bit_generator.state == rac._explore.bit_generator.state


def test_hysteretic_with_beta_one_is_iql_bit_for_bit():
    one, two = make("iql", seed=3), make("hysteretic", seed=3, beta=1.0)
    assert live(one, 30) == live(two, 30)
    for name, weight in one.core.net.state_dict().items():
        assert torch.equal(weight, two.core.net.state_dict()[name])


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_is_always_available(kind):
    learner = make(kind)
    live(learner, 10)
    rng = np.random.default_rng(1)
    for _ in range(100):
        mask = rng.random(3) < 0.4
        mask[rng.integers(3)] = True
        for epsilon in (0.0, 1.0):
            obs = rng.random(2).astype(np.float32)  # never seen: no support at all
            assert mask[learner.act(obs, mask, epsilon)]
            learner.end_episode()


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_finite_and_weights_move(kind):
    learner = make(kind)
    before = copy.deepcopy(learner.core.net.state_dict())
    losses = live(learner, 12)
    assert losses[2] == {}
    assert losses[3] != {}
    assert all(np.isfinite(list(found.values())).all() for found in losses if found)
    idle = ("trunk", "head") if "phi" in kind or kind == "support" else ()
    for name, weight in learner.core.net.state_dict().items():
        assert torch.isfinite(weight).all()
        if not name.startswith(idle or "-"):
            assert not torch.equal(weight, before[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_where_it_was(kind):
    first, second = make(kind, seed=1), make(kind, seed=2)
    live(first, 10)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert live(first, 8, seed=5) == live(second, 8, seed=5)
    for name, weight in first.core.net.state_dict().items():
        assert torch.equal(weight, second.core.net.state_dict()[name])


def test_evaluation_leaves_no_trace():
    learner, other = make("rac"), make("rac")
    live(learner, 6), live(other, 6)
    for _ in range(5):
        learner.act(np.zeros(2), ALL)
        learner.act(np.ones(2), ALL)
        learner.end_episode()
    assert len(learner.replay) == 6
    assert live(learner, 3, seed=9) == live(other, 3, seed=9)


def test_targets_are_copied_every_so_many_episodes():
    learner = make("iql")
    live(learner, 9)
    assert not torch.equal(learner.core.target.head.weight, learner.core.net.head.weight)
    live(learner, 1)
    assert torch.equal(learner.core.target.head.weight, learner.core.net.head.weight)


def test_contexts_seen_are_counted_for_support():
    learner = make("support")
    obs = np.array([1, 2], dtype=np.float32)
    learner.act(obs, ALL)
    (action,) = learner._episode.actions
    learner.observe(Step(0.6, obs, ALL, True))
    learner.end_episode()
    given = learner.replay.at([0]).obs[:, :1]
    support = learner._supported(given)
    assert support.shape == (1, 1, 4, 3)
    assert support.nonzero().tolist() == [[0, 0, 2, action]]
    assert learner.context.counts.tolist() == [0, 0, 1, 0]
    values = learner.action_values(obs)
    assert np.isfinite(values).nonzero()[0].tolist() == [action]


def test_support_is_counted_in_the_context_that_is_learned():
    """0.7 is on an edge; as a float32, in which the replay keeps it, it is below."""
    learner = make("distilled support", context=ReturnContext(edges=[0.0, 0.7]))
    learner.act(np.zeros(2), ALL)
    (action,) = learner._episode.actions
    learner.observe(Step(0.7, np.zeros(2), ALL, True))
    learner.end_episode()
    batch = learner.replay.at([0])
    (learned,) = learner.context.index(batch.returns.numpy())
    assert learner._supported(batch.obs[:, :1]).nonzero().tolist() == [[0, 0, learned, action]]


def test_leniency_cools_with_visits():
    learner = make("lenient", decay=0.5, temperature=8.0, recurrent=False)
    for visits in (1, 5, 40):
        while len(learner.replay) < min(visits, 20) or learner.episodes < visits:
            learner.act(np.zeros(2), ALL)
            learner.observe(Step(0.0, np.ones(2), ALL, True))
            learner.end_episode()
        batch = learner.replay.at([0])
        seen = learner.visits.at(np.zeros(2, dtype=np.float32))[0, batch.actions[0, 0]]
        assert seen == visits
        share = 1 - np.exp(-1 / (8 * 0.5**visits))
        assert learner.acceptance(batch) == pytest.approx(share)


def test_the_coldest_learner_is_iql_and_the_hottest_never_disappointed():
    for cold, other in ((True, make("iql", seed=1)), (False, make("hysteretic", seed=1, beta=0.0))):
        lenient = make("lenient", seed=1, decay=1.0, temperature=1e-9 if cold else 1e12)
        live(lenient, 8), live(other, 8)
        batch = lenient.replay.at(range(8))
        lenient.core.load_state_dict(copy.deepcopy(other.core.state_dict()))
        assert lenient._losses(batch)["loss"] == other._losses(batch)["loss"]


def test_a_policy_that_does_not_follow_phi_is_warned_of():
    learner = make("rac", context=ReturnContext(0, 4, 8), beta=0.0)
    live(learner, 8)
    with torch.no_grad():
        learner.core.net.head.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
        learner.core.net.hyper_bias.bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    with pytest.warns(UserWarning, match="more than 50% of the states"):
        learner.finish()


def test_a_policy_is_held_against_the_phi_that_it_learned_from():
    learner = make("distilled support", context=ReturnContext(0, 4, 8), recurrent=False)
    for action in range(3):
        mask = np.arange(3) == action
        learner.act(np.zeros(2), mask)
        learner.observe(Step(0.1, np.zeros(2), ALL, True))
        learner.end_episode()
    learner.replay._mask[:] = True
    with torch.no_grad():
        for parameter in learner.core.net.parameters():
            parameter.zero_()
        learner.core.net.head.bias[0] = learner.core.net.hyper_bias.bias[0] = 1.0
        learner.core.net.hyper_bias.weight[1, 7] = 9.0  # no episode returned so much
    batch = learner.replay.at(range(3))
    assert learner.rac.disagreement(learner.core.net, batch) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="the return context")
        learner.finish()


def test_useless_contexts_are_warned_of():
    learner = make("rac", context=ReturnContext(100, 200, 5), beta=10.0)
    live(learner, 5)
    with pytest.warns(UserWarning, match="100% of the returns are outside"):
        learner.finish()


def test_bad_input_is_named():
    learner = make("iql")
    with pytest.raises(ValueError, match=r"mask: got \[0, 0, 0\]"):
        learner.act(np.zeros(2), np.zeros(3, dtype=int))
    with pytest.raises(ValueError, match=r"obs: got shape \(3,\)"):
        learner.act(np.zeros(3), ALL)
    with pytest.raises(ValueError, match="step: got none or two"):
        learner.observe(Step(0.0, np.zeros(2), ALL, False))
    with pytest.raises(ValueError, match="state: got a IQLearner, wants a RACLearner"):
        make("rac").load_state_dict(learner.state_dict())
    with pytest.raises(ValueError, match="learning_rate: got 0"):
        make("iql", learning_rate=0)
    with pytest.raises(ValueError, match="learning_rate: got inf"):
        make("iql", learning_rate=np.inf)
    with pytest.raises(ValueError, match="max_grad_norm: got 0"):
        make("iql", max_grad_norm=0)
    with pytest.raises(ValueError, match="seed: got -1"):
        make("iql", seed=-1)
    with pytest.raises(ValueError, match="batch_size: got 9, wants <= capacity = 8"):
        make("iql", batch_size=9, capacity=8)
    with pytest.raises(TypeError, match="recurrent: got 'False', wants True or False"):
        make("iql", recurrent="False")
    with pytest.raises(TypeError, match="context: got 3, wants a ReturnContext"):
        make("rac", context=3)
    with pytest.raises(ValueError, match="support: got 'all'"):
        make("rac", support="all")
    with pytest.raises(ValueError, match=r"temperature: got 0\.0, wants a finite number > 0"):
        make("lenient", temperature=0.0)
    learner = make("iql")
    for epsilon in (0.5, 0.4):
        learner.act(np.zeros(2), ALL, epsilon)
        learner.observe(Step(0.0, np.zeros(2), ALL, False))
    with pytest.raises(ValueError, match="epsilon from"):
        learner.end_episode()


def test_teams_are_made_by_name_and_spaces():
    assert {type(one) for one in make_learners(Corridor(), "i2q").values()} == {I2QLearner}
    guessed = make_learners(paper_game(), "rac", bins=5)
    assert {tuple(one.context.edges) for one in guessed.values()} == {(-12, -8, -4, 0, 4)}
    with pytest.raises(ValueError, match="algo: got 'ppo'"):
        make_learners(Corridor(), "ppo")
    with pytest.raises(ValueError, match="context: got one for 'iql'"):
        make_learners(Corridor(), "iql", context=CONTEXT)
    with pytest.raises(TypeError, match="beta"):
        make_learners(Corridor(), "iql", beta=1.0)
