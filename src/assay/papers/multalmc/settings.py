"""What claims and trials share: seeds, sizes, metrics, targets and oracles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.study import Param

SEEDS = 5
REACH_SEEDS = 3
METRICS: Mapping[str, str] = {
    "eight": "w2",
    "forty": "w2",
    "rings": "w2",
    "funnel": "sliced_ks",
    "wells": "w2",
    "plane": "weight_tv",
    "three": "weight_tv",
    "field": "weight_error",
    "ionosphere": "mean_error",
    "sonar": "mean_error",
    "gate": "weight_error",
}
"""What is judged on each target, and what constants are searched by."""

LOST = 1e9
"""The score of constants with which chains leave the numbers."""

FIELDS = (0.0, 0.002, 0.005)
EPSILONS = (0.05, 0.1, 0.2, 0.4)
LARGER_EPSILONS = (0.1, 0.2, 0.4, 0.8)
STAGES = (3, 5, 7, 9, 11)
TAIL_DIMS = (2, 10)
DISTANCES = (4.0, 6.0, 8.0, 10.0, 12.0)
LONGER = 6
REACHED = 0.15
OVERHEAD = 1.3


@dataclass(frozen=True)
class Oracle:
    """A check against an independent answer.

    Args:
        what: what is checked, against what.
        origin: "derived", "paper" or "cited": where the equation comes from; "" for an exact
            answer that stands beside the method.
        limit: largest error that passes.
    """

    what: str
    origin: str
    limit: float


ORACLES: Mapping[str, Oracle] = {
    "form-a": Oracle("score identity, form A, against a Gaussian's score", "derived", 1e-10),
    "form-b": Oracle("score identity, form B, against a Gaussian's score", "derived", 1e-10),
    "fast-drift": Oracle("drift of the fast process against autograd of log rho", "derived", 1e-10),
    "ito": Oracle("modified Ito drift against autograd of w and log rho", "derived", 1e-10),
    "ito-law": Oracle("moments of the modified Ito diffusion against rho", "derived", 0.05),
    "srock-coefficients": Oracle("coefficients of two stages by hand", "cited", 1e-12),
    "srock-consistency": Oracle("A(0) = 1 and A'(0) = -1 for 1 to 11 stages", "cited", 1e-8),
    "srock-stability": Oracle("largest |A(z)| up to the limit, less 1", "cited", 1e-10),
    "srock-variance": Oracle("variance on an OU process against 1 / k, h k = 0.01", "cited", 0.01),
    "cdiff-forward": Oracle("exp(A t) against a matrix exponential", "derived", 1e-12),
    "cdiff-reverse": Oracle("the same of the process run backwards", "derived", 1e-12),
    "cdiff-covariance": Oracle("covariance at t against the Lyapunov equation", "derived", 1e-8),
    "cdiff-invariance": Oracle("one reverse step leaves N(0, I) x N(0, M)", "derived", 1e-10),
    "scores": Oracle("scores of all targets against autograd, relative", "", 1e-8),
    "path": Oracle("score of a mixture on the path against form B by quadrature", "", 1e-8),
    "lattice": Oracle("transfer matrix of three sites against quadrature", "", 1e-10),
    "lattice-symmetry": Oracle("weights of both phases without a field against 1/2", "", 1e-10),
    "wells": Oracle("normaliser of a double well against Bessel functions", "", 1e-10),
    "mean": Oracle("mean of N(3, 1/4) by MultALMC", "", 0.05),
    "variance": Oracle("variance of N(3, 1/4) by MultALMC, relative", "", 0.2),
}
"""What is checked before anything is believed."""

_BUDGET = "equal numbers of gradients and densities for each chain, all start at N(0, I); 30 seeds"
PLACES = {
    "eight": ("eight Gaussians in the plane", f"3e5 evaluations; {_BUDGET}", "Table 1"),
    "forty": ("forty Gaussians", f"d = 50, 5e6 evaluations; {_BUDGET}", "Table 1"),
    "rings": ("four rings", f"3e5 evaluations; {_BUDGET}", "Table 1"),
    "funnel": ("Neal's funnel", f"d = 10, 5e5 evaluations; {_BUDGET}", "Table 1"),
    "wells": ("double wells in 5 dimensions", f"3e5 evaluations; {_BUDGET}", "Table 1"),
}
NAMES = {
    "smc": "tempered SMC",
    "pt": "parallel tempering",
    "rdmc": "reverse diffusion Monte Carlo",
    "ulmc": "underdamped Langevin",
    "ula": "unadjusted Langevin",
}


def arm(target: str, sampler: str) -> Mapping[str, Param]:
    """The trials of a sampler on a target."""
    return {"part": "compare", "target": target, "sampler": sampler}
