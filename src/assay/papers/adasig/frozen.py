"""What each way of clipping makes of the same gradients: direction against magnitude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.papers.adasig.clipping import adasig_weight, auto_s_weight, flat_weight, psac_weight
from assay.papers.adasig.data import Examples, Splits
from assay.papers.adasig.training import Recipe, Setting, batches, build, privately

SLOPES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
STAGES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of a training run after which gradients are taken."""

PARAMETERS = np.geomspace(1e-3, 1e4, 85).tolist()
"""Over which each rule's trade-off is traced, from constant weights to normalisation."""

_MATCHED = (0.25, 0.5, 0.75)

RULES: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "adasig": adasig_weight,
    "flat": lambda x, unit: flat_weight(x, 1 / unit) * unit,
    "auto_s": lambda x, unit: auto_s_weight(x, r=1 / unit),
    "psac": lambda x, unit: psac_weight(x, r=1 / unit),
}
"""Weights with one parameter and sensitivity 1; as it grows, all of them become normalisation.

For constant clipping, of which quantile clipping is a case, it is 1 / C and the sum is divided by
C as its noise is; for AUTO-S and PSAC it is 1 / r."""


@dataclass(frozen=True)
class Curve:
    """A rule's sums of clipped gradients over its parameter.

    Args:
        cosines: with the sum of the gradients.
        norms: over the number of gradients, so in 0..1: the share of the sensitivity that signal
            fills. Noise does not depend on the rule here, so it is proportional to the
            signal-to-noise ratio.
    """

    cosines: tuple[float, ...]
    norms: tuple[float, ...]

    def best_cosine(self, norm: float) -> float:
        """The largest cosine with at least the given norm, lines drawn between the points.

        Args:
            norm: at most the curve's largest.

        Raises:
            ValueError: the curve does not reach the norm.
        """
        if norm > max(self.norms):
            raise ValueError(f"norm: got {norm}, wants at most {max(self.norms)}")
        found = [c for c, s in zip(self.cosines, self.norms, strict=True) if s >= norm]
        for i, j in zip(range(len(self.norms) - 1), range(1, len(self.norms)), strict=True):
            low, high = self.norms[i], self.norms[j]
            if min(low, high) < norm < max(low, high):
                share = (norm - low) / (high - low)
                found.append(self.cosines[i] + share * (self.cosines[j] - self.cosines[i]))
        return max(found)


def trace(gradients: Tensor, rule: str, parameters: list[float] | tuple[float, ...]) -> Curve:
    """The trade-off of a rule on the gradients of one batch.

    Args:
        gradients: ``(n, d)``.
        rule: a key of `RULES`.
        parameters: of the rule.
    """
    x = gradients.norm(dim=1).double()
    weights = torch.stack([RULES[rule](x, p) for p in parameters]).to(gradients.dtype)
    clipped = (weights @ gradients).double()
    total = gradients.sum(0).double()
    norms = clipped.norm(dim=1)
    cosines = clipped @ total / (norms * total.norm())
    return Curve(tuple(cosines.tolist()), tuple((norms / len(x)).tolist()))


def common_norms(curves: Mapping[str, Curve]) -> list[float]:
    """Three norms that every rule reaches by choice, not by default; none where there are none.

    They lie at a quarter, half and three quarters between the largest of the rules' norms at the
    small end of the parameter (PSAC's weight is never below 1 / (x + 1)) and the least of their
    largest norms.

    Args:
        curves: of all rules, on the same gradients.
    """
    low = max(curve.norms[0] for curve in curves.values())
    high = min(max(curve.norms) for curve in curves.values())
    return [low + share * (high - low) for share in _MATCHED] if low < high else []


def along_training(
    setting: Setting, recipe: Recipe, splits: Splits, seed: int, n: int = 2048
) -> Iterator[Tensor]:
    """Gradients ``(n, d)`` of one random batch at the `STAGES` of a private training run.

    Args:
        setting: how the run clips.
        recipe: of the run.
        splits: its data; the batch is of the training part.
        seed: of the run and of the batch.
        n: size of the batch, at most.
    """
    model, copy = (build(recipe, splits.train, seed) for _ in range(2))
    order = torch.randperm(len(splits.train), generator=torch.Generator().manual_seed(seed))
    batch = splits.train.part(order[:n])
    yield per_sample_gradients(copy, batch)
    private, optimizer, loader, _ = privately(model, setting, recipe, splits.train, seed)
    steps = recipe.epochs * len(loader)
    marks = {round(share * steps) for share in STAGES}
    for step, (x, y) in enumerate(batches(loader, recipe.epochs), start=1):
        optimizer.zero_grad()
        F.cross_entropy(private(x), y).backward()
        optimizer.step()
        if step in marks:
            copy.load_state_dict(model.state_dict())  # functorch does not stand Opacus' hooks
            yield per_sample_gradients(copy, batch)


def per_sample_gradients(model: nn.Module, examples: Examples) -> Tensor:
    """``(n, d)``: the gradient of each example's loss over all parameters.

    Args:
        model: whose parameters.
        examples: n of them.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, parameters, x.unsqueeze(0))
        return F.cross_entropy(logits, y.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(
        parameters, examples.x, examples.y
    )
    return torch.cat([g.flatten(1) for g in gradients.values()], dim=1)
