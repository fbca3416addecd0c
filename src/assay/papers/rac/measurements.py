"""What one trial of the study measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from assay.papers.rac import network_games, tabular_games
from assay.papers.rac.adapters import from_smac
from assay.papers.rac.claims import PUNISHMENTS
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.cost import update_cost
from assay.papers.rac.training import make_learners, play_parallel, train
from assay.study import Context, Param

Params = Mapping[str, Param]
Metrics = dict[str, float]
Runs = Mapping[str, np.ndarray]

SMAC_SETTINGS = {"3s_vs_4z": (5, 0.01), "3s_vs_5z": (10, 0.001), "": (10, 0.01)}
"""Number of contexts and weight of the distillation, "" for all other maps (Table 4)."""

_BATTLES = 32
_OFF = 0.15  # the largest error of a marginal value that counts as right


@lru_cache(maxsize=1)
def _trained(train: Callable[..., Runs], *args: Param, **options: Any) -> Runs:
    """Trains a batch of runs once for all of its trials."""
    return train(*args, **options)


def _place(params: Params, seed: int) -> tuple[int, int]:
    """The first seed of a trial's batch, and the trial's place in it."""
    place = seed % int(params["batch"])
    return seed - place, place


def _record(found: Runs, place: int, context: Context) -> np.ndarray:
    """Keeps one run's curve of returns, and gives it."""
    returns = found["returns"][:, place]
    for step, value in zip(found["episodes"], returns, strict=True):
        context.record("return", float(step), float(value))
    return returns


def tabular(params: Params, seed: int, context: Context) -> Metrics:
    """A block of `runs` pairs with tables on a matrix game."""
    first, place = _place(params, seed)
    runs = int(params["runs"])
    found = _trained(
        tabular_games.matrix_runs,
        params["game"],
        params["learner"],
        params["value"],
        runs * int(params["batch"]),
        params["episodes"],
        first,
    )
    block = slice(place * runs, (place + 1) * runs)
    return {
        "optimal_rate": float(found["optimal"][block].mean()),
        "mean_return": float(found["returns"][block].mean()),
    }


def matrix(params: Params, seed: int, context: Context) -> Metrics:
    """A pair with networks on the paper's matrix game."""
    first, place = _place(params, seed)
    found = _trained(
        network_games.matrix_runs,
        params["learner"],
        params["value"],
        params["batch"],
        params["episodes"],
        first,
    )
    _record(found, place, context)
    error = np.nan
    if "phi" in found:
        error = network_games.marginal_error(found["phi"][place])
        _record_values(found, place, context)
    return {
        "optimal": float(found["optimal"][place]),
        "final_return": float(found["final_return"][place]),
        "marginal_error": error,
        "marginal_is_right": float(error < _OFF),
    }


def _record_values(found: Runs, place: int, context: Context) -> None:
    """Keeps Q_C and phi of a run's first agent, and which combinations there can be."""
    tables = {"q_c": found["q_c"][place, 0], "possible": network_games.possible_contexts()}
    for name, table in tables.items():
        for kappa, row in enumerate(table):
            for action, value in enumerate(row):
                context.record(f"{name}/{kappa}", action, float(value))
    for action, value in enumerate(found["phi"][place, 0]):
        context.record("phi", action, float(value))


def pursuit(params: Params, seed: int, context: Context) -> Metrics:
    """A pair of predators with tables."""
    first, place = _place(params, seed)
    found = _trained(
        tabular_games.pursuit_runs,
        params["punishment"],
        params["learner"],
        params["value"],
        params["batch"],
        params["episodes"],
        first,
    )
    return _hunt(found, place, context)


def large_pursuit(params: Params, seed: int, context: Context) -> Metrics:
    """The paper's predator-prey: 8 predators and 8 preys, each seeing 5 x 5 cells."""
    first, place = _place(params, seed)
    found = _trained(
        network_games.large_pursuit_runs,
        params["learner"],
        params["value"],
        params["batch"],
        params["steps"],
        first,
        device=context.device,
    )
    return _learned(found, place, context)


def _learned(found: Runs, place: int, context: Context) -> Metrics:
    returns = _record(found, place, context)
    return {
        "mean_return": float(returns.mean()),
        "final_return": float(found["final_return"][place]),
    }


def _hunt(found: Runs, place: int, context: Context) -> Metrics:
    capture_rate = float(found["capture_rate"][place])
    return {"capture_rate": capture_rate, **_learned(found, place, context)}


def foraging(params: Params, seed: int, context: Context) -> Metrics:
    """A pair with networks on level-based foraging with a penalty."""
    first, place = _place(params, seed)
    found = _trained(
        network_games.foraging_runs,
        params["learner"],
        params["value"],
        params["batch"],
        params["episodes"],
        first,
    )
    return _learned(found, place, context)


def cost(params: Params, seed: int, context: Context) -> Metrics:
    """Times of an update: IQL, RAC, and RAC with a pass of the trunk for each context."""
    bins = int(params["bins"])
    steps, repeats = int(params["steps"]), int(params["repeats"])
    found = update_cost([bins], passes=[bins], steps=steps, repeats=repeats, seed=seed)
    return {
        "iql_s": found["iql_s"],
        "rac_s": found[f"rac_{bins}_s"],
        "ratio": found[f"rac_{bins}_ratio"],
        "passes_ratio": found[f"passes_{bins}_ratio"],
        **{name: found[name] for name in ("spread", "foreign", "rounds")},
    }


def smac(params: Params, seed: int, context: Context) -> Metrics:
    """A team on a map of SMAC, with the paper's settings: its greedy win rate over 32 battles."""
    from smac.env import StarCraft2Env

    name, learner = str(params["map"]), str(params["learner"])
    game = StarCraft2Env(map_name=name, seed=seed, continuing_episode=True)
    env = from_smac(game)
    bins, beta = SMAC_SETTINGS.get(name, SMAC_SETTINGS[""])
    options: Mapping[str, Mapping[str, Any]] = {
        "rac": {"context": ReturnContext(0.0, 20.0, bins), "beta": beta, "context_head": "concat"},
        "hysteretic": {"beta": float(params["value"])},
    }
    limit = int(game.get_env_info()["episode_limit"])
    learners = make_learners(env, learner, seed=seed, max_len=limit, **options.get(learner, {}))
    steps = int(params["steps"])
    history = train(env, learners, steps, eval_every=max(1, steps // 40), seed=seed)
    for step, value in zip(history.steps, history.returns, strict=True):
        context.record("return", step, value)
    before = game.get_stats()["battles_won"]
    for _ in range(_BATTLES):
        play_parallel(env, learners)
    won = game.get_stats()["battles_won"] - before
    return {"win_rate": won / _BATTLES, "final_return": history.returns[-1]}


def tuning(params: Params, seed: int, context: Context) -> Metrics:
    """A candidate's score and return, means over all its runs."""
    where = str(params["where"])
    arguments = (params["learner"], params["value"], params["runs"], params["episodes"], seed)
    train, score = _SCORED.get(where, (partial(tabular_games.matrix_runs, where), "optimal"))
    found = train(*arguments)
    return {"score": float(found[score].mean()), "return": float(found["returns"].mean())}


_SCORED: Mapping[str, tuple[Callable[..., Runs], str]] = {
    **{
        f"pursuit{p:g}": (partial(tabular_games.pursuit_runs, p), "capture_rate")
        for p in PUNISHMENTS
    },
    "matrix-network": (network_games.matrix_runs, "optimal"),
    "foraging": (network_games.foraging_runs, "final_return"),
}

PARTS: Mapping[str, Callable[[Params, int, Context], Metrics]] = {
    "tuning": tuning,
    "tabular": tabular,
    "matrix": matrix,
    "pursuit": pursuit,
    "bins": pursuit,
    "large-pursuit": large_pursuit,
    "foraging": foraging,
    "smac": smac,
    "cost": cost,
}
