"""Training runs that live in a folder: started, killed, gone on with, looked at."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.papers.rac.adapters import TeamReward, make
from assay.papers.rac.checkpoints import load_state, save_state
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.epsilon import Epsilon
from assay.papers.rac.learners import QLearner
from assay.papers.rac.training import Trainer, make_learners, play_parallel, random_returns
from assay.toolkits.files import read_json, write_text

ALGORITHMS = ("rac", "iql", "hysteretic", "lenient", "i2q", "distributed")
RANDOM_EPISODES = 200
OWN = {"agent_id", "bins", "context", "core", "seed", "team_reward"}
"""Arguments of learners that are no options: a run has its own of that name, or sets them."""
SAVING = 0.05
"""Largest share of the time that is spent on saving."""


@dataclass(frozen=True)
class Run:
    """What is trained, and how.

    Args:
        env: A name that `make` knows.
        algo: One of `ALGORITHMS`.
        env_options: Those of `make`.
        learner_options: Those of the learner's class.
        bins: Number of contexts (RAC).
        low: Smallest expected return (RAC); None for the smallest of 200 random episodes.
        high: Largest expected return (RAC); None for the largest of them.
        seed: Of everything.
        eval_every: Environment steps between evaluations.
        eval_episodes: Greedy episodes of each.
        epsilon_steps: Environment steps in which the share of random actions falls.
        team_reward: As in `Trainer`.

    Raises:
        TypeError: For a name that is no string, or options that are no dictionary.
        ValueError: For another `algo`, contexts for one that has none, or options of the learner
            that the run sets itself.
    """

    env: str
    algo: str = "rac"
    env_options: dict[str, Any] = field(default_factory=dict)
    learner_options: dict[str, Any] = field(default_factory=dict)
    bins: int | None = None
    low: float | None = None
    high: float | None = None
    seed: int = 0
    eval_every: int = 2000
    eval_episodes: int = 10
    epsilon_steps: int = 50_000
    team_reward: TeamReward | None = None

    def __post_init__(self) -> None:
        for name, kind in (("env", str), ("env_options", dict), ("learner_options", dict)):
            if not isinstance(value := getattr(self, name), kind):
                raise TypeError(f"{name}: got {value!r}, wants a {kind.__name__}")
        if self.algo not in ALGORITHMS:
            raise ValueError(f"algo: got {self.algo!r}, wants one of {', '.join(ALGORITHMS)}")
        if self.algo != "rac":
            for name in ("bins", "low", "high"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: {self.algo} has no contexts, only rac")
        taken = OWN | ({"beta"} if self.algo == "distributed" else set())
        if found := sorted(taken & set(self.learner_options)):
            raise ValueError(
                f"learner_options: got {', '.join(found)}, wants only what this run does not set"
            )

    def with_context(self, env: Any) -> Run:
        """This run with numbers for what was left open of its contexts.

        Args:
            env: Its environment.

        Raises:
            ValueError: Where all random episodes bring the same return.
            TypeError: Where actions are not discrete.
        """
        if self.algo != "rac":
            return self
        low, high = self.low, self.high
        if low is None or high is None:
            returns = random_returns(env, RANDOM_EPISODES, self.seed, self.team_reward)
            low = float(returns.min()) if low is None else low
            high = float(returns.max()) if high is None else high
            if not low < high:
                raise ValueError(
                    f"low, high: got {low:g} and {high:g} from random episodes, wants low < high; "
                    "give those that are missing"
                )
        return replace(self, bins=10 if self.bins is None else self.bins, low=low, high=high)

    def learners(self, env: Any) -> dict[str, QLearner]:
        """New learners of the environment's agents.

        Args:
            env: Its environment.

        Raises:
            TypeError, ValueError: What `make_learners` refuses.
        """
        algo, options = self.algo, dict(self.learner_options)
        if algo == "distributed":
            # Networks cannot take a maximum; to learn from good surprises alone is the nearest.
            algo, options["beta"] = "hysteretic", 0.0
        if algo == "rac":
            options["context"] = ReturnContext(self.low, self.high, self.bins)
        return make_learners(env, algo, seed=self.seed, **options)


def train_in(
    folder: str | Path, run: Run, steps: int, progress: Callable[[Trainer], None]
) -> Trainer:
    """Trains in a folder, or goes on with the training that it holds.

    The folder holds ``run.json``, ``curve.csv``, a file for each agent, which holds no episodes,
    and ``training.safetensors``, from which a killed training goes on.

    Args:
        folder: Made where it does not exist.
        run: What is trained. In a folder with a training it must be the same, but may leave open
            what that one had left open.
        steps: Environment steps in all.
        progress: Called after each evaluation.

    Returns:
        The trainer at the end.

    Raises:
        ValueError: Where the folder holds another run, or something in `run` is refused.
        OSError: Where files cannot be read or written.
    """
    folder = Path(folder)
    _check_place(folder)
    env = make(run.env, **run.env_options)
    begun = (folder / "training.safetensors").exists()
    try:
        run = _same(load_run(folder), run, folder) if begun else run.with_context(env)
        learners = run.learners(env)
    except TypeError as error:
        raise ValueError(f"{run.algo} on {run.env}: {error}") from error
    trainer = Trainer(
        env,
        learners,
        run.eval_every,
        run.seed,
        Epsilon(steps=run.epsilon_steps),
        run.team_reward,
        run.eval_episodes,
    )
    if begun:
        trainer.resume(folder)
    saved = time.monotonic()
    cost = 0.0

    def save(trainer: Trainer) -> None:
        nonlocal saved, cost
        started = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "run.json", json.dumps(asdict(run), indent=1))
        _write_curve(folder, trainer)
        for agent, learner in trainer.learners.items():
            save_state(folder / agent, _without_episodes(learner.state_dict()))
        trainer.save(folder)
        saved = time.monotonic()
        cost = saved - started

    def after_evaluation(trainer: Trainer) -> None:
        progress(trainer)
        # Episodes can make a checkpoint large; most of the time belongs to learning.
        if time.monotonic() - saved >= cost / SAVING:
            save(trainer)

    trainer.run(steps, after_evaluation)
    save(trainer)
    return trainer


def load_run(folder: str | Path) -> Run:
    """The settings of a training.

    Args:
        folder: That of `train_in`.

    Raises:
        ValueError: Where ``run.json`` is none of a run.
        OSError: Where it cannot be read.
    """
    path = Path(folder) / "run.json"
    found = read_json(path)
    try:
        return Run(**found)
    except TypeError as error:
        raise ValueError(f"{path}: no settings of a run: {error}") from None


def load_learners(folder: str | Path, env: Any) -> dict[str, QLearner]:
    """The learners of a training as last saved, without their episodes.

    Args:
        folder: That of `train_in`.
        env: The environment that they were trained in.

    Raises:
        ValueError: Where a file is damaged, or fits other settings.
        OSError: Where one is missing.
    """
    learners = load_run(folder).learners(env)
    for agent, learner in learners.items():
        path = Path(folder) / agent
        state = load_state(path)
        try:
            learner.load_state_dict(state)
        except (KeyError, RuntimeError, ValueError) as error:  # of another kind or size
            raise ValueError(f"{path}: does not fit {folder}/run.json: {error}") from error
    return learners


def play_from(
    folder: str | Path, episodes: int, seed: int = 0, film: bool = False
) -> tuple[list[float], list[np.ndarray]]:
    """Plays greedily with the learners of a training as last saved.

    Args:
        folder: That of `train_in`.
        episodes: How many, >= 1.
        seed: Of the environment.
        film: Whether to take pictures; the environment must have the mode "rgb_array".

    Returns:
        The undiscounted return of each episode, and the pictures of all of them.

    Raises:
        ValueError: Where files are damaged or the environment takes no pictures.
        OSError: Where files are missing.
    """
    run = load_run(folder)
    options = dict(run.env_options)
    if film:
        options["render_mode"] = "rgb_array"
    env = make(run.env, **options)
    learners = load_learners(folder, env)
    frames: list[np.ndarray] = []
    if film:
        _film(env, frames)
    seeds = np.random.SeedSequence(seed).generate_state(episodes).tolist()
    returns = [play_parallel(env, learners, 0.0, one, run.team_reward)[0] for one in seeds]
    return returns, frames


def _film(env: Any, frames: list[np.ndarray]) -> None:
    """Makes an environment leave a picture after each reset and step."""
    reset, step = env.reset, env.step

    def take() -> None:
        try:
            frames.append(np.asarray(env.render()))
        except Exception as error:
            raise ValueError(
                f"film: the game gave no picture ({type(error).__name__}: {error}); games that "
                "draw in a window need a display, such as xvfb-run gives"
            ) from error

    def reset_and_take(*args: Any, **options: Any) -> Any:
        answer = reset(*args, **options)
        take()
        return answer

    def step_and_take(actions: Any) -> Any:
        answer = step(actions)
        take()
        return answer

    env.reset, env.step = reset_and_take, step_and_take


def _check_place(folder: Path) -> None:
    """Raises OSError where a folder cannot be made or written to, before hours of training."""
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))


def _same(stored: Run, given: Run, folder: Path) -> Run:
    """The stored run, where `given` agrees with it in all that it does not leave open."""
    for one in fields(Run):
        old, new = getattr(stored, one.name), getattr(given, one.name)
        if new != old and not (new is None and one.name in ("bins", "low", "high")):
            raise ValueError(
                f"{one.name}: got {new!r}, but {folder} holds a training with {old!r}; give it "
                "another folder"
            )
    return stored


def _write_curve(folder: Path, trainer: Trainer) -> None:
    columns = asdict(trainer.history)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_text(folder / "curve.csv", text.getvalue())


def _without_episodes(state: dict[str, Any]) -> dict[str, Any]:
    replay = {
        name: value[:0] if isinstance(value, np.ndarray) else 0
        for name, value in state["replay"].items()
    }
    return {**state, "replay": replay}
