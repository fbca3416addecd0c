"""`assay rac`: train independent learners on a game, and watch them play."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.papers.rac.learners import RACLearner
    from assay.papers.rac.training import Trainer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Cooperative learners that share nothing but the reward.",
)

Algorithm = Literal["rac", "iql", "hysteretic", "lenient", "i2q", "distributed"]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a training.")]


@app.command()
def games() -> None:
    """Names that --env takes."""
    from assay.papers.rac.adapters import NAMES

    width = max(map(len, NAMES))
    for name, meaning in NAMES.items():
        typer.echo(f"{name:{width}}  {meaning}")


@app.command()
def train(
    env: Annotated[str, typer.Option(help="The game; see `assay rac games`.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the training.")],
    algo: Annotated[Algorithm, typer.Option(help="How agents learn.")] = "rac",
    steps: Annotated[int, typer.Option(help="Environment steps in all.", min=1)] = 50_000,
    seed: Annotated[int, typer.Option(help="Of everything.", min=0)] = 0,
    bins: Annotated[int | None, typer.Option(help="Contexts of rac. [default: 10]", min=1)] = None,
    low: Annotated[
        float | None, typer.Option(help="Smallest return. [default: of 200 random episodes]")
    ] = None,
    high: Annotated[
        float | None, typer.Option(help="Largest return. [default: of 200 random episodes]")
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="rac: how strongly Q_S follows phi [default: 1]; "
            "hysteretic: weight of disappointments [default: 0.1]."
        ),
    ] = None,
    team_reward: Annotated[
        Literal["sum", "mean"] | None,
        typer.Option(help="What to make of unequal rewards. [default: refuse them]"),
    ] = None,
    epsilon_steps: Annotated[
        int, typer.Option(help="Steps in which random actions fall from all to 5 %.", min=1)
    ] = 50_000,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations.", min=1)] = 2000,
    eval_episodes: Annotated[int, typer.Option(help="Episodes of each.", min=1)] = 10,
    learner_options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="An option of the learner: hidden=32, recurrent=false, learning_rate=0.001.",
        ),
    ] = None,
    env_options: Annotated[
        list[str] | None,
        typer.Option(
            "--env-set", metavar="NAME=VALUE", help="An option of the game: punishment=-5."
        ),
    ] = None,
) -> None:
    """Train a team; the same command goes on with a training that was stopped.

    The folder gets curve.csv and curve.png, a file for each agent, for rac on a matrix game also
    a picture of its values, and what it takes to go on.
    """
    from assay.papers.rac.runs import Run, train_in

    learner = _options("--set", learner_options)
    if beta is not None:
        if algo not in ("rac", "hysteretic"):
            raise ValueError(f"beta: {algo} has none, only rac and hysteretic")
        learner["beta"] = beta
    run = Run(
        env,
        algo,
        _options("--env-set", env_options),
        learner,
        bins,
        low,
        high,
        seed,
        eval_every,
        eval_episodes,
        epsilon_steps,
        team_reward,
    )

    def progress(trainer: Trainer) -> None:
        history = trainer.history
        loss = history.losses[-1]
        typer.echo(
            f"step {history.steps[-1]:>9}  return {history.returns[-1]:10.3f}  "
            f"loss {'none yet' if math.isnan(loss) else f'{loss:.4f}':>10}  "
            f"epsilon {history.epsilon[-1]:.2f}"
        )

    typer.echo(f"{algo} on {env}: evaluated every {eval_every} steps")

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
        trainer = train_in(out, run, steps, progress)
    for path in _pictures(out, run.env, f"{algo} on {env}, seed {seed}", trainer):
        typer.echo(str(path))


@app.command()
def play(
    folder: Folder,
    episodes: Annotated[int, typer.Option(help="How many.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Of the game.", min=0)] = 0,
    gif: Annotated[Path | None, typer.Option(help="Film them, for games that can be seen.")] = None,
) -> None:
    """Let a trained team play without random actions, and print the returns."""
    from assay.papers.rac.drawing import write_gif
    from assay.papers.rac.runs import play_from

    returns, frames = play_from(folder, episodes, seed, film=gif is not None)
    typer.echo(" ".join(f"{value:.2f}" for value in returns))
    typer.echo(f"mean return {sum(returns) / len(returns):.3f} of {len(returns)} episodes")
    if gif is not None:
        write_gif(frames, gif)
        typer.echo(f"{gif}: {len(frames)} pictures")


def _options(name: str, given: list[str] | None) -> dict[str, Any]:
    """``["a=1", "b=x"]`` as ``{"a": 1, "b": "x"}``; values are JSON where they can be.

    Python's True, False and None are as good: as words, all three would count as true.
    """
    words = {"True": True, "False": False, "None": None}
    found: dict[str, Any] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not (key.isidentifier() and equals):
            raise ValueError(f"{name}: got {text!r}, wants NAME=VALUE")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = words.get(value, value)
    return found


def _pictures(folder: Path, env: str, title: str, trainer: Trainer) -> list[Path]:
    from matplotlib.figure import Figure

    from assay.papers.rac.drawing import draw_curves, save_figure
    from assay.papers.rac.learners import RACLearner

    history = trainer.history
    curve = Figure(layout="constrained")
    best = getattr(trainer.env, "best_return", None)
    axes = curve.subplots()
    draw_curves(axes, history.steps, {"team": [history.returns]}, best)
    axes.set_title(title)
    pictures = {"curve.png": curve}
    if env.startswith("matrix:"):
        observations, _ = trainer.env.reset(seed=0)
        for agent, learner in trainer.learners.items():
            if isinstance(learner, RACLearner):
                pictures[f"values-{agent}.png"] = _values(learner, observations[agent])
    for name, figure in pictures.items():
        save_figure(figure, folder / name)
    return [folder / name for name in pictures]


def _values(learner: RACLearner, observation: Any) -> Figure:
    """Q_C and phi at the start; crossed out is what none of the kept episodes began with."""
    import numpy as np
    from matplotlib.figure import Figure

    from assay.papers.rac.drawing import draw_contextual_values

    values = learner.contextual_values(observation)
    kept = learner.replay.at(range(len(learner.replay)))
    seen = np.zeros(values.shape, bool)
    seen[learner.context.index(kept.returns), kept.actions[:, 0]] = True
    edges = [f"{edge:g}" for edge in learner.context.edges]
    contexts = [f"[{a}, {b})" for a, b in zip(edges, [*edges[1:], "∞"], strict=True)]
    figure = Figure(layout="constrained")
    draw_contextual_values(figure, values, values.max(axis=0), contexts=contexts, seen=seen)
    return figure
