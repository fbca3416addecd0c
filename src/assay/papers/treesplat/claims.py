"""The claims of the paper, some questions of ours, and what decides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from assay.study import Claim, Compare, Holds, Param, Protocol, Sample, Scale, Threshold, Trend

SCENES = ("fox-run", "engine", "jumper")
RIGID_SCENE = "engine"
MLP_SCENE = "fox-run"
"""Where an MLP deforms beside the others: its steps take many times as long on a CPU."""
DEPTH_SCENES = ("pendulum", "fox-run")
"""A scene whose hierarchy is known, and one of a skinned animal."""
SMOKE_SCENE = "pendulum"

SEEDS = 3
DEPTHS = (0, 2, 4, 8)
SMOKE_DEPTHS = (0, 1, 2)
COUNTS = (2_500, 100_000)
"""Gaussians that are moved in the timings."""

PAR = -0.3
"""dB of PSNR that "on par" may stay behind."""
MOTION = 1.5

DNERF = (
    "bouncingballs", "hellwarrior", "hook", "jumpingjacks", "lego", "mutant", "standup", "trex",
)  # fmt: skip
N3V = (
    "coffee_martini", "cook_spinach", "cut_roasted_beef", "flame_salmon_1", "flame_steak",
    "sear_steak",
)  # fmt: skip

_SMALL = (Scale.SMOKE, Scale.LAPTOP)
_EVERYWHERE = {
    **dict.fromkeys((*_SMALL, Scale.GPU), Protocol.PROXY),
    Scale.PAPER: Protocol.REDUCED,
}
_STAND_IN = dict.fromkeys(_SMALL, Protocol.PROXY)
_OURS = dict.fromkeys(_SMALL, Protocol.EXACT)

_DNERF = "D-NeRF, 8 synthetic scenes seen by one moving camera"
_DNERF_FIGURE = "37.11 dB PSNR, mean of 8 scenes"
_SYNTHETIC = "Section on experiments, synthetic scenes"
_SCENES = (
    "Ray-cast animated meshes at 128 px stand in for D-NeRF. All arms share rasteriser, growth, "
    "steps and cap, and each has the rate of its motion that did best on validation views."
)
_ABLATION = "Section on ablations"


def _quality(
    arm: str,
    than: str,
    margin: float,
    metric: str = "psnr",
    pairs: Mapping[Scale, int] | None = None,
    **where: Param,
) -> dict[Scale, Compare]:
    """How far an arm lies above another on test views, paired by scene and seed."""
    least = {
        Scale.SMOKE: 2,
        Scale.LAPTOP: len(SCENES) * SEEDS,
        Scale.GPU: 4,
        Scale.PAPER: len(DNERF) * SEEDS,
    } | dict(pairs or {})
    place = {"part": "compare", "views": "many", **where}
    return {
        scale: Compare(
            Sample(f"{metric}_{arm}", place),
            Sample(f"{metric}_{than}", place),
            ">",
            margin,
            pair=("scene", "seed"),
            min_trials=n,
        )
        for scale, n in least.items()
    }


def _against_mlp() -> dict[Scale, Compare]:
    """The MLP has trials of its own on one scene, and is one of the arms where steps are cheap."""
    found = _quality("tree", "mlp", PAR)
    for scale, scene in ((Scale.SMOKE, SMOKE_SCENE), (Scale.LAPTOP, MLP_SCENE)):
        found[scale] = Compare(
            Sample("psnr_tree", {"part": "compare", "views": "many", "scene": scene}),
            Sample("psnr_mlp", {"part": "mlp"}),
            ">",
            PAR,
            pair=("scene", "seed"),
            min_trials=SEEDS,
        )
    return found


def _deepens(scene: str) -> dict[Scale, Trend]:
    trend = {
        scale: Trend(
            "depth",
            Sample("psnr", {"part": "depth", "scene": place, "decay": True}),
            low=0.0,
            group=("scene", "seed"),
            min_groups=SEEDS,
        )
        for scale, place in ((Scale.SMOKE, SMOKE_SCENE), (Scale.LAPTOP, scene))
    }
    return trend if scene == SMOKE_SCENE else {Scale.LAPTOP: trend[Scale.LAPTOP]}


def _decays(metric: str, op: Literal[">", "<"], margin: float) -> dict[Scale, Compare]:
    """The deepest trees with the decay against those without."""
    found = {}
    for scale, depth in ((Scale.SMOKE, SMOKE_DEPTHS[-1]), (Scale.LAPTOP, DEPTHS[-1])):
        place: dict[str, Param] = {"part": "depth", "depth": depth}
        found[scale] = Compare(
            Sample(metric, {**place, "decay": True}),
            Sample(metric, {**place, "decay": False}),
            op,
            margin,
            how="ratio" if metric == "root_over_leaf" else "difference",
            pair=("scene", "seed"),
            min_trials=len(DEPTH_SCENES) * SEEDS,
        )
    return found


def _siblings_apart() -> dict[Scale, Threshold]:
    deepest = {Scale.SMOKE: SMOKE_DEPTHS[-1], Scale.LAPTOP: DEPTHS[-1]}
    return {
        scale: Threshold(
            Sample("siblings_apart", {"part": "depth", "depth": depth, "decay": True}), "<", 0.5
        )
        for scale, depth in deepest.items()
    }


def _lossless(metric: str, at_most: float) -> Holds:
    return Holds(Sample(metric, {"part": "depth"}), at_most=at_most)


def _times(ours: str, than: str, at_least: float, where: Mapping[str, Param]) -> Compare:
    """How many times as long another takes, in interleaved runs of one trial."""
    each = ("gaussians",) if where["part"] == "motion-time" else ()
    return Compare(
        Sample(f"{than}_s", where), Sample(f"{ours}_s", where), ">", at_least, how="ratio",
        pair=("gaussians", "seed"), each=each,
    )  # fmt: skip


_QUALITY: tuple[Claim, ...] = (
    Claim(
        "C1-motion",
        "The motion tree renders unseen views of a moving scene more than 1.5 dB better than a "
        "static model.",
        _DNERF_FIGURE,
        _DNERF,
        _SYNTHETIC,
        _quality("tree", "none", MOTION),
        _STAND_IN,
        f"Says no more than that motion is learned. {_SCENES}",
    ),
    Claim(
        "C1-par",
        "With equal Gaussians and steps the motion tree is on par with the same basis without a "
        "tree: less than 0.3 dB behind.",
        _DNERF_FIGURE,
        _DNERF,
        _SYNTHETIC,
        _quality("tree", "flat", PAR),
        _EVERYWHERE,
        _SCENES,
    ),
    Claim(
        "C1-better",
        "With equal Gaussians and steps the motion tree is better than the same basis without a "
        "tree.",
        _DNERF_FIGURE,
        _DNERF,
        _SYNTHETIC,
        _quality("tree", "flat", 0.0),
        _EVERYWHERE,
        _SCENES,
    ),
    Claim(
        "C1-foreground",
        "On the pixels that the object covers the motion tree is better than the same basis "
        "without a tree.",
        "none printed",
        _DNERF,
        "ours",
        _quality("tree", "flat", 0.0, metric="foreground"),
        _STAND_IN,
        "PSNR of a whole picture counts the empty background, which every arm gets right.",
    ),
    Claim(
        "C1-rigid",
        "Where parts move rigidly, in a hierarchy, the motion tree is better than the same basis "
        "without a tree.",
        "none printed",
        _DNERF,
        "ours",
        _quality(
            "tree", "flat", 0.0, pairs={Scale.SMOKE: 2, Scale.LAPTOP: SEEDS}, scene=RIGID_SCENE
        ),
        {Scale.LAPTOP: Protocol.PROXY},
        "A two-cylinder engine: rods hang on the crankshaft, pistons on the rods.",
    ),
    Claim(
        "C1-few",
        "From a quarter of the views the motion tree gains more over the same basis without a "
        "tree.",
        "none printed",
        _DNERF,
        "ours",
        Compare(
            Sample("gap", {"part": "compare", "views": "few"}),
            Sample("gap", {"part": "compare", "views": "many"}),
            ">",
            0.0,
            pair=("scene", "seed"),
            min_trials=len(SCENES) * SEEDS,
        ),
        _STAND_IN,
        "24 training views in place of 96, at the same rates. Shared motion should regularise.",
    ),
    Claim(
        "C1-few-better",
        "From a quarter of the views the motion tree is better than the same basis without a tree.",
        "none printed",
        _DNERF,
        "ours",
        _quality("tree", "flat", 0.0, views="few"),
        _STAND_IN,
        "24 training views in place of 96, at the same rates.",
    ),
    Claim(
        "C1-mlp",
        "The motion tree is on par with an MLP that deforms every Gaussian: less than 0.3 dB "
        "behind.",
        f"{_DNERF_FIGURE}; on par or better than the state of the art",
        _DNERF,
        "abstract; Section on experiments",
        _against_mlp(),
        _EVERYWHERE,
        "An MLP of 8 x 256 as in Deformable-3DGS, at laptop scale on one scene.",
    ),
    Claim(
        "C1-polynomial",
        "The motion tree is better than a cubic polynomial for each Gaussian.",
        f"{_DNERF_FIGURE}; on par or better than the state of the art",
        _DNERF,
        "abstract; Section on experiments",
        _quality("tree", "polynomial", 0.0),
        {Scale.LAPTOP: Protocol.PROXY},
        f"As in SpacetimeGaussians. {_SCENES}",
    ),
    Claim(
        "C2",
        "On real scenes seen by many cameras the motion tree is on par with an MLP that deforms "
        "every Gaussian: less than 0.3 dB behind.",
        "32.21 dB PSNR, 206 FPS, 170 MB, mean of 6 scenes",
        "N3V, 6 scenes at half resolution, 18 to 21 cameras, the central one held out",
        "Section on experiments, real scenes",
        Compare(
            Sample("psnr_tree", {"part": "n3v"}),
            Sample("psnr_mlp", {"part": "n3v"}),
            ">",
            PAR,
            pair=("scene", "seed"),
            min_trials=len(N3V),
        ),
        {Scale.PAPER: Protocol.REDUCED},
        "Needs the videos of Neural 3D Video in DATA/treesplat/n3v/<scene>/.",
    ),
)

_PLAYBACK: tuple[Claim, ...] = (
    Claim(
        "C3-fps",
        "A merged model renders more than 200 frames a second at 800 x 800.",
        "230 FPS on D-NeRF, 206 on N3V",
        "RTX 4500 Ada",
        "abstract",
        Threshold(Sample("merged_fps", {"part": "frame-rate"}), ">", 200.0),
        {Scale.GPU: Protocol.PROXY},
        "Of a model of 50,000 Gaussians, by CUDA events.",
    ),
    Claim(
        "C3-unmerged",
        "Moving the Gaussians takes at least 3 times as long before merging as after.",
        "none printed; merging makes playback faster",
        "RTX 4500 Ada",
        "abstract",
        _times("merged", "tree", 3.0, {"part": "motion-time"}),
        _STAND_IN,
        "The motion alone, without its rasterisation, of 2,500 and of 100,000 Gaussians in a "
        "forest of depth 8. Whole frames are in the tables.",
    ),
    Claim(
        "C3-mlp",
        "Moving the Gaussians takes an MLP at least 20 times as long as the merged model.",
        "230 FPS; an MLP is asked anew for each Gaussian and frame",
        "RTX 4500 Ada",
        "Section on the method, its text on merging",
        _times("merged", "mlp", 20.0, {"part": "motion-time"}),
        _STAND_IN,
        "The motion alone, without its rasterisation; an MLP of 8 x 256.",
    ),
    Claim(
        "C4-pixels",
        "Merging changes no pixel of a trained model by 1e-4, in single precision.",
        "change of PSNR < 1e-6",
        "all scenes",
        "Section on ablations, merging",
        _lossless("merge_pixel_32", 1e-4),
        _STAND_IN,
        "Deep trees after training, all test views. The unmerged side walks every path from leaf "
        "to root and sums displacements; the merged one multiplies its stored coefficients.",
    ),
    Claim(
        "C4-psnr",
        "Merging changes the PSNR of a trained model by less than 1e-3 dB, in single precision.",
        "change of PSNR < 1e-6",
        "all scenes",
        "Section on ablations, merging",
        _lossless("merge_psnr_32", 1e-3),
        _STAND_IN,
        "The same two renderings against the ground truth.",
    ),
    Claim(
        "C4-exact",
        "Merging is exact: in double precision no pixel changes by 1e-10.",
        "none printed",
        "all scenes",
        "ours",
        _lossless("merge_pixel_64", 1e-10),
        _STAND_IN,
        "The same trained models, cast to double precision before merging.",
    ),
    Claim(
        "C4-file",
        "Merging makes the file smaller.",
        "smaller file, no ratio known to us",
        "all scenes",
        "abstract",
        Compare(
            Sample("merged_bytes", {"part": "depth"}),
            Sample("tree_bytes", {"part": "depth"}),
            "<",
            1.0,
            how="ratio",
            pair=("scene", "depth", "decay", "seed"),
        ),
        _STAND_IN,
        "Both saved by `TreeSplat.save`, with harmonics of degree 3.",
    ),
)

_TREE: tuple[Claim, ...] = (
    Claim(
        "C5-pendulum",
        "On a pendulum of several links a deeper tree is better.",
        "depths 0, 4, 15, 29, 73; about 29 is best",
        _DNERF,
        _ABLATION,
        _deepens("pendulum"),
        _STAND_IN,
        "Slope of PSNR with the largest depth, 0 to 8, within each seed; links hang on one "
        "another, so that the scene has a hierarchy of motions to find. Every growth promotes.",
    ),
    Claim(
        "C5-fox",
        "On a running fox a deeper tree is better.",
        "depths 0, 4, 15, 29, 73; about 29 is best",
        _DNERF,
        _ABLATION,
        _deepens("fox-run"),
        {Scale.LAPTOP: Protocol.PROXY},
        "Slope of PSNR with the largest depth, 0 to 8, within each seed. Every growth promotes.",
    ),
    Claim(
        "C6-gradients",
        "The decay lowers the gradients of roots beside those of leaves.",
        "none printed; it stabilises training, in words",
        _DNERF,
        "Section on the method, its text on decay",
        _decays("root_over_leaf", "<", 1.0),
        _STAND_IN,
        "Mean norm over the nodes of each kind at the end of training, largest depth 8.",
    ),
    Claim(
        "C6-quality",
        "The decay makes deep trees better.",
        "none printed; it stabilises training, in words",
        _DNERF,
        "Section on the method, its text on decay",
        _decays("psnr", ">", 0.0),
        _STAND_IN,
        "Largest depth 8, the same rate with and without.",
    ),
    Claim(
        "C8",
        "A merged model is less than half as large again as a static one of as many Gaussians.",
        "28 MB on D-NeRF, 170 MB on N3V",
        "mean of all scenes",
        "abstract; Section on experiments",
        Compare(
            Sample("merged_bytes", {"part": "depth"}),
            Sample("static_bytes", {"part": "depth"}),
            "<",
            1.5,
            how="ratio",
            pair=("scene", "depth", "decay", "seed"),
        ),
        {Scale.LAPTOP: Protocol.PROXY},
        "Files of `TreeSplat.save`, with harmonics of degree 3. The tables have bytes a Gaussian.",
    ),
)

_QUESTIONS: tuple[Claim, ...] = (
    Claim(
        "X1-gradients",
        "The rasteriser's gradients agree with those of a dense compositor to 1e-6.",
        "none printed",
        "double precision, random scenes",
        "ours",
        Holds(Sample("gradient_error", {"part": "gradients"}), at_most=1e-6),
        _OURS,
        "The largest difference over the largest gradient, of each input apart.",
    ),
    Claim(
        "X1-dense",
        "The rasteriser takes less than a fiftieth of the time of a dense compositor, forward and "
        "backward.",
        "none printed",
        "2,000 Gaussians at 128 px",
        "ours",
        _times("ours", "dense", 50.0, {"part": "rasterizer", "gaussians": 2_000, "size": 128}),
        {Scale.LAPTOP: Protocol.EXACT},
        "Both in single precision on one thread.",
    ),
    Claim(
        "X1-projection",
        "The rasteriser's own projection makes a step faster than gsplat's in PyTorch.",
        "none printed",
        "2,000 Gaussians at 128 px",
        "ours",
        _times(
            "ours",
            "torch_projection",
            1.0,
            {"part": "rasterizer", "gaussians": 2_000, "size": 128},
        ),
        {Scale.LAPTOP: Protocol.EXACT},
        "The same kernels behind either projection.",
    ),
    Claim(
        "X2",
        "No growth of the tree during training moves a Gaussian by a hundredth of a pixel.",
        "none printed",
        "a training run",
        "ours",
        Holds(Sample("largest_jump", {"part": "growth"}), at_most=0.01),
        _OURS,
        "Every Gaussian after an expansion or a promotion against its source before, at 5 times.",
    ),
    Claim(
        "X3",
        "Gaussians under one parent lie less than half as far apart as any two.",
        "none printed; reviewers doubt that siblings stay together",
        "trained models",
        "ours",
        _siblings_apart(),
        _OURS,
        "Median distance between siblings over that of random pairs.",
    ),
    Claim(
        "X4",
        "The arms that are compared end with equal numbers of Gaussians, within 5 %.",
        "none printed",
        "all comparisons",
        "ours",
        Holds(Sample("count_ratio", {"part": "compare"}), at_least=0.95),
        _OURS,
        "Smallest over largest number of the arms of a trial.",
    ),
)

CLAIMS: tuple[Claim, ...] = (*_QUALITY, *_PLAYBACK, *_TREE, *_QUESTIONS)
