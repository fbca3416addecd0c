"""The PLY files that 3DGS viewers open: one instant of a model each."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from plyfile import PlyData, PlyElement, PlyElementParseError, PlyHeaderParseError
from torch import Tensor

from assay.toolkits.files import write_bytes

# gsplat's own exporter leaves out the normals that some viewers ask for, and one opacity that is
# not finite makes it write an empty file.


def write_ply(path: str | Path, splats: Mapping[str, Tensor]) -> None:
    """Writes static Gaussians in the format of 3DGS, binary and little endian, whole or not at all.

    Fields: x y z, nx ny nz (zeros), f_dc_*, f_rest_* (channel by channel), opacity (logit),
    scale_* (log), rot_* (w x y z).

    Args:
        path: Where; the folder must exist.
        splats: means (N, 3), quats (N, 4), scales (N, 3), opacities (N,), sh0 (N, 1, 3) and
            shN (N, K, 3), stored as gsplat stores them, N >= 1. Written as float32.

    Raises:
        ValueError: There are no Gaussians, or a value is not finite.
        OSError: Where the file cannot be written.
    """
    n = len(splats["means"])
    if not n:
        raise ValueError(f"splats: got no Gaussians, wants at least one; {path} is not written")
    parts = [
        (["x", "y", "z"], splats["means"]),
        (["nx", "ny", "nz"], torch.zeros(n, 3)),
        (_names("f_dc", 3), splats["sh0"].mT),
        (_names("f_rest", 3 * splats["shN"].shape[1]), splats["shN"].mT),
        (["opacity"], splats["opacities"]),
        (_names("scale", 3), splats["scales"]),
        (_names("rot", 4), splats["quats"]),
    ]
    columns = [values.detach().cpu().to(torch.float32).reshape(n, -1) for _, values in parts]
    table = torch.cat(columns, 1).numpy().astype("<f4")
    bad = int((~np.isfinite(table)).any(1).sum())
    if bad:
        raise ValueError(f"splats: {bad} of {n} Gaussians are not finite; {path} is not written")
    names = [name for each, _ in parts for name in each]
    rows = table.view([(name, "<f4") for name in names])[:, 0]
    file = io.BytesIO()
    PlyData([PlyElement.describe(rows, "vertex")], byte_order="<").write(file)
    write_bytes(Path(path), file.getvalue())


def read_ply(path: str | Path) -> dict[str, Tensor]:
    """Reads a PLY file of 3DGS, of any byte order, with or without normals.

    Args:
        path: The file.

    Returns:
        What `write_ply` takes, float32.

    Raises:
        ValueError: The file is no PLY, holds no Gaussians or lacks a field; named in the message.
        OSError: Where the file cannot be read.
    """
    try:
        data = PlyData.read(str(path), mmap=False)
        vertices = data["vertex"].data
        if not len(vertices):
            raise ValueError("it holds none")
        rest = sum(name.startswith("f_rest_") for name in vertices.dtype.names)
        if rest % 3:
            raise ValueError(f"got {rest} fields f_rest_*, wants three colors of them")
        columns = {
            "means": ["x", "y", "z"],
            "quats": _names("rot", 4),
            "scales": _names("scale", 3),
            "opacities": ["opacity"],
            "sh0": _names("f_dc", 3),
            "shN": _names("f_rest", rest),
        }
        found = {
            key: np.stack([vertices[name] for name in names], 1).astype(np.float32)
            if names
            else np.zeros((len(vertices), 0), np.float32)
            for key, names in columns.items()
        }
    except (PlyHeaderParseError, PlyElementParseError, KeyError, ValueError, MemoryError) as error:
        raise ValueError(f"{path}: no PLY file of Gaussians: {error}") from None
    splats = {key: torch.from_numpy(values) for key, values in found.items()}
    splats["opacities"] = splats["opacities"][:, 0]
    for key in ("sh0", "shN"):
        splats[key] = splats[key].view(len(vertices), 3, -1).mT.contiguous()
    return splats


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}_{i}" for i in range(count)]
