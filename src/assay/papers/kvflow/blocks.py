"""Keys and values of a run of tokens, as one contiguous tensor.

A block has the shape (layers, 2, kv_heads, tokens, head_dim), keys at 0 and values at 1 of the
second dimension. One node of the tree is one block and one copy: the paper's fragmented copies
are what wastes its link. A block is never written to once it is stored, so that whoever holds one
may read it without a lock, whatever is evicted meanwhile.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockLayout:
    """What all blocks of a model have in common.

    Attributes:
        layers, kv_heads, head_dim: of the model.
        dtype: of the elements.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of(cls, block: Tensor) -> BlockLayout:
        """The layout of a block.

        Raises:
            TypeError: it is no tensor.
            ValueError: it has another shape than (layers, 2, kv_heads, tokens, head_dim).
        """
        if not isinstance(block, Tensor):
            raise TypeError(f"kv: got {type(block).__name__}, wants a tensor")
        if block.dim() != 5 or block.shape[1] != 2 or 0 in block.shape:
            raise ValueError(
                f"kv: got shape {tuple(block.shape)}, wants (layers, 2, kv_heads, tokens, head_dim)"
            )
        layers, _, kv_heads, _, head_dim = block.shape
        return cls(layers, kv_heads, head_dim, block.dtype)

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def shape(self, n_tokens: int) -> tuple[int, int, int, int, int]:
        return (self.layers, 2, self.kv_heads, n_tokens, self.head_dim)

    def n_bytes(self, n_tokens: int) -> int:
        return math.prod(self.shape(n_tokens)) * self.dtype.itemsize


def n_tokens(block: Tensor) -> int:
    """Tokens of a block."""
    return block.shape[3]


def n_bytes(block: Tensor) -> int:
    """Bytes of a block."""
    return block.numel() * block.element_size()


def cut(block: Tensor, start: int, stop: int) -> Tensor:
    """Tokens [start, stop) of a block in memory of their own, so that the rest can be freed."""
    return block[:, :, :, start:stop].clone(memory_format=torch.contiguous_format)


def join(blocks: Sequence[Tensor]) -> Tensor:
    """Blocks of consecutive tokens as one; a single one is returned as it is.

    Raises:
        ValueError: there are none.
    """
    if not blocks:
        raise ValueError("blocks: got none, wants at least one")
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks), dim=3)


def from_layers(layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """A block from the keys and values of each layer.

    Args:
        layers: for each layer (keys, values), both (kv_heads, tokens, head_dim).

    Returns:
        The block, in memory of its own.
    """
    return torch.stack([torch.stack(pair) for pair in layers])


def to_layers(block: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each layer (keys, values), both (kv_heads, tokens, head_dim), as views."""
    return [(layer[0], layer[1]) for layer in block]


def checksum(block: Tensor) -> int:
    """CRC-32 of the bytes of a block."""
    return zlib.crc32(block.detach().cpu().contiguous().view(torch.uint8).numpy().data)
