"""The model: static Gaussians, and a motion that moves their means and turns them."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from scipy.spatial import KDTree
from torch import Tensor, nn

from assay.papers.treesplat.basis import MotionBasis, TabulatedBasis, check_time
from assay.papers.treesplat.merged_motion import MergedMotion
from assay.papers.treesplat.motion import Motion
from assay.papers.treesplat.motion_tree import MotionTree, levels_of
from assay.papers.treesplat.motions import (
    FlatMotion,
    MLPDeformation,
    PolynomialMotion,
    StaticMotion,
)
from assay.papers.treesplat.ply import write_ply
from assay.papers.treesplat.rasterizer import rasterize
from assay.toolkits.checks import number, one_of, whole
from assay.toolkits.files import parse_json, write_bytes

SPLATS = ("means", "quats", "scales", "opacities", "sh0", "shN")
SH_C0 = 0.28209479177387814
"""The constant spherical harmonic: a color is 0.5 + SH_C0 * sh0."""
FIRST_OPACITY = 0.1
_FORMAT = "assay.treesplat/1"
_RENDER_OPTIONS = (
    *("near_plane", "far_plane", "radius_clip", "eps2d", "tile_size"),
    *("rasterize_mode", "absgrad"),
)
_KINDS: dict[str, type[Motion]] = {
    cls.kind: cls
    for cls in (StaticMotion, FlatMotion, MotionTree, MLPDeformation, PolynomialMotion)
}


class TreeSplat(nn.Module):
    """Gaussians whose means and quaternions are functions of time.

    mu_i(t) = mu_i + dmu_i(t) and q_i(t) = q_i + dq_i(t), normalised by the rasterizer; scales,
    opacities and colors stand still.

    Args:
        splats: means (N, 3), quats (N, 4) as wxyz, log-scales "scales" (N, 3), logits "opacities"
            (N,), spherical harmonics "sh0" (N, 1, 3) and "shN" (N, K, 3) with K of 0, 3, 8 or 15,
            as in gsplat.
        motion: Any `Motion` of N Gaussians.
        extent: Radius of the scene in its own units; None takes it from the means.

    Attributes:
        splats: The above as a ``ParameterDict``.
        motion: The above.
        extent: The above.

    Raises:
        ValueError: Splats missing, of shapes that do not fit, or another number of them than the
            motion has.
    """

    motion: Motion

    def __init__(
        self, splats: Mapping[str, Tensor], motion: Motion, extent: float | None = None
    ) -> None:
        super().__init__()
        _check_splats(splats)
        if motion.n != len(splats["means"]):
            raise ValueError(
                f"motion: got one of {motion.n} Gaussians, wants {len(splats['means'])} as splats"
            )
        self.splats = nn.ParameterDict(
            {
                name: splats[name]
                if isinstance(splats[name], nn.Parameter)
                else nn.Parameter(splats[name].detach().clone())
                for name in SPLATS
            }
        )
        self.motion = motion
        self.extent = (
            _radius(self.splats["means"].detach())
            if extent is None
            else number("extent", extent, above=0.0)
        )

    @classmethod
    def from_points(
        cls,
        points: Tensor,
        colors: Tensor | None = None,
        motion: str = "tree",
        sh_degree: int = 3,
        n_basis: int = 10,
        max_depth: int = 8,
        extent: float | None = None,
        octaves: int = 6,
        **options: Any,
    ) -> TreeSplat:
        """A model to train: a Gaussian at each point, as large as its neighbours are far.

        Args:
            points: ``(P, 3)``, P >= 1, in scene units.
            colors: ``(P, 3)`` in [0, 1]; None is grey.
            motion: "tree", "flat", "polynomial", "mlp" or "none".
            sh_degree: Of the spherical harmonics, 0 to 3.
            n_basis: Basis functions B of "tree" and "flat".
            max_depth: Of "tree".
            extent: Radius of the scene; None takes it from the points.
            octaves: Frequencies of time in the basis of "tree" and "flat".
            **options: Of that motion; see `MotionTree`, `PolynomialMotion`, `MLPDeformation`.

        Raises:
            TypeError, ValueError: An argument outside its range, named in the message.
        """
        one_of("motion", motion, _KINDS)
        if whole("sh_degree", sh_degree, 0) > 3:
            raise ValueError(f"sh_degree: got {sh_degree}, wants 0 to 3")
        points = _points("points", points)
        n = len(points)
        extent = _radius(points) if extent is None else number("extent", extent, above=0.0)
        sh0 = torch.zeros_like(points)
        if colors is not None:
            colors = _points("colors", colors).to(points)
            if len(colors) != n or bool(((colors < 0) | (colors > 1)).any()):
                raise ValueError(f"colors: wants {n} rows in [0, 1], as points")
            sh0 = (colors - 0.5) / SH_C0
        splats = {
            "means": points,
            "quats": points.new_tensor([1.0, 0.0, 0.0, 0.0]).repeat(n, 1),
            "scales": _spacing(points, extent).log()[:, None].repeat(1, 3),
            "opacities": points.new_full((n,), math.log(FIRST_OPACITY / (1 - FIRST_OPACITY))),
            "sh0": sh0[:, None],
            "shN": points.new_zeros(n, (sh_degree + 1) ** 2 - 1, 3),
        }
        if motion in ("tree", "flat"):
            options["basis"] = MotionBasis(n_basis, octaves)
        if motion == "tree":
            options["max_depth"] = max_depth
        if motion == "mlp":
            options.setdefault("scale", extent)
        return cls(splats, _KINDS[motion](n, **options).to(points), extent)

    @property
    def n(self) -> int:
        """Number of Gaussians N."""
        return len(self.splats["means"])

    @property
    def sh_degree(self) -> int:
        """Degree of the spherical harmonics, 0 to 3."""
        return math.isqrt(self.splats["shN"].shape[1] + 1) - 1

    @property
    def params(self) -> GrowingParams:
        """All parameters with rows that follow growth, of splats and motion, for a strategy."""
        return GrowingParams(self)

    def shared_parameters(self) -> list[nn.Parameter]:
        """The other parameters: of the basis or the network."""
        return self.motion.shared_parameters()

    def render(
        self,
        viewmats: Tensor,
        Ks: Tensor,
        width: int,
        height: int,
        t: float | None,
        backend: str = "auto",
        background: Tensor | None = None,
        sh_degree: int | None = None,
        render_mode: str = "RGB",
        **options: Any,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Images at one time.

        Args:
            viewmats: World to camera, ``(C, 4, 4)``, OpenCV axes.
            Ks: Intrinsics in pixels, ``(C, 3, 3)``.
            width, height: Of the images, in pixels.
            t: Time in [0, 1]; None leaves the motion out, as the static phase of training does.
            backend: As in `rasterize`.
            background: ``(3,)`` or ``(C, 3)`` colors; None is black.
            sh_degree: Harmonics to use; None for all.
            render_mode: As in `rasterize`.
            **options: Others of `rasterize`: planes, `radius_clip`, `eps2d`, `tile_size`,
                `rasterize_mode`, `absgrad`.

        Returns:
            Images ``(C, H, W, 3)`` (one more channel with depth), alphas ``(C, H, W, 1)``, and what
            `rasterize` tells for strategies.

        Raises:
            TypeError, ValueError: A time that is no number in [0, 1]; a degree above the model's;
                what `rasterize` refuses.
        """
        for name in options:
            one_of("render's option", name, ("background", *_RENDER_OPTIONS))
        degree = self.sh_degree if sh_degree is None else whole("sh_degree", sh_degree, 0)
        if degree > self.sh_degree:
            raise ValueError(f"sh_degree: got {degree}, wants at most {self.sh_degree}")
        means, quats = self._moved(t)
        if background is not None:
            background = _background(background, len(viewmats)).to(means).expand(len(viewmats), 3)
        return rasterize(
            means,
            quats,
            self.splats["scales"].exp(),
            self.splats["opacities"].sigmoid(),
            torch.cat([self.splats["sh0"], self.splats["shN"]], 1)[:, : (degree + 1) ** 2],
            viewmats,
            Ks,
            width,
            height,
            sh_degree=degree,
            backgrounds=None if render_mode in ("D", "ED") else background,
            render_mode=render_mode,
            backend=backend,
            **options,
        )

    @torch.no_grad()
    def at(self, t: float | None) -> dict[str, Tensor]:
        """The static Gaussians of one instant, quaternions normalised, without gradients.

        Args:
            t: Time in [0, 1]; None leaves the motion out.

        Raises:
            TypeError, ValueError: A time that is no number in [0, 1].
        """
        means, quats = self._moved(t)
        still = {name: self.splats[name].detach().clone() for name in SPLATS[2:]}
        return {"means": means.clone(), "quats": F.normalize(quats, dim=-1), **still}

    def _moved(self, t: float | None) -> tuple[Tensor, Tensor]:
        means, quats = self.splats["means"], self.splats["quats"]
        if t is None:
            return means, quats
        with torch.autocast(means.device.type, enabled=False):
            dmu, dq = self.motion(t, means)
        return means + dmu, quats + dq

    def merge(self, frames: int | None = None) -> TreeSplat:
        """A model of its own that renders the same without the tree, and cannot grow.

        Args:
            frames: As in `MotionTree.merge`.

        Raises:
            TypeError: The motion has no coefficients.
            ValueError: `frames` is below 2.
        """
        splats = {name: p.detach().clone() for name, p in self.splats.items()}
        return TreeSplat(splats, self.motion.merge(frames), self.extent)

    def export_ply(self, path: str | Path, t: float) -> None:
        """Writes one instant as PLY of 3DGS, which common viewers open.

        Args:
            path: Where; the folder must exist.
            t: Time in [0, 1].

        Raises:
            TypeError, ValueError: A time outside, or Gaussians that are not finite.
            OSError: Where the file cannot be written.
        """
        write_ply(path, self.at(t))

    def export_sequence(self, directory: str | Path, times: Sequence[float]) -> list[Path]:
        """Writes a PLY file for each time: 0000.ply, 0001.ply, ...

        Args:
            directory: Where; made if it does not exist.
            times: In [0, 1], at least one.

        Returns:
            The files.

        Raises:
            TypeError, ValueError: As `export_ply`, or no times.
            OSError: Where files cannot be written.
        """
        if not len(times):
            raise ValueError("times: got none, wants at least one")
        for t in times:
            check_time(t)
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        digits = max(4, len(str(len(times) - 1)))
        paths = [folder / f"{i:0{digits}}.ply" for i in range(len(times))]
        for path, t in zip(paths, times, strict=True):
            self.export_ply(path, t)
        return paths

    def save(self, path: str | Path) -> None:
        """Writes one safetensors file, whole or not at all; what it is stands in its metadata.

        Args:
            path: Where; the folder must exist.

        Raises:
            OSError: Where the file cannot be written.
        """
        about = {
            "format": _FORMAT,
            "sh_degree": self.sh_degree,
            "extent": self.extent,
            "motion": self.motion.kind,
            "options": self.motion.options(),
        }
        write_bytes(Path(path), save(self._stored(), metadata={"treesplat": json.dumps(about)}))

    @classmethod
    def load(cls, path: str | Path) -> TreeSplat:
        """Reads what `save` wrote, on the CPU. Nothing in the file is executed.

        Args:
            path: The file.

        Raises:
            ValueError: It is damaged, or no TreeSplat; the message says how.
            OSError: Where it cannot be read.
        """
        try:
            with safe_open(str(path), "pt") as file:
                about = parse_json((file.metadata() or {}).get("treesplat", "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise ValueError(f"{path}: damaged, or no safetensors file: {error}") from None
        if not isinstance(about, dict) or about.get("format") != _FORMAT:
            raise ValueError(f"{path}: no TreeSplat model (wants the format {_FORMAT})")
        try:
            return cls._rebuilt(about, tensors)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ValueError(f"{path}: a TreeSplat model that does not fit: {error}") from None
        except (ArithmeticError, AssertionError) as error:
            raise ValueError(f"{path}: a TreeSplat model that does not fit: {error}") from None

    @classmethod
    def _rebuilt(cls, about: dict[str, Any], tensors: dict[str, Tensor]) -> TreeSplat:
        for name, value in tensors.items():
            _check_stored(name, value, tensors["splats.means"].dtype)
        splats = {name: nn.Parameter(tensors.pop(f"splats.{name}")) for name in SPLATS}
        if splats["shN"].shape[1] + 1 != (about["sh_degree"] + 1) ** 2:
            raise ValueError(
                f"sh_degree: says {about['sh_degree']}, but shN is {tuple(splats['shN'].shape)}"
            )
        # Sizes of a file are compared with what it holds before memory is taken for them.
        with torch.device("meta"):
            motion = _build(about["motion"], len(splats["means"]), about["options"], len(tensors))
        state = {name.removeprefix("motion."): value for name, value in tensors.items()}
        if isinstance(motion, MotionTree):
            state |= {name: state[name].long() for name in motion.indices[:2]}
            state["levels"] = levels_of(state["parent"], motion.max_depth)
        for name in motion.not_stored:
            state.setdefault(name, torch.empty(getattr(motion, name).shape))
        grow = {*motion.row_parameters(), *motion.indices}
        for name, mine in motion.state_dict().items():
            if mine.shape[name in grow :] != state[name].shape[name in grow :]:
                raise ValueError(
                    f"motion.{name}: got shape {tuple(state[name].shape)}, wants "
                    f"{tuple(mine.shape)} as the options say"
                )
        motion = motion.to_empty(device="cpu").to(splats["means"])
        motion.load_state_dict(state)
        if isinstance(motion, MotionTree):
            motion.check()
        return cls(splats, motion, about["extent"])

    def _stored(self) -> dict[str, Tensor]:
        tensors = {
            name: value.detach().cpu().contiguous()
            for name, value in self.state_dict().items()
            if name.removeprefix("motion.") not in self.motion.not_stored
        }
        return {
            name: value.int() if value.dtype == torch.int64 else value
            for name, value in tensors.items()
        }

    def bytes_per_gaussian(self) -> dict[str, float]:
        """Bytes that `save` stores for each Gaussian.

        Returns:
            "static" (means, quaternions, scales, opacities), "color", "motion" (coefficients, or
            fields, parents, entries and decays), "shared" (the basis or network, over N), and
            their sum, "total".
        """
        sums = dict.fromkeys(("static", "color", "motion", "shared"), 0)
        rows = {*self.motion.row_parameters(), *self.motion.indices}
        for name, value in self._stored().items():
            part = name.split(".", 1)[1]
            if name.startswith("splats."):
                kind = "color" if part.startswith("sh") else "static"
            else:
                kind = "motion" if part in rows else "shared"
            sums[kind] += value.numel() * value.element_size()
        found = {kind: total / self.n for kind, total in sums.items()}
        return {**found, "total": sum(found.values())}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As of any module; a state of another number of Gaussians brings that number along.

        Args:
            state_dict: Of a model of the same motion, options and degree.
            strict, assign: As in `nn.Module.load_state_dict`.

        Raises:
            RuntimeError: The state does not fit.
        """
        for name, mine in list(self.splats.items()):
            new = state_dict.get(f"splats.{name}")
            if new is not None and new.shape[1:] == mine.shape[1:] and len(new) != len(mine):
                self.splats[name] = nn.Parameter(
                    mine.detach().new_empty(new.shape), requires_grad=mine.requires_grad
                )
        return super().load_state_dict(state_dict, strict, assign)

    def extra_repr(self) -> str:
        return f"{self.n} Gaussians, sh_degree={self.sh_degree}, extent={self.extent:.4g}"


class GrowingParams(MutableMapping[str, nn.Parameter]):
    """Parameters of a model whose rows follow growth, by name, as gsplat's strategies take them.

    A parameter that is set here is set in the model.

    Args:
        model: The model.
    """

    def __init__(self, model: TreeSplat) -> None:
        self.model = model

    def __getitem__(self, name: str) -> nn.Parameter:
        if name in self.model.splats:
            return self.model.splats[name]
        return self.model.motion.row_parameters()[name]

    def __setitem__(self, name: str, value: nn.Parameter) -> None:
        if name in self.model.splats:
            self.model.splats[name] = value
        elif name in self.model.motion.row_parameters():
            setattr(self.model.motion, name, value)
        else:
            raise KeyError(name)

    def __delitem__(self, name: str) -> None:
        raise TypeError("a model's parameters cannot be taken away")

    def __iter__(self) -> Iterator[str]:
        yield from SPLATS
        yield from self.model.motion.row_parameters()

    def __len__(self) -> int:
        return len(SPLATS) + len(self.model.motion.row_parameters())


def _check_stored(name: str, value: Tensor, dtype: torch.dtype) -> None:
    index = name in ("motion.entry", "motion.parent")
    wanted = torch.int32 if index else dtype
    if value.dtype != wanted or not (index or wanted in (torch.float32, torch.float64)):
        raise ValueError(
            f"{name}: got {value.dtype}, wants "
            + ("torch.int32" if index else "torch.float32 or torch.float64, the same for all")
        )
    if not bool(value.isfinite().all()):
        raise ValueError(f"{name}: got values that are not finite")


def _background(value: Any, cameras: int) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"background: got {value!r}, wants a tensor (3,) or ({cameras}, 3)")
    if value.shape not in ((3,), (cameras, 3)):
        raise ValueError(
            f"background: got shape {tuple(value.shape)}, wants (3,) or ({cameras}, 3)"
        )
    return value


def _build(kind: str, n: int, options: dict[str, Any], tensors: int) -> Motion:
    """The motion that `Motion.options` described, with `n` Gaussians and values to be loaded.

    It has at most as many layers as the file has tensors.
    """
    options = copy.deepcopy(options)
    for about in (options, options.get("basis", {})):
        if whole("layers", about.get("layers", 0), 0) > tensors:
            raise ValueError(f"layers: got {about['layers']}, but {tensors} tensors of a motion")
    if "basis" in options:
        about = options["basis"]
        options["basis"] = (
            TabulatedBasis(torch.zeros(about["frames"], about["n_basis"], 7))
            if "frames" in about
            else MotionBasis(**about)
        )
    if kind == MergedMotion.kind:
        zeros = torch.zeros(n, options["basis"].n_basis)
        shared = options.pop("shared_field")
        return MergedMotion(zeros, None if shared else zeros, **options)
    return _KINDS[one_of("motion", kind, _KINDS)](n, **options)


def _check_splats(splats: Mapping[str, Tensor]) -> None:
    missing = [name for name in SPLATS if name not in splats]
    if missing:
        raise ValueError(f"splats: {', '.join(missing)} missing, wants {', '.join(SPLATS)}")
    n = len(splats["means"])
    more = splats["shN"].shape[1] if splats["shN"].dim() == 3 else -1
    shapes = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,)}
    shapes |= {"sh0": (n, 1, 3), "shN": (n, more, 3)}
    for name, shape in shapes.items():
        if splats[name].shape != shape:
            raise ValueError(f"{name}: got shape {tuple(splats[name].shape)}, wants {shape}")
    if more not in (0, 3, 8, 15):
        raise ValueError(f"shN: got {more} harmonics, wants 0, 3, 8 or 15")
    if n < 1:
        raise ValueError("splats: got no Gaussians, wants at least one")


def _points(name: str, value: Any) -> Tensor:
    try:
        points = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: got no numbers: {error}") from None
    if points.dim() != 2 or points.shape[1] != 3 or not len(points):
        raise ValueError(f"{name}: got shape {tuple(points.shape)}, wants (P >= 1, 3)")
    points = points if points.is_floating_point() else points.float()
    if not bool(points.isfinite().all()):
        raise ValueError(f"{name}: got values that are not finite")
    return points


def _radius(points: Tensor) -> float:
    """Largest distance from the centre of the points; 1 where all are one."""
    return float((points - points.mean(0)).norm(dim=1).max()) or 1.0


def _spacing(points: Tensor, extent: float) -> Tensor:
    """Root mean square distance ``(P,)`` to three neighbours, as 3DGS sizes first Gaussians."""
    near = min(4, len(points))
    if near == 1:
        return points.new_full((1,), 0.1 * extent)
    distances, _ = KDTree(points.cpu().numpy()).query(points.cpu().numpy(), k=near)
    # Points on top of each other must not give a scale of zero.
    mean_square = (distances[:, 1:] ** 2).mean(1)
    return torch.from_numpy(mean_square).sqrt().to(points).clamp_min(1e-4 * extent)
