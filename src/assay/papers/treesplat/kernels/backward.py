"""Gradients of the composite: one more walk front to back.

With R the part of ``<gradient, pixel>`` that comes from behind a Gaussian, its alpha's gradient is
``T <gradient, color> - R / (1 - alpha)``; walking as the forward pass did needs nothing stored
per Gaussian and pixel, and meets the same T.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from assay.papers.treesplat.constants import ALPHA_CAP, ALPHA_CUT, TRANSMITTANCE_STOP
from assay.papers.treesplat.kernels.falloff import MOST, falloff
from assay.papers.treesplat.kernels.forward import FAST

SHAPE = 6
"""Columns of a partial gradient before those of the color: centre (2), conic (3), opacity."""


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def composite_backward(
    first: Any,
    end: Any,
    means2d: Any,
    conics: Any,
    opacities: Any,
    colors: Any,
    offsets: Any,
    ids: Any,
    rows: Any,
    tile_size: Any,
    images: Any,
    left: Any,
    used: Any,
    g_images: Any,
    g_alphas: Any,
    absolute: Any,
    partial: Any,
) -> None:  # pragma: no cover
    """Fills partial (entries, 6 + D or 8 + D): what entries in use add to the gradients.

    With `absolute` the last two columns sum the centre's gradient pixel by pixel without signs.
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
    live, behind, weight = np.empty(size, real), np.empty(size, real), np.empty(size, real)
    pull, tone = np.empty(size, real), np.empty(size, real)
    grad = np.empty((channels, size), real)

    for tile in range(first, end):
        camera = tile // (across * down)
        x0 = (tile % across) * tile_size
        y0 = (tile // across % down) * tile_size
        wide, high = min(tile_size, width - x0), min(tile_size, height - y0)
        grad[:] = zero
        behind[:] = zero
        live[:] = zero
        for y in range(high):
            for x in range(wide):
                p = y * tile_size + x
                live[p] = one
                rest = -left[camera, y0 + y, x0 + x] * g_alphas[camera, y0 + y, x0 + x]
                for k in range(channels):
                    g = g_images[camera, y0 + y, x0 + x, k]
                    grad[k, p] = g
                    rest += g * images[camera, y0 + y, x0 + x, k]
                behind[p] = rest
        for entry in range(offsets[tile], used[tile]):
            i = ids[entry]
            low, n = rows[entry, 0] * tile_size, (rows[entry, 1] - rows[entry, 0]) * tile_size
            mx, my = means2d[i, 0] - real(x0), means2d[i, 1] - real(y0)
            ca, cb, cc = conics[i, 0], conics[i, 1], conics[i, 2]
            a, b, c = ca * half * eighth, cb * eighth, cc * half * eighth
            opacity = opacities[i]
            xs, ys = px[low : low + n], py[low : low + n]
            ts, rs, ws = live[low : low + n], behind[low : low + n], weight[low : low + n]
            gs, vs = pull[low : low + n], tone[low : low + n]
            for p in range(n):
                vs[p] = zero
            for k in range(channels):
                color = colors[i, k]
                row = grad[k, low : low + n]
                for p in range(n):
                    vs[p] += color * row[p]
            g0, gx, gy, gxx, gxy, gyy = zero, zero, zero, zero, zero, zero
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
                w = w if rest > stop else zero
                tinted = vs[p]
                r = rs[p] - tinted * w
                g = -alpha * (tinted * t - r / (one - alpha))
                g = g if raw <= cap else zero
                g = g if rest > stop else zero
                rs[p] = r
                ws[p] = w
                gs[p] = g
                ts[p] = rest if rest > stop else zero
                hx, hy = g * dx, g * dy
                g0 += g
                gx += hx
                gy += hy
                gxx += hx * dx
                gxy += hx * dy
                gyy += hy * dy
            out = partial[entry]
            out[0], out[1] = ca * gx + cb * gy, cb * gx + cc * gy
            out[2], out[3], out[4] = half * gxx, gxy, half * gyy
            out[5] = -g0 / opacity
            for k in range(channels):
                row = grad[k, low : low + n]
                tint = zero
                for p in range(n):
                    tint += row[p] * ws[p]
                out[SHAPE + k] = tint
            if absolute:
                ax, ay = zero, zero
                for p in range(n):
                    dx, dy, g = mx - xs[p], my - ys[p], gs[p]
                    ax += abs(g * (ca * dx + cb * dy))
                    ay += abs(g * (cb * dx + cc * dy))
                out[SHAPE + channels], out[SHAPE + channels + 1] = ax, ay


@numba.njit(nogil=True, cache=True, error_model="numpy")
def gather(
    first: Any,
    end: Any,
    gaussians: Any,
    starts: Any,
    entries: Any,
    tiles: Any,
    used: Any,
    partial: Any,
    g_means2d: Any,
    g_conics: Any,
    g_opacities: Any,
    g_colors: Any,
    g_absolute: Any,
) -> None:  # pragma: no cover
    """Sums partial gradients into arrays of (C * N, ...) zeros, always in the same order."""
    channels = g_colors.shape[1]
    for rank in range(first, end):
        g = gaussians[rank]
        for k in range(starts[rank], starts[rank + 1]):
            if entries[k] >= used[tiles[k]]:
                continue
            row = partial[entries[k]]
            g_means2d[g, 0] += row[0]
            g_means2d[g, 1] += row[1]
            g_conics[g, 0] += row[2]
            g_conics[g, 1] += row[3]
            g_conics[g, 2] += row[4]
            g_opacities[g] += row[5]
            for channel in range(channels):
                g_colors[g, channel] += row[SHAPE + channel]
            if g_absolute.size:
                g_absolute[g, 0] += row[SHAPE + channels]
                g_absolute[g, 1] += row[SHAPE + channels + 1]
