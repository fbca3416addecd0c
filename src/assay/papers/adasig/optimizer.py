"""Opacus optimizers whose clipping is a weight of the gradient's norm, and AdaSig's own."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer import (
    _check_processed_flag,
    _generate_noise,
    _mark_as_processed,
)
from torch import Tensor
from torch.optim import Optimizer

from assay.papers.adasig.clipping import adasig_slope_weight, adasig_weight, per_sample_norms
from assay.papers.adasig.privacy import ACCOUNTINGS, sensitivity, split_noise
from assay.toolkits.checks import number, one_of

Weight = Callable[[Tensor, float], Tensor]
"""From norms ``(b,)`` and the `max_grad_norm` C to weights ``(b,)`` with weight * norm <= C."""

HISTORY = 100_000
"""How many slopes an optimizer remembers."""


_COLUMNS, _BLOCK = 2**15, 2**20
"""Numbers in a row of a block of gradients, and in all of it, at the most."""


@dataclass(frozen=True)
class Diagnostics:
    """What clipping did in one step. NOT private: it is computed without noise.

    Attributes:
        cosine: of the sum of clipped gradients with the sum of gradients; NaN where one is 0.
        snr: norm of the sum of clipped gradients over the standard deviation of a coordinate's
            noise; inf without noise.
        noiseless_sign: sign (-1, 0, 1) of the slope step without any noise; None where the slope
            is not adapted.
        agreed: whether the noisy slope step had that sign; None where the slope is not adapted
            or no direction is known yet, as at the first step.
    """

    cosine: float
    snr: float
    noiseless_sign: int | None = None
    agreed: bool | None = None


class NormWeightedDPOptimizer(DPOptimizer):
    """Opacus' `DPOptimizer` with another clipping: each gradient times a weight of its norm.

    Norms are taken over all parameters, in float64 at the end, and are never too small (see
    `per_sample_norms`); sums and noise are at least float32 whatever the dtype of the parameters,
    since a sum that is rounded before noise is added has no bounded sensitivity.

    Args:
        optimizer: the wrapped optimizer.
        weight: from norms ``(b,)`` and C to weights ``(b,)``, with ``weight * norm <= C``.
        noise_multiplier: noise's standard deviation over C, >= 0.
        max_grad_norm: C, the bound of a clipped gradient's norm, > 0.
        expected_batch_size: divides the sum where `loss_reduction` is "mean".
        loss_reduction: "mean" or "sum".
        nonfinite: what to do with a gradient that holds inf or NaN: "raise", or "zero" to leave
            the sample out, which keeps the sensitivity.
        diagnostics: whether to fill `last_diagnostics`, which is not private.
        generator: source of the noise.
        secure_mode: noise that resists floating-point attacks; see Opacus.

    Attributes:
        last_diagnostics: `Diagnostics` of the last step, or None.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        weight: Weight,
        noise_multiplier: float,
        max_grad_norm: float = 1.0,
        expected_batch_size: int | None,
        loss_reduction: str = "mean",
        nonfinite: str = "raise",
        diagnostics: bool = False,
        generator: torch.Generator | None = None,
        secure_mode: bool = False,
    ) -> None:
        number("noise_multiplier", noise_multiplier, least=0)
        number("max_grad_norm", max_grad_norm, above=0)
        one_of("loss_reduction", loss_reduction, ("mean", "sum"))
        if expected_batch_size is not None or loss_reduction == "mean":
            number("expected_batch_size", expected_batch_size, above=0)
        self.nonfinite = one_of("nonfinite", nonfinite, ("raise", "zero"))
        super().__init__(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
            generator=generator,
            secure_mode=secure_mode,
        )
        self.weight = weight
        self.diagnostics = diagnostics
        self.last_diagnostics: Diagnostics | None = None
        self._true_sums: list[Tensor] | None = None

    def weights(self, norms: Tensor) -> list[Tensor]:
        """One row of weights ``(b,)`` per sum that a step needs, the clipped sum's first.

        Args:
            norms: ``(b,)``, finite.
        """
        return [self.weight(norms, self.max_grad_norm)]

    def check_finite(self, norms: Tensor) -> Tensor:
        """Mask ``(b,)`` of the samples to leave out.

        Args:
            norms: ``(b,)``.

        Raises:
            ValueError: a norm is not finite and `nonfinite` is "raise".
        """
        bad = ~norms.isfinite()
        count = int(bad.sum())
        if count and self.nonfinite == "raise":
            raise ValueError(
                f"gradients: {count} of {len(norms)} samples hold inf or NaN; lower the learning "
                'rate or look at the data (nonfinite="zero" leaves such samples out, but not in '
                "ghost mode)"
            )
        return bad

    def clip_and_accumulate(self) -> None:
        """Adds the weighted sums of this batch's gradients to those of the logical batch."""
        for p in self.params:
            _check_processed_flag(p.grad_sample)
        gradients = self.grad_samples
        norms = per_sample_norms(gradients)
        bad = self.check_finite(norms)
        rows = self.weights(norms.masked_fill(bad, 0.0))
        if self.diagnostics:
            rows.append(torch.ones_like(norms))
        weights = torch.stack(rows).masked_fill(bad, 0.0)
        zero_out = bool(bad.any())
        sums = []
        for p, gradient in zip(self.params, gradients, strict=True):
            if zero_out:  # as 0 * NaN is NaN
                gradient[bad.to(gradient.device)] = 0
            sums.append(_weighted_sums(weights, gradient, p))
            _mark_as_processed(p.grad_sample)
        self._accumulate([list(row) for row in zip(*sums, strict=True)])

    def _accumulate(self, sums: list[list[Tensor]]) -> None:
        """Takes one list of sums, as long as the parameters, for each row of weights."""
        for p, total in zip(self.params, sums[0], strict=True):
            # A sum that was released already must not go into the next one.
            _check_processed_flag(p.summed_grad)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad + total
        if self.diagnostics:
            self._true_sums = _added(self._true_sums, sums[-1])

    @property
    def _sum_noise_multiplier(self) -> float:
        return self.noise_multiplier

    def add_noise(self) -> None:
        """Puts the noisy sum of clipped gradients into ``p.grad``."""
        std = self._sum_noise_multiplier * self.max_grad_norm
        if self.diagnostics:
            self.last_diagnostics = self._diagnose(std)
        for p in self.params:
            _check_processed_flag(p.summed_grad)
            p.grad = self._noisy(p.summed_grad, std).to(p.dtype).view_as(p)
            _mark_as_processed(p.summed_grad)

    def _noisy(self, total: Tensor, std: float) -> Tensor:
        noise = _generate_noise(std, total, self.generator, self.secure_mode)
        return noise.add_(total)

    def _diagnose(self, std: float) -> Diagnostics:
        clipped = [p.summed_grad for p in self.params]
        norm = math.sqrt(_dot(clipped, clipped))
        true = self._true_sums or clipped
        scale = norm * math.sqrt(_dot(true, true))
        return Diagnostics(
            cosine=_dot(clipped, true) / scale if scale else math.nan,
            snr=norm / std if std else math.inf,
        )

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clears gradients; the sums too, unless the logical batch goes on."""
        super().zero_grad(set_to_none)
        if not self._is_last_step_skipped:
            self._true_sums = None


class AdaSigDPOptimizer(NormWeightedDPOptimizer):
    """Opacus' `DPOptimizer` with sigmoid clipping whose slope is learned in private.

    A gradient of norm x is clipped to norm ``C tanh(alpha x / 2)``. After each step the slope
    moves by ``alpha *= exp(slope_lr * sign(<s, r>))``, with s the noisy sum of clipped gradients
    and r the noisy slope direction of the step before. `noise_multiplier` is that of one Gaussian
    mechanism which covers both, so accountants need to know nothing of the slope.

    As C is a plain scale here, learning rates are those of a constant clipping times its C:
    0.05 where C = 0.1 was trained with 0.5.

    Args:
        optimizer: the wrapped optimizer.
        noise_multiplier: sigma of a step, >= 0. At 0 nothing is private.
        max_grad_norm: C, > 0.
        expected_batch_size: divides the sum where `loss_reduction` is "mean".
        loss_reduction: "mean" or "sum".
        initial_slope: alpha at the first step.
        slope_lr: 0 to 100; a step multiplies the slope by no more than e to this power.
        noise_split: noise of the clipped sum over `noise_multiplier`, > 1; of use with
            `accounting="paper"` only.
        accounting: "paper" splits the noise as the paper does; "joint" adds no noise to the
            clipped sum, and 4.8 times less to the slope direction. See `equivalent_multiplier`.
        adapt: False keeps the slope, and all noise multipliers, as they are.
        min_slope, max_slope: bounds of the slope.
        nonfinite: "raise" or "zero"; see `NormWeightedDPOptimizer`.
        diagnostics: whether to fill `last_diagnostics`, which is not private.
        generator: source of the noise.
        secure_mode: noise that resists floating-point attacks; see Opacus.

    Attributes:
        slope: alpha of the next step.
        slope_history: the alphas of past steps, the last 100,000 of them.
        last_diagnostics: `Diagnostics` of the last step, or None.

    Raises:
        TypeError, ValueError: an argument outside its range.

    Source: the paper's algorithm 1, with sections 5 and 6.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        noise_multiplier: float,
        max_grad_norm: float = 1.0,
        expected_batch_size: int | None,
        loss_reduction: str = "mean",
        initial_slope: float = 1.0,
        slope_lr: float = 0.01,
        noise_split: float = 1.01,
        accounting: str = "paper",
        adapt: bool = True,
        min_slope: float = 1e-6,
        max_slope: float = 1e6,
        nonfinite: str = "raise",
        diagnostics: bool = False,
        generator: torch.Generator | None = None,
        secure_mode: bool = False,
    ) -> None:
        self.min_slope = number("min_slope", min_slope, above=0)
        self.max_slope = number("max_slope", max_slope, least=min_slope)
        self.slope_lr = number("slope_lr", slope_lr, least=0, most=100)
        number("noise_split", noise_split, above=1)
        self.accounting = one_of("accounting", accounting, ACCOUNTINGS)
        self.slope = number("initial_slope", initial_slope, above=0)
        if not min_slope <= self.slope <= max_slope:
            raise ValueError(
                f"initial_slope: got {initial_slope}, wants {min_slope:g} to {max_slope:g}"
            )
        self.noise_split = noise_split
        self.adapt = adapt
        self.slope_history: deque[float] = deque(maxlen=HISTORY)
        super().__init__(
            optimizer,
            weight=self._sigmoid,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
            nonfinite=nonfinite,
            diagnostics=diagnostics,
            generator=generator,
            secure_mode=secure_mode,
        )
        if adapt and noise_multiplier == 0:
            warnings.warn(
                "noise_multiplier is 0: neither the model nor the slope is private", stacklevel=2
            )
        self._slope_sums: list[Tensor] | None = None
        self._slope_direction: list[Tensor] | None = None
        self._previous_direction: list[Tensor] | None = None
        self._previous_noiseless: list[Tensor] | None = None
        self._directed: list[int] = []

    def _sigmoid(self, norms: Tensor, max_grad_norm: float) -> Tensor:
        return adasig_weight(norms, self.slope, max_grad_norm)

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """(sigma_s, sigma_r) of the clipped sum and of the slope direction.

        sigma_r is 0 where the slope is not adapted, as then no direction is released.
        """
        if not self.adapt:
            return self.noise_multiplier, 0.0
        ratio = "joint" if self.accounting == "joint" else self.noise_split
        return split_noise(self.noise_multiplier, ratio)

    @property
    def _sum_noise_multiplier(self) -> float:
        return self.noise_multipliers[0]

    def weights(self, norms: Tensor) -> list[Tensor]:
        """Weights ``(b,)`` of the clipped sum and, where the slope adapts, of its direction."""
        rows = super().weights(norms)
        if self.adapt:
            rows.append(adasig_slope_weight(norms, self.slope))
        return rows

    def _accumulate(self, sums: list[list[Tensor]]) -> None:
        super()._accumulate(sums)
        if self.adapt:
            self._slope_sums = _added(self._slope_sums, sums[1])

    def add_noise(self) -> None:
        """Puts the noisy sum into ``p.grad`` and makes the noisy slope direction."""
        super().add_noise()
        if self.adapt and self._slope_sums is not None:
            std = self.noise_multipliers[1] * sensitivity(self.slope)
            self._slope_direction = [self._noisy(r, std) for r in self._slope_sums]

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Makes the noisy sums and steps the slope; neither within a logical batch.

        The slope goes first because some of torch's optimizers, such as SGD with Nesterov's
        momentum on GPUs, write into the gradients that they step by.

        Args:
            closure: not used; see `opacus.optimizers.DPOptimizer.pre_step`.

        Returns:
            Whether the model is to make a step.
        """
        ready = bool(super().pre_step(closure))
        if ready:
            self.slope_history.append(self.slope)
            if self.adapt:
                self._step_slope()
        return ready

    def _product(self) -> float | None:
        """Of the noisy sum and the previous direction; None at the first step."""
        if self._previous_direction is None:
            return None
        return _dot([p.grad for p in self.params], self._previous_direction)

    def _step_slope(self) -> None:
        directed = [id(p) for p in self.params]
        if directed != self._directed:  # parameters were frozen or thawed
            self._previous_direction = self._previous_noiseless = None
            self._directed = directed
        sign = _sign(self._product())
        if sign is not None:
            slope = self.slope * math.exp(self.slope_lr * sign)
            self.slope = min(max(slope, self.min_slope), self.max_slope)
        self._previous_direction = self._slope_direction
        if self.diagnostics and self.last_diagnostics is not None:
            sums = [p.summed_grad for p in self.params]
            before = self._previous_noiseless
            noiseless = _sign(None if before is None else _dot(sums, before))
            agreed = None if noiseless is None or sign is None else noiseless == sign
            self.last_diagnostics = replace(
                self.last_diagnostics, noiseless_sign=noiseless, agreed=agreed
            )
            self._previous_noiseless = self._slope_sums

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clears gradients; the sums too, unless the logical batch goes on."""
        super().zero_grad(set_to_none)
        if not self._is_last_step_skipped:
            self._slope_sums = None

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's state, and under "adasig" what the slope needs to go on.

        All of it is safe to publish: the slope direction is the noisy one.
        """
        return {
            **super().state_dict(),
            "adasig": {
                "slope": self.slope,
                "slope_history": list(self.slope_history),
                "slope_direction": self._previous_direction,
            },
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from `state_dict`; from a plain one, of another optimizer, with a new slope.

        Sums of a logical batch that was under way are dropped: their noise would not fit them
        at another slope.

        Args:
            state_dict: as `state_dict` returns it, or the wrapped optimizer's alone, which warns.

        Raises:
            TypeError, ValueError: the saved slope is no number > 0, something is missing beside
                it, or the saved slope direction does not fit the parameters.
        """
        inner = dict(state_dict)
        own = inner.pop("adasig", None)
        if own is None:
            warnings.warn(f"the state holds no slope: starting from {self.slope:g}", stacklevel=2)
            super().load_state_dict(inner)
            self._drop_sums()
            return
        missing = {"slope", "slope_history", "slope_direction"} - own.keys()
        if missing:
            raise ValueError(
                f"state_dict: got {sorted(own)} under 'adasig', wants also {sorted(missing)}"
            )
        slope = number("slope", own["slope"], above=0)
        direction = own["slope_direction"]
        if direction is not None:
            shapes = [tuple(r.shape) for r in direction]
            wanted = [tuple(p.shape) for p in self.params]
            if shapes != wanted:
                raise ValueError(f"slope_direction: got shapes {shapes}, wants {wanted}")
            pairs = zip(direction, self.params, strict=True)
            direction = [r.to(p.device).clone() for r, p in pairs]
        super().load_state_dict(inner)
        self._drop_sums()
        self.slope = slope
        self.slope_history = deque(own["slope_history"], maxlen=HISTORY)
        self._previous_direction = direction
        self._previous_noiseless = None
        self._directed = [id(p) for p in self.params]

    def _drop_sums(self) -> None:
        self._is_last_step_skipped = False
        self.zero_grad()


def _weighted_sums(weights: Tensor, gradient: Tensor, p: Tensor) -> Tensor:
    """Sums of per-sample gradients ``(b, *shape)``, one for each row of weights ``(k, b)``."""
    dtype = torch.promote_types(p.dtype, torch.float32)
    rows = gradient.reshape(len(gradient), p.numel())
    # A weight of C / x overflows float32 where x is subnormal.
    factors = weights.clamp(max=torch.finfo(dtype).max).to(rows.device, dtype)
    with _full_precision(rows.device.type):
        if rows.device.type != "cpu":
            return (factors @ rows.to(dtype)).reshape(-1, *p.shape)
        # A block stays in the cache while each of its sums reads it: gradients leave memory once.
        sums = torch.zeros(len(factors), p.numel(), dtype=dtype)
        height = max(1, _BLOCK // max(1, min(p.numel(), _COLUMNS)))
        for start in range(0, p.numel(), _COLUMNS):
            columns = slice(start, start + _COLUMNS)
            for few, block in zip(
                factors.split(height, dim=1), rows[:, columns].split(height), strict=True
            ):
                sums[:, columns].addmm_(few, block.to(dtype))
    return sums.reshape(-1, *p.shape)


@contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Products that are not rounded to fewer bits than the bound of a gradient's norm allows for.

    Autocast and TF32 would, where a program has them on for the sake of its model.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _added(totals: list[Tensor] | None, sums: list[Tensor]) -> list[Tensor]:
    if totals is None:
        return sums
    return [total + s for total, s in zip(totals, sums, strict=True)]


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    pairs = zip(a, b, strict=True)
    dots = [torch.dot(x.flatten().to(y.dtype), y.flatten()).double() for x, y in pairs]
    return float(sum(dot.to(dots[0].device) for dot in dots))


def _sign(product: float | None) -> int | None:
    return None if product is None else (product > 0) - (product < 0)
