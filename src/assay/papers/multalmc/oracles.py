"""Independent answers that the method's equations and the targets are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from scipy import integrate as quadrature
from scipy import special
from torch import Tensor

from assay.papers.multalmc.base import Normal, StudentT
from assay.papers.multalmc.cdiff import CriticallyDampedOU
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.score_identity import form_a, form_b, scaled_ito, scaled_langevin
from assay.papers.multalmc.srock import (
    coefficients,
    srock_step,
    stability_limit,
    stability_polynomial,
)
from assay.papers.multalmc.targets import (
    DoubleWell,
    Funnel,
    GaussianMixture,
    LogisticRegression,
    PhiFour,
    Rings,
    eight_gaussians,
    forty_gaussians,
    ten_students,
)

_Log = Callable[[Tensor], Tensor]
_MEAN, _VARIANCE = 3.0, 0.25
_TIMES = torch.tensor([0.01, 0.1, 0.5, 1.0, 3.0, 8.0], dtype=torch.float64)
_STAGES = range(1, 12)


def _gaussian() -> GaussianMixture:
    return GaussianMixture(torch.tensor([[_MEAN]]), _VARIANCE)


_LAMBDAS = (0.01, 0.3, 0.6, 0.99)


def _points(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, dtype=torch.float64, generator=generator)


# The score identity


def _form(which: str) -> float:
    """Both forms are affine in y for a Gaussian, so their mean is their value at Y's mean."""
    target, x = _gaussian(), 3 * _points(100, 1)
    errors = []
    for lam in _LAMBDAS:
        root = math.sqrt(lam)
        precision = 1 / (lam * _VARIANCE) + 1 / (1 - lam)
        mean = (root * _MEAN / (lam * _VARIANCE) + x / (1 - lam)) / precision
        found = form_a(Normal(), lam, x, mean) if which == "a" else form_b(target.score, lam, mean)
        exact = (root * _MEAN - x) / (lam * _VARIANCE + 1 - lam)
        errors.append((found - exact).abs().max())
    return float(torch.stack(errors).max())


def _log_rho(target: GaussianMixture, base: Normal | StudentT, lam: float, x: Tensor) -> _Log:
    return lambda y: (
        base.log_prob((x - y) / math.sqrt(1 - lam)) + target.log_prob(y / math.sqrt(lam))
    )


def _gradient(function: _Log, at: Tensor) -> Tensor:
    at = at.detach().requires_grad_()
    return torch.autograd.grad(function(at).sum(), at)[0]


def _fast_drift() -> float:
    """In z = y / sqrt(lam), with time in units of lam, the drift is sqrt(lam) grad log rho(y)."""
    target, x, y = eight_gaussians(), _points(100, 2), _points(100, 2, seed=1)
    errors = []
    for lam in _LAMBDAS[:3]:
        for base in (Normal(), StudentT(2.0)):
            drift, _ = scaled_langevin(target.score, base, lam, x)
            exact = math.sqrt(lam) * _gradient(_log_rho(target, base, lam, x), y)
            errors.append((drift(y / math.sqrt(lam)) - exact).abs().max())
    return float(torch.stack(errors).max())


def _ito() -> float:
    """Likewise sqrt(lam) (w grad log rho + grad w), with diffusion sqrt(2 w)."""
    target, base = eight_gaussians(), StudentT(2.0)
    x, y = _points(100, 2), _points(100, 2, seed=1)

    def weight(y: Tensor) -> Tensor:
        return 1 + (y - x).square().sum(-1, keepdim=True) / base.df

    errors = []
    for lam in _LAMBDAS[:3]:
        drift, diffusion = scaled_ito(target.score, base, lam, x, y / math.sqrt(lam))
        pull = weight(y) * _gradient(_log_rho(target, base, lam, x), y)
        exact = math.sqrt(lam) * (pull + _gradient(weight, y))
        errors.append((drift(y / math.sqrt(lam)) - exact).abs().max())
        errors.append((diffusion**2 - 2 * weight(y)).abs().max())
    return float(torch.stack(errors).max())


def _ito_law() -> float:
    """Mean and spread after a long run, against quadrature, in units of the spread."""
    target, base, lam = _gaussian(), StudentT(3.0), 0.3
    x = torch.full((20_000, 1), 0.5, dtype=torch.float64)
    grid = torch.linspace(-10, 10, 4001, dtype=torch.float64)[:, None]
    mass = _log_rho(target, base, lam, x[:1])(grid).softmax(0)
    mean = float(mass @ grid[:, 0])
    sd = math.sqrt(float(mass @ (grid[:, 0] - mean) ** 2))
    z, generator = x / math.sqrt(lam), torch.Generator().manual_seed(0)
    for _ in range(300):
        noise = torch.randn(z.shape, dtype=z.dtype, generator=generator)
        drift, diffusion = scaled_ito(target.score, base, lam, x, z)
        z = srock_step(z, drift, diffusion, 0.01, 2, noise)
    y = math.sqrt(lam) * z
    return max(abs(float(y.mean()) - mean) / sd, abs(float(y.std()) / sd - 1))


# MultALMC itself


@cache
def _whole_run() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    sampler = MultALMC(_gaussian(), n_steps=6000, step_size=0.01, generator=generator)
    return sampler.sample(1000).samples


# MultCDiff's process


def _cdiff_matrices(friction: float) -> tuple[Tensor, Tensor]:
    """Generators of the forward process and of the one run backwards."""
    mass = friction**2 / 4
    forward = torch.tensor([[0, 1 / mass], [-1, -friction / mass]], dtype=torch.float64)
    backward = torch.tensor([[0, -1 / mass], [1, -friction / mass]], dtype=torch.float64)
    return forward, backward


def _exponential(reverse: bool) -> float:
    errors = []
    for friction in (0.5, 2.0, 3.0):
        process = CriticallyDampedOU(friction)
        generator = _cdiff_matrices(friction)[reverse]
        exact = torch.linalg.matrix_exp(generator * _TIMES[:, None, None])
        ours = process.reverse_matrix(_TIMES) if reverse else process.matrix(_TIMES)
        errors.append((ours - exact).abs().max())
    return float(torch.stack(errors).max())


def _cdiff_covariance() -> float:
    """Solves dS/dt = A S + S A^T + 2 Gamma e_v e_v^T from diag(0, M)."""
    friction = 2.0
    generator = _cdiff_matrices(friction)[0].numpy()
    noise = np.diag([0.0, 2 * friction])

    def slope(_: float, flat: np.ndarray) -> np.ndarray:
        s = flat.reshape(2, 2)
        return (generator @ s + s @ generator.T + noise).ravel()

    process = CriticallyDampedOU(friction)
    start = np.diag([0.0, process.mass]).ravel()
    found = quadrature.solve_ivp(
        slope, (0, 8), start, t_eval=_TIMES.numpy(), rtol=1e-12, atol=1e-13
    )
    return float(np.abs(found.y.T.reshape(-1, 2, 2) - process.covariance(_TIMES).numpy()).max())


def _cdiff_invariance() -> float:
    """A half-step of the linear part keeps S = diag(1, M), and the exact score kicks nothing."""
    process = CriticallyDampedOU(2.0)
    s = torch.diag(torch.tensor(process.scales, dtype=torch.float64))
    move, noise = process.reverse_matrix(_TIMES), process.reverse_noise(_TIMES)
    kept = move @ s @ move.mT + noise @ noise.mT - s
    # With the target N(0, 1), Y | z is Gaussian and the score the mean of -(v - mean) / variance.
    z = _points(1000, 2)
    kicks = []
    for t in _TIMES:
        (m1, m3), gain, variance = process.conditional(t)
        y = z @ (process.mean(t) / torch.diag(s))  # the covariance of y and z is m, that of z is S
        score = -(z[:, 1] - m3 * y - gain * (z[:, 0] - m1 * y)) / variance
        kicks.append((score + z[:, 1] / process.mass).abs().max())
    return max(float(kept.abs().max()), float(torch.stack(kicks).max()))


# The stabilised integrator


def _srock_coefficients() -> float:
    """Two stages and damping 0.05, where T_2(w) = 2 w^2 - 1."""
    c, w = coefficients(2), 1 + 0.05 / 4
    ratio = (2 * w**2 - 1) / (4 * w)
    by_hand = (w, ratio, ratio / w, 2 * ratio / w, ratio)
    ours = (c.omega0, c.omega1, c.drift[0], c.first_noise, c.first_shift)
    return max(abs(a - b) for a, b in zip(ours, by_hand, strict=True))


def _srock_consistency() -> float:
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    errors = []
    for stages in _STAGES:
        value = stability_polynomial(zero, stages)
        assert isinstance(value, Tensor)
        (slope,) = torch.autograd.grad(value, zero)
        errors += [abs(float(value.detach()) - 1), abs(float(slope) + 1)]
    return max(errors)


def _srock_stability() -> float:
    worst = []
    for stages in _STAGES:
        z = torch.linspace(0, stability_limit(stages), 2001, dtype=torch.float64)
        value = stability_polynomial(z, stages)
        assert isinstance(value, Tensor)
        worst.append(float(value.abs().max()) - 1)
    return max(0.0, *worst)


def _srock_variance() -> float:
    """On dY = -k Y dt + sqrt(2) dB a step is y' = a y + b xi, stationary at b^2 / (1 - a^2)."""
    k, h = 2.0, 0.005
    errors = []
    for stages in _STAGES:
        one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)

        def drift(y: Tensor) -> Tensor:
            return -k * y

        a = float(srock_step(one, drift, math.sqrt(2), h, stages, zero))
        b = float(srock_step(zero, drift, math.sqrt(2), h, stages, one))
        errors.append(abs(b**2 / (1 - a**2) * k - 1))
    return max(errors)


# Targets


def _scores() -> float:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 5, dtype=torch.float64, generator=generator)
    labels = (features[:, 0] > 0).double()
    targets = (
        eight_gaussians(),
        forty_gaussians(10),
        Rings(),
        Funnel(10),
        DoubleWell(5),
        ten_students(10),
        PhiFour(16, 0.01),
        LogisticRegression(features, labels, features, labels),
    )
    errors = []
    for target in targets:
        x = torch.randn(100, target.dim, dtype=torch.float64, generator=generator).requires_grad_()
        (exact,) = torch.autograd.grad(target.log_prob(x).sum(), x)
        ours = target.score(x.detach())
        errors.append(float(((ours - exact).norm(dim=1) / (1 + exact.norm(dim=1))).max()))
    return max(errors)


def _path() -> float:
    """E[-grad V(Y / sqrt(lam))] / sqrt(lam) by quadrature over Y, for a mixture on the line."""
    target = GaussianMixture(torch.tensor([[-2.0], [3.0]]), torch.tensor([0.5, 1.0]), [0.3, 0.7])
    grid = torch.linspace(-15, 15, 6001, dtype=torch.float64)[:, None]
    errors = []
    for lam in (0.05, 0.3, 0.6, 0.95):
        x = torch.linspace(-4, 4, 17, dtype=torch.float64)[:, None]
        inner = grid / math.sqrt(lam)
        log_rho = target.log_prob(inner) - (x - grid.T) ** 2 / (2 * (1 - lam))
        found = log_rho.softmax(1) @ target.score(inner) / math.sqrt(lam)
        errors.append(float((found - target.marginal(lam).score(x)).abs().max()))
    return max(errors)


def _lattice() -> float:
    """Z and the weight of the upper phase of three sites, on a grid in three dimensions."""
    field = PhiFour(3, 0.05)
    line = torch.linspace(-3, 3, 101, dtype=torch.float64)
    points = torch.cartesian_prod(line, line, line)
    mass = field.log_prob(points).exp() * float(line[1] - line[0]) ** 3
    share = torch.where(points[:, 1] == 0, 0.5, (points[:, 1] > 0).double())
    weight = float((mass * share).sum() / mass.sum())
    return max(
        abs(float(mass.sum().log()) - field.log_normaliser),
        abs(weight - float(field.mode_weights[1])),
    )


def _lattice_symmetry() -> float:
    return max(abs(float(PhiFour(dim, 0.0).mode_weights[1]) - 0.5) for dim in (1, 2, 16, 100))


def _wells() -> float:
    """The integral of exp(-(x^2 - d)^2) over the line is
    pi sqrt(d) / 2 exp(-d^2 / 2) (I_{1/4}(d^2 / 2) + I_{-1/4}(d^2 / 2))."""
    errors = []
    for d in (0.5, 2.0, 3.0, 4.0):
        scaled = special.ive(0.25, d**2 / 2) + special.ive(-0.25, d**2 / 2)
        errors.append(abs(DoubleWell(1, delta=d).normaliser - math.pi * math.sqrt(d) / 2 * scaled))
    return max(errors)


CHECKS: Mapping[str, Callable[[], float]] = {
    "form-a": lambda: _form("a"),
    "form-b": lambda: _form("b"),
    "fast-drift": _fast_drift,
    "ito": _ito,
    "ito-law": _ito_law,
    "srock-coefficients": _srock_coefficients,
    "srock-consistency": _srock_consistency,
    "srock-stability": _srock_stability,
    "srock-variance": _srock_variance,
    "cdiff-forward": lambda: _exponential(reverse=False),
    "cdiff-reverse": lambda: _exponential(reverse=True),
    "cdiff-covariance": _cdiff_covariance,
    "cdiff-invariance": _cdiff_invariance,
    "scores": _scores,
    "path": _path,
    "lattice": _lattice,
    "lattice-symmetry": _lattice_symmetry,
    "wells": _wells,
    "mean": lambda: abs(float(_whole_run().mean()) - _MEAN),
    "variance": lambda: abs(float(_whole_run().var()) / _VARIANCE - 1),
}
"""The error of each check of `claims.ORACLES`."""
