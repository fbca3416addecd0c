"""A one-run audit: how much privacy an attacker shows to be lost, at least.

Half of m canaries, drawn at random, are trained on. From what training releases the attacker
guesses which (Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", 2023).
Each canary's gradient lies along a coordinate of its own, a Dirac canary in gradient space.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.papers.adasig.clipping import adasig_weight, flat_weight
from assay.papers.adasig.data import Examples
from assay.papers.adasig.optimizer import AdaSigDPOptimizer
from assay.papers.adasig.privacy import sensitivity
from assay.papers.adasig.training import Recipe, Setting, batches, privately, spent

CANARY_NORM = 2.4
"""Length of a canary's gradient: at slope 1 it moves clipped sum and slope direction together as
far as any gradient can under joint accounting, ``u tanh u = 1`` at u = z / 2."""


class CanaryClassifier(nn.Module):
    """A linear classifier with one more parameter for each canary.

    The loss of an example with features 0 is ``c . v`` for its canary part c and the canary
    parameters v: its gradient is c itself.

    Args:
        features: numbers of an example.
        classes: outputs.
        canaries: how many.
    """

    def __init__(self, features: int, classes: int, canaries: int) -> None:
        super().__init__()
        self.features = features
        self.head = nn.Linear(features, classes, bias=False)
        self.canary = nn.Linear(canaries, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(b, classes)`` and canary losses ``(b,)`` of ``(b, features + canaries)``."""
        return self.head(x[:, : self.features]), self.canary(x[:, self.features :]).squeeze(1)


def audit(
    setting: Setting,
    recipe: Recipe,
    examples: Examples,
    seed: int,
    canaries: int = 2000,
    noise_factor: float = 1.0,
    significance: float = 0.05,
) -> dict[str, float]:
    """Trains once with canaries and bounds epsilon from below.

    The attacker sees all that is released: each step's noisy sum and noisy slope direction. A
    canary's score is its log likelihood ratio under Poisson sampling.

    Args:
        setting: "flat" or one of the AdaSig arms.
        recipe: budget, batch and epochs.
        examples: the other examples, with flat features.
        seed: of canaries, batches and noise.
        canaries: how many are tossed for.
        noise_factor: what the noise is multiplied by behind the accountant's back; 0.1 is a broken
            implementation.
        significance: chance that a lower bound is wrong.

    Returns:
        epsilon_lower: by the bound of Steinke et al.; epsilon_lower_fdp: by that of Mahloujifar et
        al. (2024), for mechanisms as private as a Gaussian one; auroc of the scores; epsilon, the
        claim that is audited; canaries that were trained on.

    Raises:
        ImportError: jax-privacy is not installed.
    """
    from jax_privacy.auditing import CanaryScoreAuditor

    generator = torch.Generator().manual_seed(seed)
    included = torch.rand(canaries, generator=generator) < 0.5
    features, classes = examples.x.shape[1], int(examples.y.max()) + 1
    data = with_canaries(examples, canaries, included)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CanaryClassifier(features, classes, canaries)
    canary: Any = model.canary.weight
    private, optimizer, loader, _ = privately(model, setting, recipe, data, seed)
    optimizer.noise_multiplier *= noise_factor
    claimed = optimizer.noise_multiplier / noise_factor
    rate = 1 / len(loader)

    scores = torch.zeros(canaries, dtype=torch.float64)
    steps = 0
    for x, y in batches(loader, recipe.epochs):
        optimizer.zero_grad()
        logits, canary_losses = private(x)
        (F.cross_entropy(logits, y, reduction="none") + canary_losses).mean().backward()
        slope = getattr(optimizer, "slope", None)
        optimizer.step()
        scores += log_likelihood_ratios(optimizer, canary, slope, rate)
        steps += 1

    auditor = CanaryScoreAuditor(scores[included].numpy(), scores[~included].numpy())
    return {
        "epsilon_lower": float(auditor.epsilon_one_run(significance, recipe.delta)),
        "epsilon_lower_fdp": float(auditor.epsilon_one_run_fdp(significance, recipe.delta)),
        "auroc": float(auditor.attack_auroc()),
        "epsilon": spent(((claimed, rate, steps),), recipe.delta),
        "included": float(included.sum()),
    }


def with_canaries(examples: Examples, canaries: int, included: Tensor) -> Examples:
    """The examples with canary coordinates of 0, then the included canaries with features of 0.

    Args:
        examples: with flat features.
        canaries: number of canary coordinates.
        included: which canaries are there, bool ``(canaries,)``.
    """
    n, features = examples.x.shape
    ordinary = torch.cat([examples.x, torch.zeros(n, canaries)], dim=1)
    own = torch.cat([torch.zeros(canaries, features), CANARY_NORM * torch.eye(canaries)], dim=1)
    x = torch.cat([ordinary, own[included]])
    return Examples(x, torch.cat([examples.y, torch.zeros(int(included.sum())).long()]))


def log_likelihood_ratios(
    optimizer: Any, parameter: Any, slope: float | None, rate: float
) -> Tensor:
    """``(canaries,)``: how much likelier a step's release is with the canary than without it.

    Args:
        optimizer: after its step.
        parameter: the canaries' coordinates.
        slope: before the step; None where there is none.
        rate: of the Poisson sampling.
    """
    released = parameter.grad.flatten().double() * optimizer.expected_batch_size
    norm = torch.tensor([CANARY_NORM], dtype=torch.float64)
    if not isinstance(optimizer, AdaSigDPOptimizer) or slope is None:
        shift = (flat_weight(norm, optimizer.max_grad_norm) * norm).item()
        return poisson_ratio(_ratio(released, shift, optimizer.noise_multiplier), rate)
    sigma_s, sigma_r = optimizer.noise_multipliers
    shift = (adasig_weight(norm, slope) * norm).item()
    ratio = _ratio(released, shift, sigma_s)
    if sigma_r:
        directions = optimizer.state_dict()["adasig"]["slope_direction"]
        index = [p is parameter for p in optimizer.params].index(True)
        z = slope * CANARY_NORM
        shift = CANARY_NORM / (2 * math.cosh(z / 2) ** 2)
        ratio = ratio + _ratio(
            directions[index].flatten().double(), shift, sigma_r * sensitivity(slope)
        )
    return poisson_ratio(ratio, rate)


def _ratio(released: Tensor, shift: float, std: float) -> Tensor:
    return (released * shift - shift**2 / 2) / std**2


def poisson_ratio(ratio: Tensor, rate: float) -> Tensor:
    """``log(1 - q + q exp(ratio))``: of a release that the canary is part of with chance q.

    Args:
        ratio: log likelihood ratios given that it is part of it.
        rate: q.
    """
    return torch.logaddexp(
        torch.tensor(math.log1p(-rate), dtype=torch.float64), ratio + math.log(rate)
    )
