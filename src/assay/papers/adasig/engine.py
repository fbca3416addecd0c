"""Opacus' privacy engine with more clippings to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor
from torch.optim import Optimizer

from assay.papers.adasig.clipping import auto_s_weight, auto_v_weight, nsgd_weight, psac_weight
from assay.papers.adasig.distributed import (
    DistributedAdaSigDPOptimizer,
    DistributedAdaSigDPOptimizerFastGradientClipping,
    DistributedNormWeightedDPOptimizer,
    DistributedNormWeightedDPOptimizerFastGradientClipping,
)
from assay.papers.adasig.ghost import (
    AdaSigDPOptimizerFastGradientClipping,
    NormWeightedDPOptimizerFastGradientClipping,
    NormWeightedLoss,
)
from assay.papers.adasig.optimizer import AdaSigDPOptimizer, NormWeightedDPOptimizer
from assay.toolkits.checks import one_of

WEIGHTS: dict[str, Callable[..., Tensor]] = {
    "auto_s": auto_s_weight,
    "auto_v": auto_v_weight,
    "psac": psac_weight,
    "nsgd": nsgd_weight,
}
OPACUS = ("flat", "per_layer", "adaptive")
CLIPPINGS = ("adasig", "sigmoid", *WEIGHTS, *OPACUS)

_HOOKS = "autograd_grad_sample_hooks"
_GIVEN = {
    "weight",
    "noise_multiplier",
    "max_grad_norm",
    "expected_batch_size",
    "loss_reduction",
    "generator",
    "secure_mode",
}
"""Arguments of the optimizers that are the engine's to give."""

_KINDS: dict[str, type[DPOptimizer]] = {
    "adasig": AdaSigDPOptimizer,
    "sigmoid": AdaSigDPOptimizer,
    "flat": DPOptimizer,
    "per_layer": DPOptimizer,
    "adaptive": AdaClipDPOptimizer,
}
_CLASSES: dict[tuple[bool, bool, bool], type[NormWeightedDPOptimizer]] = {
    # sigmoid, ghost, distributed
    (False, False, False): NormWeightedDPOptimizer,
    (False, False, True): DistributedNormWeightedDPOptimizer,
    (False, True, False): NormWeightedDPOptimizerFastGradientClipping,
    (False, True, True): DistributedNormWeightedDPOptimizerFastGradientClipping,
    (True, False, False): AdaSigDPOptimizer,
    (True, False, True): DistributedAdaSigDPOptimizer,
    (True, True, False): AdaSigDPOptimizerFastGradientClipping,
    (True, True, True): DistributedAdaSigDPOptimizerFastGradientClipping,
}


class AdaSigPrivacyEngine(PrivacyEngine):
    """Opacus' `PrivacyEngine`, whose `make_private` and `make_private_with_epsilon` take more.

    `clipping` may also be

    - "adasig": sigmoid clipping with a learned slope, `AdaSigDPOptimizer`;
    - "sigmoid": the same with a fixed slope, at no privacy cost of its own;
    - "auto_s", "auto_v", "psac", "nsgd": the weights of that name;

    beside Opacus' own "flat" (the default), "per_layer" and "adaptive" (the quantile of Andrew et
    al. 2021, whose noisy count Opacus accounts for by more noise in the sum of gradients; it
    fails on empty batches, forgets the count of all but the last part of a virtual batch, and
    divides by the true size of the batch, which is not private).
    `clipping_kwargs` holds the arguments of the optimizer or weight, such as
    ``{"initial_slope": 5.0, "accounting": "joint"}`` or ``{"r": 0.1}``. All but "per_layer" and
    "adaptive" work in `grad_sample_mode="ghost"`; there "flat" is Opacus' own too, which clips
    losses that are not one number for each sample by the wrong factors and says nothing.

    Args:
        accountant: "prv", "rdp" or "gdp".
        secure_mode: noise and sampling from a cryptographically secure source.

    Raises:
        ImportError: `secure_mode` and there is no torchcsprng.
        TypeError, ValueError: from `make_private`, an unknown clipping, a mode it does not work
            in, or an argument outside its range.

    Example:
        engine = AdaSigPrivacyEngine()
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=optimizer, data_loader=loader,
            noise_multiplier=1.0, max_grad_norm=1.0, clipping="adasig",
        )
    """

    def make_private(self, *, module: Any, **options: Any) -> Any:
        """As Opacus' method. After an error the module is free of hooks, for another try.

        Args:
            module: the model.
            **options: as Opacus', and `clipping` and `clipping_kwargs` of this class.

        Returns:
            Model, optimizer and loader; in ghost mode the criterion before the loader.

        Raises:
            TypeError, ValueError: see the class.
        """
        hooked = hasattr(module, _HOOKS)
        try:
            return super().make_private(module=module, **options)
        except Exception:
            if not hooked and hasattr(module, _HOOKS):
                for handle in getattr(module, _HOOKS):
                    handle.remove()
                delattr(module, _HOOKS)
            raise

    def _prepare_optimizer(
        self,
        *,
        optimizer: Optimizer,
        clipping: str = "flat",
        clipping_kwargs: Mapping[str, Any] | None = None,
        distributed: bool = False,
        grad_sample_mode: str = "hooks",
        noise_generator: torch.Generator | None = None,
        **options: Any,
    ) -> DPOptimizer:
        one_of("clipping", clipping, CLIPPINGS)
        extra = _checked(clipping, {} if clipping_kwargs is None else clipping_kwargs)
        if clipping in OPACUS:
            return super()._prepare_optimizer(
                optimizer=optimizer,
                clipping=clipping,
                distributed=distributed,
                grad_sample_mode=grad_sample_mode,
                noise_generator=noise_generator,
                **options,
                **extra,
            )
        one_of("grad_sample_mode", grad_sample_mode, ("hooks", "functorch", "ew", "ghost"))
        sigmoid = clipping in ("adasig", "sigmoid")
        if clipping == "sigmoid":
            extra["adapt"] = False
        elif not sigmoid:
            regulariser = {"r": extra.pop("r")} if "r" in extra else {}
            extra["weight"] = partial(WEIGHTS[clipping], **regulariser)
            extra["weight"](torch.ones(1))  # says now what is wrong with r, not at the first step
        kind = _CLASSES[sigmoid, grad_sample_mode == "ghost", distributed]
        return kind(
            optimizer.original_optimizer if isinstance(optimizer, DPOptimizer) else optimizer,
            generator=self.secure_rng if self.secure_mode else noise_generator,
            secure_mode=self.secure_mode,
            **options,
            **extra,
        )

    def _prepare_criterion(
        self, *, module: Any, optimizer: DPOptimizer, criterion: Any, **options: Any
    ) -> DPLossFastGradientClipping:
        if isinstance(optimizer, NormWeightedDPOptimizer):
            reduction = options.get("loss_reduction", "mean")
            return NormWeightedLoss(module, optimizer, criterion, reduction)
        return super()._prepare_criterion(
            module=module, optimizer=optimizer, criterion=criterion, **options
        )


def _checked(clipping: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):
        raise TypeError(f"clipping_kwargs: got {arguments!r}, wants a mapping of names to values")
    takers: list[Callable[..., Any]] = [_KINDS.get(clipping, NormWeightedDPOptimizer)]
    if clipping in WEIGHTS:
        takers.append(WEIGHTS[clipping])
    known = {
        p.name
        for taker in takers
        for p in signature(taker).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    } - _GIVEN
    if clipping == "sigmoid":
        known.remove("adapt")
    unknown = sorted(str(name) for name in arguments.keys() - known)
    if unknown:
        wanted = f"some of {', '.join(sorted(known))}" if known else "none"
        raise TypeError(
            f"clipping_kwargs: got {', '.join(unknown)}, wants {wanted} with clipping={clipping!r}"
        )
    return dict(arguments)
