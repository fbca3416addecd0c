"""What one of two processes does in the tests of distributed training."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from tests.papers.adasig.training import batches, dataset, flat, generator, model
from torch import distributed, nn
from torch.utils.data import DataLoader

from assay.papers.adasig import AdaSigPrivacyEngine


def train(clipping, mode, *, part=slice(None), batch=32, rank=0, ranks=1, **kwargs):
    """Three epochs over `part` of each batch, without sampling; what it ends with.

    Rank 1 has a noise stream and, at first, weights and a slope of its own.
    """
    warnings.simplefilter("ignore")
    net = model(seed=1 + rank)
    wrapped = DifferentiallyPrivateDistributedDataParallel(net) if ranks > 1 else net
    kwargs = {"slope_lr": 0.1, **kwargs} if clipping == "adasig" else kwargs
    made = AdaSigPrivacyEngine().make_private(
        module=wrapped,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.5),
        data_loader=DataLoader(dataset(), batch_size=batch),
        noise_multiplier=1.0,
        max_grad_norm=0.8,
        clipping=clipping,
        clipping_kwargs=kwargs,
        grad_sample_mode=mode,
        poisson_sampling=False,
        noise_generator=generator(7 + rank),
    )
    wrapped, optimizer = made[:2]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    for inputs, targets in batches(dataset()) * 3:
        optimizer.zero_grad()
        criterion(wrapped(inputs[part]), targets[part]).backward()
        optimizer.step()
    slopes = [*getattr(optimizer, "slope_history", ()), getattr(optimizer, "slope", 0.0)]
    return {"weights": flat(net), "slopes": slopes, "kind": type(optimizer).__name__}


def run(rank: int, folder: str, cases: list[tuple[str, str]]) -> None:
    """Trains every case as one of two ranks, each on half of every batch."""
    store = distributed.FileStore(str(Path(folder) / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    part = slice(0, 20) if rank == 0 else slice(20, 32)
    results = {case: train(*case, part=part, rank=rank, ranks=2) for case in cases}
    torch.save(results, Path(folder) / f"rank{rank}.pt")
    distributed.destroy_process_group()
