"""The privacy of one step, checked on grids and with dp-accounting."""

from __future__ import annotations

import numpy as np

from assay.papers.adasig.privacy import SENSITIVITY, split_noise

_SLOPES = (0.01, 0.1, 0.5, 1.0, 5.0, 50.0, 1000.0)
_SIGMAS = (0.7, 1.5, 4.0)
_DELTA = 1e-5


def measured_bounds(points: int = 1_000_000) -> dict[str, float]:
    """What the paper's lemma and proposition, and joint accounting, say about a step.

    Args:
        points: lengths of a gradient on each grid.

    Returns:
        slope_sensitivity: the largest slope times norm of a slope gradient over all lengths;
        paper_over_gaussian: epsilon of the two releases of a step under the paper's split over
        that of one Gaussian mechanism of the equivalent multiplier, the ratio furthest from 1;
        joint_over_gaussian: largest squared shift of a step's two releases, in standard
        deviations, over that of the Gaussian mechanism, under joint accounting.
    """
    z = np.geomspace(1e-8, 700, points)
    h = z / 2 / np.cosh(z / 2) ** 2
    moved = max(slope * np.max(h / slope) for slope in _SLOPES)
    ratios = [_epsilon(*split_noise(sigma)) / _epsilon(sigma) for sigma in _SIGMAS]
    sigma_s, sigma_r = split_noise(1.0, "joint")
    shift = (np.tanh(z / 2) / sigma_s) ** 2 + (h / SENSITIVITY / sigma_r) ** 2
    return {
        "slope_sensitivity": float(moved),
        "paper_over_gaussian": max(ratios, key=lambda ratio: abs(ratio - 1)),
        "joint_over_gaussian": float(shift.max()),
    }


def _epsilon(*sigmas: float) -> float:
    """Of Gaussian mechanisms in sequence, by their privacy loss distribution."""
    from dp_accounting import ComposedDpEvent, GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    event = ComposedDpEvent([GaussianDpEvent(sigma) for sigma in sigmas])
    return float(PLDAccountant().compose(event).get_epsilon(_DELTA))
