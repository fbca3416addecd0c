"""The tables of the study."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

from assay.papers.rac.figures import (
    GAMES,
    LEARNERS,
    by,
    name_of,
    rate,
    was_quiet,
)
from assay.papers.rac.tuning import chosen
from assay.study import Result, Results, Table


def tables(results: Results) -> Iterable[Table]:
    """Those for which there are results."""
    for make in (_games, _matrix, _pursuit, _foraging, _times, _tuning):
        if table := make(results):
            yield table


def _games(results: Results) -> Table | None:
    tabular = results.where(part="tabular")
    games = [game for game in GAMES if tabular.where(game=game)]
    rows = []
    for learner in by(tabular, "learner"):
        row: list[Any] = [name_of(learner)]
        for game in games:
            share = rate(tabular, game, learner)
            mean = fmean(tabular.where(game=game, learner=learner).metric("mean_return"))
            row.append(f"{share:.2f} ({mean:.1f})")
        rows.append(tuple(row))
    columns = ("learner", *(GAMES[game].replace("\n", " ") for game in games))
    title = (
        "Learners with tables: share of runs on an optimal joint action (and expected return). "
        "I2Q is also shown the last joint action"
    )
    return Table("games", title, columns, tuple(rows)) if rows else None


def _matrix(results: Results) -> Table | None:
    rows = []
    for learner, members in by(results.where(part="matrix"), "learner").items():
        for value, found in by(members, "value").items():
            errors = [e for e in found.metric("marginal_error") if e == e]
            beta = f", beta = {value:g}" if learner == "rac" else ""
            rows.append(
                (
                    name_of(learner) + beta,
                    f"{sum(found.metric('optimal')):.0f} of {len(found)}",
                    round(median(found.metric("final_return")), 2),
                    round(median(errors), 3) if errors else "",
                )
            )
    columns = ("learner", "runs on the optimum", "median return", "median error of phi")
    title = "Matrix game with networks"
    return Table("matrix", title, columns, tuple(rows)) if rows else None


def _pursuit(results: Results) -> Table | None:
    rows = []
    for learner, members in by(results.where(part="pursuit"), "learner").items():
        for punishment, found in by(members, "punishment").items():
            rates = found.metric("capture_rate")
            rows.append(
                (
                    name_of(learner),
                    punishment,
                    round(fmean(rates), 3),
                    round(min(rates), 3),
                    round(median(found.metric("final_return")), 2),
                )
            )
    columns = (
        "learner",
        "punishment",
        "hunts with a catch",
        "worst run",
        "median return of the last episodes",
    )
    title = "Predator-prey with tables: two predators and a still prey on a 4 x 4 torus"
    return Table("pursuit", title, columns, tuple(rows)) if rows else None


def _foraging(results: Results) -> Table | None:
    rows = []
    for learner, found in by(results.where(part="foraging"), "learner").items():
        finals = sorted(found.metric("final_return"))
        rows.append(
            (
                name_of(learner),
                len(finals),
                round(median(finals), 3),
                round(finals[0], 3),
                round(finals[-1], 3),
                round(median(found.metric("mean_return")), 3),
            )
        )
    columns = ("learner", "seeds", "median", "worst", "best", "median over training")
    title = "Level-based foraging: greedy return at the end of training, 1 is the most"
    return Table("foraging", title, columns, tuple(rows)) if rows else None


def _times(results: Results) -> Table | None:
    found = [r for r in results.where(part="cost") if was_quiet(r)]
    rows = tuple(
        (
            bins,
            f"{1e3 * median(members.metric('rac_s')):.1f}",
            f"{median(members.metric('ratio')):.2f}",
            f"{median(members.metric('passes_ratio')):.2f}",
        )
        for bins, members in by(found, "bins").items()
    )
    columns = ("m", "ms", "over IQL", "over IQL, a pass for each context")
    title = "Time of an update of RAC by number of contexts"
    return Table("times", title, columns, rows) if rows else None


def _tuning(results: Results) -> Table | None:
    rows = []
    for where, found in by(results.where(part="tuning"), "where").items():
        for learner, members in by(found, "learner").items():
            rows.append(
                (
                    where,
                    LEARNERS[str(learner)][0].removesuffix(", tuned"),
                    ", ".join(_candidate(m[0]) for m in by(members, "value").values()),
                    f"{chosen(str(where), str(learner)):g}",
                )
            )
    title = "Search for constants on seeds apart: score (return) of each candidate"
    return (
        Table("tuning", title, ("game", "learner", "found", "chosen"), tuple(rows))
        if rows
        else None
    )


def _candidate(result: Result) -> str:
    score, second = result.metrics["score"], result.metrics["return"]
    return f"{result.params['value']:g}: {score:.2f} ({second:.2f})"
