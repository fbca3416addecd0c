"""The experiments behind the claims: distances at equal evaluations, exact answers, times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from assay.papers.multalmc.claims import CLAIMS
from assay.papers.multalmc.settings import (
    DISTANCES,
    EPSILONS,
    FIELDS,
    LARGER_EPSILONS,
    LONGER,
    ORACLES,
    REACH_SEEDS,
    SEEDS,
    STAGES,
    TAIL_DIMS,
)
from assay.papers.multalmc.tuning import CHOSEN, TUNING_SEED, candidates, chosen
from assay.study import Context, Figure, Need, Param, Results, Scale, Study, Table, Trial

_EIGHT = (
    "multalmc", "averaged", "multcdiff", "smc", "pt", "rdmc", "ulmc", "ula", "nuts", "exact",
)  # fmt: skip
SAMPLERS: Mapping[str, tuple[str, ...]] = {
    "eight": _EIGHT,
    "forty": ("multalmc", "multcdiff", "smc", "pt", "ulmc", "exact"),
    "rings": ("multalmc", "pt", "exact"),
    "funnel": ("multalmc", "pt", "exact"),
    "wells": ("multalmc", "multcdiff", "pt", "exact"),
    "three": ("multalmc", "averaged", "pt", "nuts", "exact"),
}
"""What is compared on each target; "exact" samples show what distance chance alone leaves."""

DIMS: Mapping[str, int] = {
    "eight": 2,
    "forty": 10,
    "plane": 2,
    "rings": 2,
    "funnel": 10,
    "wells": 5,
    "three": 2,
    "field": 16,
    "gate": 1,
}
DATA = ("ionosphere", "sonar")
REACHING = ("multalmc", "overdamped", "pt")
BASES = ("normal", "student", "ito", "exact")
OVERDAMPED_MORE = 4
"""Times the budget that the overdamped dynamics gets in the search for when it arrives (C8)."""

_JAX = Need.package("blackjax", "pip install 'assay[multalmc-study]'")
_COMPILED = ("smc", "nuts")
_PLAIN: Mapping[str, Param] = {
    "step": 0.02,
    "eps": 0.3,
    "delta": 0.01,
    "schedule": "linear",
}
"""Constants where one of them, or the base, is what is varied: stable with three stages."""
_SECONDS = {
    "eight": 2.5e-5,
    "forty": 7e-5,
    "plane": 7e-5,
    "rings": 3e-5,
    "funnel": 4.5e-5,
    "wells": 3e-5,
    "three": 2.5e-5,
    "field": 4e-5,
    "gate": 5e-5,
    "students": 1e-4,
    "ionosphere": 1.5e-4,
    "sonar": 1.5e-4,
}
"""About the time of an evaluation of 300 chains on one core, the sampler's share included."""
_SLOWER = {"rdmc": 4.0, "smc": 3.0, "nuts": 7.0, "exact": 0.02}
"""How many times as long samplers take whose evaluations are not all that they do."""
_FEWER = {"nuts": 100}
"""Chains of a sampler that takes too long, and whose chains end alike however many there are."""


class MultALMCStudy(Study):
    """Claims of the paper and ours, with trials told apart by the parameter `part`."""

    version = 1
    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        if scale is Scale.SMOKE:
            return _smoke(seeds or (0,))
        if scale is Scale.LAPTOP:
            return _laptop(seeds)
        if scale is Scale.GPU:
            return _gpu(seeds or range(SEEDS))
        return _paper(seeds or range(30))

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        from assay.papers.multalmc.measurements import PARTS

        return PARTS[str(trial.params["part"])](trial.params, trial.seed, context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.multalmc.figures import figures

        return figures(results.ok)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.multalmc.tables import tables

        return tables(results.ok)


def _smoke(seeds: Sequence[int]) -> Iterator[Trial]:
    scale = Scale.SMOKE
    samplers = ("multalmc", "multcdiff", "pt", "rdmc", "ulmc", "ula", "exact")
    yield from _oracles(scale, [name for name in ORACLES if name not in ("mean", "variance")])
    yield from _compare(scale, {"eight": samplers}, seeds)
    yield from _compare(scale, dict.fromkeys(("rings", "wells"), ("multalmc", "pt")), seeds)
    yield from _reach(scale, ("multalmc", "overdamped"), seeds)
    yield from _field(scale, FIELDS[:1], ("multalmc",), seeds)
    yield from _tails(scale, TAIL_DIMS[:1], seeds)
    yield from _stages(scale, seeds, steps=40)
    yield from _epsilons(scale, seeds, steps=40)
    yield from _gate(scale, seeds)
    yield from _path(scale)


def _laptop(seeds: Sequence[int] | None) -> Iterator[Trial]:
    scale, runs = Scale.LAPTOP, seeds or range(SEEDS)
    yield from _oracles(scale, ORACLES)
    yield from _search(scale)
    yield from _compare(scale, SAMPLERS, runs)
    yield from _reach(scale, REACHING, seeds or range(REACH_SEEDS))
    yield from _logistic(scale, runs)
    yield from _field(scale, FIELDS, ("multalmc", "pt", "exact"), runs)
    yield from _tails(scale, TAIL_DIMS, runs)
    yield from _stages(scale, runs, steps=5000)
    yield from _apart(scale, runs)
    yield from _far(scale, runs)
    yield from _epsilons(scale, runs, steps=2000)
    yield from _gate(scale, runs)
    yield from _path(scale)
    yield from _times(seeds or range(3))


def _gpu(seeds: Sequence[int]) -> Iterator[Trial]:
    eight = ("multalmc", "multcdiff", "smc", "pt", "rdmc", "ulmc", "exact")
    yield from _compare(Scale.GPU, {"eight": eight, "forty": ("multalmc", "pt")}, seeds)


def _paper(seeds: Sequence[int]) -> Iterator[Trial]:
    scale = Scale.PAPER
    yield from _compare(scale, {t: s for t, s in SAMPLERS.items() if t != "three"}, seeds)
    yield from _reach(scale, REACHING, seeds)
    yield from _logistic(scale, seeds)
    yield from _field(scale, FIELDS, ("multalmc", "pt", "exact"), seeds)
    yield from _tails(scale, (*TAIL_DIMS, 50), seeds)
    yield from _stages(scale, seeds, steps=5000)
    yield from _epsilons(scale, seeds, steps=4000)


def _size(scale: Scale, target: str) -> tuple[int, int]:
    """Chains, and what each may evaluate."""
    match scale:
        case Scale.SMOKE:
            return 50, 1000
        case Scale.LAPTOP:
            return _LAPTOP[target]
        case Scale.GPU:
            return 4096, 60_000
        case Scale.PAPER:
            return 4096, _PAPER.get(target, 1_000_000)


_LAPTOP: Mapping[str, tuple[int, int]] = {
    "eight": (1000, 300_000),
    "forty": (300, 200_000),
    "rings": (500, 300_000),
    "funnel": (500, 500_000),
    "wells": (500, 300_000),
    "field": (500, 200_000),
    "three": (1000, 50_000),
    "film": (300, 300_000),
    "plane": (500, 16_000),
    "reach": (500, 16_000),
    "stages": (300, 30_000),
    "ionosphere": (1000, 20_000),
    "sonar": (1000, 20_000),
    "regression search": (200, 20_000),
    "tails": (1000, 20_000),
    "gate": (1000, 10_000),
    "epsilons": (1000, 10_000),
}
_PAPER: Mapping[str, int] = {
    "eight": 300_000,
    "forty": 5_000_000,
    "rings": 300_000,
    "funnel": 500_000,
    "wells": 300_000,
    "sonar": 3_000_000,
    "field": 100_000_000,
    "tails": 500_000,
}
"""Evaluations of a chain, Table 8."""


def _trial(
    scale: Scale,
    params: Mapping[str, Param],
    seed: int,
    target: str,
    *,
    size: str = "",
    budgets: float = 1.0,
    needs: tuple[Need, ...] = (),
) -> Trial:
    """A trial of the size that belongs to a target; `budgets` is how many of them it spends."""
    chains, evaluations = _size(scale, size or target)
    sampler = str(params.get("sampler"))
    if params["part"] in ("compare", "tune"):
        chains = min(chains, _FEWER.get(sampler, chains))
        budgets *= _SLOWER.get(sampler, 1.0)
    params = {**params, "chains": chains, "evaluations": evaluations}
    compiled = sampler in _COMPILED
    on_gpu = scale in (Scale.GPU, Scale.PAPER) and not compiled
    seconds = budgets * evaluations * chains / 300 * _SECONDS[target] / (30 if on_gpu else 1)
    return Trial(
        params,
        seed,
        tuple(claim.id for claim in CLAIMS if claim.reads(params, scale)),
        cost=0.2 + seconds + 6 * compiled,
        timeout=max(600.0, 20 * seconds),
        gpus=int(on_gpu),
        needs=(*needs, *(Need.gpu(),) * on_gpu, *(_JAX,) * compiled),
    )


def _dim(scale: Scale, target: str) -> int:
    large = {"forty": 50, "field": 100} if scale in (Scale.GPU, Scale.PAPER) else {}
    return large.get(target, DIMS[target])


def _constants(scale: Scale, target: str, sampler: str) -> Mapping[str, Param]:
    """Those of the search, but for a smoke test's few evaluations.

    MultCDiff's epsilon grows with its steps, which fewer make longer, and RDMC has inner chains.
    """
    constants = chosen(target, sampler)
    if scale is not Scale.SMOKE:
        return constants
    if sampler == "multcdiff":
        longer = _size(Scale.LAPTOP, target)[1] / _size(scale, target)[1]
        return {**constants, "eps": float(constants["eps"]) * longer}
    return {**constants, "inner": 1} if sampler == "rdmc" else constants


def _compare(
    scale: Scale, samplers: Mapping[str, Sequence[str]], seeds: Sequence[int]
) -> Iterator[Trial]:
    for target, names in samplers.items():
        place: dict[str, Param] = {"part": "compare", "target": target, "dim": _dim(scale, target)}
        for seed in seeds:
            for name in names:
                params = {**place, "sampler": name, **_constants(scale, target, name)}
                yield _trial(scale, params, seed, target)


def _search(scale: Scale) -> Iterator[Trial]:
    for target, samplers in CHOSEN.items():
        needs = _data(target)
        place: dict[str, Param] = {"part": "tune", "target": target}
        place |= {"dim": DIMS[target]} if target in DIMS else {}
        place |= {"h": FIELDS[1]} if target == "field" else {}
        for sampler in samplers:
            for constants in candidates(target, sampler):
                params = {**place, "sampler": sampler, **constants}
                size = "regression search" if target in DATA else target
                yield _trial(scale, params, TUNING_SEED, target, size=size, needs=needs)


def _data(target: str) -> tuple[Need, ...]:
    name = f"{target}.csv"
    hint = f"{name} of the UCI repository in ASSAY_DATA/multalmc/"
    return (Need.data(name, hint), _JAX) if target in DATA else ()


def _reach(scale: Scale, samplers: Sequence[str], seeds: Sequence[int]) -> Iterator[Trial]:
    for seed in seeds:
        for name in samplers:
            more = OVERDAMPED_MORE if name == "overdamped" else 1
            params: dict[str, Param] = {"part": "reach", "dim": 2, "sampler": name, "more": more}
            params |= chosen("plane", name)
            yield _trial(scale, params, seed, "plane", size="reach", budgets=2 * more)


def _logistic(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    """By data and seed, so that those of a split follow one another and share its run of NUTS."""
    for target in DATA:
        for seed in seeds:
            for name in ("nuts", "multalmc", "ulmc"):
                params = {
                    "part": "logistic",
                    "target": target,
                    "sampler": name,
                    **chosen(target, name),
                }
                yield _trial(scale, params, seed, target, budgets=2, needs=_data(target))


def _field(
    scale: Scale, fields: Sequence[float], samplers: Sequence[str], seeds: Sequence[int]
) -> Iterator[Trial]:
    for h in fields:
        for seed in seeds:
            for name in samplers:
                params: dict[str, Param] = {"part": "field", "h": h, "dim": _dim(scale, "field")}
                params |= {"sampler": name, **chosen("field", name)}
                yield _trial(scale, params, seed, "field")


def _tails(scale: Scale, dims: Sequence[int], seeds: Sequence[int]) -> Iterator[Trial]:
    for dim in dims:
        for seed in seeds:
            for base in BASES:
                params: dict[str, Param] = {"part": "tails", "dim": dim, "base": base}
                params |= _PLAIN if base != "exact" else {"sampler": "exact"}
                yield _trial(scale, params, seed, "students", size="tails")


def _stages(scale: Scale, seeds: Sequence[int], steps: int) -> Iterator[Trial]:
    place: dict[str, Param] = {"part": "stages", "dim": _dim(scale, "forty"), **_PLAIN}
    for seed in seeds:
        for stages in STAGES if scale is Scale.PAPER else STAGES[::2]:
            for fixed in ("steps", "evaluations"):
                params = {**place, "fixed": fixed, "stages": stages}
                params |= {"steps": steps} if fixed == "steps" else {}
                yield _trial(scale, params, seed, "forty", size="stages")


def _apart(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    for distance in DISTANCES:
        for seed in seeds:
            for name in ("multalmc", "averaged", "pt", "exact"):
                for times in (1, LONGER) if name == "multalmc" else (1,):
                    params: dict[str, Param] = {"part": "apart", "distance": distance}
                    params |= {"sampler": name, "times": times, **chosen("three", name)}
                    yield _trial(scale, params, seed, "three", budgets=times)


def _far(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    """The example's target with other weights, and on the other scale of the fast variable."""
    for nearest, fast_scale in ((0.2, "path"), (0.8, "path"), (0.2, "target")):
        for seed in seeds:
            params: dict[str, Param] = {"part": "far", "distance": DISTANCES[-1]}
            params |= {"nearest": nearest, **chosen("three", "multalmc"), "fast_scale": fast_scale}
            yield _trial(scale, params, seed, "three")


def _epsilons(scale: Scale, seeds: Sequence[int], steps: int) -> Iterator[Trial]:
    short: dict[str, Param] = {"part": "averaging", "steps": steps, "step": 2 / steps}
    whole: dict[str, Param] = {"part": "inflation", **_PLAIN, "step": 0.01}
    for params, epsilons in ((short, EPSILONS), (whole, LARGER_EPSILONS)):
        for eps in epsilons:
            for seed in seeds:
                yield _trial(scale, {**params, "eps": eps}, seed, "gate", size="epsilons")


def _gate(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    for seed in seeds:
        for name in ("multalmc", "multcdiff", "exact"):
            params = {"part": "gate", "sampler": name, **_constants(scale, "gate", name)}
            yield _trial(scale, params, seed, "gate", budgets=2)


def _path(scale: Scale) -> Iterator[Trial]:
    params = {"part": "path", "target": "eight", "dim": 2, **chosen("eight", "multalmc")}
    yield _trial(scale, params, 0, "eight", size="film", budgets=2)


def _oracles(scale: Scale, names: Iterable[str]) -> Iterator[Trial]:
    for name in names:
        params = {"part": "oracle", "name": name}
        yield Trial(params, 0, tuple(c.id for c in CLAIMS if c.reads(params, scale)), cost=0.5)


def _times(seeds: Sequence[int]) -> Iterator[Trial]:
    sizes: tuple[dict[str, Param], ...] = (
        {"part": "runtime", "dim": 10, "chains": 300, "evaluations": 4000, "repeats": 5},
        {"part": "step", "dim": 50, "chains": 4096, "repeats": 20},
    )
    for params in sizes:
        for seed in seeds:
            yield Trial(
                params,
                seed,
                tuple(claim.id for claim in CLAIMS if claim.reads(params, Scale.LAPTOP)),
                cost=20.0,
                timeout=900.0,
                fresh_process=True,
                exclusive=True,
            )


study = MultALMCStudy()
