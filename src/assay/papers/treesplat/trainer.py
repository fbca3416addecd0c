"""Training of a `TreeSplat` on a capture: one loop for every motion, resumable to the bit."""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.papers.treesplat.checks import check_cameras
from assay.papers.treesplat.config import TrainConfig
from assay.papers.treesplat.datasets.frames import Capture
from assay.papers.treesplat.gsplat_backend import choose
from assay.papers.treesplat.losses import photometric_loss
from assay.papers.treesplat.metrics import evaluate
from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.strategy import TreeStrategy
from assay.papers.treesplat.tree_splat import TreeSplat
from assay.toolkits.checks import number, whole
from assay.toolkits.files import write_bytes

if TYPE_CHECKING:
    from assay.papers.treesplat.datasets import DynamicDataset

KEPT_BYTES = 2 * 2**30
"""Most bytes of composited targets that stay on the training device."""
CHECK_EVERY = 100
"""Steps between looks at the loss where a look stalls the device."""


@dataclass
class History:
    """The course of a training.

    Attributes:
        losses: Of each step.
        evaluations: For each, a dictionary with ``step``, ``psnr``, ``ssim``, ``psnr_foreground``.
        growth: For each growth, a dictionary with ``step``, ``n`` (Gaussians afterwards),
            ``nodes`` and ``depth`` (of the tree; None for other motions) and ``promotion``.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """Fits a model to a capture.

    Args:
        config: The schedule.

    Raises:
        TypeError: `config` is no `TrainConfig`.

    Attributes:
        model: What is trained; None before `fit`.
        step: Steps done.
        history: Of the last `fit`.
    """

    def __init__(self, config: TrainConfig | None = None) -> None:
        if not isinstance(config, TrainConfig | None):
            raise TypeError(f"config: got {type(config).__name__}, wants a TrainConfig or None")
        self.config = TrainConfig() if config is None else config
        self.model: TreeSplat | None = None
        self.step = 0
        self.history = History()

    def fit(
        self,
        capture: Capture,
        checkpoint: str | Path | None = None,
        every: int = 500,
        progress: Callable[[Trainer], None] | None = None,
    ) -> TreeSplat:
        """Trains, or goes on where a checkpoint was left.

        The same configuration, capture and number of threads give the same bits on a CPU, however
        often the training was stopped in between. The state of torch's own generators is left as
        it was found.

        Args:
            capture: Splits, initial points and extent of a scene.
            checkpoint: A folder for ``checkpoint.pt``, made where it is missing; where it holds
                one, training goes on from there. None for no checkpoints.
            every: Steps between checkpoints.
            progress: Called after every step; `step`, `model` and `history` tell how it goes.

        Returns:
            The model.

        Raises:
            TypeError: For something else than a capture.
            ValueError: For a capture without training frames, or with cameras that are none; for
                a checkpoint that is damaged or of another configuration or capture.
            FloatingPointError: Where the loss or the model is no longer finite; names the step.
                The last checkpoint is from before it.
            RuntimeError: Where all Gaussians were pruned, or none was in sight of any training
                frame for as many steps as there are frames.
            OSError: Where files cannot be read or written.
        """
        whole("every", every)
        if not isinstance(capture, Capture):
            raise TypeError(f"capture: got {type(capture).__name__}, wants a Capture")
        if not len(capture.train):
            raise ValueError("capture: got no training frames, wants at least one")
        config = _for_capture(self.config, capture)
        device = training_device(config.backend)
        path = None if checkpoint is None else Path(checkpoint) / "checkpoint.pt"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with _own_generators(config.seed, device):
            run = _Run(config, capture, device)
            if path is not None and path.exists():
                run.load(path, self.config)
            self.model, self.history, self.step = run.model, run.history, run.step
            while run.step < config.steps:
                run.advance()
                self.step = run.step
                if path is not None and (run.step % every == 0 or run.step == config.steps):
                    run.save(path, self.config)
                if progress is not None:
                    progress(self)
        return run.model


class _Run:
    """A training under way: all of its state, and how it takes a step."""

    def __init__(self, config: TrainConfig, capture: Capture, device: torch.device) -> None:
        self.config, self.capture, self.device = config, capture, device
        self.extent = capture.extent
        self.step = 0
        self.history = History()
        self.targets = _Targets(capture.train, device)
        self.viewmats = capture.train.viewmats.to(device, torch.float32)
        self.Ks = capture.train.Ks.to(device, torch.float32)
        check_cameras(self.viewmats, self.Ks)
        self.background = capture.background.to(device, torch.float32)
        self.held_out = capture.val if len(capture.val) else capture.test
        self.model = _initial_model(config, capture).to(device)
        self.strategy = TreeStrategy(
            prune_opa=config.prune_opacity,
            grow_grad2d=config.grow_grad2d,
            grow_scale3d=config.grow_scale3d,
            prune_scale3d=config.prune_scale3d,
            refine_start_iter=config.grow_from,
            refine_stop_iter=config.grow_until,
            refine_every=config.grow_every,
            reset_every=config.reset_every,
            promote_every=config.promote_every,
            cap_max=config.cap_max,
        )
        self.strategy_state = self.strategy.initialize_state(self.extent)
        self.gain = self._path_gain()
        self._pending: list[Tensor] = []
        self._blind = torch.zeros((), dtype=torch.int64, device=device)
        self._make_optimizers()

    def _make_optimizers(self) -> None:
        self.params = self.model.params
        self.optimizers = {name: _adam([value]) for name, value in self.params.items()}
        shared = self.model.shared_parameters()
        self.shared = _adam(shared) if shared else None

    def _every_optimizer(self) -> Iterator[tuple[str, torch.optim.Adam]]:
        yield from self.optimizers.items()
        if self.shared is not None:
            yield "shared", self.shared

    def _rate(self, name: str, done: float) -> float:
        """The rate of a parameter when a share `done` of the steps is."""
        config = self.config
        if name == "means":
            return self.extent * _decayed(config.means_lr, config.means_lr_final, done)
        if name == "shared":
            return _decayed(config.basis_lr, config.basis_lr_final, done)
        if name in _RATES:
            return float(getattr(config, _RATES[name]))
        if name.endswith("_quat"):
            return config.field_quat_lr / self.gain
        return config.field_lr * self.extent / self.gain

    def advance(self) -> None:
        """One step."""
        config, step = self.config, self.step
        i = _order(config.seed, step // len(self.targets), len(self.targets))[
            step % len(self.targets)
        ]
        frame = self.capture.train.frames[i]
        target, background = self._target(i)
        try:
            image, _, info = self.model.render(
                self.viewmats[i : i + 1],
                self.Ks[i : i + 1],
                frame.width,
                frame.height,
                frame.time if step >= config.static_steps else None,
                backend=config.backend,
                background=background,
                sh_degree=min(step // config.sh_every, config.sh_degree),
            )
        except ValueError as bad:  # cameras were looked at before
            raise FloatingPointError(f"step {step}: {bad}; lower the learning rates") from bad
        self._look(info["radii"])
        hooks = (self.params, self.optimizers, self.strategy_state, step, info)
        self.strategy.step_pre_backward(*hooks)
        loss = photometric_loss(
            image[0], target, config.l2_weight, config.l1_weight, config.ssim_weight
        )
        loss.backward()
        self._pending.append(loss.detach())
        last = step + 1 == config.steps
        if self.device.type == "cpu" or len(self._pending) == CHECK_EVERY or last:
            self._read_losses()
        self._set_rates()
        for _, optimizer in self._every_optimizer():
            optimizer.step()
        self.model.zero_grad()
        self.strategy.step_post_backward(*hooks)
        self.step += 1
        self._after_growth(step)
        if config.eval_every and self.step % config.eval_every == 0:
            self._evaluate()

    def _look(self, radii: Tensor) -> None:
        """Stops where for a whole round of frames there was nothing to be seen, nor learned."""
        self._blind = (self._blind + 1) * ~radii.any()
        frames = len(self.targets)
        if (self.step + 1) % frames == 0 and self._blind >= frames:
            raise RuntimeError(
                f"step {self.step}: no Gaussian was in sight of any of the {frames} training "
                "frames; most likely the points or bounds of the capture do not fit its poses, "
                "or the learning rates are too high"
            )

    def save(self, path: Path, given: TrainConfig) -> None:
        """Writes a checkpoint, as a whole or not at all; losses that are not finite stop it."""
        if self._pending:
            self._read_losses()
        state = {
            "config": asdict(given),
            "capture": self.fingerprint,
            "step": self.step,
            "gain": self.gain,
            "model": self.model.state_dict(),
            "optimizers": {name: one.state_dict() for name, one in self._every_optimizer()},
            "strategy": self.strategy_state,
            "history": asdict(self.history),
            "generators": self._generators(),
        }
        content = io.BytesIO()
        torch.save(state, content)
        write_bytes(path, content.getvalue())

    def load(self, path: Path, given: TrainConfig) -> None:
        """Goes to where a checkpoint was written."""
        with _reading(path):
            state = torch.load(path, map_location=self.device, weights_only=True)
            theirs, capture = dict(state["config"]), state["capture"]
        for name, value in asdict(given).items():
            if theirs.get(name) != value:
                raise ValueError(
                    f"{name}: got {value!r}, but {path} is of a training with "
                    f"{theirs.get(name)!r}; give it another folder"
                )
        if capture != self.fingerprint:
            raise ValueError(f"{path}: of a training on another capture; give it another folder")
        with _reading(path):
            self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        if isinstance(self.model.motion, MotionTree):
            self.model.motion.check()
        self._make_optimizers()
        for name, optimizer in self._every_optimizer():
            optimizer.load_state_dict(state["optimizers"][name])
            for parameter, moments in optimizer.state.items():
                if moments["exp_avg"].shape != parameter.shape:
                    raise ValueError(f"moments of {name} that do not fit")
        if state["strategy"].keys() != self.strategy_state.keys():
            raise ValueError("statistics of another strategy")
        self.strategy_state = state["strategy"]
        self.step = whole("step", state["step"], 0)
        self.gain = number("gain", state["gain"], above=0.0)
        self.history = History(**state["history"])
        if self.step > self.config.steps or len(self.history.losses) != self.step:
            raise ValueError(f"step {self.step} of {self.config.steps}, or losses of others")
        torch.set_rng_state(state["generators"]["cpu"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["generators"]["cuda"].cpu(), self.device)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.capture)

    def _generators(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def _target(self, i: int) -> tuple[Tensor, Tensor]:
        """The picture that is wanted of a frame (H, W, 3), and the colour (3,) behind it."""
        image, alpha = self.targets[i]
        if not self.config.random_background:
            return image, self.background
        if alpha is None:
            name = self.capture.train.frames[i].name
            raise ValueError(f"random_background: frame {name} has no alpha, wants one")
        background = torch.rand(3, device=self.device)
        return image + (1 - alpha[..., None]) * (background - self.background), background

    def _set_rates(self) -> None:
        config = self.config
        done = self.step / config.steps
        for name, optimizer in self._every_optimizer():
            optimizer.param_groups[0]["lr"] = self._rate(name, done)

    def _read_losses(self) -> None:
        """Moves losses to the history, and stops where one is not finite."""
        losses = torch.stack(self._pending).tolist()
        self._pending.clear()
        self.history.losses += losses
        for step, loss in enumerate(losses, len(self.history.losses) - len(losses)):
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"loss: {loss} at step {step}; lower rates, or look at the poses of the capture"
                )

    def _after_growth(self, step: int) -> None:
        config, motion = self.config, self.model.motion
        if step % config.grow_every:
            return
        tree = motion if isinstance(motion, MotionTree) else None
        if config.grow_from < step < config.grow_until:
            self.history.growth.append(
                {
                    "step": self.step,
                    "n": self.model.n,
                    "nodes": None if tree is None else tree.n_nodes,
                    "depth": None if tree is None else tree.depth(),
                    "promotion": self.strategy.promotes(step),
                }
            )
        self.gain = self._path_gain()

    def _path_gain(self) -> float:
        motion = self.model.motion
        if self.config.scale_field_rate and isinstance(motion, MotionTree):
            return motion.path_gain()
        return 1.0

    def _evaluate(self) -> None:
        found = evaluate(self.model, self.held_out, self.config.backend)
        del found["frames"]
        self.history.evaluations.append({"step": self.step, **found})


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a damaged or foreign file leads to becomes one error that names it."""
    try:
        yield
    except pickle.PickleError as bad:  # whose own text tells how to run what is in the file
        raise ValueError(f"{path}: no checkpoint of a training, but some other pickle") from bad
    except (AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError) as bad:
        raise ValueError(f"{path}: no checkpoint of a training, or damaged ({bad})") from bad
    except (ArithmeticError, AssertionError) as bad:
        raise ValueError(f"{path}: no checkpoint of a training, or damaged ({bad})") from bad


_RATES = {
    "quats": "quats_lr",
    "scales": "scales_lr",
    "opacities": "opacities_lr",
    "sh0": "sh0_lr",
    "shN": "sh_rest_lr",
    "beta_logit": "beta_lr",
}


def _adam(parameters: list[nn.Parameter]) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, eps=1e-15, fused=True)


def _decayed(rate: float, final: float, done: float) -> float:
    return rate * (final / rate) ** done if rate else 0.0


class _Targets:
    """Training pictures on the device, composited once for as long as there is room."""

    def __init__(self, dataset: DynamicDataset, device: torch.device) -> None:
        self._dataset, self._device = dataset, device
        self._kept: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._room = KEPT_BYTES

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor | None]:
        if i in self._kept:
            return self._kept[i]
        alpha = self._dataset.alpha(i)
        image = self._dataset.image(i).to(self._device)
        found = image, None if alpha is None else alpha.to(self._device)
        self._room -= 4 * image.numel() * 4 // 3
        if self._room >= 0:
            self._kept[i] = found
        return found


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, n: int) -> list[int]:
    """The order of frames in one round; it can be told without those before it."""
    return np.random.default_rng([seed, epoch]).permutation(n).tolist()


@contextmanager
def _own_generators(seed: int, device: torch.device) -> Iterator[None]:
    """torch's generators as of `seed`; those of the caller are put back."""
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def training_device(backend: str) -> torch.device:
    """Where a backend trains: the GPU where gsplat runs on one, else the CPU.

    Args:
        backend: Of `rasterize`.

    Raises:
        RuntimeError: For backend="gsplat" where it cannot run.
    """
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    if backend == "auto" and not torch.cuda.is_available():
        return cpu
    return cuda if choose(backend, cuda, torch.float32) == "gsplat" else cpu


def _for_capture(config: TrainConfig, capture: Capture) -> TrainConfig:
    """The configuration with what this capture rules out, which is told."""
    if capture.points is None and not capture.synthetic:
        warnings.warn(
            "capture: has no points to start from, and random ones seldom find a filmed scene; "
            "put COLMAP's points3D.ply, .bin or .txt into its folder, or pass points=",
            stacklevel=3,
        )
    if config.eval_every and not len(capture.val) and not len(capture.test):
        warnings.warn("eval_every: the capture holds out no frames to evaluate on", stacklevel=3)
        config = replace(config, eval_every=0)
    if config.motion != "none" and capture.still:
        warnings.warn(
            "capture: all training frames share one time; trained without motion", stacklevel=3
        )
        config = replace(config, motion="none", motion_options={})
    return config


def _initial_model(config: TrainConfig, capture: Capture) -> TreeSplat:
    points, colors = capture.points, capture.point_colors
    most = min(config.n_points, config.cap_max)
    if points is None:
        lower, upper = capture.bounds.float()
        points, colors = lower + torch.rand(most, 3) * (upper - lower), None
    elif colors is not None and len(colors) != len(points):
        raise ValueError(f"point_colors: got {len(colors)}, wants {len(points)} as points")
    elif len(points) > most:
        chosen = torch.randperm(len(points))[:most]
        points, colors = points[chosen], None if colors is None else colors[chosen]
    return TreeSplat.from_points(
        points, colors, motion=config.motion, sh_degree=config.sh_degree, **config.motion_options
    )


def fingerprint(capture: Capture) -> str:
    """A short name of what a capture trains on: cameras, times, points and all pictures.

    Args:
        capture: Each of its training pictures is read.
    """
    parts: list[Any] = [capture.points, capture.point_colors, capture.bounds, capture.background]
    parts += [capture.train.viewmats, capture.train.Ks, capture.train.times]
    parts += [torch.tensor([(f.width, f.height) for f in capture.train.frames])]
    content = hashlib.sha256()
    for part in parts:
        content.update(b"none" if part is None else part.cpu().contiguous().numpy().tobytes())
    for i in range(len(capture.train)):
        content.update(capture.train.pixels(i).data)
    return content.hexdigest()[:16]
