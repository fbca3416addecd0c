"""A small byte-level language model on English prose that every Python carries."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.papers.mglu.conversion import LlamaMGLUMLP
from assay.papers.mglu.layer import MGLU

HELD_OUT = 0.1
"""Share of the text, at its end, that models are evaluated on and never trained on."""

DIVERGED = 10.0
"""Nats that count as the rise of a run whose loss is no longer a number."""

_WARM_UP = 0.05
_FINAL_LR = 0.1


@dataclass(frozen=True)
class Recipe:
    """Sizes and optimiser of one training run; AdamW, clipping and schedule follow the paper."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    context: int
    batch: int
    steps: int
    lr: float
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0


@cache
def corpus() -> bytes:
    """The prose of CPython's language reference, as `help()` prints it; about 465 kB.

    It differs a little between Python versions: compare `fingerprint`.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(text for _, text in sorted(topics.items())).encode()


def fingerprint() -> str:
    """SHA-256 of the corpus, 64 hex digits."""
    return hashlib.sha256(corpus()).hexdigest()


def split(text: bytes) -> tuple[Tensor, Tensor]:
    """Training and held-out part as byte values, int64; the last tenth is held out."""
    values = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    at = len(values) - int(len(values) * HELD_OUT)
    return values[:at], values[at:]


class GeluMLP(nn.Module):
    """The ungated block: two matrices and GELU."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class SharedMLP(GeluMLP):
    """SwiGLU whose gate and value are one matrix: no masks at all."""

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        return self.down_proj(F.silu(up) * up)


def build_model(kind: str, recipe: Recipe, seed: int) -> nn.Module:
    """A Llama body with the feed-forward block `kind`; equal seeds give equal bodies.

    Args:
        kind: "gelu", "swiglu", "shared", or "mglu<n>" with an optional "-fixed" for masks that
            are not trained, such as "mglu4-fixed".
        recipe: sizes.
        seed: of the weights.

    Raises:
        ValueError: no such kind.
    """
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaMLP

    name, _, fixed = kind.partition("-")
    if fixed not in ("", "fixed"):
        raise ValueError(f"kind: got {kind!r}, wants no other ending than -fixed")
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=recipe.context,
        use_cache=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        if name.startswith("mglu"):
            layer.mlp = LlamaMGLUMLP(config, n_masks=int(name.removeprefix("mglu")))
            layer.mlp.mask_logits.requires_grad_(not fixed)
            continue
        makers = {"gelu": GeluMLP, "swiglu": LlamaMLP, "shared": SharedMLP}
        if name not in makers or fixed:
            raise ValueError(f"kind: got {kind!r}, wants {', '.join(makers)} or mglu<n>[-fixed]")
        layer.mlp = makers[name](config)
        for weight in layer.mlp.parameters():
            nn.init.normal_(weight, std=config.initializer_range)
    return model


class _Windows(torch.utils.data.Dataset[Tensor]):
    """Windows of context + 1 bytes, starting every `stride` bytes."""

    def __init__(self, values: Tensor, context: int, stride: int) -> None:
        self._windows = values.unfold(0, context + 1, stride)

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: int) -> Tensor:
        return self._windows[index]


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """Mean negative log-likelihood in nats of each byte given those before it in its window."""
    logits = model(input_ids=windows[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: nn.Module, held_out: Tensor, context: int) -> float:
    """Mean negative log-likelihood in nats a byte over the held-out part, in windows of context."""
    model.eval()
    windows = _Windows(held_out, context, context)
    loader = torch.utils.data.DataLoader(windows, batch_size=64)
    device = next(model.parameters()).device
    sums = [loss_of(model, batch.to(device)).item() * len(batch) for batch in loader]
    model.train()
    return sum(sums) / len(windows)


def learning_rate(step: int, steps: int) -> float:
    """Share of the peak rate: linear warm-up over 5 % of the steps, then cosine to a tenth."""
    warm_up = max(1, int(_WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return _FINAL_LR + (1 - _FINAL_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    kind: str, recipe: Recipe, seed: int, record: Callable[[str, float, float], None]
) -> dict[str, float]:
    """Trains one model and evaluates it on the held-out text.

    Args:
        kind: see `build_model`.
        recipe: sizes and optimiser.
        seed: of weights and batches; equal seeds see equal batches whatever the kind.
        record: called as (series, step, value) with the curves "train_nll" (mean since the last
            point), "held_out_nll", and for masks that are trained "mask_density", "flip_rate".

    Returns:
        held_out_nll and train_nll (last tenth of the steps), nats a byte; rise, how far the
        running loss climbed above its own minimum, nats; ffn_weights, weights of the
        feed-forward blocks, masks not counted; mask_density with its extremes over the layers
        where there are masks; step_s, median
        seconds a step; steps.
    """
    from accelerate import Accelerator
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import LambdaLR
    from torch.utils.data import DataLoader, RandomSampler

    training, held_out = split(corpus())
    model = build_model(kind, recipe, seed)
    optimizer = AdamW(
        model.parameters(),
        lr=recipe.lr,
        betas=recipe.betas,
        eps=1e-8,
        weight_decay=recipe.weight_decay,
    )
    schedule = LambdaLR(optimizer, lambda step: learning_rate(step, recipe.steps))
    windows = _Windows(training, recipe.context, 1)
    sampler = RandomSampler(
        windows,
        replacement=True,
        num_samples=recipe.steps * recipe.batch,
        generator=torch.Generator().manual_seed(seed),
    )
    accelerator = Accelerator(step_scheduler_with_optimizer=False)
    model, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, DataLoader(windows, recipe.batch, sampler=sampler), schedule
    )
    masked = [m for m in model.modules() if isinstance(m, MGLU)]
    every = max(1, recipe.steps // 20)
    losses: list[float] = []
    times = [time.perf_counter()]
    for step, batch in enumerate(loader, start=1):
        loss = loss_of(model, batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        times.append(time.perf_counter())
        if step % every == 0:
            record("train_nll", step, fmean(losses[-every:]))
            _record_masks(masked, step, every, record)
        if step % (4 * every) == 0 and step < recipe.steps:
            record("held_out_nll", step, evaluate(model, held_out, recipe.context))
    nll = evaluate(model, held_out, recipe.context)
    record("held_out_nll", recipe.steps, nll)
    return {
        "held_out_nll": nll,
        "train_nll": fmean(losses[-max(1, recipe.steps // 10) :]),
        "rise": rise(losses),
        "ffn_weights": float(sum(_weights(layer.mlp) for layer in model.model.layers)),
        "step_s": median(b - a for a, b in pairwise(times)),
        "steps": float(recipe.steps),
        **_mask_metrics(masked),
    }


def rise(losses: list[float], window: int = 10) -> float:
    """How far the running mean of the loss climbed above its own minimum so far, in nats.

    `DIVERGED` where a loss is no longer finite.
    """
    if not all(map(math.isfinite, losses)):
        return DIVERGED
    smooth = [fmean(losses[max(0, i - window + 1) : i + 1]) for i in range(len(losses))]
    lowest, climbed = math.inf, 0.0
    for value in smooth:
        lowest = min(lowest, value)
        climbed = max(climbed, value - lowest)
    return climbed


def _weights(block: nn.Module) -> int:
    return sum(p.numel() for name, p in block.named_parameters() if name != "mask_logits")


def _mask_metrics(masked: list[MGLU]) -> dict[str, float]:
    if not masked:
        return {}
    masks = [m.hard_masks().float().mean().item() for m in masked]
    return {
        "mask_density": fmean(masks),
        "mask_density_min": min(masks),
        "mask_density_max": max(masks),
    }


def _record_masks(
    masked: list[MGLU], step: int, every: int, record: Callable[[str, float, float], None]
) -> None:
    for index, block in enumerate(masked):
        stats = block.mask_stats()
        record(f"mask_density/layer{index}", step, fmean(stats.density))
        if not math.isnan(flips := fmean(stats.flip_rate)):
            record(f"flip_rate/layer{index}", step, flips / every)


def step_times(kinds: Sequence[str], recipe: Recipe, seed: int) -> dict[str, float]:
    """Median seconds of one training step of each kind, interleaved; see `interleave`.

    Args:
        kinds: see `build_model`.
        recipe: sizes; `steps` is how often each kind is timed.
        seed: of weights and of the batch.
    """
    from accelerate import Accelerator
    from torch.optim import AdamW

    from assay.toolkits.timing import interleave

    device = Accelerator().device
    windows = split(corpus())[0][: recipe.batch * (recipe.context + 1)]
    batch = windows.unflatten(0, (recipe.batch, -1)).to(device)

    def stepper(kind: str) -> Callable[[], None]:
        model = build_model(kind, recipe, seed).to(device)
        optimizer = AdamW(model.parameters(), lr=recipe.lr, betas=recipe.betas)

        def step() -> None:
            loss_of(model, batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            optimizer.zero_grad()
            if device.type == "cuda":
                torch.cuda.synchronize()

        return step

    return interleave({kind: stepper(kind) for kind in kinds}, recipe.steps)
