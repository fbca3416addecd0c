"""`assay treesplat`: train a moving scene, draw it, export it, look at it."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from assay.papers.treesplat.config import TrainConfig
    from assay.papers.treesplat.datasets import Capture
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

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="As `train` writes it.", exists=True, dir_okay=False)
]
BackendOption = Annotated[Backend, typer.Option(help="What draws.")]
BackgroundOption = Annotated[Background, typer.Option(help="Behind the scene.")]
SeedOption = Annotated[int, typer.Option(help="Of everything.", min=0)]
SizeOption = Annotated[int, typer.Option(help="Of a filmed scene's pictures, in pixels.", min=16)]
ViewsOption = Annotated[int, typer.Option(help="Training pictures of a filmed scene.", min=2)]
ClipOption = Annotated[
    str | None, typer.Option(help="Of a .glb with several. [default: the first]")
]
CaptureOption = Annotated[
    Path | None,
    typer.Option("--capture", metavar="DIR", help="A capture whose test cameras are taken."),
]


@app.command()
def scenes() -> None:
    """Names of scenes that `train` films itself."""
    from assay.papers.treesplat.scenes import catalogue

    for name in catalogue.NAMES:
        typer.echo(name)


@app.command()
def film(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="An animated .glb or .gltf, a .bvh body, or one of `scenes`."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Of the data set.")],
    size: SizeOption = 128,
    views: ViewsOption = 96,
    clip: ClipOption = None,
    seed: SeedOption = 0,
) -> None:
    """Ray-cast an animated scene into a data set, in the layout of D-NeRF."""
    from assay.papers.treesplat.datasets import save_capture

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
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model's file.")],
    motion: Annotated[Motion, typer.Option(help="What moves the Gaussians.")] = "tree",
    steps: Annotated[
        int | None, typer.Option(help="[default: 2500, or 30000 with --full]", min=1)
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The schedule for a GPU and large pictures.")
    ] = False,
    seed: SeedOption = 0,
    backend: BackendOption = "auto",
    background: BackgroundOption = "white",
    downscale: Annotated[int, typer.Option(help="Of a capture's pictures.", min=1)] = 1,
    size: SizeOption = 128,
    views: ViewsOption = 96,
    clip: ClipOption = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any field of TrainConfig: field_lr=0.001."
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 500,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on with a training that was stopped.")
    ] = True,
) -> None:
    """Train a model; the same command goes on with a training that was stopped.

    Checkpoints lie in FILE.training until the model is written.
    """
    import shutil

    from assay.papers.treesplat.metrics import evaluate
    from assay.papers.treesplat.trainer import Trainer

    _check_out(out, ".safetensors")
    config = _config(full, steps, {"motion": motion, "seed": seed, "backend": backend}, options)
    folder = out.with_name(f"{out.name}.training")
    if not resume and folder.exists():
        shutil.rmtree(folder)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
        if Path(source).is_dir():
            capture = _load_capture(Path(source), background, downscale)
        else:
            capture = _filmed(source, background, size, views, seed, clip)
        typer.echo(
            f"{motion} on {source}: {len(capture.train)} training pictures, {config.steps} steps"
        )
        trainer = Trainer(config)
        try:
            model = trainer.fit(capture, folder, every, _Progress(config.steps))
        except (FloatingPointError, RuntimeError) as error:
            typer.echo(f"assay: {error}", err=True)
            raise typer.Exit(1) from error
    if len(capture.test):
        found = evaluate(model, capture.test, backend)
        typer.echo(
            f"{len(capture.test)} test pictures: PSNR {found['psnr']:.2f} dB, "
            f"SSIM {found['ssim']:.4f}"
        )
    model.save(out)
    shutil.rmtree(folder)
    typer.echo(f"{out}: {_describe(model)}, {out.stat().st_size / 1e6:.2f} MB")


@app.command()
def render(
    model: Model,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="PATH", help="A .png, a .gif, an .mp4, or a folder."),
    ],
    t: Annotated[float | None, typer.Option("--t", help="One instant.", min=0, max=1)] = None,
    n_times: Annotated[int, typer.Option(help="Pictures, evenly spaced from 0 to 1.", min=2)] = 30,
    capture: CaptureOption = None,
    frame: Annotated[
        int | None,
        typer.Option(help="Stay at this test camera. [default: all, at their times]", min=0),
    ] = None,
    size: Annotated[int, typer.Option(help="Of pictures without --capture.", min=16)] = 400,
    turns: Annotated[float, typer.Option(help="Rounds about the scene, without --capture.")] = 1.0,
    elevation: Annotated[
        float, typer.Option(help="Degrees above the horizon.", min=-89, max=89)
    ] = 20.0,
    fps: Annotated[float, typer.Option(help="Of a film.", min=0.1, max=50)] = 20.0,
    background: BackgroundOption = "white",
    backend: BackendOption = "auto",
) -> None:
    """Draw a model: one picture, a film, or a folder of pictures."""
    import torch
    from PIL import Image

    from assay.papers.treesplat import playback
    from assay.papers.treesplat.datasets.frames import BACKGROUNDS

    loaded = _load(model, backend)
    times = [t] if t is not None else torch.linspace(0, 1, n_times).tolist()
    if out.suffix == ".png" and len(times) > 1:
        raise ValueError(f"out: {out.name} is one picture, wants --t; films end in .gif or .mp4")
    if capture is None:
        views: list[tuple[Tensor, Tensor, int, int, float]] = [
            (viewmat, playback.intrinsics(size, size), size, size, when)
            for viewmat, when in zip(
                playback.orbit(loaded, len(times), turns, elevation), times, strict=True
            )
        ]
    else:
        held_out = _load_capture(capture, background).test.frames
        if frame is not None and frame >= len(held_out):
            raise ValueError(f"frame: got {frame}, and {capture} has {len(held_out)} test frames")
        if frame is None:
            chosen = [(one, one.time if t is None else t) for one in held_out]
        else:
            chosen = [(held_out[frame], when) for when in times]
        views = [(one.viewmat, one.K, one.width, one.height, when) for one, when in chosen]
    behind = torch.tensor(BACKGROUNDS[background])
    pictures = (playback.draw(loaded, *view, behind, backend) for view in views)
    if out.suffix in (".gif", ".mp4"):
        count = playback.write_film(out, pictures, fps)
        typer.echo(f"{out}: {count} pictures")
    elif out.suffix == ".png":
        Image.fromarray(next(pictures)).save(out)
        typer.echo(str(out))
    else:
        out.mkdir(parents=True, exist_ok=True)
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(out / f"{i:04d}.png")
        typer.echo(f"{out}: {len(views)} pictures")


@app.command()
def export(
    model: Model,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="PATH", help="A file, or a folder (--sequence).")
    ],
    t: Annotated[
        float | None, typer.Option("--t", help="One instant, as .ply.", min=0, max=1)
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(metavar="N", help="N instants from 0 to 1, a .ply each.", min=1),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="The whole motion without its tree, as .safetensors.")
    ] = False,
) -> None:
    """Write a model for other programs: .ply files of 3D Gaussian splatting, or a merged model."""
    if (t is not None) + (sequence is not None) + merge != 1:
        raise ValueError("export: wants exactly one of --t, --sequence and --merge")
    import torch

    loaded = _load(model)
    if merge:
        _check_out(out, ".safetensors")
        merged = loaded.merge()
        merged.save(out)
        before, after = model.stat().st_size, out.stat().st_size
        typer.echo(f"{out}: {_describe(merged)}, {after / 1e6:.2f} MB of {before / 1e6:.2f}")
    elif t is not None:
        _check_out(out, ".ply")
        loaded.export_ply(out, t)
        typer.echo(f"{out}: {loaded.n} Gaussians at t = {t:g}")
    else:
        loaded.export_sequence(out, torch.linspace(0, 1, sequence).tolist())
        typer.echo(f"{out}: {sequence} files of {loaded.n} Gaussians")


@app.command()
def view(
    model: Model,
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8080,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    height: Annotated[int, typer.Option(help="Rows of pixels at first.", min=64, max=1080)] = 400,
    capture: CaptureOption = None,
    background: BackgroundOption = "white",
    backend: BackendOption = "auto",
) -> None:
    """Look at a model in the web browser, with a slider for time. Ctrl-C ends it."""
    from assay.papers.treesplat.datasets.frames import BACKGROUNDS
    from assay.papers.treesplat.viewer import Viewer

    loaded = _load(model, backend)
    held_out = None if capture is None else _load_capture(capture, background).test
    first = held_out.viewmats[0] if held_out else None
    up = (-held_out.viewmats[:, 1, :3].mean(0)).tolist() if held_out else (0.0, 0.0, 1.0)
    with Viewer(
        loaded, port, host, BACKGROUNDS[background], height, backend, model.name, up, first
    ) as viewer:
        typer.echo(f"{model.name}: {_describe(loaded)}; {viewer.url}")
        viewer.wait()


class _Progress:
    """A line for about each twenty-fifth of the steps."""

    def __init__(self, steps: int) -> None:
        self._steps, self._every = steps, max(1, steps // 25)
        self._at, self._before = time.monotonic(), 0

    def __call__(self, trainer: Trainer) -> None:
        if not self._before:
            self._before = trainer.step - 1  # of a training that goes on
        if trainer.step % self._every and trainer.step != self._steps:
            return
        now = time.monotonic()
        pace = (now - self._at) / max(trainer.step - self._before, 1)
        self._at, self._before = now, trainer.step
        recent = trainer.history.losses[-self._every :]
        loss = sum(recent) / len(recent) if recent else float("nan")
        n = trainer.model.n if trainer.model else 0
        nodes = ""
        if trainer.history.growth and trainer.history.growth[-1]["nodes"]:
            last = trainer.history.growth[-1]
            nodes = f"  {last['nodes']:>7} nodes, {last['depth']} deep"
        typer.echo(
            f"step {trainer.step:>6}/{self._steps}  loss {loss:.4f}  {n:>7} Gaussians{nodes}  "
            f"{1e3 * pace:6.1f} ms a step"
        )


def _config(
    full: bool, steps: int | None, chosen: dict[str, Any], options: list[str] | None
) -> TrainConfig:
    from dataclasses import fields

    from assay.papers.treesplat.config import TrainConfig

    names = {one.name for one in fields(TrainConfig)}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"--set: got {text!r}, wants NAME=VALUE with a field of TrainConfig")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = value
    if not full:
        return TrainConfig.short(2_500 if steps is None else steps, **chosen)
    return TrainConfig(**chosen) if steps is None else TrainConfig(steps=steps, **chosen)


def _filmed(
    source: str, background: str, size: int, views: int, seed: int, clip: str | None
) -> Capture:
    from assay.papers.treesplat.scenes import CapsuleBody, catalogue, load_gltf, render_capture

    scene: AnimatedMesh
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
    return render_capture(scene, size, n_train=views, seed=seed, background=background)


def _load_capture(path: Path, background: str, downscale: int = 1) -> Capture:
    from assay.papers.treesplat.datasets import load_capture

    return load_capture(path, background=background, downscale=downscale)


def _load(path: Path, backend: str = "cpu") -> TreeSplat:
    from assay.papers.treesplat.trainer import training_device
    from assay.papers.treesplat.tree_splat import TreeSplat

    return TreeSplat.load(path).to(training_device(backend))


def _describe(model: TreeSplat) -> str:
    from assay.papers.treesplat.viewer import describe

    return describe(model)


def _check_out(path: Path, suffix: str) -> None:
    """Before minutes of work: the name ends as it must, and its folder is there."""
    if path.suffix != suffix:
        raise ValueError(f"out: got {path.name}, wants a name that ends in {suffix}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"out: there is no folder {path.parent}")
