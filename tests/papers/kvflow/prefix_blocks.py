"""Blocks whose every element says which prefix it belongs to, so that a wrong one shows."""

from functools import lru_cache

import torch

from assay.papers.kvflow.blocks import BlockLayout

LAYOUT = BlockLayout(layers=3, kv_heads=1, head_dim=2, dtype=torch.float32)
TOKEN = LAYOUT.bytes_per_token


@lru_cache(maxsize=4096)
def block_of(ids):
    """The block of a whole prefix; an element depends on all tokens up to its own."""
    values, state = [], 1
    for token in ids:
        state = (state * 31 + token + 7) % 65521
        values.append(state)
    tokens = torch.tensor(values, dtype=torch.float32)[:, None] * 16
    inner = torch.arange(12, dtype=torch.float32).reshape(3, 2, 1, 1, 2)
    return tokens.reshape(1, 1, 1, -1, 1) + inner


def tail_of(ids, start):
    return block_of(tuple(ids))[:, :, :, start:]
