"""`assay rac`: what it trains, writes and refuses."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from assay.papers.rac import runs
from assay.papers.rac.adapters import NAMES, make
from assay.papers.rac.cli import _options, app
from assay.papers.rac.runs import Run, load_learners, play_from, train_in

SMALL = {"recurrent": False, "hidden": 8, "batch_size": 4, "max_len": 20}
SET = [part for name, value in SMALL.items() for part in ("--set", f"{name}={json.dumps(value)}")]
PAPER = ("--env", "matrix:paper", "--low", -12, "--high", 8, "--bins", 4, "--eval-every", 20, *SET)


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def curve(folder):
    return list(csv.DictReader((folder / "curve.csv").open()))


def test_games_are_listed_and_can_be_made():
    code, output = run("games")
    assert code == 0
    for name in NAMES:
        assert name in output
        if not name.startswith(("smaclite", "package")):
            assert make(name).possible_agents


@pytest.mark.parametrize("algo", ["rac", "iql", "hysteretic", "lenient", "i2q", "distributed"])
def test_every_algorithm_trains(tmp_path, algo):
    bounds = ("--low", -12, "--high", 8) if algo == "rac" else ()
    code, output = run(
        "train", "--env", "matrix:paper", "--algo", algo, *bounds, "--out", tmp_path / "a",
        "--steps", 30, "--eval-every", 10, *SET,
    )  # fmt: skip
    assert code == 0
    found = curve(tmp_path / "a")
    assert [row["steps"] for row in found] == ["10", "20", "30"]
    assert all(float(row["returns"]) in (8, 6, 0, -12) for row in found)
    assert math.isfinite(float(found[-1]["losses"]))
    assert len(output.splitlines()) >= 4
    code, output = run("play", tmp_path / "a", "--episodes", 2)
    assert output.splitlines()[-1] == f"mean return {float(found[-1]['returns']):.3f} of 2 episodes"


def test_a_folder_gets_pictures_settings_and_an_agents_file_each(tmp_path):
    run("train", *PAPER, "--beta", 10, "--steps", 40, "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "agent_0.safetensors",
        "agent_1.safetensors",
        "curve.csv",
        "curve.png",
        "run.json",
        "training.safetensors",
        "values-agent_0.png",
        "values-agent_1.png",
    }
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings["learner_options"] == {**SMALL, "beta": 10}
    assert Image.open(tmp_path / "values-agent_0.png").format == "PNG"


class Killed(BaseException):
    """What no part of the program expects."""


@pytest.mark.parametrize("algo", ["rac", "lenient"])
def test_a_killed_training_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch, algo):
    monkeypatch.setattr(runs, "SAVING", 1e9)  # after every evaluation
    context = {"bins": 3, "low": -30.0, "high": 10.0} if algo == "rac" else {}
    game = {"limit": 8}
    settings = Run("predator-prey", algo, game, SMALL, eval_every=40, eval_episodes=2, **context)
    whole = train_in(tmp_path / "whole", settings, 200, lambda _: None)

    def kill(trainer):
        if trainer.step > 100:
            raise Killed

    with pytest.raises(Killed):
        train_in(tmp_path / "parts", settings, 200, kill)
    assert 0 < len(curve(tmp_path / "parts")) < len(whole.history.steps)
    again = train_in(tmp_path / "parts", settings, 200, lambda _: None)
    assert again.history.steps == whole.history.steps
    assert again.history.returns == whole.history.returns
    np.testing.assert_array_equal(again.history.losses, whole.history.losses)
    for name in ("curve.csv", "predator_0.safetensors", "predator_1.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_same_command_goes_on_to_more_steps_and_no_further(tmp_path):
    command = ("train", *PAPER, "--out", tmp_path, "--steps")
    run(*command, 40)
    code, output = run(*command, 80)
    assert code == 0
    assert [line.split()[1] for line in output.splitlines() if line.startswith("step")] == [
        "60",
        "80",
    ]
    before = (tmp_path / "curve.csv").read_text()
    code, output = run(*command, 80)
    assert not any(line.startswith("step") for line in output.splitlines())
    assert (tmp_path / "curve.csv").read_text() == before


def test_bounds_come_from_random_episodes_and_stay(tmp_path):
    command = (
        "train", "--env", "matrix:climbing", "--out", tmp_path, "--eval-every", 20, *SET, "--steps",
    )  # fmt: skip
    run(*command, 20)
    settings = json.loads((tmp_path / "run.json").read_text())
    assert (settings["low"], settings["high"], settings["bins"]) == (-30, 11, 10)
    assert run(*command, 40)[0] == 0
    assert json.loads((tmp_path / "run.json").read_text()) == settings


def test_loaded_learners_act_as_the_trained_ones(tmp_path):
    settings = Run("lbf:5x5-2p-1f-coop", "iql", {"limit": 10}, SMALL | {"max_len": 10},
                   eval_every=100, eval_episodes=1, team_reward="sum")  # fmt: skip
    trainer = train_in(tmp_path, settings, 200, lambda _: None)
    loaded = load_learners(tmp_path, trainer.env)
    random = np.random.default_rng(0)
    for agent, learner in trainer.learners.items():
        assert len(loaded[agent].replay) == 0
        for _ in range(20):
            observation = random.normal(size=learner.obs_dim).astype(np.float32)
            expected = learner.action_values(observation)
            np.testing.assert_array_equal(loaded[agent].action_values(observation), expected)


def test_play_is_repeatable_and_films(tmp_path):
    run(
        "train", "--env", "predator-prey", "--env-set", "limit=6", "--algo", "iql", "--steps", 30,
        "--eval-every", 30, "--out", tmp_path / "a", *SET,
    )  # fmt: skip
    gif = tmp_path / "a.gif"
    code, output = run("play", tmp_path / "a", "--episodes", 3, "--seed", 4, "--gif", gif)
    assert code == 0
    assert run("play", tmp_path / "a", "--episodes", 3, "--seed", 4)[1] in output
    returns, frames = play_from(tmp_path / "a", 3, seed=4, film=True)
    assert f"{gif}: {len(frames)} pictures" in output
    assert 3 * 2 <= len(frames) <= 3 * 7
    with Image.open(gif) as image:
        assert image.size == frames[0].shape[1::-1]
        assert 1 < image.n_frames <= len(frames), "equal pictures in a row may be one"
    assert len(returns) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--env", "chess"), "env: got 'chess', wants one of"),
        (("--env", "lbf:5x5-2p-1f-coop"), "team_reward"),
        (("--env", "lbf:5x5-2p-1f-coop", "--algo", "iql", "--steps", 5000), "team_reward"),
        (("--env", "matrix:paper", "--set", "colour=1"), "colour"),
        (("--env", "matrix:paper", "--set", "colour"), "--set: got 'colour', wants NAME=VALUE"),
        (("--env", "matrix:paper", "--env-set", "size=1"), "size"),
        (("--env", "matrix:paper", "--set", "bins=4"), "learner_options: got bins, wants"),
        (("--env", "matrix:paper", "--set", "core=4"), "learner_options: got core, wants"),
        (("--env", "matrix:paper", "--algo", "distributed", "--set", "beta=0.5"), "got beta"),
        (("--env", "matrix:paper", "--low", 8, "--high", -12), "low, high"),
        (("--env", "matrix:paper", "--algo", "iql", "--bins", 4), "bins: iql has no contexts"),
        (("--env", "matrix:paper", "--algo", "iql", "--beta", 1), "beta: iql has none"),
        (("--env", "matrix:paper", "--beta", -1), "beta: got -1"),
        (("--env", "mpe:simple_spread_v3", "--env-set", "continuous_actions=true",
          "--env-set", "local_ratio=0.0"), "Discrete"),
    ],
)  # fmt: skip
def test_bad_trainings_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run("train", "--steps", 10, *options, "--eval-every", 5000, "--out", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_place_that_can_hold_no_folder_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        with pytest.raises(NotADirectoryError, match="file"):
            train_in(place, Run("no such game"), 10, print)


def test_words_of_python_are_understood():
    given = ["a=True", "b=False", "c=None", "d=true", "e=Trueish", "f=1e-3", "g="]
    expected = {"a": True, "b": False, "c": None, "d": True, "e": "Trueish", "f": 1e-3, "g": ""}
    assert _options("--set", given) == expected


@pytest.mark.parametrize("options", [("--algo", "sarsa"), ("--steps", 0), ("--bins", 0)])
def test_bad_usage_ends_with_2(tmp_path, options):
    assert run("train", "--env", "matrix:paper", "--out", tmp_path / "a", *options)[0] == 2


def test_a_folder_holds_one_training(tmp_path):
    run("train", *PAPER, "--steps", 20, "--out", tmp_path)
    with pytest.raises(ValueError, match=r"seed: got 1, but .* holds a training with 0"):
        run("train", *PAPER, "--seed", 1, "--steps", 20, "--out", tmp_path)


def test_play_names_what_is_wrong_with_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run\.json"):
        run("play", tmp_path)
    (tmp_path / "run.json").write_text('{"env": "matrix:paper", "colour": 1}')
    with pytest.raises(ValueError, match=r"run\.json: no settings"):
        run("play", tmp_path)
    (tmp_path / "run.json").write_text('{"env": "matrix:paper", "env_options": [1]}')
    with pytest.raises(ValueError, match=r"run\.json: no settings .* env_options: got \[1\]"):
        run("play", tmp_path)
    (tmp_path / "run.json").write_text('{"env": "matrix:paper", "algo": "iql"}')
    with pytest.raises(FileNotFoundError, match=r"agent_0\.safetensors"):
        run("play", tmp_path)
    (tmp_path / "agent_0.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"agent_0\.safetensors: no state"):
        run("play", tmp_path)
    run("train", *PAPER, "--steps", 20, "--out", tmp_path / "other")
    for name in ("agent_0.safetensors", "agent_1.safetensors"):
        (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    sizes = {"env": "matrix:paper", "bins": 4, "low": -12, "high": 8}
    for settings in ({"env": "matrix:paper", "algo": "iql"}, sizes):
        (tmp_path / "run.json").write_text(json.dumps(settings))
        with pytest.raises(ValueError, match=r"agent_0: does not fit .*run\.json"):
            run("play", tmp_path)


def test_a_game_that_cannot_be_seen_is_not_filmed(tmp_path):
    run("train", *PAPER, "--steps", 20, "--out", tmp_path)
    with pytest.raises(ValueError, match="render_mode"):
        run("play", tmp_path, "--gif", tmp_path / "a.gif")


def test_a_training_survives_kill_9(tmp_path):
    code = "from assay.papers.rac.cli import app; app()"
    arguments = [str(a) for a in ("train", *PAPER, "--out", tmp_path, "--steps", 1_000_000)]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while not (tmp_path / "curve.csv").exists() or len(curve(tmp_path)) < 3:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    before = curve(tmp_path)
    steps = int(before[-1]["steps"]) + 100
    assert run("train", *PAPER, "--out", tmp_path, "--steps", steps)[0] == 0
    after = curve(tmp_path)
    assert after[: len(before)] == before
    assert int(after[-1]["steps"]) == steps
