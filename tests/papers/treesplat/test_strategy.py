"""Growth of Gaussians and motion together: what follows what, and what stops it."""

from __future__ import annotations

import logging
import math

import gsplat
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.papers.treesplat.models import MOTIONS, camera, moving

from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.strategy import TreeStrategy, sibling_distance
from assay.papers.treesplat.tree_splat import SPLATS


def adams(model, rate=1e-3):
    return {name: torch.optim.Adam([p], lr=rate) for name, p in model.params.items()}


def screen(model, gradients=None):
    """What a rasterizer would tell of one image in which every Gaussian is seen."""
    n, like = model.n, model.splats["means"]
    means2d = torch.zeros(1, n, 2).to(like).requires_grad_()
    means2d.grad = torch.zeros(1, n, 2).to(like)
    if gradients is not None:
        means2d.grad[0, :, 0] = torch.as_tensor(gradients).to(like)
    return {
        "means2d": means2d,
        "radii": torch.ones(1, n, 2, dtype=torch.int32),
        "gaussian_ids": None,
        "width": 2,
        "height": 2,
        "n_cameras": 1,
    }


def setting(motion="tree", n=20, dtype=torch.float32, **fields):
    """A model after one step of its optimizers, ready for growth at step 10."""
    model = moving(motion, n=n, dtype=dtype)
    optimizers = adams(model)
    for name, parameter in model.params.items():
        parameter.grad = torch.randn_like(parameter)
        optimizers[name].step()
    strategy = TreeStrategy(
        **{
            "refine_start_iter": 0,
            "refine_every": 10,
            "promote_every": 2,
            "reset_every": 0,
            **fields,
        }
    )
    strategy.check_sanity(model.params, optimizers)
    return model, optimizers, strategy, strategy.initialize_state(2.0)


def refine(model, optimizers, strategy, state, step, gradients=None):
    strategy.step_post_backward(model.params, optimizers, state, step, screen(model, gradients))


def tagged(optimizers, params):
    """Every row of every moment gets the number of its row."""
    for name, optimizer in optimizers.items():
        for key in ("exp_avg", "exp_avg_sq"):
            value = optimizer.state[params[name]][key]
            rows = torch.arange(1, len(value) + 1.0).to(value)
            value.copy_(rows.view(-1, *[1] * (value.dim() - 1)).expand_as(value))


def sound(model, optimizers, state):
    """Model, optimizers and statistics hold the same parameters, of the same lengths."""
    for name, parameter in model.params.items():
        assert optimizers[name].param_groups[0]["params"] == [parameter]
        assert list(optimizers[name].state) == [parameter]
        for key in ("exp_avg", "exp_avg_sq"):
            assert optimizers[name].state[parameter][key].shape == parameter.shape
        assert parameter.is_leaf
        assert parameter.requires_grad
    assert model.motion.n == model.n == len(state["grad2d"]) == len(state["count"])
    assert {id(p) for p in model.params.values()} <= {id(p) for p in model.parameters()}
    if isinstance(model.motion, MotionTree):
        model.motion.check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("step", [10, 20])
def test_clones_are_copies_and_so_is_their_motion(motion, step, dtype):
    model, optimizers, strategy, state = setting(motion, dtype=dtype, grow_scale3d=1e3)
    tagged(optimizers, model.params)
    before = model.at(0.3)
    refine(
        model, optimizers, strategy, state, step, [1.0 if i in (2, 5) else 0.0 for i in range(20)]
    )
    assert model.n == 22
    sound(model, optimizers, state)
    assert not state["grad2d"].any()
    source = [*range(20), 2, 5]
    after = model.at(0.3)
    if motion != "mlp":
        assert all(torch.allclose(after[name], before[name][source], atol=1e-6) for name in SPLATS)
    for name in SPLATS:
        moments = optimizers[name].state[model.params[name]]
        first, second = moments["exp_avg"], moments["exp_avg_sq"]
        assert second.reshape(22, -1)[:20, 0].tolist() == [i + 1 for i in range(20)]
        assert torch.equal(first[:20], second[:20])
        assert not first[20:].any()
        assert not second[20:].any()
    if motion == "tree":
        assert model.motion.n_nodes == (22 if step == 10 else 24)
        assert model.motion.depth() == (1 if step == 10 else 2)
        moments = optimizers["field_mu"].state[model.motion.field_mu]
        new = [3, 6] if step == 10 else [3, 6, 3, 6]
        assert moments["exp_avg_sq"][20:, 0].tolist() == new
        assert not moments["exp_avg"][20:].any()
        assert optimizers["beta_logit"].state[model.motion.beta_logit]["exp_avg_sq"].tolist() == [
            i + 1 for i in source
        ]


def test_splits_are_two_smaller_ones_drawn_from_their_source():
    model, optimizers, strategy, state = setting(n=2000, grow_scale3d=0.0)
    with torch.no_grad():
        model.splats["scales"].copy_(torch.tensor([0.1, 0.2, 0.4]).log().expand(2000, 3))
        model.splats["quats"].copy_(torch.tensor([2.0, 0, 0, 2.0]).expand(2000, 4))
    means = model.splats["means"].detach().clone()
    torch.manual_seed(0)
    refine(model, optimizers, strategy, state, 10, torch.ones(2000))
    assert model.n == 4000
    sound(model, optimizers, state)
    assert torch.allclose(
        model.splats["scales"].exp(), torch.tensor([0.1, 0.2, 0.4]).expand(4000, 3) / 1.6
    )
    away = model.splats["means"].detach() - means.repeat(2, 1)
    # A quarter turn about z carries the scale of x to y.
    assert away.std(0).tolist() == pytest.approx([0.2, 0.1, 0.4], rel=0.05)
    assert abs(float((away[:2000] * away[2000:]).mean())) < 0.003
    for name in SPLATS:  # both halves start without moments
        moments = optimizers[name].state[model.params[name]]
        assert not moments["exp_avg"].any()
        assert not moments["exp_avg_sq"].any()
    field = optimizers["field_mu"].state[model.motion.field_mu]
    assert field["exp_avg"][:2000].any()
    assert not field["exp_avg"][2000:].any()


def test_large_ones_split_and_small_ones_are_cloned():
    model, optimizers, strategy, state = setting(grow_scale3d=0.1)  # of an extent of 2
    with torch.no_grad():
        model.splats["scales"].fill_(math.log(0.19))
        model.splats["scales"][3, 1] = math.log(0.21)
    strategy.verbose = True
    refine(model, optimizers, strategy, state, 10, torch.ones(20))
    assert model.n == 40
    assert (model.splats["scales"].exp().amax(1) < 0.14).sum() == 2
    assert not torch.equal(model.splats["means"][3], model.splats["means"][23])
    assert torch.equal(model.splats["means"][4], model.splats["means"][24])


def test_revised_opacity_of_halves():
    model, optimizers, strategy, state = setting(grow_scale3d=0.0, revised_opacity=True)
    with torch.no_grad():
        model.splats["opacities"].fill_(0.0)
    refine(model, optimizers, strategy, state, 10, torch.ones(20))
    one = model.splats["opacities"].sigmoid()[7]
    assert float((1 - one.detach()) ** 2) == pytest.approx(0.5)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(MOTIONS), st.integers(0, 99), st.integers(1, 4))
def test_moments_follow_their_gaussians_through_any_growth(motion, seed, rounds):
    model, optimizers, strategy, state = setting(motion, cap_max=60)
    draw = torch.Generator().manual_seed(seed)
    # The second moment of a mean is a name that rows must keep, with colors as the second witness.
    tagged(optimizers, model.params)
    with torch.no_grad():
        model.splats["sh0"][:, 0, 0] = torch.arange(1.0, 21)
        if "field_mu" in model.params:
            model.motion.beta_logit.copy_(torch.arange(1.0, 21))
    for i in range(1, rounds + 1):
        with torch.no_grad():
            faded = torch.rand(model.n, generator=draw) < 0.2
            faded[0] = False
            model.splats["opacities"][faded] = -9.0
        refine(
            model, optimizers, strategy, state, 10 * i, torch.rand(model.n, generator=draw) * 4e-4
        )
        sound(model, optimizers, state)
        names = model.splats["sh0"][:, 0, 0].detach()
        for name in ("means", "quats", "sh0", "opacities"):
            second = optimizers[name].state[model.params[name]]["exp_avg_sq"]
            kept = second.reshape(model.n, -1)[:, 0]  # what is new has none
            assert torch.equal(kept, torch.where(kept == 0, 0, names))
            assert kept.any() or rounds > 1
        if motion == "tree":
            second = optimizers["beta_logit"].state[model.motion.beta_logit]["exp_avg_sq"]
            assert torch.equal(second, names)
            assert torch.equal(model.motion.beta_logit.detach(), names)
            leaves = optimizers["field_mu"].state[model.motion.field_mu]["exp_avg_sq"][
                model.motion.entry, 0
            ]
            assert torch.equal(leaves, names)
        elif motion in ("flat", "polynomial"):
            name = model.motion.rows[0]
            second = optimizers[name].state[model.params[name]]["exp_avg_sq"]
            assert torch.equal(second.reshape(model.n, -1)[:, 0], names)
        for name, optimizer in optimizers.items():
            model.params[name].grad = torch.zeros_like(model.params[name])
            optimizer.param_groups[0].update(lr=0.0, betas=(0.9, 1 - 1e-12))
            optimizer.step()


@pytest.mark.parametrize("motion", MOTIONS)
def test_training_with_the_rasterizer_grows_and_lowers_the_loss(motion):
    target = moving(motion, n=60, seed=3)
    model = moving(motion, n=30, seed=4, stir=0.02)
    optimizers = {**adams(model, 1e-2)}
    shared = (
        torch.optim.Adam(model.shared_parameters(), 1e-3) if model.shared_parameters() else None
    )
    strategy = TreeStrategy(
        refine_start_iter=0,
        refine_every=8,
        promote_every=2,
        reset_every=0,
        grow_grad2d=1e-5,
        cap_max=50,
    )
    strategy.check_sanity(model.params, optimizers)
    state, losses = strategy.initialize_state(model.extent), []
    for step in range(30):
        t = (step % 5) / 4
        with torch.no_grad():
            wanted = target.render(*camera(24), t)[0]
        rgb, _, info = model.render(*camera(24), t)
        strategy.step_pre_backward(model.params, optimizers, state, step, info)
        loss = (rgb - wanted).square().mean()
        loss.backward()
        losses.append(loss.item())
        for optimizer in [*optimizers.values(), *([shared] if shared else [])]:
            optimizer.step()
            optimizer.zero_grad()
        strategy.step_post_backward(model.params, optimizers, state, step, info)
    assert model.n == 50
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    sound(model, optimizers, state)


def test_the_gradients_of_gsplats_strategy_are_counted():
    model, _, strategy, _ = setting()
    gradients = torch.rand(20)
    theirs = gsplat.DefaultStrategy(refine_start_iter=99)
    states = strategy.initialize_state(), theirs.initialize_state()
    strategy.refine_start_iter = 99
    for one, state in zip((strategy, theirs), states, strict=True):
        for step in (3, 4):
            one.step_post_backward(model.params, {}, state, step, screen(model, gradients))
    assert torch.equal(states[0]["grad2d"], states[1]["grad2d"])
    assert states[0]["grad2d"].tolist() == pytest.approx((2 * gradients).tolist())
    assert torch.equal(states[0]["count"], states[1]["count"])


def test_the_largest_gradients_go_first_where_room_is_short(caplog):
    model, optimizers, strategy, state = setting(cap_max=23, grow_scale3d=1e3)
    gradients = torch.linspace(1, 2, 20).roll(7)
    with caplog.at_level(logging.WARNING):
        refine(model, optimizers, strategy, state, 10, gradients)
        assert model.n == 23
        colors = model.splats["sh0"].detach()
        largest = gradients.topk(3).indices.sort().values
        assert torch.equal(colors[20:], colors[largest])
        refine(model, optimizers, strategy, state, 20, torch.ones(23))
        refine(model, optimizers, strategy, state, 30, torch.ones(23))
    assert model.n == 23
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("step 10: 20 of 20 Gaussians would grow, but cap_max is 23")


def test_a_cap_below_the_start_only_stops_growth():
    model, optimizers, strategy, state = setting(cap_max=5)
    refine(model, optimizers, strategy, state, 10, torch.ones(20))
    assert model.n == 20


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [(3, range(0, 100, 10), [0, 30, 60, 90]), (1, [10, 20], [10, 20]), (0, [0, 10, 20], [])],
)
def test_rounds_that_promote(every, steps, expected):
    strategy = TreeStrategy(refine_every=10, promote_every=every)
    assert [step for step in steps if strategy.promotes(step)] == expected


def test_growth_happens_only_within_its_window():
    model, optimizers, strategy, state = setting(refine_start_iter=10, refine_stop_iter=30)
    for step, n in ((0, 20), (10, 20), (11, 20), (20, 40), (30, 40)):
        refine(model, optimizers, strategy, state, step, torch.ones(model.n))
        assert model.n == n


def test_opacities_are_reset_when_asked():
    model, optimizers, strategy, state = setting(reset_every=7, refine_start_iter=99)
    opacities = model.splats["opacities"].detach().clone()
    for step in (0, 6):
        refine(model, optimizers, strategy, state, step)
        assert torch.equal(model.splats["opacities"], opacities)
    refine(model, optimizers, strategy, state, 7)
    assert model.splats["opacities"].sigmoid().max().item() == pytest.approx(0.01)
    assert not optimizers["opacities"].state[model.splats["opacities"]]["exp_avg_sq"].any()
    sound(model, optimizers, state)


def test_faded_and_after_the_first_reset_large_ones_go():
    model, optimizers, strategy, state = setting(reset_every=15, prune_scale3d=0.5)
    with torch.no_grad():
        model.splats["scales"].fill_(-3)
        model.splats["scales"][4] = 1.0
        model.splats["opacities"][9] = -9
    refine(model, optimizers, strategy, state, 10)
    assert model.n == 19
    refine(model, optimizers, strategy, state, 20)
    assert model.n == 18
    assert model.splats["scales"].max() == -3
    sound(model, optimizers, state)


def test_gaussians_that_are_wide_in_the_image_split_and_later_go():
    model, optimizers, strategy, state = setting(
        refine_scale2d_stop_iter=25, reset_every=15, prune_scale3d=1e9
    )
    with torch.no_grad():
        model.splats["scales"].fill_(-9)
    info = {**screen(model), "width": 100, "height": 100}
    info["radii"][0, 6] = 10  # a tenth of the image
    state = strategy.initialize_state()
    strategy.step_post_backward(model.params, optimizers, state, 10, info)
    assert model.n == 21
    assert (model.splats["scales"] < -9.4).all(1).sum() == 2
    assert len(state["radii"]) == 21
    info = {**screen(model), "width": 100, "height": 100}
    info["radii"][0, 3] = 50
    strategy.step_post_backward(model.params, optimizers, state, 20, info)
    assert model.n == 20  # split, and both halves gone
    sound(model, optimizers, state)
    assert state["radii"].shape == (20,)


def test_gradients_without_signs():
    model = moving(n=30)
    optimizers = adams(model)
    strategy = TreeStrategy(refine_start_iter=99, absgrad=True)
    plain = TreeStrategy(refine_start_iter=99)
    states = strategy.initialize_state(), plain.initialize_state()
    rgb, _, info = model.render(*camera(24), 0.5, absgrad=True)
    strategy.step_pre_backward(model.params, optimizers, states[0], 0, info)
    (rgb - 0.5).square().sum().backward()
    for one, state in zip((strategy, plain), states, strict=True):
        one.step_post_backward(model.params, optimizers, state, 0, info)
    assert (states[0]["grad2d"] >= states[1]["grad2d"] - 1e-4).all()
    assert states[0]["grad2d"].sum() > 1.01 * states[1]["grad2d"].sum()


def test_all_pruned_says_what_is_likely_wrong():
    model, optimizers, strategy, state = setting()
    with torch.no_grad():
        model.splats["opacities"].fill_(-9)
    with pytest.raises(RuntimeError, match=r"step 10: all 20 Gaussians .* intrinsics or poses"):
        refine(model, optimizers, strategy, state, 10)
    assert model.n == 20


@pytest.mark.parametrize("name", ["means", "scales", "quats", "opacities", "field_mu"])
def test_values_that_are_not_finite_are_caught(name):
    model, optimizers, strategy, state = setting()
    with torch.no_grad():
        model.params[name][5] = math.nan
    message = f"step 10: 1 of 20 rows of {name} are not finite"
    with pytest.raises(FloatingPointError, match=message):
        refine(model, optimizers, strategy, state, 10)


def test_a_split_of_an_endless_scale_is_caught():
    model, optimizers, strategy, state = setting()
    with torch.no_grad():
        model.splats["scales"][5] = 99.0
    with pytest.raises(FloatingPointError, match="2 of 40 rows of means are not finite"):
        refine(model, optimizers, strategy, state, 10, torch.ones(20))


def test_frozen_parameters_need_no_optimizer():
    model = moving()
    model.splats["sh0"].requires_grad_(False)
    optimizers = {name: o for name, o in adams(model).items() if name != "sh0"}
    strategy = TreeStrategy(refine_start_iter=0, refine_every=10)
    strategy.check_sanity(model.params, optimizers)
    state = strategy.initialize_state()
    refine(model, optimizers, strategy, state, 10, torch.ones(model.n))
    assert model.n == 80
    assert not model.splats["sh0"].requires_grad


def test_what_check_sanity_refuses():
    model, optimizers, strategy, state = setting()
    with pytest.raises(TypeError, match=r"got ParameterDict, wants `model.params`"):
        strategy.check_sanity(model.splats, optimizers)
    del optimizers["field_mu"]
    with pytest.raises(AssertionError, match="field_mu"):
        strategy.check_sanity(model.params, optimizers)
    merged = model.merge()
    with pytest.raises(RuntimeError, match="merged model has no tree"):
        strategy.check_sanity(merged.params, adams(merged))
    before = {name: p.clone() for name, p in merged.params.items()}
    with pytest.raises(RuntimeError, match="merged model has no tree"):
        refine(merged, adams(merged), strategy, state, 10, torch.ones(20))
    assert all(torch.equal(p, before[name]) for name, p in merged.params.items())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"cap_max": 0}, ValueError, "cap_max: got 0"),
        ({"promote_every": -1}, ValueError, "promote_every: got -1"),
        ({"reset_every": 1.5}, TypeError, "reset_every: got 1.5"),
        ({"refine_every": 0}, ValueError, "refine_every: got 0"),
        ({"grow_grad2d": math.nan}, ValueError, "grow_grad2d: got nan"),
        ({"refine_start_iter": -1}, ValueError, "refine_start_iter: got -1"),
        ({"refine_stop_iter": 2.5}, TypeError, "refine_stop_iter: got 2.5"),
        ({"pause_refine_after_reset": -1}, ValueError, "pause_refine_after_reset: got -1"),
        ({"refine_scale2d_stop_iter": -1}, ValueError, "refine_scale2d_stop_iter: got -1"),
        ({"grow_scale2d": -1.0}, ValueError, "grow_scale2d: got -1.0"),
        ({"prune_scale2d": math.nan}, ValueError, "prune_scale2d: got nan"),
        ({"absgrad": 1}, TypeError, "absgrad: got 1"),
        ({"revised_opacity": "no"}, TypeError, "revised_opacity: got 'no'"),
        ({"key_for_gradient": "means"}, ValueError, "key_for_gradient: got 'means'"),
    ],
)
def test_bad_fields(fields, error, message):
    with pytest.raises(error, match=message):
        TreeStrategy(**fields)


def test_absgrad_wants_a_rendering_with_it():
    model, optimizers, _, _ = setting()
    strategy = TreeStrategy(absgrad=True)
    info = {"means2d": torch.zeros(1, 20, 2)}
    with pytest.raises(ValueError, match="wants a rendering with absgrad=True"):
        strategy.step_post_backward(model.params, optimizers, strategy.initialize_state(), 1, info)


def test_bad_extent():
    with pytest.raises(ValueError, match="scene_scale: got 0"):
        TreeStrategy().initialize_state(0.0)


def test_distance_between_siblings():
    model = moving(n=4, stir=0.0)
    tree = model.motion
    tree.promote([0, 2])
    for name in SPLATS:
        old = model.splats[name].detach()
        model.splats[name] = torch.nn.Parameter(torch.cat([old, old[[0, 2]]]))
    assert sibling_distance(model, [0.0, 1.0]).abs().max() < 1e-6
    assert sibling_distance(model, [0.0, 1.0]).shape == (2, 2)
    with torch.no_grad():
        model.splats["means"][4] += torch.tensor([0.0, 6.0, 8.0])
    apart = sibling_distance(model, [0.3])
    assert sorted(apart[0].tolist()) == pytest.approx([0.0, 5.0], abs=1e-5)
    assert sibling_distance(moving(n=3), [0.5]).shape == (1, 0)
    with pytest.raises(ValueError, match="times: got none"):
        sibling_distance(model, [])
    with pytest.raises(TypeError, match="kind 'flat', wants a tree"):
        sibling_distance(moving("flat"), [0.5])
