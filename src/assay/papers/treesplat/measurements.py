"""What one trial of the study measures."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.papers.treesplat.config import TrainConfig
from assay.papers.treesplat.datasets.frames import Frame
from assay.papers.treesplat.figures import STRIP_TIMES
from assay.papers.treesplat.losses import photometric_loss
from assay.papers.treesplat.metrics import evaluate, psnr
from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.motions import MLPDeformation, StaticMotion
from assay.papers.treesplat.scenes import catalogue
from assay.papers.treesplat.scenes.raycast import look_at, render_capture
from assay.papers.treesplat.trainer import Trainer
from assay.papers.treesplat.tree_splat import TreeSplat
from assay.study import Context, Param, Scale

if TYPE_CHECKING:
    from assay.papers.treesplat.datasets.frames import Capture, DynamicDataset

Params = Mapping[str, Param]
Metrics = dict[str, float]

VALIDATION, TEST = 12, 24
SMOKE_TEST = 6
POINTS = 1_000
"""Random points to start from, for a cap of 2,500; others in proportion."""

_QUAT_SHARE = TrainConfig.field_quat_lr / TrainConfig.field_lr
"""Rate of the quaternions' coefficients over that of the means', in all arms and searches."""
_BACKGROUNDS: Mapping[str, str] = {"engine": "black"}
_EVALUATIONS = 10
_FILM_FRAMES = 20
_JUMP_TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
_GRADIENT_FRAMES = 24
_FAMILIES, _MEMBERS, _PATH_TIMES = 6, 8, 25
_DISTANCE, _HEIGHT = 4.0, 0.35
_AZIMUTHS: Mapping[str, float] = {"fox-run": 0.2, "pendulum": 0.0, "jumper": 0.8}
"""From where strips and films are seen, in radians; elsewhere from 0.6."""


# Training


def _capture(params: Params, seed: int, context: Context) -> Capture:
    scene = str(params["scene"])
    if "/" in scene:
        from assay.papers.treesplat.datasets import load_capture

        downscale = 2 if scene.startswith("n3v/") else 1
        return load_capture(context.data(scene), downscale=downscale)
    smoke = context.scale is Scale.SMOKE
    return render_capture(
        catalogue.load(scene),
        size=int(params["size"]),
        n_train=int(params["train"]),
        n_val=VALIDATION // 3 if smoke else VALIDATION,
        n_test=SMOKE_TEST if smoke else TEST,
        seed=seed,
        n_points=int(params["cap"]) * POINTS // 2_500,
        background=_BACKGROUNDS.get(scene, "white"),
    )


def _train(
    params: Params,
    capture: Capture,
    motion: str,
    setting: Mapping[str, float],
    seed: int,
    progress: Callable[[Trainer], None] | None = None,
    **options: Any,
) -> tuple[TreeSplat, Trainer]:
    """A model of one motion, by the short schedule; without sizes by the full one."""
    steps = int(params["steps"])
    options |= {"motion": motion, "seed": seed, "cap_max": int(params["cap"])}
    options["eval_every"] = max(steps // _EVALUATIONS, 50)
    if "rate" in setting:
        options["field_lr"] = setting["rate"]
        options["field_quat_lr"] = _QUAT_SHARE * setting["rate"]
    if "basis" in setting:
        options["basis_lr"] = setting["basis"]
        options["basis_lr_final"] = setting["final"] * setting["basis"]
    if setting or motion == "none":
        config = TrainConfig.short(steps, **options)
    else:
        config = TrainConfig(
            steps=steps, static_steps=steps // 10, grow_until=steps // 2, **options
        )
    trainer = Trainer(config)
    return trainer.fit(capture, progress=progress), trainer


def _setting(params: Params, arm: str = "") -> dict[str, float]:
    """The rates in a trial's parameters, those of one arm where several are trained."""
    before = f"{arm}_" if arm else ""
    names = ("rate", "basis", "final")
    return {name: float(params[before + name]) for name in names if before + name in params}


def _scores(model: TreeSplat, split: DynamicDataset, arm: str) -> Metrics:
    found = evaluate(model, split)
    foreground = found["psnr_foreground"]
    return {
        f"psnr_{arm}": found["psnr"],
        f"ssim_{arm}": found["ssim"],
        f"foreground_{arm}": math.nan if foreground is None else foreground,
    }


def _record_curve(trainer: Trainer, arm: str, context: Context) -> None:
    for found in trainer.history.evaluations:
        context.record(f"psnr/{arm}", found["step"], found["psnr"])


# Arms against one another


def compare(params: Params, seed: int, context: Context) -> Metrics:
    """Arms trained in turn on one capture, and the tree against the flat basis."""
    capture = _capture(params, seed, context)
    models: dict[str, TreeSplat] = {}
    found: Metrics = {}
    for arm in str(params["arms"]).split():
        models[arm], trainer = _train(params, capture, arm, _setting(params, arm), seed)
        _record_curve(trainer, arm, context)
        found |= _scores(models[arm], capture.test, arm)
        found[f"gaussians_{arm}"] = float(models[arm].n)
    counts = [model.n for model in models.values()]
    found["count_ratio"] = min(counts) / max(counts)
    found["gap"] = found["psnr_tree"] - found["psnr_flat"]
    if seed == 0 and params.get("views") == "many" and "/" not in str(params["scene"]):
        _picture(str(params["scene"]), capture, models, context)
    return found


def _picture(
    scene: str, capture: Capture, models: Mapping[str, TreeSplat], context: Context
) -> None:
    """Saves a strip over time, and a film of the scene beside the tree."""
    from assay.papers.treesplat.pictures import cropped, film, filmed, rendered, strip

    mesh, camera, background = catalogue.load(scene), _camera(scene, capture), capture.background
    tree = models["tree"]
    shown = (models["flat"], tree, tree.merge())
    rows = [filmed(mesh, capture, camera, STRIP_TIMES)]
    rows += [rendered(model, background, camera, STRIP_TIMES) for model in shown]
    context.save("strip.png", strip(cropped(*rows)))
    times = [i / (_FILM_FRAMES - 1) for i in range(_FILM_FRAMES)]
    films = cropped(filmed(mesh, capture, camera, times), rendered(tree, background, camera, times))
    context.save("film.gif", film(dict(zip(("ground truth", "motion tree"), films, strict=True))))


def _camera(scene: str, capture: Capture) -> Frame:
    """A pose of no split, the same for all times."""
    frame = capture.test.frames[0]
    azimuth, ring = _AZIMUTHS.get(scene, 0.6), math.sqrt(1 - _HEIGHT**2)
    eye = [ring * math.cos(azimuth), ring * math.sin(azimuth), _HEIGHT]
    viewmat = look_at(*(torch.tensor(x).double().numpy() for x in (eye, [0.0] * 3)))
    viewmat[:3, 3] *= _DISTANCE
    return Frame(
        "picture", 0.0, torch.from_numpy(viewmat).float(), frame.K, frame.width, frame.height
    )


def mlp(params: Params, seed: int, context: Context) -> Metrics:
    """The MLP alone, on the capture of the comparison with the same seed."""
    capture = _capture(params, seed, context)
    model, trainer = _train(params, capture, "mlp", _setting(params), seed)
    _record_curve(trainer, "mlp", context)
    return {**_scores(model, capture.test, "mlp"), "gaussians_mlp": float(model.n)}


def tuning(params: Params, seed: int, context: Context) -> Metrics:
    """A candidate's PSNR on validation views."""
    capture = _capture(params, seed, context)
    model, _ = _train(params, capture, str(params["arm"]), _setting(params), seed)
    return {"score": evaluate(model, capture.val)["psnr"]}


# Trees by their depth


def depth(params: Params, seed: int, context: Context) -> Metrics:
    """A tree that every growth deepens as far as it may: quality, shape, gradients, merging."""
    capture = _capture(params, seed, context)
    model, trainer = _train(
        params,
        capture,
        "tree",
        _setting(params),
        seed,
        promote_every=1,
        motion_options={"max_depth": int(params["depth"]) + 1, "decay": bool(params["decay"])},
    )
    _record_curve(trainer, "tree", context)
    tree = _tree(model)
    _record_shape(tree, context)
    if seed == 0 and params["decay"]:
        _record_paths(str(params["scene"]), model, capture, context)
    scores = _scores(model, capture.test, "tree")
    return {
        "psnr": scores["psnr_tree"],
        "foreground": scores["foreground_tree"],
        "gaussians": float(model.n),
        "nodes": float(tree.n_nodes),
        "reached": float(tree.depth() - 1),
        "root_over_leaf": _root_over_leaf(model, capture),
        "siblings_apart": _siblings_apart(model),
        **_merging(model, capture),
        **_bytes(model),
    }


def _tree(model: TreeSplat) -> MotionTree:
    assert isinstance(model.motion, MotionTree)
    return model.motion


def _merging(model: TreeSplat, capture: Capture) -> Metrics:
    """What merging changes on test views; the tree walks its paths, the merged model has none."""
    found: Metrics = {}
    for bits, dtype in ((32, torch.float32), (64, torch.float64)):
        tree = copy.deepcopy(model).to(dtype)
        merged = tree.merge()
        pixel, change = 0.0, 0.0
        for i, frame in enumerate(capture.test.frames):
            target, background = capture.test.image(i).to(dtype), capture.background.to(dtype)
            before, after = (_render(m, frame, background) for m in (tree, merged))
            pixel = max(pixel, float((before - after).abs().max()))
            change = max(change, abs(psnr(before, target) - psnr(after, target)))
        found |= {f"merge_pixel_{bits}": pixel, f"merge_psnr_{bits}": change}
    return found


@torch.no_grad()
def _render(model: TreeSplat, frame: Frame, background: Tensor) -> Tensor:
    rgb, _, _ = model.render(
        frame.viewmat[None].to(background), frame.K[None].to(background), frame.width,
        frame.height, frame.time, background=background,
    )  # fmt: skip
    return rgb[0]


def _bytes(model: TreeSplat) -> Metrics:
    """Sizes of the files of the model, of what it merges to, and without any motion.

    With harmonics of degree 3, as splats are usually published; those of this study have 1.
    """
    splats = {name: value.detach() for name, value in model.splats.items()}
    splats["shN"] = torch.zeros(model.n, 15, 3)
    full = TreeSplat(splats, copy.deepcopy(model.motion))
    static = TreeSplat(splats, StaticMotion(model.n))
    kinds = {"tree": full, "merged": full.merge(), "static": static}
    return {f"{kind}_bytes": float(_saved(one)) for kind, one in kinds.items()}


def _saved(model: TreeSplat) -> int:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _root_over_leaf(model: TreeSplat, capture: Capture) -> float:
    """Mean gradient norm of the roots that have children over that of the leaves below roots."""
    tree, background = _tree(model), capture.background
    inner = torch.zeros(tree.n_nodes, dtype=torch.bool)
    inner[tree.parent[tree.parent >= 0]] = True
    roots, leaves = inner & (tree.parent < 0), ~inner & (tree.parent >= 0)
    if not roots.any():
        return math.nan
    step = max(1, len(capture.train) // _GRADIENT_FRAMES)
    norms = torch.zeros(tree.n_nodes)
    for i in range(0, len(capture.train), step):
        frame = capture.train.frames[i]
        model.zero_grad()
        rgb, _, _ = model.render(
            frame.viewmat[None], frame.K[None], frame.width, frame.height, frame.time,
            background=background,
        )  # fmt: skip
        photometric_loss(rgb[0], capture.train.image(i)).backward()
        assert tree.field_mu.grad is not None
        norms += tree.field_mu.grad.norm(dim=1)
    model.zero_grad()
    return float(norms[roots].mean() / norms[leaves].mean())


def _siblings_apart(model: TreeSplat) -> float:
    """Median distance of Gaussians to one under the same parent, over that of random pairs."""
    tree, means = _tree(model), model.splats["means"].detach()
    above = tree.parent[tree.entry]
    order = torch.argsort(above, stable=True)
    a, b = order[:-1], order[1:]
    siblings = (above[a] == above[b]) & (above[a] >= 0)
    if not siblings.any():
        return math.nan
    drawn = torch.Generator().manual_seed(0)
    pairs = torch.randint(len(means), (2, 10_000), generator=drawn)
    near = (means[a[siblings]] - means[b[siblings]]).norm(dim=1).median()
    return float(near / (means[pairs[0]] - means[pairs[1]]).norm(dim=1).median())


def _record_shape(tree: MotionTree, context: Context) -> None:
    """How many leaves each depth has, and how large the field is at each level."""
    depths = tree.levels[tree.entry]
    norms = tree.field_mu.detach().norm(dim=1)
    for level in range(tree.depth()):
        context.record("leaves_at", level, float((depths == level).sum()))
        context.record("norm_at", level, float(norms[tree.levels == level].mean()))


def _record_paths(scene: str, model: TreeSplat, capture: Capture, context: Context) -> None:
    """Where Gaussians of the largest families go, in pixels of one camera; what it sees at 0."""
    from assay.papers.treesplat.pictures import rendered, strip

    camera = _camera(scene, capture)
    roots = _tree(model).roots()
    clear = torch.sigmoid(model.splats["opacities"].detach()) > 0.5
    families, sizes = roots[clear].unique(return_counts=True)
    times = [i / (_PATH_TIMES - 1) for i in range(_PATH_TIMES)]
    places = torch.stack([_project(model.at(t)["means"].detach(), camera) for t in times])
    for root in families[sizes.argsort(descending=True)[:_FAMILIES]]:
        members = (clear & (roots == root)).nonzero().squeeze(1)[:_MEMBERS]
        for member in members.tolist():
            for x, y in places[:, member].tolist():
                context.record(f"path/{int(root)}/{member}", round(x, 1), round(y, 1))
    context.save("rest.png", strip([rendered(model, capture.background, camera, [0.0])]))


def _project(means: Tensor, camera: Frame) -> Tensor:
    """Pixels ``(N, 2)`` of points ``(N, 3)``."""
    view = means @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    image = view @ camera.K.T
    return image[:, :2] / image[:, 2:]


# Questions of ours


def growth(params: Params, seed: int, context: Context) -> Metrics:
    """How far growth moves any Gaussian of a training run from where its source was, in pixels."""
    capture = _capture(params, seed, context)
    pixels = float(capture.test.frames[0].K[0, 0]) / _DISTANCE
    watch = _Watch(pixels)
    _train(params, capture, "tree", _setting(params), seed, watch, promote_every=2)
    for number, jump in enumerate(watch.jumps):
        context.record("jump", number, jump)
    return {
        "largest_jump": max(watch.jumps, default=math.nan),
        "expansions": float(watch.calls["expand"]),
        "promotions": float(watch.calls["promote"]),
    }


class _Watch:
    """Follows the growth of a motion from the first step on.

    Args:
        pixels: that a unit of length takes in the picture.
    """

    def __init__(self, pixels: float) -> None:
        self.jumps: list[float] = []
        self.calls = {"expand": 0, "promote": 0}
        self._pixels = pixels
        self._watching = False

    def __call__(self, trainer: Trainer) -> None:
        if not self._watching and trainer.model is not None:
            for name in self.calls:
                self._follow(_tree(trainer.model), name)
            self._watching = True

    def _follow(self, tree: MotionTree, name: str) -> None:
        grow = getattr(tree, name)

        def watched(idx: Any) -> Any:
            before = self._displacements(tree)
            answer = grow(idx)
            source = torch.as_tensor(idx)
            source = source.nonzero().squeeze(1) if source.dtype == torch.bool else source
            expected = torch.cat([before, before[:, source]], 1)
            jump = (self._displacements(tree) - expected).norm(dim=2).max()
            self.jumps.append(self._pixels * float(jump))
            self.calls[name] += len(source) > 0
            return answer

        setattr(tree, name, watched)

    @staticmethod
    @torch.no_grad()
    def _displacements(tree: MotionTree) -> Tensor:
        return torch.stack([tree(t)[0] for t in _JUMP_TIMES])


def gradients(params: Params, seed: int, context: Context) -> Metrics:
    """The kernels against the dense compositor, in double precision on a random scene."""
    from assay.papers.treesplat.rasterizer import rasterize

    n, size = int(params["gaussians"]), int(params["size"])
    inputs, viewmats, Ks = _random_scene(n, size, context.seed, torch.float64)
    drawn = torch.Generator().manual_seed(context.seed + 1)
    weights = torch.rand(1, size, size, 4, generator=drawn, dtype=torch.float64) - 0.5
    found: dict[str, list[Tensor]] = {}
    for backend in ("cpu", "reference"):
        leaves = [value.clone().requires_grad_() for value in inputs]
        means, quats, scales, opacities, colors = leaves
        image, alphas, _ = rasterize(
            means, quats, scales, opacities, colors, viewmats, Ks, size, size, backend=backend
        )
        picture = torch.cat([image, alphas], -1)
        (picture * weights).sum().backward()
        found[backend] = [
            picture.detach(),
            *(leaf.grad for leaf in leaves if leaf.grad is not None),
        ]
    errors = [
        float((a - b).abs().max() / b.abs().max())
        for a, b in zip(found["cpu"], found["reference"], strict=True)
    ]
    names = ("means", "quats", "scales", "opacities", "colors")
    each = {f"error_{name}": error for name, error in zip(names, errors[1:], strict=True)}
    return {"value_error": errors[0], "gradient_error": max(errors[1:]), **each}


def _random_scene(
    n: int, size: int, seed: int, dtype: torch.dtype
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Means, quaternions, scales, opacities and colours; a camera that sees them all."""
    drawn = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=drawn, dtype=torch.float64)

    inputs = [
        uniform(n, 3, low=-1.0),
        torch.randn(n, 4, generator=drawn, dtype=torch.float64),
        uniform(n, 3, low=0.02, high=0.3),
        uniform(n, low=0.05, high=0.95),
        uniform(n, 3),
    ]
    viewmats = torch.eye(4)[None].clone()
    viewmats[0, 2, 3] = _DISTANCE
    Ks = torch.tensor([[[1.2 * size, 0, size / 2], [0, 1.2 * size, size / 2], [0, 0, 1]]])
    return [value.to(dtype) for value in inputs], viewmats.to(dtype), Ks.to(dtype)


# Times


def motion_time(params: Params, seed: int, context: Context) -> Metrics:
    """Times to move all Gaussians and to render a frame: tree, merged, MLP, taken in turn."""
    from assay.toolkits.timing import interleave

    movers, viewmats, Ks = _movers(params, context.seed)
    size, repeats = int(params["size"]), int(params["repeats"])
    means = movers["tree"].splats["means"].detach()

    @torch.no_grad()
    def move(name: str) -> Any:
        return movers[name].motion(0.3, means)

    @torch.no_grad()
    def frame(name: str) -> Any:
        return movers[name].render(viewmats, Ks, size, size, 0.3)

    def timed(what: Callable[[str], Any], names: Sequence[str], prefix: str) -> Metrics:
        arms = {f"{prefix}{name}": _bound(what, name) for name in names}
        times = interleave(arms, repeats)
        return {f"{prefix}{key}" if key in ("spread", "foreign") else key: value
                for key, value in times.items() if key != "rounds"}  # fmt: skip

    found = timed(move, list(movers), "")
    found |= timed(frame, ("tree", "merged", "mlp"), "frame_")
    return {**found, "reached": float(_tree(movers["tree"]).depth() - 1)}


def _bound(what: Callable[[str], Any], name: str) -> Callable[[], Any]:
    return lambda: what(name)


def _movers(params: Params, seed: int) -> tuple[dict[str, TreeSplat], Tensor, Tensor]:
    """A model of random Gaussians for each way to move them, and a camera."""
    n = int(params["gaussians"])
    inputs, viewmats, Ks = _random_scene(n, int(params["size"]), seed, torch.float32)
    drawn = torch.Generator().manual_seed(seed)
    tree = MotionTree(n * 2 // 5, max_depth=int(params["depth"]) + 1)
    rounds = int(params["depth"])
    for left in range(rounds, 0, -1):
        grown = (n - tree.n) // left
        tree.promote(torch.randperm(tree.n, generator=drawn)[:grown])
    with torch.no_grad():
        for field in (tree.field_mu, tree.field_quat):
            if field is not None:
                field.copy_(0.05 * torch.randn(field.shape, generator=drawn))
    model = TreeSplat.from_points(inputs[0], inputs[4], motion="none", sh_degree=0)
    extent = float(inputs[0].norm(dim=1).max())
    motions = {
        "tree": tree,
        "merged": tree.merge(),
        "tabulated": tree.merge(frames=100),
        "mlp": MLPDeformation(n, scale=extent),
    }
    splats = dict(model.splats.items())
    return {name: TreeSplat(splats, motion) for name, motion in motions.items()}, viewmats, Ks


def rasterizer(params: Params, seed: int, context: Context) -> Metrics:
    """The rasteriser beside a dense compositor and gsplat's projection in PyTorch."""
    from assay.papers.treesplat.rasterizer_speed import speed

    return speed(int(params["gaussians"]), int(params["size"]), seed=context.seed)


def frame_rate(params: Params, seed: int, context: Context) -> Metrics:
    """Frames a second on an accelerator, by its own clock: tree, merged and MLP in turn."""
    movers, viewmats, Ks = _movers(params, context.seed)
    size, repeats = int(params["size"]), int(params["repeats"])
    viewmats, Ks = viewmats.to(context.device), Ks.to(context.device)
    names = ("tree", "merged", "mlp")
    models = {name: movers[name].to(context.device) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeats + 10):
        for name in names:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.no_grad():
                start.record()
                models[name].render(viewmats, Ks, size, size, number / (repeats + 10))
                end.record()
            torch.cuda.synchronize()
            if number >= 10:  # the first ones compile and warm up
                seconds[name].append(start.elapsed_time(end) / 1e3)
    return {f"{name}_fps": 1 / fmean(seconds[name]) for name in names}


PARTS: Mapping[str, Callable[[Params, int, Context], Metrics]] = {
    "compare": compare,
    "n3v": compare,
    "mlp": mlp,
    "tuning": tuning,
    "depth": depth,
    "growth": growth,
    "gradients": gradients,
    "motion-time": motion_time,
    "rasterizer": rasterizer,
    "frame-rate": frame_rate,
}
