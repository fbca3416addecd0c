"""The simulator against the real loop: the same prompts must find the same tokens cached."""

from dataclasses import replace

import pytest
from tests.papers.kvflow.serving import MODEL, TOKENIZER

from assay.papers.kvflow import (
    LRU,
    MRU,
    DeviceTier,
    Engine,
    Hardware,
    HostTier,
    ModelShape,
    PrefixCache,
    Simulator,
    Sizes,
    StepsToExecution,
    fingerprint,
    sequential_graph,
    synthetic_workflow,
)
from assay.papers.kvflow.models import kv_bytes_per_token, kv_shape

TOKEN = kv_bytes_per_token(MODEL)
LAYERS, KV_HEADS, HEAD_DIM = kv_shape(MODEL)
SHAPE = ModelShape(10**6, LAYERS, KV_HEADS, KV_HEADS, HEAD_DIM, dtype_bytes=4)
SIZES = Sizes(fixed=40, dynamic=6, output=2)
N_VOCAB = 200


def served(trace, policy, device_tokens, host_tokens=0):
    """Tokens that the real loop found cached for each request, on whatever tier."""
    tiers = [DeviceTier(device_tokens * TOKEN)]
    if host_tokens:
        tiers.append(HostTier(host_tokens * TOKEN))
    found = []
    with (
        PrefixCache(tiers, policy, fingerprint=fingerprint(MODEL)) as cache,
        Engine(MODEL, TOKENIZER, cache, scheduler="fcfs") as engine,
    ):
        for request in trace:
            future = engine.submit(
                list(request.prompt_ids),
                request.client,
                request.agent,
                request.fixed_len,
                request.steps,
                max_new_tokens=request.output_len,
                ignore_eos=True,
            )
            found.append(sum(future.result().cached_tokens.values()))
            cache.settle()
    return found


def simulated(trace, policy, device_tokens, host_tokens=0):
    report = Simulator(
        trace,
        Hardware.measured(1000.0, 0.01),
        SHAPE,
        device_tokens * TOKEN,
        host_tokens * TOKEN,
        policy,
        running_on_device=False,
    ).run()
    return [request.device + request.host for request in report.requests]


def in_turn(trace):
    """The same trace as one call after the other, whose values change with the next call alone."""
    return [
        replace(request, after=(i - 1,) if i else (), next_use=None)
        for i, request in enumerate(trace)
    ]


@pytest.mark.parametrize("host_tokens", [0, 400])
def test_the_same_tokens_are_found(host_tokens):
    trace = in_turn(synthetic_workflow(sequential_graph(4, 2), SIZES, n_rounds=3, n_vocab=N_VOCAB))
    hits = {}
    for policy in (LRU, MRU, StepsToExecution):
        real = served(trace, policy(), 140, host_tokens)
        assert simulated(trace, policy(), 140, host_tokens) == real
        hits[policy] = sum(real)
    assert hits[StepsToExecution] > 0
    if host_tokens:
        assert len(set(hits.values())) == 1
    else:
        assert hits[StepsToExecution] > hits[LRU]
