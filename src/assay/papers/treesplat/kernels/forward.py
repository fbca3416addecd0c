"""Composites tiles: each pixel's Gaussians front to back, until next to nothing shines through.

Loops run over the rows of a tile that a Gaussian can touch, with selections instead of branches,
so that LLVM does many pixels at once.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from assay.papers.treesplat.constants import ALPHA_CAP, ALPHA_CUT, TRANSMITTANCE_STOP
from assay.papers.treesplat.kernels.falloff import MOST, falloff

FAST = {"reassoc", "contract", "nsz"}
"""Lets sums run in lanes; NaN keeps its meaning, and equal input gives equal output."""

CHECK_EVERY = 8
"""Gaussians between two looks at whether any pixel of the tile still needs more."""


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def composite(
    first: Any,
    end: Any,
    means2d: Any,
    conics: Any,
    opacities: Any,
    colors: Any,
    backgrounds: Any,
    offsets: Any,
    ids: Any,
    rows: Any,
    tile_size: Any,
    images: Any,
    left: Any,
    used: Any,
) -> None:  # pragma: no cover
    """Fills images (C, H, W, D), left (C, H, W) and used (tiles) for the tiles first .. end.

    `left` is the transmittance behind the last Gaussian, `used` the entry at which a tile stopped.
    """
    real = means2d.dtype.type
    zero, one, half, eighth = real(0), real(1), real(0.5), real(0.125)
    cut, cap, stop = real(ALPHA_CUT), real(ALPHA_CAP), real(TRANSMITTANCE_STOP)
    most = real(MOST) * eighth
    _, height, width, channels = images.shape
    across, down = -(-width // tile_size), -(-height // tile_size)
    size = tile_size * tile_size
    px, py = np.empty(size, real), np.empty(size, real)
    for p in range(size):
        px[p] = p % tile_size + 0.5
        py[p] = p // tile_size + 0.5
    live, last, weight = np.empty(size, real), np.empty(size, real), np.empty(size, real)
    total = np.empty((channels, size), real)

    for tile in range(first, end):
        camera = tile // (across * down)
        x0 = (tile % across) * tile_size
        y0 = (tile // across % down) * tile_size
        wide, high = min(tile_size, width - x0), min(tile_size, height - y0)
        total[:] = zero
        last[:] = one
        for p in range(size):
            live[p] = one if (p % tile_size < wide) & (p // tile_size < high) else zero
        entry = offsets[tile]
        while entry < offsets[tile + 1]:
            g = ids[entry]
            low, n = rows[entry, 0] * tile_size, (rows[entry, 1] - rows[entry, 0]) * tile_size
            mx, my = means2d[g, 0] - real(x0), means2d[g, 1] - real(y0)
            a, b, c = (
                conics[g, 0] * half * eighth,
                conics[g, 1] * eighth,
                conics[g, 2] * half * eighth,
            )
            opacity = opacities[g]
            xs, ys = px[low : low + n], py[low : low + n]
            ts, fs, ws = live[low : low + n], last[low : low + n], weight[low : low + n]
            for p in range(n):
                dx, dy = mx - xs[p], my - ys[p]
                s = a * dx * dx + c * dy * dy + b * dx * dy
                raw = opacity * falloff(most if s > most else s)
                alpha = cap if raw > cap else raw
                alpha = alpha if alpha >= cut else zero
                alpha = alpha if s >= zero else zero
                t = ts[p]
                w = alpha * t
                rest = t - w
                f = fs[p]
                ws[p] = w if rest > stop else zero
                fs[p] = rest if rest > stop else f
                ts[p] = rest if rest > stop else zero
            for k in range(channels):
                color = colors[g, k]
                sums = total[k, low : low + n]
                for p in range(n):
                    sums[p] += color * ws[p]
            entry += 1
            if (entry - offsets[tile]) % CHECK_EVERY == 0:
                alive = zero
                for p in range(size):
                    alive += live[p]
                if alive == zero:
                    break
        used[tile] = entry
        for y in range(high):
            for x in range(wide):
                p = y * tile_size + x
                left[camera, y0 + y, x0 + x] = last[p]
                for k in range(channels):
                    images[camera, y0 + y, x0 + x, k] = (
                        total[k, p] + last[p] * backgrounds[camera, k]
                    )
