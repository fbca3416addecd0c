"""Which Gaussians touch which tiles, front to back.

A Gaussian is listed only where its alpha can reach the cut: in the tiles its ellipse
``a x^2 + 2 b x y + c y^2 <= 2 ln(opacity / ALPHA_CUT)`` meets, with the rows it meets there.
"""

from __future__ import annotations

from math import ceil, floor, log, sqrt
from typing import Any, NamedTuple

import numba
import numpy as np

from assay.papers.treesplat.constants import ALPHA_CUT

_SLACK = 1.0001
"""Makes ellipses a little larger: whether alpha reaches the cut is for the pixels to say."""


class Bins(NamedTuple):
    """Entries, each a Gaussian in a tile, sorted by image, tile and depth.

    Gaussians count over all images: camera * N + Gaussian.
    """

    gaussians: Any
    """(visible,) int32: what can be seen, by camera and depth."""
    offsets: Any
    """(C * tiles + 1,) int32: where the entries of each tile start."""
    ids: Any
    """(entries,) int32: the Gaussian of each entry."""
    rows: Any
    """(entries, 2) int32: first and end row of the tile that it can touch."""
    starts: Any
    """(visible + 1,) int32: where each of `gaussians` starts in `entries`."""
    entries: Any
    """(entries,) int32: which they are, Gaussian by Gaussian."""
    tiles: Any
    """(entries,) int32: the tiles of `entries`."""


def order(radii: Any, depths: Any) -> Any:
    """(visible,) int32: camera * N + Gaussian of the visible ones, by camera and depth.

    Args:
        radii: (C, N, 2) integers.
        depths: (C, N), > 0.
    """
    found = []
    for camera, (radius, depth) in enumerate(zip(radii, depths, strict=True)):
        seen = np.flatnonzero(radius[:, 0])
        if depth.dtype == np.float32:
            # Bits of positive floats sort as these do; one array of integers sorts fastest.
            keys = (depth[seen].view(np.uint32).astype(np.uint64) << np.uint64(32)) | seen.astype(
                np.uint64
            )
            keys.sort()
            seen = (keys & np.uint64(0xFFFFFFFF)).astype(np.int32)
        else:
            seen = seen[np.argsort(depth[seen], kind="stable")].astype(np.int32)
        found.append(seen + np.int32(camera * len(depth)))
    return np.concatenate(found)


@numba.njit(nogil=True, error_model="numpy")
def _reach(
    low: Any, high: Any, slope: Any, span: Any, bend: Any, tip: Any, turn: Any
) -> Any:  # pragma: no cover
    """Least and largest x of an ellipse where its y is within [low, high].

    Its points at y are ``-slope y +- sqrt(span - bend y^2)``; x is largest, `tip`, at -turn.
    """
    at_low = sqrt(max(0.0, span - bend * low * low))
    at_high = sqrt(max(0.0, span - bend * high * high))
    left = min(-slope * low - at_low, -slope * high - at_high)
    right = max(-slope * low + at_low, -slope * high + at_high)
    if low <= turn <= high:
        left = -tip
    if low <= -turn <= high:
        right = tip
    return left, right


@numba.njit(nogil=True, error_model="numpy")
def _pixels(left: Any, right: Any, centre: Any, first: Any, end: Any) -> Any:  # pragma: no cover
    """Pixels of [first, end) whose centres lie within [centre + left, centre + right]."""
    return (
        max(first, ceil(min(max(centre + left - 0.5, -1.0), end * 1.0))),
        min(end, floor(min(max(centre + right - 0.5, -1.0), end * 1.0)) + 1),
    )


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill(
    gaussians: Any,
    cameras: Any,
    means2d: Any,
    conics: Any,
    opacities: Any,
    width: Any,
    height: Any,
    tile_size: Any,
) -> Any:  # pragma: no cover
    """The fields of `Bins` but `gaussians`, which come sorted; the others are (C * N, ...)."""
    across, down = -(-width // tile_size), -(-height // tile_size)
    n = len(means2d) // cameras
    starts = np.empty(len(gaussians) + 1, np.int32)
    counts = np.zeros(cameras * across * down + 1, np.int32)
    room = 16 * len(gaussians) + 1024
    tiles, rows_of = np.empty(room, np.int32), np.empty((room, 2), np.int32)
    total = 0
    for rank in range(len(gaussians)):
        g = gaussians[rank]
        starts[rank] = total
        u, v = means2d[g, 0] * 1.0, means2d[g, 1] * 1.0
        a, b, c = conics[g, 0] * 1.0, conics[g, 1] * 1.0, conics[g, 2] * 1.0
        q = _SLACK * 2 * log(opacities[g] / ALPHA_CUT) + (_SLACK - 1)
        det = a * c - b * b
        if not det > 0:
            continue
        tip_x, tip_y = sqrt(q * c / det), sqrt(q * a / det)
        slope_x, span_x, bend_x, turn_x = b / a, q / a, det / (a * a), b / c * tip_x
        slope_y, span_y, bend_y, turn_y = b / c, q / c, det / (c * c), b / a * tip_y
        top, bottom = _pixels(-tip_y, tip_y, v, 0, height)
        if top >= bottom:
            continue
        most = ((bottom - 1) // tile_size - top // tile_size + 1) * across
        if total + most > room:
            room = 2 * room + most
            more, more_rows = np.empty(room, np.int32), np.empty((room, 2), np.int32)
            more[:total], more_rows[:total] = tiles[:total], rows_of[:total]
            tiles, rows_of = more, more_rows
        for ty in range(top // tile_size, (bottom - 1) // tile_size + 1):
            first, end = max(top, ty * tile_size), min(bottom, (ty + 1) * tile_size)
            left, right = _reach(
                first + 0.5 - v, end - 0.5 - v, slope_x, span_x, bend_x, tip_x, turn_x
            )
            west, east = _pixels(left, right, u, 0, width)
            if west >= east:
                continue
            for tx in range(west // tile_size, (east - 1) // tile_size + 1):
                near, far = max(west, tx * tile_size), min(east, (tx + 1) * tile_size)
                up, low = _reach(
                    near + 0.5 - u, far - 0.5 - u, slope_y, span_y, bend_y, tip_y, turn_y
                )
                row, last = _pixels(up, low, v, first, end)
                if row >= last:
                    continue
                tile = ((g // n) * down + ty) * across + tx
                tiles[total] = tile
                rows_of[total, 0], rows_of[total, 1] = row - ty * tile_size, last - ty * tile_size
                counts[tile + 1] += 1
                total += 1
    starts[len(gaussians)] = total
    offsets = np.cumsum(counts).astype(np.int32)
    cursor = offsets.copy()
    ids, entries = np.empty(total, np.int32), np.empty(total, np.int32)
    rows = np.empty((total, 2), np.int32)
    for rank in range(len(gaussians)):
        for k in range(starts[rank], starts[rank + 1]):
            entry = cursor[tiles[k]]
            cursor[tiles[k]] += 1
            ids[entry], entries[k] = gaussians[rank], entry
            rows[entry, 0], rows[entry, 1] = rows_of[k, 0], rows_of[k, 1]
    return offsets, ids, rows, starts, entries, tiles[:total]
