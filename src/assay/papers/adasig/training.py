"""One private training run, and how far its clipping strays from the batch's gradient."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier
from torch import Tensor, nn
from torch.utils.data import DataLoader

from assay.papers.adasig import models
from assay.papers.adasig.arms import ARMS
from assay.papers.adasig.data import Examples, Splits
from assay.papers.adasig.engine import AdaSigPrivacyEngine

_DIAGNOSED_EVERY = 4


@dataclass(frozen=True)
class Setting:
    """A way of clipping with its own parameter and learning rate.

    Args:
        arm: a key of `arms.ARMS`.
        value: of the arm's knob.
        rate: learning rate times the clipping bound C.
    """

    arm: str
    value: float
    rate: float


@dataclass(frozen=True)
class Recipe:
    """What every arm of a comparison shares.

    Args:
        model: "mlp", "pooled" (an MLP on 2 x 2 means of pixels) or "cnn".
        batch: expected batch; the sampling rate is 1 / ceil(n / batch).
        epochs: passes over the data, in expectation.
        epsilon, delta: the privacy budget that is spent.
        momentum: of SGD.
        bound: C, where it is not the arm's own parameter.
        hidden: units of an MLP.
    """

    model: str
    batch: int
    epochs: int
    epsilon: float = 3.0
    delta: float = 1e-5
    momentum: float = 0.9
    bound: float = 1.0
    hidden: int = 16


@dataclass(frozen=True)
class Run:
    """What a training run left behind.

    Args:
        validation, test: accuracy at the end, in percent.
        cosine: mean cosine of the sum of clipped gradients with the sum of gradients: 1 is no
            direction mismatch.
        snr: mean norm of the sum of clipped gradients over the noise of a coordinate: the larger,
            the less magnitude mismatch.
        agreement: share of the slope's steps whose sign is that without noise; NaN without slope.
        slopes: the slope after each step.
        epsilon: spent, as the accountant says.
    """

    validation: float
    test: float
    cosine: float
    snr: float
    agreement: float
    slopes: tuple[float, ...]
    epsilon: float


def train(
    setting: Setting,
    recipe: Recipe,
    splits: Splits,
    seed: int,
    device: str = "cpu",
    diagnose: bool = False,
) -> Run:
    """Trains a model within the privacy budget of the recipe.

    Equal seeds start from equal weights and draw equal batches whatever the setting.

    Args:
        setting: what is compared.
        recipe: what is shared.
        splits: the data.
        seed: of weights, batches and noise.
        device: "cpu" or "cuda".
        diagnose: whether to measure `cosine`, `snr`, `agreement` and `epsilon`; NaN otherwise.
    """
    model = build(recipe, splits.train, seed).to(device)
    model, optimizer, loader, engine = privately(
        model, setting, recipe, splits.train, seed, device, diagnose
    )
    mismatches: list[tuple[float, float]] = []
    agreed: list[bool] = []
    for step, (x, y) in enumerate(batches(loader, recipe.epochs)):
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
        if not diagnose:
            continue
        if step % _DIAGNOSED_EVERY == 0:
            mismatches.append(mismatch(optimizer))
        last = getattr(optimizer, "last_diagnostics", None)
        if last is not None and last.agreed is not None:
            agreed.append(last.agreed)
    return Run(
        accuracy(model, splits.validation.to(device)),
        accuracy(model, splits.test.to(device)),
        fmean(c for c, _ in mismatches) if mismatches else math.nan,
        fmean(s for _, s in mismatches) if mismatches else math.nan,
        fmean(agreed) if agreed else math.nan,
        tuple(getattr(optimizer, "slope_history", ())),
        spent(tuple(engine.accountant.history), recipe.delta) if diagnose else math.nan,
    )


def build(recipe: Recipe, examples: Examples, seed: int) -> nn.Module:
    """The recipe's model for the examples, its weights drawn from the seed alone.

    Raises:
        ValueError: no such model.
    """
    inputs, classes = examples.x[0].numel(), int(examples.y.max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if recipe.model == "mlp":
            return models.mlp(inputs, classes, recipe.hidden)
        if recipe.model == "pooled":
            return nn.Sequential(nn.AvgPool2d(2), models.mlp(inputs // 4, classes, recipe.hidden))
        if recipe.model == "cnn":
            return models.tanh_cnn()
    raise ValueError(f"model: got {recipe.model!r}, wants mlp, pooled or cnn")


def privately(
    model: nn.Module,
    setting: Setting,
    recipe: Recipe,
    examples: Examples,
    seed: int,
    device: str = "cpu",
    diagnose: bool = False,
) -> tuple[Any, Any, DataLoader[Any], AdaSigPrivacyEngine]:
    """Model, optimizer and Poisson loader that spend the recipe's budget, and their engine.

    Args:
        model: on `device`.
        setting: clipping and learning rate.
        recipe: budget, batch and epochs.
        examples: what is trained on.
        seed: of batches and noise.
        device: where the noise is drawn.
        diagnose: whether the optimizer keeps its own diagnostics, which are not private.
    """
    arm = ARMS[setting.arm]
    options: dict[str, Any] = dict(arm.options)
    bound = recipe.bound
    if arm.knob == "max_grad_norm":
        bound = setting.value
    else:
        options[arm.knob] = setting.value
    if arm.clipping == "adaptive":
        options["unclipped_num_std"] = recipe.batch / 20
    elif arm.clipping != "flat":
        options["diagnostics"] = diagnose
    loader: DataLoader[Any] = DataLoader(
        examples,  # type: ignore[arg-type]
        recipe.batch,
        collate_fn=_as_it_is,
        generator=torch.Generator().manual_seed(seed),
    )
    steps_an_epoch = len(loader)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=setting.rate / bound, momentum=recipe.momentum
    )
    with _quiet():
        engine = AdaSigPrivacyEngine(accountant="prv")
        private = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=noise_multiplier(recipe, steps_an_epoch),
            max_grad_norm=bound,
            noise_generator=torch.Generator(device).manual_seed(seed + 1),
            clipping=arm.clipping,
            clipping_kwargs=options,
        )
    return (*private, engine)


@cache
def noise_multiplier(recipe: Recipe, steps_an_epoch: int) -> float:
    """The noise that spends the recipe's epsilon, by Opacus' PRV accountant.

    Args:
        recipe: epsilon, delta and epochs.
        steps_an_epoch: batches; the sampling rate is one over it.
    """
    with _quiet():
        return float(
            get_noise_multiplier(
                target_epsilon=recipe.epsilon,
                target_delta=recipe.delta,
                sample_rate=1 / steps_an_epoch,
                steps=recipe.epochs * steps_an_epoch,
                accountant="prv",
            )
        )


@cache
def spent(history: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """Epsilon of a training run, by Opacus' PRV accountant.

    Args:
        history: what the accountant of the run saw: noise multiplier, sampling rate, steps.
        delta: of the budget.
    """
    accountant = create_accountant(mechanism="prv")
    accountant.history = list(history)
    return float(accountant.get_epsilon(delta=delta))


def batches(loader: DataLoader[Any], epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All batches of a training run."""
    for _ in range(epochs):
        yield from loader


def mismatch(optimizer: Any) -> tuple[float, float]:
    """Cosine of the clipped sum with the batch's gradient, and its norm over a coordinate's noise.

    The first measures the direction mismatch, the second the magnitude mismatch. Not private.

    Args:
        optimizer: any of Opacus' or ours, after a step and before its gradients are cleared.
    """
    gradient = torch.cat([g.sum(0).flatten() for g in optimizer.grad_samples]).double()
    clipped = torch.cat([p.summed_grad.flatten() for p in optimizer.params]).double()
    released = torch.cat([p.grad.flatten() for p in optimizer.params]).double()
    noise = (released * optimizer.expected_batch_size - clipped).square().mean().sqrt()
    cosine = torch.dot(gradient, clipped) / (gradient.norm() * clipped.norm())
    return cosine.item(), (clipped.norm() / noise).item()


@torch.no_grad()
def accuracy(model: nn.Module, examples: Examples) -> float:
    """Share of the examples whose class has the largest output, in percent."""
    found = torch.cat([model(x).argmax(1) for x in examples.x.split(4096)])
    return 100 * (found == examples.y).double().mean().item()


def _as_it_is(batch: Any) -> Any:
    return batch


@contextmanager
def _quiet() -> Iterator[None]:
    """Opacus warns of its insecure generator and of rounding at each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
