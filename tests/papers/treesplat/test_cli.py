"""`assay treesplat`: what it trains, draws, exports and refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from plyfile import PlyData
from typer.testing import CliRunner

from assay.papers.treesplat import trainer as trainer_module
from assay.papers.treesplat import viewer
from assay.papers.treesplat.cli import app
from assay.papers.treesplat.tree_splat import TreeSplat

TINY = ("--size", 16, "--views", 4, "--steps", 20, "--set", "n_points=30", "--backend", "cpu")


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "pendulum.safetensors"
    code, output = run("train", "pendulum", "-o", path, *TINY)
    assert code == 0
    return path, output


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "pendulum"
    code, output = run("film", "pendulum", "-o", folder, "--size", 16, "--views", 4)
    assert code == 0
    assert output.startswith(f"{folder}: 4 training, 6 validation and 24 test pictures")
    return folder


def test_a_scene_is_filmed_trained_and_written(model):
    path, output = model
    lines = output.splitlines()
    assert lines[0] == "tree on pendulum: 4 training pictures, 20 steps"
    assert re.match(r"step +20/20  loss 0\.\d{4} ", lines[-3])
    assert re.match(r"24 test pictures: PSNR \d+\.\d\d dB, SSIM -?0\.\d{4}$", lines[-2])
    loaded = TreeSplat.load(path)
    assert lines[-1].startswith(f"{path}: {loaded.n:,} Gaussians, motion: tree")
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_every_scene_has_a_name():
    assert "pendulum" in run("scenes")[1].split()


def test_a_data_set_trains_and_its_cameras_draw(tmp_path, data_set):
    out = tmp_path / "a.safetensors"
    code, _ = run("train", data_set, "-o", out, "--motion", "flat", *TINY[4:])
    assert code == 0
    assert TreeSplat.load(out).motion.kind == "flat"
    code, output = run("render", out, "-o", tmp_path / "all", "--capture", data_set)
    assert output == f"{tmp_path / 'all'}: 24 pictures\n"
    code, _ = run(
        "render", out, "-o", tmp_path / "a.gif", "--capture", data_set, "--frame", 2,
        "--n-times", 3,
    )  # fmt: skip
    with Image.open(tmp_path / "a.gif") as film:
        assert (film.n_frames, film.size) == (3, (16, 16))
    with pytest.raises(ValueError, match=r"frame: got 24, and .* has 24 test frames"):
        run("render", out, "-o", tmp_path / "b.gif", "--capture", data_set, "--frame", 24)


def test_a_model_is_drawn(tmp_path, model):
    code, _ = run("render", model[0], "-o", tmp_path / "a.png", "--t", 0.5, "--size", 32)
    assert code == 0
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (32, 32)
        assert np.asarray(picture).min() < 250
    run("render", model[0], "-o", tmp_path / "b", "--n-times", 2, "--size", 16)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["0000.png", "0001.png"]
    with pytest.raises(ValueError, match=r"out: b\.png is one picture, wants --t"):
        run("render", model[0], "-o", tmp_path / "b.png")


def test_a_model_is_exported(tmp_path, model):
    n = TreeSplat.load(model[0]).n
    run("export", model[0], "-o", tmp_path / "a.ply", "--t", 0.5)
    assert PlyData.read(tmp_path / "a.ply")["vertex"].count == n
    run("export", model[0], "-o", tmp_path / "all", "--sequence", 3)
    assert len(list((tmp_path / "all").glob("*.ply"))) == 3
    _, output = run("export", model[0], "-o", tmp_path / "m.safetensors", "--merge")
    assert TreeSplat.load(tmp_path / "m.safetensors").motion.kind == "merged"
    assert "motion: merged" in output
    for wrong in ((), ("--t", 0.5, "--merge")):
        with pytest.raises(ValueError, match="exactly one of --t, --sequence and --merge"):
            run("export", model[0], "-o", tmp_path / "x.ply", *wrong)


def test_a_stopped_training_goes_on_and_a_fresh_one_does_not(tmp_path, monkeypatch):
    out = tmp_path / "a.safetensors"
    command = ("train", "pendulum", "-o", out, *TINY, "--every", 5)
    advance = trainer_module._Run.advance
    steps = []

    def stopped(run_):
        if run_.step == 13:
            raise KeyboardInterrupt
        advance(run_)

    monkeypatch.setattr(trainer_module._Run, "advance", stopped)
    assert run(*command)[0] == 130
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors.training"]
    monkeypatch.setattr(
        trainer_module._Run, "advance", lambda run_: (steps.append(run_.step), advance(run_))
    )
    with pytest.raises(ValueError, match=r"seed: got 1, but .* is of a training with 0"):
        run(*command, "--seed", 1)
    assert run(*command)[0] == 0
    assert steps == list(range(10, 20))
    steps.clear()
    run(*command[:-2], "--seed", 1, "--fresh")
    assert steps == list(range(20))


def test_a_training_that_diverges_ends_with_1(tmp_path, monkeypatch):
    monkeypatch.setattr(
        trainer_module, "photometric_loss", lambda image, *_: image.sum() * float("nan")
    )
    code, output = run("train", "pendulum", "-o", tmp_path / "a.safetensors", *TINY)
    assert code == 1
    assert "assay: loss: nan at step 0" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere", "-o", "a.safetensors"), "source: nowhere is no .glb, .gltf or .bvh"),
        (("train", "pendulum", "-o", "a.ply"), "out: got a.ply, wants a name that ends in .safete"),
        (("train", "pendulum", "-o", "no/a.safetensors"), "out: there is no folder no"),
        (("train", "pendulum", "-o", "a.safetensors", "--set", "x=1"), "--set: got 'x=1', wants"),
        (
            ("train", "pendulum", "-o", "a.safetensors", "--set", "field_lr=fast"),
            "field_lr: got 'fast', wants one number >= 0",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        run(*arguments)
    assert not list(tmp_path.iterdir())


def test_a_model_is_viewed_until_ctrl_c(model, monkeypatch):
    shown = []
    monkeypatch.setattr(
        viewer.Viewer, "wait", lambda self: shown.append((self.model.n, self.height.value))
    )
    code, output = run("view", model[0], "--port", 0, "--height", 80)
    assert code == 0
    assert shown == [(TreeSplat.load(model[0]).n, 80)]
    assert re.search(r"pendulum\.safetensors: .* Gaussians.*; http://127\.0\.0\.1:\d+", output)
