"""`assay treesplat`: train a moving scene, draw it, export it, look at it."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.toolkits.files import parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from assay.papers.treesplat.config import TrainConfig
    from assay.papers.treesplat.datasets import Capture, DynamicDataset
    from assay.papers.treesplat.scenes import AnimatedMesh
    from assay.papers.treesplat.trainer import Trainer
    from assay.papers.treesplat.tree_splat import TreeSplat

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Moving scenes as Gaussians on a mergeable motion tree.",
)

Motion = Literal["tree", "flat", "mlp", "polynomial", "none"]
Backend = Literal["auto", "gsplat", "cpu", "reference"]
Background = Literal["white", "black"]
Convention = Literal[
    "opengl camera-to-world",
    "opencv camera-to-world",
    "opencv world-to-camera",
    "opengl world-to-camera",
]

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="As `train` writes it.", exists=True, dir_okay=False)
]
BackendOption = Annotated[
    Backend, typer.Option(help="Rasteriser; auto takes gsplat on CUDA, else cpu.")
]
BackgroundOption = Annotated[Background, typer.Option(help="Colour behind the scene.")]
SeedOption = Annotated[int, typer.Option(help="Random seed.", min=0)]
SizeOption = Annotated[int, typer.Option(help="Pixels on a side of filmed pictures.", min=16)]
ViewsOption = Annotated[int, typer.Option(help="Training pictures of a filmed scene.", min=2)]
ClipOption = Annotated[
    str | None, typer.Option(help="Which animation of a .glb or .gltf. [default: the first]")
]
CaptureOption = Annotated[
    Path | None,
    typer.Option("--capture", metavar="DIR", help="A capture whose test cameras are taken."),
]
ConventionOption = Annotated[
    Convention | None,
    typer.Option(help="Of the poses of a capture. [default: what its layout has]"),
]
PointsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Points in place of the capture's own: .ply, .npy or COLMAP's points3D.",
        exists=True,
        dir_okay=False,
    ),
]
DownscaleOption = Annotated[
    int, typer.Option(help="Use pictures of a capture so many times smaller.", min=1)
]


@app.command()
def scenes() -> None:
    """List the scenes that `train` and `film` know by name."""
    from assay.papers.treesplat.scenes import catalogue

    for name in catalogue.NAMES:
        needs = "" if name == "pendulum" else "  needs `assay data fetch treesplat`"
        typer.echo(f"{name:10}{needs}".rstrip())


@app.command()
def film(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="An animated .glb or .gltf, a .bvh body, or one of `scenes`."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")],
    size: SizeOption = 128,
    views: ViewsOption = 96,
    clip: ClipOption = None,
    seed: SeedOption = 0,
) -> None:
    """Ray-cast a scene into a data set like D-NeRF's."""
    from assay.papers.treesplat.datasets import save_capture

    _check_out(out, "")
    if (out / "transforms_train.json").exists():
        raise ValueError(f"out: {out} holds a capture already, wants another folder")
    capture = _filmed(source, "white", size, views, seed, clip)
    save_capture(capture, out)
    counts = (len(one) for one in (capture.train, capture.val, capture.test))
    typer.echo("{}: {} training, {} validation and {} test pictures".format(out, *counts))


@app.command()
def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A capture's folder (D-NeRF, N3V, HyperNeRF, nerfstudio), an animated .glb or "
            ".gltf, a .bvh body, or a name that `scenes` lists.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Model to write.")],
    motion: Annotated[
        Motion,
        typer.Option(
            help="tree: a shared basis, coefficients on a tree; flat: the same without a tree; "
            "mlp: a deformation network; polynomial: a cubic each; none: nothing moves."
        ),
    ] = "tree",
    steps: Annotated[
        int | None, typer.Option(help="[default: 2500, or 30000 with --full]", min=1)
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The schedule for a GPU and large pictures.")
    ] = False,
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    background: BackgroundOption = "white",
    downscale: DownscaleOption = 1,
    convention: ConventionOption = None,
    points: PointsOption = None,
    size: SizeOption = 128,
    views: ViewsOption = 96,
    clip: ClipOption = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another field of TrainConfig (treesplat/config.py tells them): field_lr=0.001.",
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 500,
    resume: Annotated[
        bool,
        typer.Option("--resume/--fresh", help="Go on where a training was stopped, or begin anew."),
    ] = True,
) -> None:
    """Train a model, or go on with a training.

    Checkpoints lie in FILE.training until the model is written; with one, the same command goes
    on with a training that was stopped.
    """
    import shutil

    from assay.papers.treesplat.metrics import evaluate
    from assay.papers.treesplat.trainer import Trainer, training_device

    _check_out(out, ".safetensors")
    config = _config(full, steps, {"motion": motion, "seed": seed, "backend": backend}, options)
    folder = out.with_name(f"{out.name}.training")
    checkpoint = folder / "checkpoint.pt"
    if resume and out.exists() and not checkpoint.exists():
        raise ValueError(f"out: {out} is there already; wants another name, or --fresh")
    trainer = Trainer(config)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
        try:
            if Path(source).is_dir():
                if clip is not None:
                    raise ValueError("clip: wants a .glb or .gltf")
                capture = _load_capture(Path(source), background, downscale, convention, points)
            else:
                _refuse_without("a capture's folder", convention=convention, points=points)
                capture = _filmed(source, background, size, views, seed, clip)
            typer.echo(
                f"{motion} on {source}: {_count(len(capture.train), 'training picture')}, "
                f"{_count(config.steps, 'step')}"
            )
            if training_device(backend).type == "cpu":
                typer.echo("the first step compiles the rasteriser, unless that was done before")
            if not resume and folder.exists():
                shutil.rmtree(folder)
            model = trainer.fit(capture, folder, every, _Progress(config.steps))
        except (FloatingPointError, RuntimeError) as error:
            typer.echo(f"assay: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_where_it_goes_on(trainer, checkpoint)) from None
        finally:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
    model.save(out)
    shutil.rmtree(folder)
    typer.echo(f"{out}: {_describe(model)}, {out.stat().st_size / 1e6:.2f} MB")
    if not len(capture.test):
        return
    try:
        found = evaluate(model, capture.test, backend)
    except (OSError, RuntimeError, ValueError) as error:
        typer.echo(f"assay: the model is written, its evaluation failed: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(
        f"{_count(len(capture.test), 'test picture')}: PSNR {found['psnr']:.2f} dB, "
        f"SSIM {found['ssim']:.4f}"
    )


@app.command()
def render(
    model: Model,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="PATH", help="A .png, a film (.gif, .mp4), or a folder."
        ),
    ],
    t: Annotated[
        float | None, typer.Option("--t", help="One instant, 0 to 1.", min=0, max=1)
    ] = None,
    n_times: Annotated[int, typer.Option(help="Pictures, evenly spaced from 0 to 1.", min=2)] = 30,
    capture: CaptureOption = None,
    frame: Annotated[
        int | None,
        typer.Option(
            help="Stay at this test camera of --capture. [default: all, at their times]", min=0
        ),
    ] = None,
    downscale: DownscaleOption = 1,
    convention: ConventionOption = None,
    points: PointsOption = None,
    size: Annotated[int, typer.Option(help="Pixels on a side, without --capture.", min=16)] = 400,
    turns: Annotated[float, typer.Option(help="Rounds about the scene, without --capture.")] = 1.0,
    elevation: Annotated[
        float, typer.Option(help="Degrees above the horizon, without --capture.", min=-89, max=89)
    ] = 20.0,
    fps: Annotated[float, typer.Option(help="Pictures a second of a film.", min=0.1, max=50)] = 20,
    background: BackgroundOption = "white",
    backend: BackendOption = "auto",
) -> None:
    """Draw a picture, a film, or a folder of pictures."""
    import torch
    from PIL import Image

    from assay.papers.treesplat import playback
    from assay.papers.treesplat.datasets.frames import BACKGROUNDS
    from assay.toolkits.checks import number

    ending = _check_out(out, ".png", ".gif", ".mp4", "")
    number("turns", turns)
    if ending == ".png" and t is None:
        raise ValueError(f"out: {out.name} is one picture, wants --t; films end in .gif or .mp4")
    if ending == ".png" and capture is not None and frame is None:
        raise ValueError(f"out: {out.name} is one picture, wants --frame for one camera")
    if capture is None:
        _refuse_without("--capture", frame=frame, convention=convention, points=points)
    loaded = _load(model, backend)
    times = [t] if t is not None else torch.linspace(0, 1, n_times).tolist()
    if capture is None:
        views: list[tuple[Tensor, Tensor, int, int, float]] = [
            (viewmat, playback.intrinsics(size, size), size, size, when)
            for viewmat, when in zip(
                playback.orbit(loaded, len(times), turns, elevation), times, strict=True
            )
        ]
    else:
        held_out = _test_cameras(capture, background, downscale, convention, points).frames
        if frame is not None and frame >= len(held_out):
            raise ValueError(f"frame: got {frame}, and {capture} has {len(held_out)} test frames")
        if frame is None:
            chosen = [(one, one.time if t is None else t) for one in held_out]
        else:
            chosen = [(held_out[frame], when) for when in times]
        views = [(one.viewmat, one.K, one.width, one.height, when) for one, when in chosen]
    behind = torch.tensor(BACKGROUNDS[background])
    pictures = (playback.draw(loaded, *view, behind, backend) for view in views)
    if ending == ".png":
        Image.fromarray(next(pictures)).save(out)
        typer.echo(str(out))
        return
    if ending:
        playback.write_film(out, pictures, fps)
    else:
        out.mkdir(parents=True, exist_ok=True)
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(out / f"{i:04d}.png")
    typer.echo(f"{out}: {_count(len(views), 'picture')}")


@app.command()
def export(
    model: Model,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="PATH", help="File to write; --sequence: a folder."),
    ],
    t: Annotated[
        float | None, typer.Option("--t", help="One instant, 0 to 1, as .ply.", min=0, max=1)
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(metavar="N", help="N instants from 0 to 1, a .ply each.", min=1),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="The whole motion without its tree, as .safetensors.")
    ] = False,
) -> None:
    """Write .ply files of 3DGS, or a merged model."""
    if (t is not None) + (sequence is not None) + merge != 1:
        raise ValueError("export: wants exactly one of --t, --sequence and --merge")
    import torch

    _check_out(out, ".safetensors" if merge else ".ply" if t is not None else "")
    if out.exists() and out.samefile(model):
        raise ValueError(f"out: got {out}, the model itself, wants another name")
    loaded = _load(model)
    if merge:
        if loaded.motion.kind == "merged":
            raise ValueError(f"merge: {model} is merged already")
        try:
            merged = loaded.merge()
        except TypeError as error:
            raise ValueError(str(error)) from error
        merged.save(out)
        before, after = model.stat().st_size, out.stat().st_size
        typer.echo(f"{out}: {_describe(merged)}, {after / 1e6:.2f} MB of {before / 1e6:.2f}")
    elif t is not None:
        loaded.export_ply(out, t)
        typer.echo(f"{out}: {_count(loaded.n, 'Gaussian')} at t = {t:g}")
    else:
        files = loaded.export_sequence(out, torch.linspace(0, 1, sequence).tolist())
        typer.echo(f"{out}: {_count(len(files), 'file')} of {_count(loaded.n, 'Gaussian')}")


@app.command()
def view(
    model: Model,
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8080,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    height: Annotated[int, typer.Option(help="Resolution at first.", min=64, max=1080)] = 400,
    capture: CaptureOption = None,
    downscale: DownscaleOption = 1,
    convention: ConventionOption = None,
    points: PointsOption = None,
    background: BackgroundOption = "white",
    backend: BackendOption = "auto",
) -> None:
    """Look at a model in the web browser. Ctrl-C ends it."""
    from assay.papers.treesplat.datasets.frames import BACKGROUNDS
    from assay.papers.treesplat.viewer import Viewer

    if capture is None:
        _refuse_without("--capture", convention=convention, points=points)
        first, up = None, (0.0, 0.0, 1.0)
    else:
        viewmats = _test_cameras(capture, background, downscale, convention, points).viewmats
        first, up = viewmats[0], tuple((-viewmats[:, 1, :3].mean(0)).tolist())
    loaded = _load(model, backend)
    with Viewer(
        loaded, port, host, BACKGROUNDS[background], height, backend, model.name, up, first
    ) as viewer:
        typer.echo(f"{model.name}: {_describe(loaded)}; {viewer.url}")
        viewer.wait()


class _Progress:
    """A line for the first step, and for about each twenty-fifth of them."""

    def __init__(self, steps: int) -> None:
        self._steps, self._every = steps, max(1, steps // 25)
        self._began, self._at, self._before = time.monotonic(), 0.0, -1

    def __call__(self, trainer: Trainer) -> None:
        step, now = trainer.step, time.monotonic()
        if self._before < 0:  # what is compiled in the first step says nothing of the pace
            self._at, self._before = now, step
            typer.echo(f"step {step:>6}/{self._steps}  after {now - self._began:.1f} s")
            return
        if step % self._every and step != self._steps:
            return
        pace = (now - self._at) / (step - self._before)
        self._at, self._before = now, step
        recent = trainer.history.losses[-self._every :]
        loss = sum(recent) / len(recent) if recent else float("nan")
        n = trainer.model.n if trainer.model else 0
        nodes = ""
        if trainer.history.growth and trainer.history.growth[-1]["nodes"]:
            last = trainer.history.growth[-1]
            nodes = f"  {last['nodes']:>7} nodes, {last['depth']} deep"
        left = round(pace * (self._steps - step))
        typer.echo(
            f"step {step:>6}/{self._steps}  loss {loss:.4f}  {n:>7} Gaussians{nodes}  "
            f"{1e3 * pace:6.1f} ms a step, {left // 60}:{left % 60:02} left"
        )


def _where_it_goes_on(trainer: Trainer, checkpoint: Path) -> str:
    import torch

    if not checkpoint.exists():
        return "nothing is saved yet, the same command begins anew"
    saved = torch.load(checkpoint, map_location="cpu", weights_only=True)["step"]
    at = f"at step {trainer.step}: " if trainer.step else ""
    return f"{at}the same command, without --fresh, goes on from step {saved}"


def _config(
    full: bool, steps: int | None, chosen: dict[str, Any], options: list[str] | None
) -> TrainConfig:
    from dataclasses import fields

    import torch

    from assay.papers.treesplat.config import TrainConfig
    from assay.papers.treesplat.tree_splat import TreeSplat

    names = {one.name for one in fields(TrainConfig)}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"--set: got {text!r}, wants NAME=VALUE with a field of TrainConfig")
        if name in (*chosen, "steps"):
            raise ValueError(f"--set: got {text!r}, wants it as --{name}")
        try:
            chosen[name] = parse_json(value)
        except ValueError:
            chosen[name] = value
    try:
        if not full:
            config = TrainConfig.short(2_500 if steps is None else steps, **chosen)
        else:
            config = TrainConfig(**chosen) if steps is None else TrainConfig(steps=steps, **chosen)
        # Options of a motion are known to its class alone.
        TreeSplat.from_points(torch.eye(3), motion=config.motion, **config.motion_options)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return config


def _filmed(
    source: str, background: str, size: int, views: int, seed: int, clip: str | None
) -> Capture:
    from assay.papers.treesplat.scenes import CapsuleBody, catalogue, load_gltf, render_capture

    scene: AnimatedMesh
    if clip is not None and not source.endswith((".glb", ".gltf")):
        raise ValueError(f"clip: {source} has none to choose from, wants a .glb or .gltf")
    if source in catalogue.NAMES:
        scene = catalogue.load(source)
    elif source.endswith(".bvh"):
        scene = CapsuleBody.from_bvh(source)
    elif source.endswith((".glb", ".gltf")):
        scene = load_gltf(source, clip)
    else:
        raise ValueError(
            f"source: {source} is no .glb, .gltf or .bvh, and none of the scenes: "
            f"{', '.join(catalogue.NAMES)}"
        )
    typer.echo(f"filming {source} ...")
    return render_capture(scene, size, n_train=views, seed=seed, background=background)


def _load_capture(
    path: Path, background: str, downscale: int, convention: str | None, points: Path | None
) -> Capture:
    from assay.papers.treesplat.datasets import load_capture

    return load_capture(
        path, background=background, downscale=downscale, convention=convention, points=points
    )


def _test_cameras(
    path: Path, background: str, downscale: int, convention: str | None, points: Path | None
) -> DynamicDataset:
    held_out = _load_capture(path, background, downscale, convention, points).test
    if not len(held_out):
        raise ValueError(f"capture: {path} has no test cameras")
    return held_out


def _refuse_without(wanted: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}: wants {wanted}, which is not there")


def _load(path: Path, backend: str = "cpu") -> TreeSplat:
    from assay.papers.treesplat.trainer import training_device
    from assay.papers.treesplat.tree_splat import TreeSplat

    return TreeSplat.load(path).to(training_device(backend))


def _describe(model: TreeSplat) -> str:
    from assay.papers.treesplat.viewer import describe

    return describe(model)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _check_out(path: Path, *endings: str) -> str:
    """The ending of an output, "" for a folder, before minutes of work.

    Raises ValueError where it is none of `endings`, or could not be written.
    """
    ending = path.suffix.lower()
    if ending not in endings:
        wanted = " or ".join(
            f"a name that ends in {one}" if one else "the name of a folder, without an ending"
            for one in endings
        )
        raise ValueError(f"out: got {path.name}, wants {wanted}")
    if ending and path.is_dir():
        raise ValueError(f"out: {path} is a folder, wants the name of a file")
    if not ending and path.exists() and not path.is_dir():
        raise ValueError(f"out: {path} is a file, wants the name of a folder")
    if ending and not path.absolute().parent.is_dir():
        raise ValueError(f"out: there is no folder {path.parent}")
    return ending
