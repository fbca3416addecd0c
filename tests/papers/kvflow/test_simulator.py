"""The simulator against closed forms: latencies, overlap, stalls, hit rates and batches."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.papers.kvflow.eviction import LRU, MRU, Belady, StepsToExecution
from assay.papers.kvflow.hardware import Hardware, ModelShape
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.simulator import SYSTEMS, Simulator, _Run
from assay.papers.kvflow.trace import TraceRequest
from assay.papers.kvflow.workloads import (
    Sizes,
    concurrent_workflows,
    parallel_graph,
    sequential_graph,
    synthetic_workflow,
)

TINY = ModelShape(10**6, 4, 2, 1, 8)  # 4 layers, 128 bytes a token
BYTES = TINY.kv_bytes_per_token
PREFILL, STEP = 1e-3, 0.01  # seconds a token, seconds a decode step
PLENTY = 10**9


def cpu(link_s_per_token=None, **more):
    gbps = None if link_s_per_token is None else BYTES / link_s_per_token / 1e9
    return Hardware.measured(1 / PREFILL, STEP, gbps, **more)


def ring(n_agents, sizes, n_rounds, **more):
    return synthetic_workflow(sequential_graph(n_agents), sizes, n_rounds, **more)


def room(n_prefixes, sizes):
    """Bytes for so many fixed prompts, and for what a running request needs besides."""
    return BYTES * (n_prefixes * sizes.fixed + 2 * (sizes.dynamic + sizes.output))


def test_one_request_on_a_gpu_takes_the_closed_form():
    model, gpu = ModelShape.qwen2_5_32b(), Hardware.h100(link_efficiency=0.1)
    trace = ring(2, Sizes(4096, 32, 20), 1)[:1]
    report = Simulator(trace, gpu, model, 10**11).run()
    n, out = 4096 + 32, 20
    pairs = n * (n + 1) / 2
    prefill = (2 * model.n_params * n + 4 * 64 * 40 * 128 * pairs) / (989.4e12 * 0.55)
    # The first token comes with the prefill; each step reads the weights and all keys.
    kv = 256 * 1024 * sum(n + i for i in range(1, out))
    decode = ((out - 1) * 2 * model.n_params + kv) / (3.35e12 * 0.8)
    assert report.requests[0].ttft == pytest.approx(prefill)
    assert report.requests[0].latency == pytest.approx(prefill + decode)
    assert report.makespan == report.requests[0].latency
    assert report.busy("compute") == pytest.approx(1.0)


def test_a_hit_leaves_the_rest_of_the_prompt_to_compute():
    sizes = Sizes(100, 7, 3)
    report = Simulator(ring(2, sizes, 2), cpu(), TINY, PLENTY).run()
    miss = 107 * PREFILL + 2 * STEP
    hit = 7 * PREFILL + 2 * STEP
    assert [r.latency for r in report.requests] == pytest.approx([miss, miss, hit, hit])
    assert [r.device for r in report.requests] == [0, 0, 100, 100]
    assert report.recomputed_tokens == 0
    assert report.hit_rate == pytest.approx(200 / 428)
    warm = report.window(2)
    assert warm.hit_rate == pytest.approx(100 / 107)
    assert warm.makespan == pytest.approx(2 * hit)
    assert warm.ttft(1.0) == pytest.approx(7 * PREFILL)


@pytest.mark.parametrize("capacity", [2, 3, 4])
def test_hit_rates_of_one_cycle_without_a_host_tier(capacity):
    n, sizes = 5, Sizes(200, 4, 2)
    trace = ring(n, sizes, 5 + (n - 1))
    rates = {}
    for policy in (LRU(), MRU(), StepsToExecution(), Belady([r.prompt_ids for r in trace])):
        simulator = Simulator(trace, cpu(), TINY, room(capacity, sizes), policy=policy, max_batch=1)
        requests = simulator.run().requests[5 * n :]
        assert {r.device for r in requests} <= {0, sizes.fixed}
        rates[type(policy)] = sum(r.device for r in requests) / (sizes.fixed * len(requests))
    assert rates[LRU] == 0
    assert rates[StepsToExecution] == pytest.approx((capacity - 1) / (n - 1))
    assert rates[Belady] >= rates[StepsToExecution]
    recomputed = Simulator(trace, cpu(), TINY, room(capacity, sizes), max_batch=1).run()
    assert recomputed.recomputed_tokens == sizes.fixed * (len(trace) - n)


@pytest.mark.parametrize("link_s_per_token", [1e-5, 2e-4, 1e-2])
def test_loads_on_demand_overlap_the_computation_layer_by_layer(link_s_per_token):
    sizes = Sizes(100, 20, 1)
    simulator = Simulator.system(
        "hicache", ring(3, sizes, 3), cpu(link_s_per_token), TINY, room(1, sizes), PLENTY
    )
    report = simulator.run()
    load, compute = 100 * link_s_per_token, 20 * PREFILL
    # The last layer is computed after its load, and nothing before the first layer's. Room for
    # the load is there when the suffix of the request before is backed up.
    expected = 20 * link_s_per_token + max(compute + load / 4, load + compute / 4)
    late = report.requests[-1]
    assert (late.device, late.host) == (0, 100)
    assert late.ttft == pytest.approx(expected)
    assert late.stall == pytest.approx(expected - compute)


@pytest.mark.parametrize("link_s_per_token", [1e-5, 1e-4, 3e-4, 1e-3])
def test_prefetching_hides_as_much_of_a_load_as_the_stage_before_lasts(link_s_per_token):
    sizes = Sizes(200, 5, 2)
    trace = ring(3, sizes, 6)
    report = Simulator.system(
        "kvflow", trace, cpu(link_s_per_token), TINY, room(2, sizes), PLENTY, max_batch=1
    ).run()
    stage = 5 * PREFILL + STEP
    load = 200 * link_s_per_token
    for request in report.requests[9:]:
        assert request.prefetched == 200
        assert request.stall == pytest.approx(max(0.0, load - stage), abs=1e-9)
        assert request.latency == pytest.approx(max(stage, load), abs=1e-9)
    assert report.counts["wasted_prefetch_bytes"] == 0


def test_when_everything_fits_nobody_loads_or_evicts_and_all_are_equal():
    trace = ring(4, Sizes(50, 5, 3), 3)
    reports = [
        Simulator.system(name, trace, cpu(1e-4), TINY, PLENTY, PLENTY).run() for name in SYSTEMS
    ]
    for report in reports:
        assert report.requests == reports[0].requests
        assert report.counts["loaded_bytes"] == 0
        assert "evictions_device" not in report.counts
        assert report.stall == report.idle == 0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.integers(1, 5), st.sampled_from([0, PLENTY]))
def test_without_step_values_the_order_is_that_of_lru(seed, capacity, host_bytes):
    sizes = Sizes(40, 4, 3)
    told = concurrent_workflows(sequential_graph(3, 2), 2, sizes, seed=seed)
    trace = [replace(r, steps={}, next_use=None) for r in told]
    lru, steps = (
        Simulator(trace, cpu(1e-4), TINY, room(capacity, sizes), host_bytes, policy).run()
        for policy in (LRU(), StepsToExecution())
    )
    assert lru.requests == steps.requests
    assert lru.counts == steps.counts


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(SYSTEMS),
    st.integers(20, 700),
    st.integers(1, 900),
    st.integers(1, 5),
    st.booleans(),
)
def test_bytes_are_conserved_and_everybody_is_served(seed, name, device, host, batch, pooled):
    sizes = Sizes(30, 6, 4)
    trace = concurrent_workflows(parallel_graph(3), 3, sizes, 2, seed=seed, spread=0.2)
    run = _Run(
        Simulator.system(
            name,
            trace,
            cpu(1e-3),
            TINY,
            device * BYTES,
            host * BYTES,
            max_batch=batch,
            running_on_device=pooled,
        )
    )
    report = run.report()
    run.cache.check()
    assert not run.moving()
    assert not any(node.locks for node in run.tree.nodes())
    held = sum(node.n_tokens for node in run.tree.nodes() if run.cache.on_device(node))
    assert run.device.used_bytes == held * BYTES
    for request, served in zip(trace, report.requests, strict=True):
        assert served.device + served.host < len(request.prompt_ids)
        assert served.recomputed >= 0
        assert served.arrival <= served.first_token <= served.end
        assert all(report.requests[i].end <= served.arrival for i in request.after)


def test_a_batch_shares_its_decode_steps():
    one = TraceRequest("x", "a", tuple(range(10)), 0, 3)
    other = TraceRequest("y", "b", tuple(range(100, 120)), 0, 3)
    report = Simulator([one, other], cpu(decode_request_s=0.002), TINY, PLENTY).run()
    first, second = report.requests
    # Both prompts are computed one after the other, then two steps for both.
    assert first.first_token == pytest.approx(0.010)
    assert second.first_token == pytest.approx(0.030)
    assert first.end == second.end == pytest.approx(0.030 + 2 * 0.012)


def test_a_request_that_comes_later_joins_at_the_next_step():
    one = TraceRequest("x", "a", tuple(range(10)), 0, 4)
    other = TraceRequest("y", "b", tuple(range(100, 120)), 0, 2, t=0.015)
    report = Simulator([one, other], cpu(), TINY, PLENTY).run()
    first, second = report.requests
    # 10 ms, a step until 20, the other's prompt until 40, a step for both, and one for the first.
    assert second.first_token == pytest.approx(0.040)
    assert second.end == pytest.approx(0.050)
    assert first.end == pytest.approx(0.060)


def test_a_full_batch_makes_others_wait():
    trace = [TraceRequest("x", f"a{i}", (i,), 0, 2) for i in range(3)]
    report = Simulator(trace, cpu(), TINY, PLENTY, max_batch=1).run()
    assert [r.end for r in report.requests] == pytest.approx([0.011, 0.022, 0.033])


def test_the_status_aware_scheduler_computes_others_while_a_prefix_is_loaded():
    fixed = tuple(range(100))
    trace = [
        TraceRequest("x", "a", (*fixed, 1000), 100, 1),
        TraceRequest("y", "o", tuple(range(200, 300)), 0, 1, after=(0,), t=1.0),
        TraceRequest("x", "a", (*fixed, 1001), 100, 1, after=(1,), t=2.0),
        TraceRequest("z", "b", tuple(range(500, 510)), 0, 1, after=(1,), t=2.0),
    ]
    ttft = {}
    for name in ("fcfs", "status-aware"):
        simulator = Simulator(trace, cpu(1e-3), TINY, 120 * BYTES, PLENTY, scheduler=name)
        requests = simulator.run().requests
        assert requests[2].host == 100
        ttft[name] = [request.ttft for request in requests[2:]]
    load, other = 100 * 1e-3, 10 * PREFILL
    assert ttft["status-aware"] == pytest.approx([load + PREFILL, other])
    layered = load + PREFILL / 4
    assert ttft["fcfs"] == pytest.approx([layered, layered + other])


def test_who_waits_for_a_load_does_not_hold_the_room_that_others_need_to_run():
    """Twelve workflows share a pool in which four can run, and nobody's prefix stays in it."""
    sizes = Sizes(100, 25, 40)
    trace = concurrent_workflows(sequential_graph(4), 12, sizes, 2, seed=1)
    device = 4 * (100 + 25 + 40) * BYTES + 20 * BYTES
    found = {}
    for name in ("hicache", "prefetch", "kvflow"):
        simulator = Simulator.system(name, trace, cpu(1e-4), TINY, device, PLENTY, max_batch=12)
        found[name] = simulator.run()
        assert found[name].counts["uncached_requests"] == 0
    # Passing over who is not ready costs a little where loads are hidden anyway.
    for name in ("prefetch", "kvflow"):
        assert found[name].makespan < 1.1 * found["hicache"].makespan


def test_a_prompt_larger_than_the_device_is_served_without_the_cache():
    trace = ring(2, Sizes(100, 5, 2), 2)
    report = Simulator.system("kvflow", trace, cpu(1e-4), TINY, 50 * BYTES, PLENTY).run()
    assert report.counts["uncached_requests"] == 4
    assert report.hit_rate == 0


def test_backups_and_loads_use_both_directions():
    sizes = Sizes(100, 5, 2)
    trace = ring(4, sizes, 3)
    report = Simulator.system("hicache", trace, cpu(1e-4), TINY, room(2, sizes), PLENTY).run()
    assert report.timeline.busy("offload") == pytest.approx(
        report.counts["backed_up_bytes"] / BYTES * 1e-4
    )
    assert report.timeline.busy("load") == pytest.approx(
        report.counts["loaded_bytes"] / BYTES * 1e-4
    )
    assert 0 < report.busy("load") < 1


def test_contents_say_where_fixed_prompts_are():
    sizes = Sizes(100, 5, 2)
    report = Simulator.system(
        "kvflow",
        ring(3, sizes, 4),
        cpu(1e-5),
        TINY,
        room(2, sizes),
        PLENTY,
        record_contents=True,
    ).run()
    assert len(report.contents) == 12
    time, found = report.contents[-1]
    assert time == report.requests[-1].arrival
    assert found[("workflow", "a2")] == "device"
    assert set(found.values()) <= {"device", "host", "loading"}
    assert len(found) == 3


def test_a_simulation_repeats_itself():
    trace = concurrent_workflows(sequential_graph(3, 2), 3, Sizes(30, 4, 5), spread=0.1)
    simulator = Simulator.system("kvflow", trace, cpu(1e-4), TINY, 200 * BYTES, PLENTY)
    first, second = simulator.run(), simulator.run()
    assert (first.requests, first.counts) == (second.requests, second.counts)
    assert first.timeline.spans() == second.timeline.spans()


def ratio(fixed, output, gbps, against):
    model, gpu = ModelShape.qwen2_5_32b(), Hardware.h100(link_gbps=gbps, link_efficiency=1.0)
    trace = ring(10, Sizes(fixed, 32, output), 2)
    device = model.kv_bytes_per_token * (5 * fixed + 600)
    spans = [
        Simulator.system(name, trace, gpu, model, device, 10**12, max_batch=1)
        .run()
        .window(10)
        .makespan
        for name in (against, "kvflow")
    ]
    return spans[0] / spans[1]


def test_the_papers_setting_has_the_papers_order_and_trends():
    by_link = [ratio(4096, 32, gbps, "hicache") for gbps in (5, 10, 50)]
    assert 1.0 <= by_link[2] < by_link[1] < by_link[0] <= 1.6
    assert ratio(8192, 32, 10, "hicache") > by_link[1]
    assert ratio(8192, 256, 10, "hicache") < ratio(8192, 32, 10, "hicache")
    assert ratio(4096, 32, 10, "gpu-only") > by_link[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trace": []}, "trace: got no request"),
        ({"device_bytes": -1}, "device_bytes: got -1"),
        ({"host_bytes": -1}, "host_bytes: got -1"),
        ({"max_batch": 0}, "max_batch: got 0"),
        ({"scheduler": "random"}, "scheduler: got 'random'"),
        ({"prefetch": Prefetcher()}, "prefetch: got one without a host tier"),
        ({"trace": [TraceRequest("c", "a", (1,), 0, 1, after=(0,))]}, "wants earlier ones"),
        ({"model": replace(TINY, dtype_bytes=3)}, "dtype_bytes: got 3"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    given = {
        "trace": ring(2, Sizes(5, 1, 1), 1),
        "hardware": cpu(),
        "model": TINY,
        "device_bytes": PLENTY,
    }
    with pytest.raises(ValueError, match=message):
        Simulator(**(given | change))


def test_unknown_systems_and_empty_windows_are_refused():
    trace = ring(2, Sizes(5, 1, 1), 1)
    with pytest.raises(ValueError, match="name: got 'vllm'"):
        Simulator.system("vllm", trace, cpu(), TINY, PLENTY, PLENTY)
    with pytest.raises(ValueError, match="first: got 2, wants less than 2"):
        Simulator(trace, cpu(), TINY, PLENTY).run().window(2)
    assert math.isfinite(Simulator(trace, cpu(), TINY, PLENTY).run().latency())
