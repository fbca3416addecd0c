"""Checks of what is to be rasterised."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from assay.toolkits.checks import whole

MAX_SH_DEGREE = 3
CAMERA_TOLERANCE = 5e-3
"""How far cameras may be from rigid ones: inverses of poses that loaders take are, by 3e-3."""
_LAST = np.array([0, 0, 0, 1])
_EYE = np.eye(3, dtype=np.float32)
_FOCAL, _SKEW = [0, 1], [1, 0]


def check_tensors(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    sh_degree: int | None,
    backgrounds: Tensor | None,
    render_mode: str,
) -> None:
    """Arguments of `rasterize` that are tensors: types, shapes, then values.

    Raises:
        TypeError: no tensor, or not all of one dtype, float32 or float64.
        ValueError: devices, shapes or values that do not fit.
    """
    tensors = {
        "means": means,
        "quats": quats,
        "scales": scales,
        "opacities": opacities,
        "colors": colors,
        "viewmats": viewmats,
        "Ks": Ks,
    }
    if backgrounds is not None:
        tensors["backgrounds"] = backgrounds
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: got {type(x).__name__}, wants a torch.Tensor")
        if means.dtype not in (torch.float32, torch.float64) or x.dtype != means.dtype:
            wanted = "torch.float32 or torch.float64" if x is means else f"{means.dtype} as means"
            raise TypeError(f"{name}: got {x.dtype}, wants {wanted}")
        if x.device != means.device:
            raise ValueError(f"{name}: got a tensor on {x.device}, wants {means.device} as means")
    _check_shapes(tensors, sh_degree, render_mode)
    _check_values({name: x.detach() for name, x in tensors.items() if x.numel()})
    if Ks.requires_grad:
        raise ValueError("Ks: got a tensor that requires a gradient, wants one that does not")


def _check_shapes(tensors: dict[str, Tensor], sh_degree: int | None, render_mode: str) -> None:
    n, cameras = (x.shape[0] if x.ndim else 0 for x in (tensors["means"], tensors["viewmats"]))
    wanted = {
        "means": (n, 3),
        "quats": (n, 4),
        "scales": (n, 3),
        "opacities": (n,),
        "viewmats": (cameras, 4, 4),
        "Ks": (cameras, 3, 3),
    }
    free = {"means": "(N, 3)", "viewmats": "(C, 4, 4) with C >= 1"}
    for name, shape in wanted.items():
        found = tuple(tensors[name].shape)
        if found != shape or (name == "viewmats" and not cameras):
            raise ValueError(f"{name}: got shape {found}, wants {free.get(name, shape)}")
    found = tuple(tensors["colors"].shape)
    if sh_degree is None:
        if found[:-1] not in ((n,), (cameras, n)) or not found[-1]:
            raise ValueError(f"colors: got shape {found}, wants ({n}, D) or ({cameras}, {n}, D)")
    else:
        if whole("sh_degree", sh_degree, 0) > MAX_SH_DEGREE:
            raise ValueError(f"sh_degree: got {sh_degree}, wants 0 to {MAX_SH_DEGREE}")
        least = (sh_degree + 1) ** 2
        bad = found[:-2] not in ((n,), (cameras, n)) or found[-1] != 3 or found[-2] < least
        if len(found) < 3 or bad:
            raise ValueError(
                f"colors: got shape {found}, wants ({n}, K, 3) or ({cameras}, {n}, K, 3) with"
                f" K >= {least} for sh_degree {sh_degree}"
            )
    if "backgrounds" in tensors:
        background = tuple(tensors["backgrounds"].shape)
        channels = found[-1] if "RGB" in render_mode else (1, *background)[-1]
        if background != (cameras, channels):
            raise ValueError(f"backgrounds: got shape {background}, wants ({cameras}, {channels})")


def _check_values(tensors: dict[str, Tensor]) -> None:
    # One look at all of them, as on a GPU each look waits for it.
    ranges = [bound for x in tensors.values() for bound in x.aminmax()]
    if "quats" in tensors:
        ranges.append(tensors["quats"].square().sum(-1).min())
    bounds = torch.stack(ranges).tolist()
    for name, low, high in zip(tensors, bounds[::2], bounds[1::2], strict=False):
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{name}: {_first(~tensors[name].isfinite(), tensors[name])} finite")
        if name == "scales" and low <= 0:
            raise ValueError(f"scales: {_first(tensors[name] <= 0, tensors[name])} > 0")
        if name == "opacities" and (low < 0 or high > 1):
            outside = (tensors[name] < 0) | (tensors[name] > 1)
            raise ValueError(f"opacities: {_first(outside, tensors[name])} from 0 to 1")
    if "quats" in tensors and not bounds[-1] > 0:
        index = int(tensors["quats"].square().sum(-1).argmin())
        raise ValueError(f"quats: got one of length 0 at index {index}, wants another length")
    check_cameras(tensors["viewmats"], tensors["Ks"])


def check_cameras(viewmats: Tensor, Ks: Tensor) -> None:
    """Whether matrices are those of pinhole cameras, as the projection takes them for.

    Args:
        viewmats: (C, 4, 4), a rotation and a translation each, over the row 0, 0, 0, 1.
        Ks: (C, 3, 3), focal lengths and centres alone: without skew, over the row 0, 0, 1.

    Raises:
        ValueError: they are not, by more than `CAMERA_TOLERANCE`.
    """
    # One copy of both, as on a GPU each look waits for it; in hot loops.
    both = torch.cat([viewmats.detach().flatten(), Ks.detach().flatten()]).cpu().numpy()
    if not np.isfinite(both).all():
        raise ValueError("viewmats, Ks: got a value that is not finite")
    views, K = both[: viewmats.numel()].reshape(-1, 4, 4), both[viewmats.numel() :]
    turns, K = views[:, :3, :3], K.reshape(-1, 3, 3)
    for name, found, wanted, meaning in (
        ("viewmats", views[:, 3], _LAST[:4], "last rows of 0, 0, 0, 1"),
        ("viewmats", turns @ turns.swapaxes(1, 2), _EYE, "rotations, without scale"),
        ("viewmats", np.sign(np.linalg.det(turns)), 1, "rotations, without reflection"),
        ("Ks", np.sign(K[:, _FOCAL, _FOCAL]), 1, "focal lengths > 0"),
        ("Ks", K[:, _FOCAL, _SKEW], 0, "no skew: 0 beside the focal lengths"),
        ("Ks", K[:, 2], _LAST[1:], "last rows of 0, 0, 1"),
    ):
        away = np.abs(found - wanted)
        if away.max() > CAMERA_TOLERANCE:
            c = int(np.argwhere(away > CAMERA_TOLERANCE)[0, 0])
            of = (views if name == "viewmats" else K)[c].round(4).tolist()
            raise ValueError(f"{name}: got {of} for camera {c}, wants {meaning}")


def _first(bad: Tensor, values: Tensor) -> str:
    index = bad.nonzero()[0].tolist()
    return f"got {values[tuple(index)].item():g} at index {index}, wants"
