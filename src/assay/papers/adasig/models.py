"""The networks that are trained privately."""

from __future__ import annotations

from torch import nn


def mlp(inputs: int, classes: int, hidden: int = 16) -> nn.Module:
    """One hidden layer of tanh units on flattened inputs.

    Args:
        inputs: numbers of an example.
        classes: outputs.
        hidden: units.
    """
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes)
    )


def tanh_cnn() -> nn.Module:
    """The network of Papernot et al. (2021) for images ``(n, 1, 28, 28)``: 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )
