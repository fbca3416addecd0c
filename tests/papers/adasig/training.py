"""A small private training for the tests: data, model, loop."""

from __future__ import annotations

import torch
from opacus import GradSampleModule
from torch import nn
from torch.utils.data import TensorDataset

from assay.papers.adasig import AdaSigDPOptimizer


def dataset(n=96, features=6, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scales = torch.randn(n, 1, generator=generator).exp()  # gradients of very different norms
    inputs = torch.randn(n, features, generator=generator) * scales
    return TensorDataset(inputs, torch.randint(classes, (n,), generator=generator))


def model(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    return net.to(dtype)


def generator(seed=7):
    return torch.Generator().manual_seed(seed)


def adasig(net, *, momentum=0.0, lr=0.5, batch=32, sigma=1.0, **options):
    """The net, ready for per-sample gradients, and its optimizer."""
    inner = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    optimizer = AdaSigDPOptimizer(
        inner,
        noise_multiplier=sigma,
        expected_batch_size=batch,
        **{"generator": generator(), "slope_lr": 0.1, **options},
    )
    return GradSampleModule(net), optimizer


def backward(net, inputs, targets):
    nn.functional.cross_entropy(net(inputs), targets).backward()


def step(net, optimizer, inputs, targets):
    optimizer.zero_grad()
    backward(net, inputs, targets)
    optimizer.step()


def batches(data, size=32):
    inputs, targets = data.tensors
    return list(zip(inputs.split(size), targets.split(size), strict=True))


def flat(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])
