from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from assay.papers.treesplat import trainer as trainer_module
from assay.papers.treesplat.config import MOTIONS, TrainConfig
from assay.papers.treesplat.datasets import Capture, DynamicDataset
from assay.papers.treesplat.scenes import Pendulum, render_capture
from assay.papers.treesplat.trainer import Trainer


@cache
def pendulum(seed=0) -> Capture:
    return render_capture(
        Pendulum(2), size=24, n_train=8, n_val=2, n_test=3, seed=seed, supersample=1, n_points=60
    )


def small(steps=40, **changes) -> TrainConfig:
    return TrainConfig.short(
        steps,
        **{
            "static_steps": 8,
            "grow_from": 10,
            "grow_until": 36,
            "grow_every": 5,
            "promote_every": 2,
            "grow_grad2d": 1e-5,
            "n_points": 30,
            "cap_max": 150,
            "backend": "cpu",
            **changes,
        },
    )


def bits(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("motion", MOTIONS)
def test_every_motion_trains_grows_and_is_evaluated(motion):
    trainer = Trainer(small(60, motion=motion, grow_until=30, eval_every=30))
    model = trainer.fit(pendulum())
    history = trainer.history
    assert model is trainer.model
    assert model.motion.kind == motion
    assert trainer.step == len(history.losses) == 60
    assert np.mean(history.losses[-8:]) < 0.8 * np.mean(history.losses[:8])
    assert [one["step"] for one in history.evaluations] == [30, 60]
    assert history.evaluations[1]["psnr"] > history.evaluations[0]["psnr"]
    assert 30 < model.n <= 150
    assert history.growth[-1]["n"] == model.n == model.motion.n == len(model.splats["means"])
    assert any(one["promotion"] for one in history.growth)
    nodes, depth = history.growth[-1]["nodes"], history.growth[-1]["depth"]
    if motion == "tree":
        model.motion.check()
        assert (nodes, depth) == (model.motion.n_nodes, model.motion.depth())
        assert depth > 1
    else:
        assert (nodes, depth) == (None, None)


@pytest.mark.parametrize("random_background", [False, True])
def test_a_seed_gives_the_same_bits_and_leaves_the_callers_generator_alone(random_background):
    config = small(motion="tree", random_background=random_background)
    first = bits(Trainer(config).fit(pendulum()))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert same(first, bits(Trainer(config).fit(pendulum())))
    assert torch.equal(torch.get_rng_state(), before)
    other = bits(Trainer(replace(config, seed=1)).fit(pendulum()))
    assert not torch.equal(first["splats.means"][:10], other["splats.means"][:10])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("motion", ["tree", "mlp"])
@pytest.mark.parametrize("killed_at", [7, 23, 33])
def test_a_killed_training_goes_on_to_the_same_bits(tmp_path, motion, killed_at):
    config = small(motion=motion, eval_every=20, random_background=True)
    whole = Trainer(config)
    expected = bits(whole.fit(pendulum()))

    def kill(trainer):
        if trainer.step == killed_at:
            raise Killed

    with pytest.raises(Killed):
        Trainer(config).fit(pendulum(), tmp_path, every=3, progress=kill)
    resumed = Trainer(config)
    started = []
    model = resumed.fit(
        pendulum(), tmp_path, every=3, progress=lambda trainer: started.append(trainer.step)
    )
    assert started[0] == killed_at // 3 * 3 + 1
    assert same(bits(model), expected)
    assert resumed.history == whole.history
    again = Trainer(config).fit(pendulum(), tmp_path)
    assert same(bits(again), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    config = small(12)
    Trainer(config).fit(pendulum(), tmp_path)
    with pytest.raises(ValueError, match=r"field_lr: got 0.5, but .*checkpoint.pt is of a train"):
        Trainer(replace(config, field_lr=0.5)).fit(pendulum(), tmp_path)
    with pytest.raises(ValueError, match="of a training on another capture"):
        Trainer(config).fit(pendulum(seed=1), tmp_path)
    frames = pendulum().train.frames
    last = len(frames) - 1
    edited = DynamicDataset(frames, lambda i: pendulum().train.pixels(i) // (1 + (i == last)))
    with pytest.raises(ValueError, match="of a training on another capture"):
        Trainer(config).fit(replace(pendulum(), train=edited), tmp_path)
    path = tmp_path / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    changes = [{"step": 99}, {"step": "x"}, {"config": 3}, {"model": {}}, {"optimizers": None}]
    changes += [{"strategy": {}}, {"generators": {"cpu": 3}}, {"history": {"losses": []}}]
    for change in changes:
        torch.save({**state, **change}, path)
        with pytest.raises(ValueError, match=r"checkpoint\.pt: no checkpoint of a training"):
            Trainer(config).fit(pendulum(), tmp_path)
    path.write_bytes(pickle.dumps(Killed()))
    with pytest.raises(
        ValueError, match=r"checkpoint\.pt: no checkpoint .*, but some other pickle"
    ):
        Trainer(config).fit(pendulum(), tmp_path)
    torch.save(state, path)
    for content in (path.read_bytes()[:-200], b"", b"no archive"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint\.pt: no checkpoint of a training"):
            Trainer(config).fit(pendulum(), tmp_path)


def test_a_loss_that_is_not_finite_stops_at_its_step(tmp_path, monkeypatch):
    loss, calls = trainer_module.photometric_loss, []

    def broken(*arguments):
        calls.append(1)
        return loss(*arguments) * (float("nan") if len(calls) == 8 else 1)

    monkeypatch.setattr(trainer_module, "photometric_loss", broken)
    trainer = Trainer(small())
    with pytest.raises(FloatingPointError, match="loss: nan at step 7"):
        trainer.fit(pendulum(), tmp_path, every=3)
    assert all(torch.isfinite(value).all() for value in trainer.model.state_dict().values())
    monkeypatch.undo()
    steps = []
    Trainer(small()).fit(pendulum(), tmp_path, progress=lambda one: steps.append(one.step))
    assert steps[0] == 7


def test_motion_waits_for_the_static_phase():
    def moved(steps):
        model = Trainer(small(40, motion="flat", static_steps=steps, grow_until=10)).fit(pendulum())
        return bool(model.motion.coef_mu.abs().sum() > 0)

    assert not moved(40)
    assert moved(20)


def test_a_still_capture_is_trained_without_motion():
    capture = pendulum()
    frames = [replace(frame, time=0.5) for frame in capture.train.frames]
    still = replace(capture, train=DynamicDataset(frames, capture.train.pixels))
    with pytest.warns(UserWarning, match="share one time; trained without motion"):
        model = Trainer(small(5, motion="tree", motion_options={"max_depth": 4})).fit(still)
    assert model.motion.kind == "none"


def test_captures_that_lack_something_are_told_of():
    capture = pendulum()
    none = DynamicDataset([], lambda i: None)
    with pytest.raises(ValueError, match="capture: got no training frames"):
        Trainer(small()).fit(replace(capture, train=none))
    trainer = Trainer(small(4, eval_every=2))
    with pytest.warns(UserWarning, match="holds out no frames"):
        trainer.fit(replace(capture, val=none, test=none))
    assert trainer.history.evaluations == []
    opaque = DynamicDataset(capture.train.frames, lambda i: capture.train.pixels(i)[..., :3])
    with pytest.warns(UserWarning, match="no points to start from"):
        model = Trainer(small(4)).fit(replace(capture, train=opaque, points=None, synthetic=False))
    assert model.n == 30
    with pytest.raises(ValueError, match=r"random_background: frame train/r_00\d has no alpha"):
        Trainer(small(4, random_background=True)).fit(replace(capture, train=opaque))


def test_few_points_are_drawn_from_many_and_bounds_hold_those_drawn_at_random():
    capture = pendulum()
    chosen = Trainer(small(1, n_points=20, means_lr=0.0, means_lr_final=0.0)).fit(capture)
    assert chosen.n == 20
    distances = torch.cdist(chosen.splats["means"].detach().double(), capture.points.double())
    assert distances.min(1).values.max() < 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = Trainer(small(1, means_lr=0.0, means_lr_final=0.0)).fit(
            replace(capture, points=None, point_colors=None)
        )
    means = drawn.splats["means"].detach()
    assert drawn.n == 30
    assert ((means >= capture.bounds[0]) & (means <= capture.bounds[1])).all()


def test_rates_follow_their_schedule():
    capture = pendulum()
    config = small(20, motion="tree", field_lr=2e-3, basis_lr=1e-3, basis_lr_final=1e-5)
    run = trainer_module._Run(config, capture, torch.device("cpu"))
    field = next(name for name in run.optimizers if name.endswith("field_mu"))
    assert run._rate("means", 0.0) == pytest.approx(5e-4 * capture.extent)
    assert run._rate("means", 1.0) == pytest.approx(5e-6 * capture.extent)
    assert run._rate("shared", 0.5) == pytest.approx(1e-4)
    assert run._rate("quats", 0.3) == config.quats_lr
    run.gain = 1.9
    assert run._rate(field, 0.3) == pytest.approx(2e-3 * capture.extent / 1.9)


def test_a_deeper_tree_learns_at_a_lower_rate_for_each_node():
    trainer, gains = Trainer(small(40, motion="tree")), []
    with pytest.MonkeyPatch.context() as patch:
        rate = trainer_module._Run._rate
        patch.setattr(
            trainer_module._Run,
            "_rate",
            lambda run, name, done: gains.append(run.gain) or rate(run, name, done),
        )
        model = trainer.fit(pendulum())
    assert gains[0] == pytest.approx(1)
    assert gains[-1] == pytest.approx(model.motion.path_gain(), rel=0.05)
    assert gains[-1] > 1.2
    off = Trainer(small(40, motion="tree", scale_field_rate=False))
    off.fit(pendulum())


def filmed_with(**changes) -> Capture:
    capture = pendulum()
    frames = [replace(frame, **changes) for frame in capture.train.frames]
    return replace(capture, train=DynamicDataset(frames, capture.train.pixels))


def test_a_training_that_sees_nothing_stops_after_a_round():
    away = torch.eye(4)
    away[2, 3] = -1e3
    with pytest.raises(RuntimeError, match="step 7: no Gaussian was in sight of any of the 8"):
        Trainer(small()).fit(filmed_with(viewmat=away))


def test_a_training_that_leaves_all_numbers_behind_names_the_step():
    with pytest.raises(FloatingPointError, match=r"step \d+: "):
        Trainer(small(means_lr=1e39, means_lr_final=1e39)).fit(pendulum())


def test_there_are_never_more_gaussians_than_cap_max():
    assert Trainer(small(2, cap_max=7)).fit(pendulum()).n == 7
    capture = replace(pendulum(), points=None, point_colors=None)
    assert Trainer(small(2, cap_max=7)).fit(capture).n == 7


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Trainer({"steps": 3}), TypeError, "config: got dict, wants a TrainConfig"),
        (lambda: Trainer(small(2)).fit(None), TypeError, "capture: got NoneType, wants a Capture"),
        (
            lambda: Trainer(small(2)).fit(filmed_with(viewmat=2 * torch.eye(4))),
            ValueError,
            "viewmats: got .* last rows",
        ),
        (
            lambda: Trainer(small(2)).fit(replace(pendulum(), point_colors=torch.zeros(3, 3))),
            ValueError,
            "point_colors: got 3, wants 60 as points",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
