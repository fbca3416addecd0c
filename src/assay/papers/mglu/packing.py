"""Masks as bits. Two layouts of the same masks, both uint8.

- "planes": ``(n, d, ceil(h / 8))``; bit j of byte k of a row is column 8 k + j. n bits a weight.
- "bytes": ``(d, h)``; bit i of an entry is mask i. 8 bits a weight whatever n, as in the
  paper's own kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.toolkits.checks import one_of

LAYOUTS = ("planes", "bytes")
MAX_MASKS = {"planes": 16, "bytes": 8}


def mask_shape(n_masks: int, rows: int, columns: int, layout: str) -> tuple[int, ...]:
    """Shape of the packed masks.

    Raises ValueError for an unknown layout or more masks than it holds.
    """
    one_of("layout", layout, LAYOUTS)
    if not 1 <= n_masks <= MAX_MASKS[layout]:
        raise ValueError(
            f"n_masks: got {n_masks}, wants 1 to {MAX_MASKS[layout]} for the layout {layout!r}"
        )
    return (n_masks, rows, -(-columns // 8)) if layout == "planes" else (rows, columns)


def pack_masks(masks: Tensor, layout: str = "planes") -> Tensor:
    """Packs boolean masks.

    Args:
        masks: ``(n, d, h)``, bool. n is at most 16 for planes, 8 for bytes.
        layout: "planes" or "bytes". Rows of planes are padded with zero bits.

    Returns:
        uint8 of the layout's shape.

    Raises:
        TypeError: masks that are not boolean.
        ValueError: another number of axes, an unknown layout, too many masks.
    """
    if masks.dtype != torch.bool:
        raise TypeError(f"masks: got {masks.dtype}, wants torch.bool")
    if masks.ndim != 3:
        raise ValueError(f"masks: got shape {tuple(masks.shape)}, wants (n, d, h)")
    n_masks, rows, columns = masks.shape
    mask_shape(n_masks, rows, columns, layout)
    bits = 1 << torch.arange(8, dtype=torch.uint8, device=masks.device)
    if layout == "bytes":
        packed = torch.zeros(masks.shape[1:], dtype=torch.uint8, device=masks.device)
        for i, mask in enumerate(masks):
            packed |= mask.to(torch.uint8) << i
        return packed
    padded = F.pad(masks.to(torch.uint8), (0, -masks.shape[-1] % 8))
    return (padded.unflatten(-1, (-1, 8)) * bits).sum(-1, dtype=torch.uint8)


def unpack_mask(packed: Tensor, index: int, columns: int, layout: str = "planes") -> Tensor:
    """One mask, ``(d, h)`` bool, of what `pack_masks` returned.

    Args:
        packed: uint8 of the layout's shape.
        index: which mask, 0 to n - 1.
        columns: h.
        layout: "planes" or "bytes".
    """
    one_of("layout", layout, LAYOUTS)
    if layout == "bytes":
        return (packed >> index & 1).bool()
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return (packed[index].unsqueeze(-1) >> shifts & 1).bool().flatten(1)[:, :columns]


def unpack_masks(packed: Tensor, n_masks: int, columns: int, layout: str = "planes") -> Tensor:
    """All masks, ``(n, d, h)`` bool; the inverse of `pack_masks`.

    Args:
        packed: uint8 of the layout's shape.
        n_masks: n.
        columns: h.
        layout: "planes" or "bytes".

    Raises:
        ValueError: a shape that does not belong to these numbers.
    """
    rows = packed.shape[-2]
    if tuple(packed.shape) != mask_shape(n_masks, rows, columns, layout):
        raise ValueError(
            f"packed: got shape {tuple(packed.shape)}, "
            f"wants {mask_shape(n_masks, rows, columns, layout)}"
        )
    return torch.stack([unpack_mask(packed, i, columns, layout) for i in range(n_masks)])
