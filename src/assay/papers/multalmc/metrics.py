"""How far draws are from a target. None is 0 for finite samples: read them beside `self_distance`.

Samples are ``(N, d)``, tensors or arrays, of finite numbers; leave out chains that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.toolkits.checks import number, whole


def entropic_w2(x: Any, y: Any, reg: float = 0.05) -> float:
    """Wasserstein-2 distance by the plan of entropic optimal transport, ``sqrt(<P, |x - y|^2>)``.

    Sinkhorn's algorithm starts from the potentials of the exact plan, which at so small a `reg`
    saves most of its steps, and stops where the marginals of P are right to 1e-3 in total
    variation. That leaves about 1 % in the distance. With 1000 points each it takes seconds, and
    with k times as many k^2 times as long.

    Args:
        x, y: Samples, ``(N, d)`` and ``(M, d)``.
        reg: Strength of the entropy in units of squared distance, > 0. The paper's is 0.05.

    Raises:
        ValueError: Shapes that disagree, numbers that are not finite, `reg` not > 0.
    """
    import ot

    x, y = _pair(x, y)
    reg = number("reg", reg, above=0)
    a, b = (torch.full((len(s),), 1 / len(s), dtype=torch.float64) for s in (x, y))
    costs = ot.dist(torch.from_numpy(x), torch.from_numpy(y))
    _, exact = ot.emd(a, b, costs, log=True, numItermax=10_000_000)
    plan = ot.sinkhorn(
        a,
        b,
        costs,
        reg,
        method="sinkhorn_log",
        warmstart=(exact["u"] / reg, exact["v"] / reg),
        stopThr=1e-3,
        numItermax=5000,
    )
    return float((plan * costs).sum().sqrt())


def sliced_w2(x: Any, y: Any, *, n_projections: int = 200, seed: int = 0) -> float:
    """Sliced Wasserstein-2 distance, over random directions.

    Args:
        x, y: Samples, ``(N, d)`` and ``(M, d)``.
        n_projections: Number of directions, >= 1.
        seed: Of the directions: equal seeds compare along equal directions.

    Raises:
        TypeError, ValueError: Shapes that disagree, numbers that are not finite, no direction.
    """
    import ot

    x, y = _pair(x, y)
    whole("n_projections", n_projections)
    return float(ot.sliced_wasserstein_distance(x, y, n_projections=n_projections, seed=seed))


def sliced_ks(x: Any, y: Any, *, n_projections: int = 200, seed: int = 0) -> float:
    """Kolmogorov-Smirnov distance of the projections, averaged over random directions; 0 to 1.

    Args:
        x, y: Samples, ``(N, d)`` and ``(M, d)``.
        n_projections: Number of directions, >= 1.
        seed: Of the directions.

    Raises:
        TypeError, ValueError: Shapes that disagree, numbers that are not finite, no direction.
    """
    import ot
    from scipy.stats import ks_2samp

    x, y = _pair(x, y)
    whole("n_projections", n_projections)
    directions = ot.sliced.get_random_projections(x.shape[1], n_projections, seed)
    pairs = zip((x @ directions).T, (y @ directions).T, strict=True)
    return float(np.mean([ks_2samp(u, v, method="asymp").statistic for u, v in pairs]))


def energy_distance(x: Any, y: Any) -> float:
    """Energy distance ``sqrt(2 E|X - Y| - E|X - X'| - E|Y - Y'|)``; needs no second moment.

    Args:
        x, y: Samples, ``(N, d)`` and ``(M, d)``.

    Raises:
        ValueError: Shapes that disagree, or numbers that are not finite.
    """
    from scipy.spatial.distance import cdist

    x, y = _pair(x, y)
    square = 2 * cdist(x, y).mean() - cdist(x, x).mean() - cdist(y, y).mean()
    return float(np.sqrt(max(square, 0.0)))


def radius_quantile_log_ratio(x: Any, y: Any, q: float = 0.999) -> float:
    """Log of x's q-quantile of the distance from the origin over that of y; below 0: thin tails.

    Args:
        x: Samples, ``(N, d)``.
        y: Samples to compare with, ``(M, d)``, best many.
        q: 0 to 1; with fewer than ``1 / (1 - q)`` samples it is their maximum.

    Raises:
        ValueError: Shapes that disagree, numbers that are not finite, `q` outside 0 to 1.
    """
    x, y = _pair(x, y)
    q = number("q", q, least=0, most=1)
    radii = [np.quantile(np.linalg.norm(s, axis=1), q) for s in (x, y)]
    return float(np.log(radii[0] / radii[1]))


def mode_weight_tv(x: Any, target: Any) -> float:
    """Total variation between the weights of modes among samples and the true ones; 0 to 1.

    Args:
        x: Samples, ``(N, d)``.
        target: One with `mode_probabilities` and `mode_weights`, as those of `targets` that have
            modes. In mixtures a point counts for each component by its posterior probability.

    Raises:
        ValueError: Numbers that are not finite, or a target without modes.
    """
    if getattr(target, "mode_weights", None) is None:
        raise ValueError(f"target: got {type(target).__name__}, wants one with mode_weights")
    points = torch.from_numpy(_samples("x", x))
    found = target.mode_probabilities(points).mean(0)
    return float(0.5 * (found - target.mode_weights).abs().sum())


def self_distance(
    metric: Callable[..., float], target: Any, n: int, seed: int, reference: int | None = None
) -> float:
    """The floor of a metric: its value between two independent exact samples.

    Args:
        metric: One of this module's, or any function of two samples.
        target: One with an exact `sample`.
        n: Size of the sample that stands for a sampler's draws, >= 1.
        seed: Of the draws.
        reference: Size of the other one. Default: n. `mode_weight_tv` compares with the target.

    Raises:
        TypeError, ValueError: `n` or `reference` is no integer >= 1.
    """
    generator = torch.Generator().manual_seed(seed)
    x = target.sample(whole("n", n), generator, torch.float64)
    if metric is mode_weight_tv:
        return metric(x, target)
    size = n if reference is None else whole("reference", reference)
    return metric(x, target.sample(size, generator, torch.float64))


def _samples(name: str, x: Any) -> np.ndarray:
    if isinstance(x, Tensor):
        x = x.detach().cpu().numpy()
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or not len(x):
        raise ValueError(f"{name}: got shape {x.shape}, wants (N, d)")
    if not np.isfinite(x).all():
        bad = int((~np.isfinite(x)).any(1).sum())
        raise ValueError(f"{name}: got {bad} samples that are not finite, wants none")
    return x


def _pair(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = _samples("x", x), _samples("y", y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"y: got dimension {y.shape[1]}, wants {x.shape[1]} as x has")
    return x, y
