"""MGLU blocks inside Hugging Face models, and the parameter groups they are trained with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from assay.papers.mglu.layer import MGLU, MaskedWeight
from assay.papers.mglu.packed import PackedMGLU

_GATES = {"silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu"}
_LINEARS = ("gate_proj", "up_proj", "down_proj")


class LlamaMGLUMLP(MGLU):
    """An MGLU block built from a model configuration, as transformers builds `LlamaMLP`.

    Args:
        config: anything with `hidden_size`, `intermediate_size` and `hidden_act` ("silu",
            "swish", "gelu" or "relu"), such as `transformers.LlamaConfig`. With
            `initializer_range` the weights are drawn from N(0, initializer_range^2), as the
            model's other matrices are. `mlp_bias` adds a bias to the output projection only.
        n_masks: number of masks n.
        **options: other arguments of `MGLU`.

    Shapes: input ``(..., hidden_size)``, output ``(..., hidden_size)``.

    Raises:
        ValueError: an activation MGLU does not have.
    """

    def __init__(self, config: Any, n_masks: int = 4, **options: Any) -> None:
        if config.hidden_act not in _GATES:
            raise ValueError(
                f"config.hidden_act: got {config.hidden_act!r}, wants one of {', '.join(_GATES)}"
            )
        super().__init__(
            config.hidden_size,
            config.intermediate_size,
            n_masks,
            activation=_GATES[config.hidden_act],
            bias=getattr(config, "mlp_bias", False),
            **options,
        )
        std = getattr(config, "initializer_range", None)
        if std is not None:
            for weight in (self.weight, self.down_proj.weight):
                nn.init.normal_(weight, std=std)
        self.config = config


def swimglu_mlp(config: Any, n_masks: int = 4, **options: Any) -> LlamaMGLUMLP:
    """`LlamaMGLUMLP` of a configuration whose activation is SiLU.

    Args:
        config: see `LlamaMGLUMLP`.
        n_masks: number of masks n.
        **options: other arguments of `MGLU`.

    Raises:
        ValueError: ``config.hidden_act`` is not "silu" or "swish".
    """
    if _GATES.get(config.hidden_act) != "silu":
        raise ValueError(f"config.hidden_act: got {config.hidden_act!r}, wants 'silu' or 'swish'")
    return LlamaMGLUMLP(config, n_masks, **options)


def replace_mlp(model: nn.Module, n_masks: int = 4, *, reinit: bool = False) -> nn.Module:
    """Replaces every Llama-like gated block of an untrained model by an MGLU block, in place.

    A block is Llama-like if it has `gate_proj`, `up_proj`, `down_proj` and `config`. The masks
    must be learned together with the weights: a trained SwiGLU cannot be converted, as its gate
    and value matrices are two and an MGLU has one. A model that `from_pretrained` has loaded is
    therefore refused.

    Args:
        model: such as ``LlamaForCausalLM(config)``.
        n_masks: number of masks n.
        reinit: accept a loaded model and draw its feed-forward blocks anew.

    Returns:
        The same model.

    Raises:
        ValueError: the model comes from a checkpoint and `reinit` is False, or it has no
            such block.
    """
    loaded = bool(getattr(getattr(model, "config", None), "_name_or_path", ""))
    if loaded and not reinit:
        raise ValueError(
            "model: was loaded from a checkpoint; a trained gated block has two matrices where "
            "an MGLU has one, and its masks must be trained with it. Build the model from its "
            "configuration, or pass reinit=True to lose the trained feed-forward weights"
        )
    blocks = [(*place, block) for *place, block in _children(model) if _is_gated(block)]
    if not blocks:
        raise ValueError(
            f"model: {type(model).__name__} has no block with {', '.join(_LINEARS)} and config"
        )
    for parent, name, block in blocks:
        like = block.up_proj.weight
        new = LlamaMGLUMLP(block.config, n_masks, device=like.device, dtype=like.dtype)
        setattr(parent, name, new.train(block.training))
    return model


def pack_model(
    model: nn.Module, dtype: torch.dtype | None = None, layout: str = "planes"
) -> nn.Module:
    """Replaces every trained `MGLU` of a model by its packed form, in place, for inference.

    Args:
        model: any module that holds MGLU blocks (and is not one itself).
        dtype: of the packed weights; None keeps that of the block.
        layout: of the mask bits, "planes" or "bytes"; see `PackedMGLU`.

    Returns:
        The same model, in eval mode.

    Raises:
        ValueError: there is no MGLU below `model`.
    """
    blocks = [place for place in _children(model) if isinstance(place[2], MGLU)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} holds no MGLU block")
    for parent, name, block in blocks:
        setattr(parent, name, PackedMGLU.from_mglu(block, dtype=dtype, layout=layout))
    return model.eval()


def param_groups(
    model: nn.Module, weight_decay: float = 0.1, mask_weight_decay: float | None = None
) -> list[dict[str, Any]]:
    """Parameter groups for AdamW: matrices, mask logits, and what is not decayed.

    Use it where a recipe decays 2-D parameters only, which would skip the 3-D mask logits.
    Decay pulls logits towards zero, where a mask flips easily; the paper names one decay for
    all parameters. Keep mask logits away from optimisers that orthogonalise matrices (Muon).

    Args:
        model: any module.
        weight_decay: of parameters with two or more axes.
        mask_weight_decay: of mask logits; None takes `weight_decay`.

    Returns:
        Groups named "weights", "masks" and "no_decay"; empty ones are left out.

    Raises:
        ValueError: a decay below 0.
    """
    decays = {
        "weights": weight_decay,
        "masks": weight_decay if mask_weight_decay is None else mask_weight_decay,
        "no_decay": 0.0,
    }
    for name, group in (("weight_decay", "weights"), ("mask_weight_decay", "masks")):
        if not decays[group] >= 0:
            raise ValueError(f"{name}: got {decays[group]}, wants a number >= 0")
    masks = {id(m.mask_logits) for m in model.modules() if isinstance(m, MaskedWeight)}
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in decays}
    for parameter in model.parameters():
        if parameter.requires_grad:
            matrix = "weights" if parameter.ndim >= 2 else "no_decay"
            groups["masks" if id(parameter) in masks else matrix].append(parameter)
    return [
        {"name": name, "params": params, "weight_decay": decays[name]}
        for name, params in groups.items()
        if params
    ]


def _is_gated(block: nn.Module) -> bool:
    return hasattr(block, "config") and all(
        isinstance(getattr(block, name, None), nn.Linear) for name in _LINEARS
    )


def _children(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            yield parent, name, child
