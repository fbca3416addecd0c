"""Runs kernels on ranges of items, on as many threads as torch may use.

Plain threads, not numba's: its workqueue layer dies when two Python threads launch at once, and
its OpenMP layer when a process forks after use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch

_CHUNKS_PER_THREAD = 4
"""More than one, as some tiles hold more Gaussians than others."""


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="treesplat")


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def over(items: int, kernel: Callable[..., Any], *args: Any, least: int = 1) -> None:
    """Calls ``kernel(first, end, *args)`` on ranges that cover 0 .. items.

    Args:
        items: how many there are.
        kernel: a `nogil` kernel that writes only what belongs to its items.
        args: its other arguments.
        least: items per range below which a thread costs more than it brings.
    """
    threads = min(torch.get_num_threads(), items // least)
    if threads <= 1:
        kernel(0, items, *args)
        return
    chunks = min(threads * _CHUNKS_PER_THREAD, items // least)
    bounds: Sequence[int] = [items * i // chunks for i in range(chunks + 1)]
    for done in [_pool(threads).submit(kernel, *ends, *args) for ends in pairwise(bounds)]:
        done.result()
