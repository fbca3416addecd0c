"""Cut-offs of 3D Gaussian splatting, as in gsplat 1.5.3; every backend reads them here."""

from __future__ import annotations

ALPHA_CUT = 1 / 255
"""A Gaussian whose alpha at a pixel is below this does not touch the pixel."""

ALPHA_CAP = 0.999
"""No alpha is larger; where it is capped, no gradient reaches the Gaussian's shape or opacity."""

TRANSMITTANCE_STOP = 1e-4
"""What would take a pixel's transmittance to this or below, and all behind it, is left out."""

EXTENT = 3.33
"""Standard deviations a Gaussian reaches; sqrt(2 ln(opacity / ALPHA_CUT)) if that is less."""

EPS2D = 0.3
"""Added to both variances of a projected Gaussian, in square pixels."""

MAX_RADIUS = 1e9
"""In pixels; radii are 32-bit integers."""

NEAR_PLANE = 0.01
FAR_PLANE = 1e10

FRUSTUM_MARGIN = 0.3
"""The Jacobian of the projection is taken at most this share of half the image outside of it."""
