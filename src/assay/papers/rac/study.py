"""The experiments behind the claims: matrix games, predator-prey, foraging, SMAC, times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from assay.papers.rac.claims import (
    BETAS,
    BINS,
    CLAIMS,
    FORAGING_SEEDS,
    JUDGED_PUNISHMENT,
    LARGE_BETA,
    LARGE_RATE,
    LARGE_SEEDS,
    MATRIX_BETA,
    MATRIX_SEEDS,
    PUNISHMENTS,
    PURSUIT_SEEDS,
    SMAC_MAPS,
    SMAC_RATE,
    TABULAR_BLOCKS,
)
from assay.papers.rac.tuning import CHOSEN, SIZES, TUNING_SEED, chosen, searched
from assay.study import (
    Context,
    Figure,
    Need,
    Param,
    Results,
    Scale,
    Study,
    Table,
    Trial,
)

GAMES = (
    "matrix",
    "climbing",
    "penalty-10",
    "penalty-50",
    "two-stage",
    "climbing-partial",
    "climbing-full",
)
TABULAR_LEARNERS = ("rac", "rac-fine", "iql", "hysteretic", "lenient", "distributed", "i2q")
MATRIX_BASELINES = ("iql", "hysteretic", "vdn", "qmix")
RAC_VARIANTS = ("rac-marginal", "rac-support")
PURSUIT_LEARNERS = ("rac", "iql", "hysteretic", "lenient", "distributed")
FORAGING_LEARNERS = ("rac", "iql", "hysteretic", "lenient", "i2q")
SMAC_LEARNERS = ("rac", "iql", "hysteretic", "i2q")
TIMED_BINS = (4, 8, 10, 16, 32, 64)

_TIMEOUT = 3600.0  # the first trial of a batch does the work of all
_SMAC = Need.package(
    "smac.env.starcraft2",
    "pip install git+https://github.com/oxwhirl/smac.git, and StarCraft II 4.10; the project named "
    "smac on PyPI is another one",
)


class RACStudy(Study):
    """Claims of the paper, with trials of several sorts told apart by the parameter `part`.

    Learners are trained many runs at a time. The first trial of such a batch trains all of it and
    the others find their own runs in the worker's memory; what a trial gets depends on its
    parameters and seed alone, `batch` being one of them.
    """

    version = 1
    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        if scale is Scale.SMOKE:
            return _smoke(seeds or (0, 1))
        if scale is Scale.LAPTOP:
            return _laptop(seeds)
        if scale is Scale.GPU:
            runs = seeds or range(LARGE_SEEDS)
            return _large_pursuit(scale, runs, batch=LARGE_SEEDS, steps=1_000_000)
        return _paper(seeds)

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        from assay.papers.rac.measurements import PARTS

        return PARTS[str(trial.params["part"])](trial.params, trial.seed, context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.rac.figures import figures

        return figures(results.ok)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.rac.tables import tables

        return tables(results.ok)


def _smoke(seeds: Sequence[int]) -> Iterator[Trial]:
    scale = Scale.SMOKE
    games = ("matrix", "climbing-partial", "penalty-10")
    yield from _tabular(scale, games, seeds, batch=2, runs=10, episodes=100)
    yield from _pursuit(scale, (JUDGED_PUNISHMENT,), seeds, batch=2, episodes=40)
    yield from _matrix(scale, (MATRIX_BETA,), seeds, batch=2, episodes=40)
    yield from _large_pursuit(scale, seeds[:1], batch=1, steps=200)
    yield from _foraging(scale, ("rac", "iql"), seeds, batch=2, episodes=36)
    yield from _times(scale, (10,), seeds[:1], steps=5, repeats=3)


def _laptop(seeds: Sequence[int] | None) -> Iterator[Trial]:
    scale = Scale.LAPTOP
    yield from _tuning(*(game for game in CHOSEN if game != "foraging"))
    blocks, grid = seeds or range(TABULAR_BLOCKS), seeds or range(PURSUIT_SEEDS)
    yield from _tabular(scale, GAMES, blocks, batch=TABULAR_BLOCKS, runs=50, episodes=3000)
    yield from _pursuit(scale, PUNISHMENTS, grid, batch=PURSUIT_SEEDS, episodes=3000)
    runs = seeds or range(MATRIX_SEEDS)
    yield from _matrix(scale, BETAS, runs, batch=MATRIX_SEEDS, episodes=6000)
    yield from _bins(scale, grid, batch=PURSUIT_SEEDS, episodes=3000)
    yield from _tuning("foraging")
    runs = seeds or range(FORAGING_SEEDS)
    yield from _foraging(scale, FORAGING_LEARNERS, runs, batch=FORAGING_SEEDS, episodes=1200)
    yield from _times(scale, TIMED_BINS, seeds or range(3), steps=50, repeats=20)


def _paper(seeds: Sequence[int] | None) -> Iterator[Trial]:
    scale = Scale.PAPER
    runs = seeds or range(MATRIX_SEEDS)
    yield from _matrix(scale, (MATRIX_BETA,), runs, batch=MATRIX_SEEDS, episodes=50_000)
    for smac_map in dict.fromkeys(name for maps in SMAC_MAPS.values() for name in maps):
        for learner in SMAC_LEARNERS:
            for seed in seeds or range(5):
                params: dict[str, Param] = {
                    "part": "smac",
                    "map": smac_map,
                    "learner": learner,
                    "value": SMAC_RATE if learner == "hysteretic" else 0.0,
                    "steps": 2_050_000,
                }
                named = claims_of(params, scale)
                claims = tuple(id for id in named if smac_map in SMAC_MAPS[id])
                yield Trial(params, seed, claims, cost=40_000.0, needs=(_SMAC,))


def claims_of(params: Mapping[str, Param], scale: Scale) -> tuple[str, ...]:
    """The claims whose tests read the trials of these parameters at a scale."""
    return tuple(claim.id for claim in CLAIMS if claim.reads(params, scale))


def _batch(
    scale: Scale, params: Mapping[str, Param], seeds: Sequence[int], seconds: float
) -> Iterator[Trial]:
    """A trial for each seed; `seconds` is what all `batch` of them take together."""
    for seed in seeds:
        yield Trial(
            params,
            seed,
            claims_of(params, scale),
            cost=seconds / int(params["batch"]),
            timeout=_TIMEOUT,
        )


def _tabular(
    scale: Scale, games: Sequence[str], seeds: Sequence[int], batch: int, runs: int, episodes: int
) -> Iterator[Trial]:
    for game in games:
        for learner in TABULAR_LEARNERS:
            params: Mapping[str, Param] = {
                "part": "tabular",
                "game": game,
                "learner": learner,
                "value": chosen(game, learner),
                "runs": runs,
                "episodes": episodes,
                "batch": batch,
            }
            yield from _batch(scale, params, seeds, seconds=episodes * 1e-3)


def _pursuit(
    scale: Scale, punishments: Sequence[float], seeds: Sequence[int], batch: int, episodes: int
) -> Iterator[Trial]:
    for punishment in punishments:
        for learner in PURSUIT_LEARNERS:
            params: Mapping[str, Param] = {
                "part": "pursuit",
                "learner": learner,
                "value": chosen(f"pursuit{punishment:g}", learner),
                "punishment": punishment,
                "episodes": episodes,
                "batch": batch,
            }
            yield from _batch(scale, params, seeds, seconds=episodes * 2e-3)


def _matrix(
    scale: Scale, betas: Sequence[float], seeds: Sequence[int], batch: int, episodes: int
) -> Iterator[Trial]:
    constants = [("rac", beta) for beta in betas]
    constants += [(variant, MATRIX_BETA) for variant in RAC_VARIANTS]
    constants += [(name, chosen("matrix-network", name)) for name in MATRIX_BASELINES]
    for learner, value in constants:
        params: Mapping[str, Param] = {
            "part": "matrix",
            "learner": learner,
            "value": value,
            "episodes": episodes,
            "batch": batch,
        }
        yield from _batch(scale, params, seeds, seconds=episodes * 6e-3)


def _bins(scale: Scale, seeds: Sequence[int], batch: int, episodes: int) -> Iterator[Trial]:
    for bins in BINS:
        params: Mapping[str, Param] = {
            "part": "bins",
            "learner": "rac",
            "value": bins,
            "punishment": JUDGED_PUNISHMENT,
            "episodes": episodes,
            "batch": batch,
        }
        yield from _batch(scale, params, seeds, seconds=episodes * 2e-3)


def _large_pursuit(scale: Scale, seeds: Sequence[int], batch: int, steps: int) -> Iterator[Trial]:
    on_gpu = scale is Scale.GPU
    for learner, value in (("rac", LARGE_BETA), ("iql", 0.0), ("hysteretic", LARGE_RATE)):
        params: Mapping[str, Param] = {
            "part": "large-pursuit",
            "learner": learner,
            "value": value,
            "steps": steps,
            "batch": batch,
        }
        for trial in _batch(scale, params, seeds, seconds=steps * 1e-4):
            yield replace(trial, gpus=int(on_gpu), needs=(Need.gpu(),) * on_gpu)


def _foraging(
    scale: Scale, learners: Sequence[str], seeds: Sequence[int], batch: int, episodes: int
) -> Iterator[Trial]:
    for learner in learners:
        params: Mapping[str, Param] = {
            "part": "foraging",
            "learner": learner,
            "value": chosen("foraging", learner),
            "episodes": episodes,
            "batch": batch,
        }
        seconds = episodes * (0.4 if learner == "i2q" else 0.06)
        yield from _batch(scale, params, seeds, seconds)


def _times(
    scale: Scale, every_bins: Sequence[int], seeds: Sequence[int], steps: int, repeats: int
) -> Iterator[Trial]:
    for bins in every_bins:
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "cost",
                "bins": bins,
                "steps": steps,
                "repeats": repeats,
            }
            yield Trial(
                params,
                seed,
                claims_of(params, scale),
                cost=5.0,
                timeout=300.0,
                fresh_process=scale is not Scale.SMOKE,
                exclusive=True,
            )


def _tuning(*games: str) -> Iterator[Trial]:
    """The searches of `tuning`, on seeds apart; no claim reads them."""
    for where, learner, value in searched(*games):
        params: dict[str, Param] = {
            "part": "tuning",
            "where": where,
            "learner": learner,
            "value": value,
            **SIZES[where],
        }
        yield Trial(params, TUNING_SEED, cost=5.0, timeout=_TIMEOUT)


study = RACStudy()
