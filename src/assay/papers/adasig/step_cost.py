"""What a training step costs with a clipping, against Opacus' constant one."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

from assay.papers.adasig.engine import AdaSigPrivacyEngine
from assay.papers.adasig.models import tanh_cnn
from assay.toolkits.checks import one_of
from assay.toolkits.timing import interleave

MODELS = ("mlp_20k", "cnn_26k", "mlp_500k")
ARMS = ("flat", "sigmoid", "adasig")


def step_cost(
    sizes: Sequence[str] = MODELS,
    batch: int = 512,
    repeats: int = 20,
    grad_sample_mode: str = "hooks",
) -> dict[str, float]:
    """Times full training steps: forward, backward, clip, noise, update; A B C A B C, medians.

    Peak memory is the most that torch has allocated at a time, model, data and state included,
    over two steps under torch's profiler.

    Args:
        sizes: models, of "mlp_20k", "cnn_26k" and "mlp_500k".
        batch: samples in a batch.
        repeats: timings of each arm.
        grad_sample_mode: "hooks" or "ghost".

    Returns:
        For each size "<size>_<arm>_s" of the arms "flat" (Opacus' own optimizer), "sigmoid" (a
        fixed slope) and "adasig"; "<size>_<arm>_peak_mb"; "<size>_<arm>_time_ratio" and
        "<size>_<arm>_memory_ratio" to "flat" for the other two; "<size>_parameters"; and
        "<size>_spread", "<size>_foreign" of `assay.toolkits.timing.interleave`, whose times
        are NaN where the machine was busy.

    Raises:
        ValueError: an unknown size or mode.
    """
    one_of("grad_sample_mode", grad_sample_mode, ("hooks", "ghost"))
    found: dict[str, float] = {}
    for size in sizes:
        one_of("sizes", size, MODELS)
        found[f"{size}_parameters"] = float(sum(p.numel() for p in _model(size)[0].parameters()))
        arms = {arm: _training_step(size, arm, batch, grad_sample_mode) for arm in ARMS}
        times = interleave(arms, repeats)
        del arms
        for name in ("spread", "foreign"):
            found[f"{size}_{name}"] = times[name]
        for arm in ARMS:
            found[f"{size}_{arm}_s"] = times[f"{arm}_s"]
            found[f"{size}_{arm}_peak_mb"] = _peak_mb(size, arm, batch, grad_sample_mode)
        for arm in ARMS[1:]:
            for what, unit in (("time", "s"), ("memory", "peak_mb")):
                ratio = found[f"{size}_{arm}_{unit}"] / found[f"{size}_flat_{unit}"]
                found[f"{size}_{arm}_{what}_ratio"] = ratio
    return found


def _model(size: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A model for ten classes, and the shape of its input."""
    if size == "cnn_26k":
        return tanh_cnn(), (1, 28, 28)
    widths = [784, 24, 10] if size == "mlp_20k" else [784, 512, 200, 10]
    layers: list[nn.Module] = []
    for h, d in pairwise(widths):
        layers += [nn.Linear(h, d), nn.Tanh()]
    return nn.Sequential(*layers[:-1]), (784,)


def _training_step(size: str, arm: str, batch: int, mode: str) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    model, shape = _model(size)
    data = TensorDataset(torch.randn(batch, *shape), torch.randint(10, (batch,)))
    engine: Any = PrivacyEngine if arm == "flat" else AdaSigPrivacyEngine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the random generator, which is of no weight here
        made = engine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
            data_loader=DataLoader(data, batch_size=batch),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            clipping=arm,
            grad_sample_mode=mode,
            poisson_sampling=False,
        )
    private, optimizer = made[:2]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    inputs, targets = data.tensors

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = criterion(private(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _peak_mb(size: str, arm: str, batch: int, mode: str) -> float:
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = _training_step(size, arm, batch, mode)
        for _ in range(2):
            step()
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    memory = [e for e in events if e["name"] == "[memory]"]
    first = min(memory, key=lambda e: e["ts"])["args"]
    before = first["Total Allocated"] - first["Bytes"]  # what is left of earlier arms
    return (max(e["args"]["Total Allocated"] for e in memory) - before) / 2**20
