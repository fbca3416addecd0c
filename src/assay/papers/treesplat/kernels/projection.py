"""Gaussians to the image plane and back (EWA splatting), as gsplat's fused kernels do it.

Matrices are tuples of nine numbers, row by row, so that they stay in registers. Numbers are
doubles inside, whatever the arrays hold.
"""

from __future__ import annotations

from math import ceil, log, sqrt
from typing import Any

import numba

from assay.papers.treesplat.constants import ALPHA_CUT, EXTENT, FRUSTUM_MARGIN, MAX_RADIUS

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")
_inline = numba.njit(nogil=True, inline="never", error_model="numpy")


@_inline
def _rotation(w: Any, x: Any, y: Any, z: Any) -> Any:  # pragma: no cover
    return (
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    )


@_inline
def _product(a: Any, b: Any) -> Any:  # pragma: no cover
    return (
        a[0] * b[0] + a[1] * b[3] + a[2] * b[6],
        a[0] * b[1] + a[1] * b[4] + a[2] * b[7],
        a[0] * b[2] + a[1] * b[5] + a[2] * b[8],
        a[3] * b[0] + a[4] * b[3] + a[5] * b[6],
        a[3] * b[1] + a[4] * b[4] + a[5] * b[7],
        a[3] * b[2] + a[4] * b[5] + a[5] * b[8],
        a[6] * b[0] + a[7] * b[3] + a[8] * b[6],
        a[6] * b[1] + a[7] * b[4] + a[8] * b[7],
        a[6] * b[2] + a[7] * b[5] + a[8] * b[8],
    )


@_inline
def _transposed(a: Any) -> Any:  # pragma: no cover
    return (a[0], a[3], a[6], a[1], a[4], a[7], a[2], a[5], a[8])


@_inline
def _shape(quats: Any, scales: Any, i: Any) -> Any:  # pragma: no cover
    """Rotation times scales of Gaussian i, the rotation, and 1 / |q|."""
    w, x, y, z = quats[i, 0] * 1.0, quats[i, 1] * 1.0, quats[i, 2] * 1.0, quats[i, 3] * 1.0
    inverse = 1 / sqrt(w * w + x * x + y * y + z * z)
    r = _rotation(w * inverse, x * inverse, y * inverse, z * inverse)
    a, b, c = scales[i, 0] * 1.0, scales[i, 1] * 1.0, scales[i, 2] * 1.0
    m = (
        r[0] * a,
        r[1] * b,
        r[2] * c,
        r[3] * a,
        r[4] * b,
        r[5] * c,
        r[6] * a,
        r[7] * b,
        r[8] * c,
    )
    return m, r, inverse


@_inline
def _camera(viewmats: Any, c: Any) -> Any:  # pragma: no cover
    v = viewmats[c]
    return (
        v[0, 0] * 1.0,
        v[0, 1] * 1.0,
        v[0, 2] * 1.0,
        v[1, 0] * 1.0,
        v[1, 1] * 1.0,
        v[1, 2] * 1.0,
        v[2, 0] * 1.0,
        v[2, 1] * 1.0,
        v[2, 2] * 1.0,
    )


@_inline
def _centre(view: Any, viewmats: Any, c: Any, means: Any, i: Any) -> Any:  # pragma: no cover
    x, y, z = means[i, 0] * 1.0, means[i, 1] * 1.0, means[i, 2] * 1.0
    return (
        view[0] * x + view[1] * y + view[2] * z + viewmats[c, 0, 3],
        view[3] * x + view[4] * y + view[5] * z + viewmats[c, 1, 3],
        view[6] * x + view[7] * y + view[8] * z + viewmats[c, 2, 3],
    )


@_inline
def _bounded(ratio: Any, focal: Any, centre: Any, size: Any) -> Any:  # pragma: no cover
    """x / z where the Jacobian is taken, and whether that is where the Gaussian is."""
    margin = FRUSTUM_MARGIN * 0.5 * size / focal
    low, high = -(centre / focal + margin), (size - centre) / focal + margin
    if ratio < low:
        return low, False
    if ratio > high:
        return high, False
    return ratio, True


@_inline
def _image_shape(w: Any, fx: Any, fy: Any, rz: Any, rx: Any, ry: Any) -> Any:  # pragma: no cover
    """Jacobian times `w`: two rows of three."""
    p, q = fx * rz, fy * rz
    return (
        p * (w[0] - rx * w[6]),
        p * (w[1] - rx * w[7]),
        p * (w[2] - rx * w[8]),
        q * (w[3] - ry * w[6]),
        q * (w[4] - ry * w[7]),
        q * (w[5] - ry * w[8]),
    )


@_jit
def project(
    first: Any,
    end: Any,
    means: Any,
    quats: Any,
    scales: Any,
    opacities: Any,
    viewmats: Any,
    Ks: Any,
    width: Any,
    height: Any,
    near_plane: Any,
    far_plane: Any,
    radius_clip: Any,
    eps2d: Any,
    antialiased: Any,
    radii: Any,
    means2d: Any,
    depths: Any,
    conics: Any,
    compensations: Any,
) -> None:  # pragma: no cover
    """Fills the last five arrays, which hold zeros, for the Gaussians that can be seen."""
    for c in range(len(viewmats)):
        view = _camera(viewmats, c)
        fx, fy = Ks[c, 0, 0] * 1.0, Ks[c, 1, 1] * 1.0
        cx, cy = Ks[c, 0, 2] * 1.0, Ks[c, 1, 2] * 1.0
        for i in range(first, end):
            x, y, z = _centre(view, viewmats, c, means, i)
            if z < near_plane or z > far_plane:
                continue
            m, _, _ = _shape(quats, scales, i)
            rz = 1 / z
            rx, _ = _bounded(x * rz, fx, cx, width)
            ry, _ = _bounded(y * rz, fy, cy, height)
            a = _image_shape(_product(view, m), fx, fy, rz, rx, ry)
            xx = a[0] * a[0] + a[1] * a[1] + a[2] * a[2]
            xy = a[0] * a[3] + a[1] * a[4] + a[2] * a[5]
            yy = a[3] * a[3] + a[4] * a[4] + a[5] * a[5]
            sharp = xx * yy - xy * xy
            xx += eps2d
            yy += eps2d
            det = xx * yy - xy * xy
            if not det > 0:
                continue
            compensation = sqrt(max(0.0, sharp / det)) if antialiased else 1.0
            opacity = opacities[i] * compensation
            if opacity < ALPHA_CUT:
                continue
            extent = min(EXTENT, sqrt(2 * log(opacity / ALPHA_CUT)))
            across = ceil(min(extent * sqrt(xx), MAX_RADIUS))
            down = ceil(min(extent * sqrt(yy), MAX_RADIUS))
            if across <= radius_clip and down <= radius_clip:
                continue
            u, v = fx * x * rz + cx, fy * y * rz + cy
            if u + across <= 0 or u - across >= width or v + down <= 0 or v - down >= height:
                continue
            radii[c, i, 0], radii[c, i, 1] = across, down
            means2d[c, i, 0], means2d[c, i, 1] = u, v
            depths[c, i] = z
            conics[c, i, 0], conics[c, i, 1], conics[c, i, 2] = yy / det, -xy / det, xx / det
            compensations[c, i] = compensation


@_jit
def project_backward(
    first: Any,
    end: Any,
    means: Any,
    quats: Any,
    scales: Any,
    viewmats: Any,
    Ks: Any,
    width: Any,
    height: Any,
    eps2d: Any,
    antialiased: Any,
    radii: Any,
    conics: Any,
    compensations: Any,
    g_means2d: Any,
    g_depths: Any,
    g_conics: Any,
    g_compensations: Any,
    g_means: Any,
    g_quats: Any,
    g_scales: Any,
    g_views: Any,
) -> None:  # pragma: no cover
    """Fills `g_means`, `g_quats`, `g_scales`; `g_views` (C, N, 12) too if it is not empty."""
    for i in range(first, end):
        m, r, inverse = _shape(quats, scales, i)
        mx, my, mz = 0.0, 0.0, 0.0
        gm = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for c in range(len(viewmats)):
            if radii[c, i, 0] <= 0 or radii[c, i, 1] <= 0:
                continue
            view = _camera(viewmats, c)
            fx, fy = Ks[c, 0, 0] * 1.0, Ks[c, 1, 1] * 1.0
            x, y, z = _centre(view, viewmats, c, means, i)
            rz = 1 / z
            rx, inside_x = _bounded(x * rz, fx, Ks[c, 0, 2] * 1.0, width)
            ry, inside_y = _bounded(y * rz, fy, Ks[c, 1, 2] * 1.0, height)
            w = _product(view, m)
            a = _image_shape(w, fx, fy, rz, rx, ry)

            # d inverse(S) = -inverse(S) dS inverse(S), all symmetric.
            p, q, s = conics[c, i, 0] * 1.0, conics[c, i, 1] * 1.0, conics[c, i, 2] * 1.0
            gp, gq, gs = g_conics[c, i, 0], 0.5 * g_conics[c, i, 1], g_conics[c, i, 2]
            t00, t01 = p * gp + q * gq, p * gq + q * gs
            t10, t11 = q * gp + s * gq, q * gq + s * gs
            gxx = -(t00 * p + t01 * q)
            gxy = -(t00 * q + t01 * s)
            gyy = -(t10 * q + t11 * s)
            if antialiased and compensations[c, i] > 0:
                k = compensations[c, i] * 1.0
                half = 0.5 * g_compensations[c, i] / k
                det = p * s - q * q
                gxx += half * ((1 - k * k) * p - eps2d * det)
                gxy += half * (1 - k * k) * q
                gyy += half * ((1 - k * k) * s - eps2d * det)

            # S = A A^T, A = J W.
            ga = (
                2 * (gxx * a[0] + gxy * a[3]),
                2 * (gxx * a[1] + gxy * a[4]),
                2 * (gxx * a[2] + gxy * a[5]),
                2 * (gxy * a[0] + gyy * a[3]),
                2 * (gxy * a[1] + gyy * a[4]),
                2 * (gxy * a[2] + gyy * a[5]),
            )
            j00, j11 = fx * rz, fy * rz
            j02, j12 = -j00 * rx, -j11 * ry
            gj00 = ga[0] * w[0] + ga[1] * w[1] + ga[2] * w[2]
            gj02 = ga[0] * w[6] + ga[1] * w[7] + ga[2] * w[8]
            gj11 = ga[3] * w[3] + ga[4] * w[4] + ga[5] * w[5]
            gj12 = ga[3] * w[6] + ga[4] * w[7] + ga[5] * w[8]
            gw = (
                j00 * ga[0],
                j00 * ga[1],
                j00 * ga[2],
                j11 * ga[3],
                j11 * ga[4],
                j11 * ga[5],
                j02 * ga[0] + j12 * ga[3],
                j02 * ga[1] + j12 * ga[4],
                j02 * ga[2] + j12 * ga[5],
            )

            # Camera space centre, from the image's centre, the depth and the Jacobian.
            gu, gv = g_means2d[c, i, 0] * 1.0, g_means2d[c, i, 1] * 1.0
            gx, gy = j00 * gu, j11 * gv
            gz = g_depths[c, i] - (j00 * x * gu + j11 * y * gv) * rz
            gz -= (j00 * gj00 + j11 * gj11) * rz
            if inside_x:
                gx -= j00 * rz * gj02
                gz += 2 * j00 * rx * rz * gj02
            else:
                gz += j00 * rx * rz * gj02
            if inside_y:
                gy -= j11 * rz * gj12
                gz += 2 * j11 * ry * rz * gj12
            else:
                gz += j11 * ry * rz * gj12

            back = _transposed(view)
            mx += back[0] * gx + back[1] * gy + back[2] * gz
            my += back[3] * gx + back[4] * gy + back[5] * gz
            mz += back[6] * gx + back[7] * gy + back[8] * gz
            t = _product(back, gw)
            gm = (
                gm[0] + t[0],
                gm[1] + t[1],
                gm[2] + t[2],
                gm[3] + t[3],
                gm[4] + t[4],
                gm[5] + t[5],
                gm[6] + t[6],
                gm[7] + t[7],
                gm[8] + t[8],
            )
            if g_views.size:
                turned = _product(gw, _transposed(m))
                for row, g in enumerate((gx, gy, gz)):
                    for column in range(3):
                        g_views[c, i, 4 * row + column] = (
                            turned[3 * row + column] + g * means[i, column]
                        )
                    g_views[c, i, 4 * row + 3] = g

        g_means[i, 0], g_means[i, 1], g_means[i, 2] = mx, my, mz
        for k in range(3):
            g_scales[i, k] = gm[k] * r[k] + gm[3 + k] * r[3 + k] + gm[6 + k] * r[6 + k]
        a, b, d = scales[i, 0] * 1.0, scales[i, 1] * 1.0, scales[i, 2] * 1.0
        g = (
            gm[0] * a,
            gm[1] * b,
            gm[2] * d,
            gm[3] * a,
            gm[4] * b,
            gm[5] * d,
            gm[6] * a,
            gm[7] * b,
            gm[8] * d,
        )
        w0, x0 = quats[i, 0] * inverse, quats[i, 1] * inverse
        y0, z0 = quats[i, 2] * inverse, quats[i, 3] * inverse
        gw0 = 2 * (x0 * (g[7] - g[5]) + y0 * (g[2] - g[6]) + z0 * (g[3] - g[1]))
        gx0 = 2 * (
            y0 * (g[1] + g[3]) + z0 * (g[2] + g[6]) + w0 * (g[7] - g[5]) - 2 * x0 * (g[4] + g[8])
        )
        gy0 = 2 * (
            x0 * (g[1] + g[3]) + z0 * (g[5] + g[7]) + w0 * (g[2] - g[6]) - 2 * y0 * (g[0] + g[8])
        )
        gz0 = 2 * (
            x0 * (g[2] + g[6]) + y0 * (g[5] + g[7]) + w0 * (g[3] - g[1]) - 2 * z0 * (g[0] + g[4])
        )
        # Only what is across the quaternion counts, as it is normalised.
        along = gw0 * w0 + gx0 * x0 + gy0 * y0 + gz0 * z0
        g_quats[i, 0] = inverse * (gw0 - along * w0)
        g_quats[i, 1] = inverse * (gx0 - along * x0)
        g_quats[i, 2] = inverse * (gy0 - along * y0)
        g_quats[i, 3] = inverse * (gz0 - along * z0)
