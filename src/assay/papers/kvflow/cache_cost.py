"""What the cache itself costs, beside a decoding step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from assay.papers.kvflow.cache import PrefixCache
from assay.papers.kvflow.eviction import StepsToExecution
from assay.papers.kvflow.tiers import DeviceTier
from assay.toolkits.checks import whole
from assay.toolkits.timing import interleave

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AGENTS = 10
_TOKENS = 4
_CALLS = 50


def cache_cost(
    model: PreTrainedModel, n_nodes: int, seed: int = 0, repeats: int = 10
) -> dict[str, float]:
    """Times updates and evictions in a full cache, in turn with decoding steps.

    Workflows of ten agents hold a tenth of the nodes as fixed prompts; the others are suffixes.

    Args:
        model: a causal language model, for the decoding step.
        n_nodes: nodes of the tree, at least 100.
        seed: of the choice of workflows.
        repeats: timings of each.

    Returns:
        "update_s", seconds of `update_steps` with fresh values of all agents of a workflow;
        "evict_s", of the eviction of one node; "call_s", of all that a request asks of the
        cache, a lookup and a commit that evicts; "step_s", of a decoding step; "share_of_step",
        update and eviction over a step; "spread" and "foreign" of `interleave`, by which times
        are NaN where the machine was busy.

    Raises:
        ValueError: n_nodes is below 100.
    """
    n_clients = whole("n_nodes", n_nodes, 10 * AGENTS) // (10 * AGENTS)
    cache, add = _full_cache(n_clients, n_nodes)
    tier = cache.tiers[0]
    clients = np.random.default_rng(seed).integers(n_clients, size=2**16).tolist()
    turns = count()

    def update() -> None:
        for turn in (next(turns) for _ in range(_CALLS)):
            steps = {f"a{i}": (i - turn) % AGENTS for i in range(AGENTS)}
            cache.update_steps(f"w{clients[turn % len(clients)]}", steps)

    def call() -> None:
        for turn in (next(turns) for _ in range(_CALLS)):
            add(clients[turn % len(clients)], turn % AGENTS)

    def evict() -> None:
        for n in range(1, _CALLS + 1):
            cache._residency.make_room(0, n * tier.capacity_bytes // n_nodes)

    def refill() -> None:
        while tier.used_bytes < tier.capacity_bytes:
            call()

    with torch.no_grad(), cache:
        past = model(torch.tensor([[1, 2, 3]]), use_cache=True).past_key_values
        token = torch.tensor([[1]])
        before = cache.stats().get("evictions_device", 0)
        found = interleave(
            {
                "update": update,
                "evict": evict,
                "call": call,
                "step": lambda: model(token, past_key_values=past, use_cache=True),
            },
            repeats,
            between=refill,
        )
        if cache.stats()["evictions_device"] == before:
            raise RuntimeError("cache: nothing was evicted")
    update_s, evict_s = found["update_s"] / _CALLS, found["evict_s"] / _CALLS
    return {
        "update_s": update_s,
        "evict_s": evict_s,
        "call_s": found["call_s"] / _CALLS,
        "step_s": found["step_s"],
        "share_of_step": (update_s + evict_s) / found["step_s"],
        "spread": found["spread"],
        "foreign": found["foreign"],
    }


def _full_cache(n_clients: int, n_nodes: int) -> tuple[PrefixCache, Callable[[int, int], None]]:
    """A cache with n nodes and no room for another, and what adds a call of an agent."""
    block = torch.zeros(1, 2, 1, 2 * _TOKENS, 1)
    cache = PrefixCache([DeviceTier(n_nodes * block.nbytes // 2)], StepsToExecution())
    calls = count()

    def add(client: int, agent: int) -> None:
        call = next(calls)
        fixed = (client * AGENTS + agent, *[0] * (_TOKENS - 1))
        ids = (*fixed, call, *[1] * (_TOKENS - 1))
        with cache.lookup(ids, f"w{client}", f"a{agent}") as lease:
            computed: Tensor = block[:, :, :, lease.n_tokens :]
            cache.commit(lease, ids, computed, fixed_len=_TOKENS)

    for client in range(n_clients):
        cache.update_steps(f"w{client}", {f"a{i}": i for i in range(AGENTS)})
    for i in range(n_nodes):
        add(i // AGENTS % n_clients, i % AGENTS)
    return cache, add
