"""The experiments behind the claims: training on moving scenes, merging, trees by depth, times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from assay.papers.treesplat.claims import (
    CLAIMS,
    COUNTS,
    DEPTH_SCENES,
    DEPTHS,
    DNERF,
    MLP_SCENE,
    N3V,
    SCENES,
    SEEDS,
    SMOKE_DEPTHS,
    SMOKE_SCENE,
)
from assay.papers.treesplat.tuning import TUNING_SEED, searched, searched_mlp, setting
from assay.study import Context, Figure, Need, Param, Results, Scale, Study, Table, Trial

MANY = ("none", "flat", "tree", "polynomial")
FEW = ("flat", "tree")
WITH_MLP = ("flat", "tree", "mlp")
"""The arms of a comparison, trained one after the other from the same points."""

_DATA: Mapping[str, tuple[str, str]] = {
    "fox-run": ("Fox.glb", "assay data fetch treesplat"),
    "engine": ("2CylinderEngine.glb", "assay data fetch treesplat"),
    "jumper": ("01_01.bvh", "assay data fetch treesplat"),
}
"""The file that a scene is made from, and where it is to be had."""

Sizes = dict[str, Param]

SIZES: Mapping[Scale, Sizes] = {
    Scale.SMOKE: {"size": 48, "train": 24, "steps": 60, "cap": 300},
    Scale.LAPTOP: {"size": 128, "train": 96, "steps": 2_000, "cap": 2_500},
    Scale.GPU: {"size": 400, "train": 192, "steps": 8_000, "cap": 50_000},
    Scale.PAPER: {"size": 800, "train": 0, "steps": 20_000, "cap": 100_000},
}
"""Pixels of a picture's side, training views (0: all there are), steps, largest number of
Gaussians."""

_STEP_SECONDS: Mapping[Scale, float] = {
    Scale.SMOKE: 2.5e-3,
    Scale.LAPTOP: 1.2e-2,
    Scale.GPU: 5e-3,
    Scale.PAPER: 2e-2,
}
_MLP_STEPS = {Scale.SMOKE: 10.0, Scale.LAPTOP: 6.0}
"""How many steps of another arm one of the MLP takes, on a CPU."""


class TreeSplatStudy(Study):
    """Claims of the paper and ours, with trials told apart by the parameter `part`.

    A comparison trains all its arms in one trial, from the same cameras and points.
    """

    version = 1
    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        if scale is Scale.SMOKE:
            return _smoke(seeds or (0,))
        if scale is Scale.LAPTOP:
            return _laptop(seeds)
        if scale is Scale.GPU:
            return _gpu(seeds or (0, 1))
        return _paper(seeds or range(SEEDS))

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        from assay.papers.treesplat.measurements import PARTS

        return PARTS[str(trial.params["part"])](trial.params, trial.seed, context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.treesplat.figures import figures

        return figures(results.ok)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.treesplat.tables import tables

        return tables(results.ok)


def _smoke(seeds: Sequence[int]) -> Iterator[Trial]:
    scale, scenes = Scale.SMOKE, (SMOKE_SCENE,)
    yield from _compare(scale, scenes, seeds, MANY)
    yield from _compare(scale, scenes, seeds, FEW, views="few")
    yield from _mlp(scale, SMOKE_SCENE, seeds)
    yield from _depths(scale, scenes, SMOKE_DEPTHS, seeds)
    yield _growth(scale, "fox-run", 0)
    yield from _gradients(scale, seeds)
    yield from _motion_times(scale, COUNTS[:1], seeds, repeats=3)


def _laptop(seeds: Sequence[int] | None) -> Iterator[Trial]:
    scale, runs = Scale.LAPTOP, seeds or range(SEEDS)
    yield from _search(scale, searched())
    yield from _compare(scale, SCENES, runs, MANY)
    yield from _depths(scale, DEPTH_SCENES, DEPTHS, runs)
    yield from _compare(scale, SCENES, runs, FEW, views="few")
    yield _growth(scale, "fox-run", 0)
    yield from _gradients(scale, runs)
    yield from _search(scale, searched_mlp())
    yield from _mlp(scale, MLP_SCENE, runs)
    yield from _motion_times(scale, COUNTS, runs, repeats=20)
    yield from _rasterizer_times(runs)


def _gpu(seeds: Sequence[int]) -> Iterator[Trial]:
    scale = Scale.GPU
    yield from _compare(scale, ("fox-run", "pendulum"), seeds, WITH_MLP)
    for seed in seeds if len(seeds) >= SEEDS else range(SEEDS):
        params: Mapping[str, Param] = {
            "part": "frame-rate", "gaussians": 50_000, "size": 800, "repeats": 200,
        }  # fmt: skip
        yield _trial(scale, params, seed, cost=10.0, exclusive=True)


def _paper(seeds: Sequence[int]) -> Iterator[Trial]:
    scale = Scale.PAPER
    yield from _compare(scale, [f"dnerf/{name}" for name in DNERF], seeds, WITH_MLP)
    for name in N3V:
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "n3v", "scene": f"n3v/{name}", "arms": " ".join(WITH_MLP),
                "steps": 30_000, "cap": 300_000,
            }  # fmt: skip
            yield _trial(scale, params, seed, cost=6_000.0)


def claims_of(params: Mapping[str, Param], scale: Scale) -> tuple[str, ...]:
    """The claims whose tests read the trials of these parameters at a scale."""
    return tuple(claim.id for claim in CLAIMS if claim.reads(params, scale))


def needs_of(scene: str) -> tuple[Need, ...]:
    """The data that a scene is made from; none for those that are computed."""
    if scene.startswith(("dnerf/", "n3v/")):
        official = {"dnerf": "github.com/albertpumarola/D-NeRF",
                    "n3v": "github.com/facebookresearch/Neural_3D_Video"}  # fmt: skip
        kind = scene.partition("/")[0]
        return (Need.data(scene, f"from {official[kind]}, as DATA/treesplat/{scene}/"),)
    if scene not in _DATA:
        return ()
    return (Need.data(*_DATA[scene]),)


def _trial(
    scale: Scale,
    params: Mapping[str, Param],
    seed: int,
    cost: float,
    *,
    exclusive: bool = False,
) -> Trial:
    on_gpu = int(scale in (Scale.GPU, Scale.PAPER))
    return Trial(
        params,
        seed,
        claims_of(params, scale),
        cost=cost,
        timeout=max(900.0, 10 * cost),
        gpus=on_gpu,
        exclusive=exclusive,
        needs=(*(Need.gpu(),) * on_gpu, *needs_of(str(params.get("scene", "")))),
    )


def _settings(scale: Scale, scene: str, arms: Iterable[str]) -> Sizes:
    """The rates of several arms; none where training takes the defaults of its full schedule."""
    if scale in (Scale.GPU, Scale.PAPER):
        return {}
    return {f"{arm}_{name}": value for arm in arms for name, value in setting(scene, arm).items()}


def _seconds(scale: Scale, arms: float) -> float:
    """Of so many training runs, with the pictures to train on."""
    return 1.0 + arms * (0.2 + float(SIZES[scale]["steps"]) * _STEP_SECONDS[scale])


def _compare(
    scale: Scale,
    scenes: Sequence[str],
    seeds: Sequence[int],
    arms: Sequence[str],
    views: str = "many",
) -> Iterator[Trial]:
    sizes = dict(SIZES[scale])
    if views == "few":
        sizes["train"] = int(sizes["train"]) // 4
    for scene in scenes:
        for seed in seeds:
            params: dict[str, Param] = {"part": "compare", "scene": scene, "views": views}
            params |= {"arms": " ".join(arms), **_settings(scale, scene, arms), **sizes}
            yield _trial(scale, params, seed, _seconds(scale, len(arms)))


def _mlp(scale: Scale, scene: str, seeds: Sequence[int]) -> Iterator[Trial]:
    for seed in seeds:
        params: dict[str, Param] = {"part": "mlp", "scene": scene, **setting(scene, "mlp")}
        yield _trial(scale, params | SIZES[scale], seed, _seconds(scale, _MLP_STEPS[scale]))


def _depths(
    scale: Scale, scenes: Sequence[str], depths: Sequence[int], seeds: Sequence[int]
) -> Iterator[Trial]:
    for scene in scenes:
        for seed in seeds:
            for depth, decay in [*((depth, True) for depth in depths), (depths[-1], False)]:
                params: dict[str, Param] = {"part": "depth", "scene": scene, "depth": depth}
                params |= {"decay": decay, **setting(scene, "tree"), **SIZES[scale]}
                yield _trial(scale, params, seed, _seconds(scale, 1))


def _search(scale: Scale, candidates: Iterable[Sizes]) -> Iterator[Trial]:
    """The searches of `tuning`, on cameras and points of their own; no claim reads them."""
    for candidate in candidates:
        params: Sizes = {"part": "tuning", **candidate, **SIZES[scale]}
        runs = _MLP_STEPS[scale] if candidate["arm"] == "mlp" else 1
        yield _trial(scale, params, TUNING_SEED, _seconds(scale, runs))


def _growth(scale: Scale, scene: str, seed: int) -> Trial:
    params: dict[str, Param] = {"part": "growth", "scene": scene, **setting(scene, "tree")}
    return _trial(scale, params | SIZES[scale], seed, _seconds(scale, 1))


def _gradients(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    for seed in seeds:
        params: Mapping[str, Param] = {"part": "gradients", "gaussians": 50, "size": 32}
        yield _trial(scale, params, seed, cost=1.0)


def _motion_times(
    scale: Scale, counts: Sequence[int], seeds: Sequence[int], repeats: int
) -> Iterator[Trial]:
    for count in counts:
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "motion-time", "gaussians": count, "depth": 8, "size": 128,
                "repeats": repeats,
            }  # fmt: skip
            yield _trial(scale, params, seed, cost=count * repeats * 5e-5 + 1, exclusive=True)


def _rasterizer_times(seeds: Sequence[int]) -> Iterator[Trial]:
    for gaussians, size in ((2_000, 128), (5_000, 128), (5_000, 256), (20_000, 256)):
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "rasterizer", "gaussians": gaussians, "size": size,
            }  # fmt: skip
            yield _trial(Scale.LAPTOP, params, seed, cost=20.0, exclusive=True)


study = TreeSplatStudy()
