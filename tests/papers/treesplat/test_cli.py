"""`assay treesplat`: what it trains, draws, exports and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from plyfile import PlyData
from typer.testing import CliRunner

from assay.cli import main
from assay.papers import treesplat
from assay.papers.treesplat import metrics, viewer
from assay.papers.treesplat import trainer as trainer_module
from assay.papers.treesplat.cli import app
from assay.papers.treesplat.scenes import catalogue
from assay.papers.treesplat.tree_splat import TreeSplat
from assay.toolkits.data import MissingData

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
    assert output.endswith(f"{folder}: 4 training, 6 validation and 24 test pictures\n")
    return folder


def test_a_scene_is_filmed_trained_and_written(model):
    path, output = model
    lines = output.splitlines()
    assert lines[:2] == [
        "filming pendulum ...",
        "tree on pendulum: 4 training pictures, 20 steps",
    ]
    assert "compiles" in lines[2]
    assert re.match(r"step +1/20  after \d+\.\d s$", lines[3])
    assert re.match(r"step +20/20  loss 0\.\d{4} .* ms a step, 0:00 left$", lines[-3])
    loaded = TreeSplat.load(path)
    assert lines[-2].startswith(f"{path}: {loaded.n:,} Gaussians, motion: tree")
    assert re.match(r"24 test pictures: PSNR \d+\.\d\d dB, SSIM -?0\.\d{4}$", lines[-1])
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_model_is_written_even_if_it_cannot_be_evaluated(tmp_path, monkeypatch):
    def broken(*_):
        raise ValueError("r_003.png: damaged")

    monkeypatch.setattr(metrics, "evaluate", broken)
    out = tmp_path / "a.safetensors"
    code, output = run("train", "pendulum", "-o", out, *TINY)
    assert code == 1
    assert "assay: the model is written, its evaluation failed: r_003.png: damaged" in output
    TreeSplat.load(out)
    assert list(tmp_path.iterdir()) == [out]


def test_scenes_are_listed_with_what_they_need(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    lines = run("scenes")[1].splitlines()
    assert len(lines) == len(catalogue.NAMES)
    for line in lines:
        name, *needs = line.split(maxsplit=1)
        if needs:
            with pytest.raises(MissingData):
                catalogue.load(name)
        else:
            catalogue.load(name)


def test_the_console_lines_of_the_card_run(tmp_path, monkeypatch, data_set):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(viewer.Viewer, "wait", lambda self: None)
    card = (Path(treesplat.__file__).parent / "README.md").read_text()
    use = card.split("## Use")[1].split("\n## ")[0]
    lines = re.findall(r"^\$ assay treesplat (.*)$", use, re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"train", "view", "export"}
    extra = {"train": TINY[4:], "view": ("--port", 0)}
    for line in lines:
        command, *rest = [str(data_set) if word == "DIR" else word for word in line.split()]
        assert run(command, *rest, *extra.get(command, ()))[0] == 0
    assert (tmp_path / "middle.ply").exists()


def test_a_data_set_trains_and_its_cameras_draw(tmp_path, data_set):
    out = tmp_path / "a.safetensors"
    code, _ = run("train", data_set, "-o", out, "--motion", "flat", *TINY[4:])
    assert code == 0
    assert TreeSplat.load(out).motion.kind == "flat"
    _, output = run("render", out, "-o", tmp_path / "all", "--capture", data_set, "--downscale", 2)
    assert output == f"{tmp_path / 'all'}: 24 pictures\n"
    with Image.open(tmp_path / "all" / "0000.png") as picture:
        assert picture.size == (8, 8)
    _, output = run(
        "render", out, "-o", tmp_path / "one", "--capture", data_set, "--frame", 0, "--t", 0.5
    )
    assert output == f"{tmp_path / 'one'}: 1 picture\n"
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
    run("render", model[0], "-o", tmp_path / "c.GIF", "--n-times", 2, "--size", 16)
    with Image.open(tmp_path / "c.GIF") as film:
        assert (film.format, film.n_frames) == ("GIF", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "b.png"), "out: b.png is one picture, wants --t"),
        (("-o", "b.PNG"), "out: b.PNG is one picture, wants --t"),
        (("-o", "b.jpg"), "out: got b.jpg, wants a name that ends in .png or"),
        (("-o", "no/b.gif"), "out: there is no folder no"),
        (("-o", "a/b.gif"), "out: a/b.gif is a folder"),
        (("-o", "file"), "out: file is a file"),
        (("-o", "b.gif", "--turns", "nan"), "turns: got nan"),
        (("-o", "b.gif", "--frame", 1), "frame: wants --capture"),
        (("-o", "b.gif", "--convention", "opencv world-to-camera"), "convention: wants --capture"),
        (("-o", "b.png", "--t", 1, "--capture", "cap"), "out: b.png is one picture, wants --frame"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_model_is_read(
    tmp_path, monkeypatch, model, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b.gif").mkdir(parents=True)
    (tmp_path / "file").touch()
    monkeypatch.setattr(TreeSplat, "load", None)
    with pytest.raises(ValueError, match=re.escape(message)):
        run("render", model[0], *arguments)


def test_a_model_is_exported(tmp_path, model):
    n = TreeSplat.load(model[0]).n
    run("export", model[0], "-o", tmp_path / "a.ply", "--t", 0.5)
    assert PlyData.read(tmp_path / "a.ply")["vertex"].count == n
    run("export", model[0], "-o", tmp_path / "all", "--sequence", 3)
    assert len(list((tmp_path / "all").glob("*.ply"))) == 3
    _, output = run("export", model[0], "-o", tmp_path / "m.safetensors", "--merge")
    assert TreeSplat.load(tmp_path / "m.safetensors").motion.kind == "merged"
    assert "motion: merged" in output
    with pytest.raises(ValueError, match="merged already"):
        run("export", tmp_path / "m.safetensors", "-o", tmp_path / "n.safetensors", "--merge")
    before = model[0].read_bytes()
    with pytest.raises(ValueError, match="the model itself"):
        run("export", model[0], "-o", model[0], "--merge")
    assert model[0].read_bytes() == before
    with pytest.raises(ValueError, match=r"out: got f\.ply, wants the name of a folder"):
        run("export", model[0], "-o", tmp_path / "f.ply", "--sequence", 2)
    with pytest.raises(ValueError, match=r"out: got x\.splat, wants a name that ends in \.ply"):
        run("export", model[0], "-o", tmp_path / "x.splat", "--t", 0)
    for wrong in ((), ("--t", 0.5, "--merge")):
        with pytest.raises(ValueError, match="exactly one of --t, --sequence and --merge"):
            run("export", model[0], "-o", tmp_path / "x.ply", *wrong)


def test_a_motion_without_a_basis_is_not_merged(tmp_path):
    still = TreeSplat.from_points(torch.eye(3), motion="none")
    still.save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="motion: got 'none', wants one with a basis"):
        run("export", tmp_path / "a.safetensors", "-o", tmp_path / "b.safetensors", "--merge")


def test_a_capture_and_a_model_are_not_overwritten(tmp_path, monkeypatch, data_set, model):
    monkeypatch.setattr(catalogue, "load", None)
    with pytest.raises(ValueError, match="holds a capture already"):
        run("film", "pendulum", "-o", data_set)
    with pytest.raises(ValueError, match="is there already; wants another name, or --fresh"):
        run("train", "pendulum", "-o", model[0], *TINY)


def test_ctrl_c_says_where_a_training_goes_on(tmp_path, monkeypatch, capsys):
    out = tmp_path / "a.safetensors"
    command = ["assay", "treesplat", "train", "pendulum", "-o", out, *TINY, "--every", 5]
    monkeypatch.setattr("sys.argv", [str(one) for one in command])
    advance = trainer_module._Run.advance

    def stopped(run_):
        if run_.step == stop:
            raise KeyboardInterrupt
        advance(run_)

    monkeypatch.setattr(trainer_module._Run, "advance", stopped)
    for stop, said in (
        (3, "nothing is saved yet, the same command begins anew"),
        (13, "at step 13: the same command, without --fresh, goes on from step 10"),
    ):
        with pytest.raises(SystemExit, match="130"):
            main()
        assert capsys.readouterr().err.endswith(f"assay: interrupted; {said}\n")
        assert out.with_name("a.safetensors.training").exists() == (stop == 13)


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
        (
            ("train", "pendulum", "-o", "a.safetensors", "--steps", 3, "--set", "steps=5"),
            "--set: got 'steps=5', wants it as --steps",
        ),
        (
            ("train", "pendulum", "-o", "a.safetensors", "--set", "motion=flat"),
            "--set: got 'motion=flat', wants it as --motion",
        ),
        (
            ("train", "pendulum", "-o", "a.safetensors", "--set", 'motion_options={"zzz":1}'),
            "zzz",
        ),
        (
            ("train", "pendulum", "-o", "a.safetensors", "--clip", "Nope"),
            "clip: pendulum has none to choose from",
        ),
        (
            ("train", "pendulum", "-o", "a.safetensors", "--convention", "opencv camera-to-world"),
            "convention: wants a capture's folder",
        ),
        (("film", "pendulum", "-o", "a.zip"), "out: got a.zip, wants the name of a folder"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
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
