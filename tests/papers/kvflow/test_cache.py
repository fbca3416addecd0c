"""The cache, one behaviour at a time."""

import logging
import math
import random
import threading
import time
from itertools import count

import pytest
import torch
from tests.papers.kvflow.prefix_blocks import TOKEN, block_of, tail_of

from assay.papers.kvflow import link
from assay.papers.kvflow.blocks import join
from assay.papers.kvflow.cache import PrefixCache
from assay.papers.kvflow.eviction import LRU, StepsToExecution
from assay.papers.kvflow.lease import LeaseExpired
from assay.papers.kvflow.link import TransferFailed
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.tiers import DeviceTier, DiskTier, HostTier


def prompt(agent, n=8):
    """A fixed prompt of an agent."""
    return tuple(range(1000 * agent, 1000 * agent + n))


def serve(cache, ids, agent="a", fixed_len=None, client="app", out=()):
    """A request as an engine makes it, whose every cached token is compared; returns the lease."""
    ids = tuple(ids)
    with cache.lookup(ids, client, agent) as lease:
        lease.wait(timeout=10)
        if lease.n_tokens:
            assert torch.equal(join(lease.blocks()), block_of(ids[: lease.n_tokens]))
        full = ids + tuple(out)
        cache.commit(lease, full, tail_of(full, lease.n_tokens), fixed_len)
    return lease


@pytest.fixture
def make():
    """Makes caches that are checked and closed at the end."""
    made = []

    def make(device=100, host=None, disk=None, policy=None, prefetch=None, **options):
        tiers = [DeviceTier(device * TOKEN)]
        if host is not None:
            tiers.append(HostTier(host * TOKEN))
        if disk is not None:
            tiers.append(DiskTier(disk[0] * TOKEN, disk[1]))
        made.append(PrefixCache(tiers, policy, prefetch, **options))
        return made[-1]

    yield make
    for cache in made:
        cache.settle(timeout=10)
        cache.check(block_of)
        cache.close()


def on(cache, ids):
    match = cache.tree.match(ids, touch=False)
    return match.n_device, match.n_host, match.n_disk


def test_what_was_committed_is_found_by_the_next_request(make):
    cache = make()
    assert serve(cache, prompt(1)).n_tokens == 0
    lease = serve(cache, (*prompt(1), 5, 6))
    assert lease.cached_tokens == {"device": 8}
    assert cache.stats()["hit_rate"] == 8 / 18


def test_the_last_token_is_never_cached_away(make):
    cache = make()
    serve(cache, prompt(1))
    assert serve(cache, prompt(1)).n_tokens == 7


def test_layers_are_those_of_the_blocks(make):
    cache = make()
    serve(cache, prompt(1))
    serve(cache, (*prompt(1), 5, 6))
    with cache.lookup((*prompt(1), 5, 9)) as lease:
        assert lease.n_tokens == 9
        for layer in range(3):
            pieces = lease.layer(layer)
            assert torch.equal(torch.cat(pieces, dim=2), block_of((*prompt(1), 5))[layer])


def test_only_the_shortfall_is_evicted(make):
    cache = make(device=40)
    for agent in range(4):
        serve(cache, prompt(agent, 10))
    serve(cache, prompt(9, 3))
    assert [on(cache, prompt(agent, 10))[0] for agent in range(4)] == [0, 10, 10, 10]
    serve(cache, prompt(8, 7))  # fits in what is free now
    assert cache.stats()["evictions_device"] == 1


def test_a_prefix_in_use_is_not_evicted(make):
    cache = make(device=20)
    serve(cache, prompt(1, 10))
    lease = cache.lookup((*prompt(1, 10), 3))
    serve(cache, prompt(2, 10))
    serve(cache, prompt(3, 10))
    assert [on(cache, prompt(agent, 10))[0] for agent in (1, 2, 3)] == [10, 0, 10]
    serve(cache, prompt(4, 15))
    assert on(cache, prompt(4, 15))[0] == 0
    assert on(cache, prompt(3, 10))[0] == 10, "evicted although it does not make room enough"
    lease.release()
    serve(cache, prompt(4, 15))
    assert on(cache, prompt(4, 15))[0] == 15


def test_a_prefix_larger_than_the_device_tier_is_served_uncached_with_one_warning(make, caplog):
    cache = make(device=10, host=100)
    serve(cache, prompt(1, 6))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            serve(cache, prompt(2, 11))
    assert on(cache, prompt(2, 11)) == (0, 0, 0)
    assert on(cache, prompt(1, 6))[0] == 6, "evicted for what could not be admitted"
    assert [r.message[:40] for r in caplog.records] == ["a prefix of 11 tokens is not cached: 528"]
    assert cache.stats()["too_large"] == 3


def test_of_a_long_prompt_the_fixed_part_is_kept_where_it_fits(make):
    cache = make(device=10)
    serve(cache, prompt(1, 14), fixed_len=8)
    assert on(cache, prompt(1, 14))[0] == 8


def test_write_through_makes_eviction_a_demotion(make):
    cache = make(device=10, host=100)
    serve(cache, prompt(1, 10))
    cache.settle(timeout=10)
    serve(cache, prompt(2, 10))
    cache.settle(timeout=10)
    assert on(cache, prompt(1, 10)) == (0, 10, 0)
    lease = serve(cache, (*prompt(1, 9), 4))
    assert lease.cached_tokens == {"device": 0, "host": 9}
    assert on(cache, prompt(1, 9))[0] == 9


def test_a_node_whose_backup_is_under_way_is_not_evicted(make):
    cache = make(device=10, host=100, link_gbps=10 * TOKEN / 0.1 / 1e9)
    serve(cache, prompt(1, 10))
    assert cache.tree.match(prompt(1, 10)).node.status.value == "offloading"
    serve(cache, prompt(2, 10))
    assert on(cache, prompt(2, 10)) == (0, 0, 0)
    assert cache.stats()["not_admitted"] == 1
    cache.settle(timeout=10)
    serve(cache, prompt(2, 10))
    assert on(cache, prompt(1, 10)) == (0, 10, 0)


def test_steps_to_execution_keeps_who_runs_next_where_lru_evicts_it(make):
    hits = {}
    for policy in (LRU(), StepsToExecution()):
        cache = make(device=3 * 8 + 2, policy=policy)
        hits[type(policy).__name__] = 0
        for turn in range(5 * 5):
            # The agent that runs is needed now, the one before it after all others.
            cache.update_steps("app", {str(k): (k - turn) % 5 for k in range(5)})
            agent = turn % 5
            lease = serve(cache, (*prompt(agent), 7000 + turn), str(agent), fixed_len=8)
            hits[type(policy).__name__] += (turn >= 5) and lease.n_tokens == 8
    assert hits == {"LRU": 0, "StepsToExecution": 10}  # (C - 1) / (N - 1) of 20


def test_a_prefetch_brings_back_who_runs_next_before_it_asks(make):
    cache = make(device=17, host=100, policy=StepsToExecution(), prefetch=Prefetcher())
    for agent in (1, 2, 3):
        serve(cache, prompt(agent), str(agent), fixed_len=8)
        cache.settle(timeout=10)
    assert on(cache, prompt(1)) == (0, 8, 0)
    cache.update_steps("app", {"1": 1, "2": 2, "3": 0})
    cache.settle(timeout=10)
    assert on(cache, prompt(1)) == (8, 0, 0)
    assert on(cache, prompt(2)) == (0, 8, 0)
    assert serve(cache, (*prompt(1), 4), "1", fixed_len=8).cached_tokens["device"] == 8
    stats = cache.stats()
    assert stats["prefetches"] == 1
    assert stats["used_prefetch_bytes"] == 8 * TOKEN
    assert "wasted_prefetch_bytes" not in stats


def test_a_prefetch_that_would_evict_what_is_needed_as_soon_is_refused(make):
    cache = make(device=16, host=100, policy=StepsToExecution(), prefetch=Prefetcher(ahead=9))
    for agent in (1, 2, 3):
        serve(cache, prompt(agent), str(agent), fixed_len=8)
        cache.settle(timeout=10)
    cache.update_steps("app", {"1": 2, "2": 1, "3": 2})
    cache.settle(timeout=10)
    assert on(cache, prompt(1)) == (0, 8, 0)
    assert cache.stats()["prefetches_refused"] == 1
    assert cache.stats()["evictions_device"] == 1


def test_a_prefetch_nobody_used_is_counted_as_wasted(make):
    cache = make(device=16, host=100, policy=StepsToExecution(), prefetch=Prefetcher())
    for agent in (1, 2, 3):
        serve(cache, prompt(agent), str(agent), fixed_len=8)
        cache.settle(timeout=10)
    for steps in ({"1": 1, "2": 3, "3": 2}, {"1": 4, "2": 1, "3": 2}):
        cache.update_steps("app", steps)
        cache.settle(timeout=10)
    assert cache.stats()["wasted_prefetch_bytes"] == 8 * TOKEN


def test_no_more_prefetches_are_under_way_than_allowed(make):
    cache = make(
        device=40,
        host=100,
        policy=StepsToExecution(),
        prefetch=Prefetcher(max_inflight=2),
    )
    for agent in range(5):
        serve(cache, prompt(agent), str(agent), fixed_len=8)
    cache.settle(timeout=10)
    for agent in range(5, 10):
        serve(cache, prompt(agent), str(agent), fixed_len=8)
        cache.settle(timeout=10)
    started, most = [], 0
    load = cache._residency.load

    def counting(*args, **kwargs):
        nonlocal most
        moves = load(*args, **kwargs)
        started.extend(moves or ())
        most = max(most, sum(not move.ended for move in started))
        return moves

    cache._residency.load = counting
    cache.update_steps("app", {str(agent): 1 + 8 * (agent > 4) for agent in range(10)})
    cache.settle(timeout=10)
    assert most == 2
    assert [on(cache, prompt(agent))[0] for agent in range(5)] == [8] * 5


def test_what_fits_is_prefetched_although_something_larger_does_not(make):
    """A prefetch without room must not keep smaller ones from theirs."""
    cache = make(device=24, host=100, policy=StepsToExecution(), prefetch=Prefetcher())
    large, small = (1, *range(100, 115)), (2, *range(200, 203))
    serve(cache, large, "large", fixed_len=16)
    serve(cache, small, "small", fixed_len=4)
    cache.settle(timeout=10)
    serve(cache, range(300, 320), "now", fixed_len=20)
    serve(cache, range(400, 404), "later", fixed_len=4)
    cache.settle(timeout=10)
    assert on(cache, large)[0] == on(cache, small)[0] == 0
    cache.update_steps("app", {"now": 0, "later": 9, "large": 1, "small": 1})
    cache.settle(timeout=10)
    assert (on(cache, large)[0], on(cache, small)[0]) == (0, 4)
    assert cache.stats()["prefetches_refused"] == 1


def test_where_everything_fits_prefetching_wins_nothing_and_evicts_nothing(make):
    """Oracle 9."""
    caches = [
        make(device=1000, host=1000, policy=StepsToExecution(), prefetch=prefetch)
        for prefetch in (None, Prefetcher(ahead=9))
    ]
    for cache in caches:
        for turn in range(12):
            cache.update_steps("app", {str(k): (k - turn) % 4 for k in range(4)})
            agent = turn % 4
            serve(cache, (*prompt(agent), 7000 + turn), str(agent), fixed_len=8)
        cache.settle(timeout=10)
    without, with_ = (cache.stats() for cache in caches)
    assert without["device_hit_tokens"] == with_["device_hit_tokens"] > 0
    for stats in (without, with_):
        assert not {"evictions_device", "evictions_host", "loaded_bytes", "prefetches"} & {*stats}


def test_a_loader_that_dies_mid_copy_costs_a_recomputation_and_no_token(make, monkeypatch):
    """Oracle 10."""
    cache = make(device=10, host=100)
    serve(cache, prompt(1, 10))
    cache.settle(timeout=10)
    serve(cache, prompt(2, 10))
    cache.settle(timeout=10)
    copy = link._LayerCopier.__call__

    def die(self, layer):
        if layer == 1 and threading.current_thread().name == "kvflow-load":
            raise SystemExit
        copy(self, layer)

    monkeypatch.setattr(link._LayerCopier, "__call__", die)
    with cache.lookup((*prompt(1, 10), 5)) as lease:
        assert lease.load() == 10
        lease.layer(0)
        with pytest.raises(TransferFailed):
            lease.layer(1)
        assert lease.n_tokens == 0
        assert lease.blocks() == []
        cache.settle(timeout=10)
        assert on(cache, prompt(1, 10)) == (0, 10, 0), "the node did not return to the host"
        monkeypatch.undo()
        cache.commit(lease, lease.ids, tail_of(lease.ids, 0))
    assert cache.stats()["load_failures"] == 1
    assert cache.stats()["lost_tokens"] == 10


def test_what_overtakes_a_load_whose_parent_failed_does_not_stay_without_it(make, monkeypatch):
    cache = make(device=14, host=100)
    for n in (4, 8, 12):
        serve(cache, prompt(1, n))
    cache.settle(timeout=10)
    serve(cache, prompt(2, 14))
    cache.settle(timeout=10)
    ids = prompt(1, 12)
    assert on(cache, ids) == (0, 12, 0)
    first, second, third = cache.tree.match(ids).node.path()
    copy = link._LayerCopier.__call__
    calls = count()
    second_began, third_waits = threading.Event(), threading.Event()

    def stop_and_go(self, layer):
        call = next(calls)
        if call == 0:
            raise OSError("link down")
        if call == 1:
            second_began.set()
            assert third_waits.wait(5)
        copy(self, layer)

    monkeypatch.setattr(link._LayerCopier, "__call__", stop_and_go)
    with cache.tree.lock:
        cache._residency.load([first, second], link.PREFETCH, prefetch=True)
    assert second_began.wait(5)
    with cache.tree.lock:
        cache._residency.load([third], link.DEMAND)
    third_waits.set()
    cache.settle(timeout=10)
    cache.check(block_of)
    assert on(cache, ids) == (0, 12, 0)


def test_a_prefetch_that_fails_is_not_tried_for_ever(make, monkeypatch):
    cache = make(device=17, host=100, policy=StepsToExecution(), prefetch=Prefetcher())
    for agent in (1, 2, 3):
        serve(cache, prompt(agent), str(agent), fixed_len=8)
        cache.settle(timeout=10)

    def fail(self, layer):
        raise OSError("link down")

    monkeypatch.setattr(link._LayerCopier, "__call__", fail)
    for _ in range(2):
        cache.update_steps("app", {"1": 1, "2": 2, "3": 0})
        cache.settle(timeout=10)
    assert cache.stats()["prefetches"] == cache.stats()["load_failures"] == 2
    monkeypatch.undo()
    cache.update_steps("app", {"1": 1})
    cache.settle(timeout=10)
    assert on(cache, prompt(1)) == (8, 0, 0)


def test_a_load_can_be_read_layer_by_layer_while_it_is_under_way(make):
    cache = make(device=10, host=100, link_gbps=10 * TOKEN / 0.3 / 1e9)
    for agent in (1, 2):
        serve(cache, prompt(agent, 10))
        cache.settle(timeout=10)
    start = time.perf_counter()
    with cache.lookup((*prompt(1, 10), 5)) as lease:
        assert not lease.ready
        lease.load()
        assert lease.loading
        assert torch.equal(lease.layer(0)[0], block_of(prompt(1, 10))[0])
        first = time.perf_counter() - start
        assert lease.loading
        lease.wait(timeout=5)
        assert lease.ready
        assert torch.equal(join(lease.blocks()), block_of(prompt(1, 10)))
    assert 0.09 < first < 0.29
    assert time.perf_counter() - start > 0.29


def test_two_requests_share_one_load(make):
    cache = make(device=10, host=100, link_gbps=10 * TOKEN / 0.1 / 1e9)
    for agent in (1, 2):
        serve(cache, prompt(agent, 10))
        cache.settle(timeout=10)
    with cache.lookup((*prompt(1, 10), 5)) as one, cache.lookup((*prompt(1, 10), 6)) as other:
        one.load()
        other.load()
        assert one.wait(5) == other.wait(5) == 10
    assert cache.stats()["loaded_bytes"] == 10 * TOKEN


def test_a_node_may_be_split_while_it_is_loaded_and_while_it_is_backed_up(make):
    cache = make(device=20, host=100, link_gbps=10 * TOKEN / 0.2 / 1e9)
    serve(cache, prompt(1, 10))  # its backup is under way
    serve(cache, (*prompt(1, 4), 50, 51))
    cache.check(block_of)
    cache.settle(timeout=10)
    assert on(cache, prompt(1, 10))[0] == 10
    serve(cache, prompt(2, 18))
    cache.settle(timeout=10)
    assert on(cache, prompt(1, 10)) == (0, 10, 0)
    with cache.lookup((*prompt(1, 10), 5)) as lease:
        lease.load()
        with cache.lookup(prompt(3, 2)) as other:
            cache.commit(other, (*prompt(1, 7), 60), tail_of((*prompt(1, 7), 60), 0))
        cache.check(block_of)
        assert torch.equal(join(lease.blocks()), block_of(prompt(1, 10)))


def test_a_node_matched_in_part_may_be_split_below_the_match(make):
    cache = make()
    serve(cache, prompt(1, 10))
    with cache.lookup((*prompt(1, 5), 77)) as lease:
        for n in (8, 6, 5):
            serve(cache, (*prompt(1, n), 88))
        assert torch.equal(join(lease.blocks()), block_of(prompt(1, 5)))
        assert [piece.shape[2] for piece in lease.layer(0)] == [5]


def test_leases_time_out(make):
    cache = make(device=10, lease_timeout=0.05)
    serve(cache, prompt(1, 10))
    lease = cache.lookup((*prompt(1, 10), 4))
    time.sleep(0.06)
    serve(cache, prompt(2, 10))
    assert on(cache, prompt(2, 10))[0] == 10, "the prefix of a dead client was kept"
    with pytest.raises(LeaseExpired):
        lease.blocks()
    lease.release()
    assert cache.stats()["expired_leases"] == 1
    assert cache.stats()["leases"] == 0


def test_an_expired_request_may_still_commit_but_leaves_no_hole(make):
    cache = make(device=10, lease_timeout=0.05)
    serve(cache, prompt(1, 6))
    ids = (*prompt(1, 6), 4, 5)
    lease = cache.lookup(ids)
    time.sleep(0.06)
    serve(cache, prompt(2, 10))
    assert cache.commit(lease, ids, tail_of(ids, 6)) == 0
    assert cache.commit(lease, ids, tail_of(ids, 0)) == 8


def test_stale_fixed_prompts_are_dropped(make):
    cache = make(stale_after=100.0)
    now = 0.0
    cache._clock = lambda: now
    serve(cache, (*prompt(1), 5), "old", fixed_len=8)
    now = 60.0
    serve(cache, (*prompt(2), 5), "new", fixed_len=8)
    now = 120.0
    cache.update_steps("app", {"new": 1})
    assert on(cache, prompt(1)) == (0, 0, 0)
    assert on(cache, prompt(2))[0] == 8
    assert list(cache.stats()["agents"]) == ["app/new"]


def test_fixed_prompts_are_found_by_what_an_agents_prompts_share(make):
    cache = make(page_size=2)
    for turn in range(3):
        serve(cache, (*prompt(1, 9), 7000 + turn, 1, 2), "a")
    assert cache.tree.fixed_end("app", "a").depth == 8
    assert cache.stats()["agents"]["app/a"]["fixed_len"] == 9


def test_stats_show_where_a_fixed_prompt_changes(make):
    cache = make()
    for turn in range(3):
        ids = (*prompt(1, 5), 9000 + turn, *prompt(2, 5), 7000 + turn)
        serve(cache, ids, "dated", fixed_len=11)
        serve(cache, (*prompt(3), 7000 + turn), "clean", fixed_len=8)
    dated, clean = (cache.stats()["agents"][f"app/{name}"] for name in ("dated", "clean"))
    assert (dated["first_difference"], clean["first_difference"]) == (5, None)
    assert dated["fixed_hit_share"] == pytest.approx(10 / 33)
    assert clean["fixed_hit_share"] == pytest.approx(16 / 24)


def test_disk_takes_what_device_and_host_have_no_room_for(make, tmp_path):
    cache = make(device=10, host=10, disk=(100, tmp_path))
    for agent in (1, 2, 3):
        serve(cache, prompt(agent, 10))
        cache.settle(timeout=10)
    assert on(cache, prompt(1, 10)) == (0, 0, 10)
    lease = serve(cache, (*prompt(1, 9), 4))
    assert lease.cached_tokens == {"device": 0, "host": 0, "disk": 9}
    assert lease.n_tokens == 9


def test_a_damaged_file_costs_a_recomputation_and_one_warning(make, tmp_path, caplog):
    cache = make(device=10, disk=(100, tmp_path))
    for agent in (1, 2, 3, 4):
        serve(cache, prompt(agent, 10))
        cache.settle(timeout=10)
    for file in cache.tiers[1].path.iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        for agent in (1, 2):
            lease = serve(cache, (*prompt(agent, 9), 4))
            assert lease.cached_tokens["disk"] == 9
            assert lease.n_tokens == 0
            cache.settle(timeout=10)
    assert len(caplog.records) == 1
    assert "wrong checksum" in caplog.text
    assert on(cache, (*prompt(2, 9), 4))[0] == 10


def test_a_full_disk_costs_backups_and_one_warning(make, tmp_path, caplog, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("assay.papers.kvflow.tiers.write_bytes", full)
    cache = make(device=10, disk=(100, tmp_path))
    with caplog.at_level(logging.WARNING):
        for agent in (1, 2, 3):
            serve(cache, prompt(agent, 10))
            cache.settle(timeout=10)
    assert [on(cache, prompt(agent, 10))[0] for agent in (1, 2, 3)] == [0, 0, 10]
    assert caplog.text.count("No space left on device") == 1
    assert cache.stats()["disk_failures"] >= 3
    assert cache.stats()["tiers"]["disk"]["used_bytes"] == 0


def test_files_that_vanish_cost_a_recomputation(make, tmp_path):
    cache = make(device=10, disk=(100, tmp_path))
    for agent in (1, 2):
        serve(cache, prompt(agent, 10))
        cache.settle(timeout=10)
    for file in cache.tiers[1].path.iterdir():
        file.unlink()
    assert serve(cache, (*prompt(1, 9), 4)).n_tokens == 0
    # A split of a node that is on the disk alone has to read it.
    serve(cache, (*prompt(2, 5), 77))
    assert on(cache, (*prompt(2, 5), 77))[0] in (0, 6)


def test_a_saved_cache_is_taken_up_again(make, tmp_path):
    cache = make(device=30, host=100, fingerprint="m", policy=StepsToExecution())
    for agent in (1, 2, 3, 4):
        serve(cache, (*prompt(agent), 5), str(agent), fixed_len=8)
        cache.settle(timeout=10)
    cache.update_steps("app", {"1": 3})
    cache.save(tmp_path / "saved")
    other = make(device=18, host=100, fingerprint="m", policy=StepsToExecution())
    assert other.load(tmp_path / "saved") == 36
    other.settle(timeout=10)
    other.check(block_of)
    assert sum(on(other, prompt(agent))[0] for agent in (1, 2, 3, 4)) >= 16
    assert all(sum(on(other, (*prompt(agent), 5))) == 9 for agent in (1, 2, 3, 4))
    other.update_steps("app", {"1": 3})
    assert other.tree.match(prompt(1)).node.priority == 3
    assert serve(other, (*prompt(3), 9), "3", fixed_len=8).n_tokens == 8


def test_a_saved_cache_of_another_model_is_refused(make, tmp_path):
    cache = make(fingerprint="llama-fp32")
    serve(cache, prompt(1))
    cache.save(tmp_path)
    with pytest.raises(ValueError, match="fingerprint: got 'llama-fp32', wants 'llama-bf16'"):
        make(fingerprint="llama-bf16").load(tmp_path)
    with pytest.raises(ValueError, match="page_size: got 1, wants 4"):
        make(fingerprint="llama-fp32", page_size=4).load(tmp_path)
    with pytest.raises(ValueError, match="fingerprint: got 'other'"):
        cache.require("other")
    with pytest.raises(ValueError, match="cache: made without a fingerprint"):
        make().require("other")


def test_a_save_without_its_parts_is_refused(make, tmp_path):
    (tmp_path / "cache.json").write_text('{"fingerprint": ""}')
    with pytest.raises(ValueError, match=r"cache\.json: wants fingerprint, marks"):
        make().load(tmp_path)


def test_of_a_damaged_save_the_rest_is_taken(make, tmp_path):
    cache = make()
    serve(cache, prompt(1))
    serve(cache, (*prompt(1), 5, 6))
    serve(cache, prompt(2))
    cache.save(tmp_path)
    block = next(n for n, node in enumerate(cache.tree.nodes()) if node.ids == prompt(1))
    (tmp_path / f"{block}.safetensors").write_bytes(b"no tensors")
    other = make()
    assert other.load(tmp_path) == 8
    assert on(other, (*prompt(1), 5, 6))[0] == 0
    assert on(other, prompt(2))[0] == 8


def test_no_priorities_and_no_prefetch_is_plain_lru(make):
    """Oracle 4, on the cache itself."""
    trace = random.Random(3).choices(range(8), k=200)
    served = {}
    for policy in (LRU(), StepsToExecution()):
        cache = make(device=40, host=60, policy=policy)
        found = []
        for agent in trace:
            lease = serve(cache, (*prompt(agent), 9), str(agent), fixed_len=8)
            cache.settle(timeout=10)
            found.append(tuple(lease.cached_tokens.values()))
        served[type(policy).__name__] = found
    assert served["LRU"] == served["StepsToExecution"]
    assert len(set(served["LRU"])) > 2


def test_presets_are_what_they_say():
    with PrefixCache.hicache(10 * TOKEN, 20 * TOKEN, link_gbps=1.0) as cache:
        assert isinstance(cache.policy, LRU)
        assert cache.tiers[1].capacity_bytes == 20 * TOKEN
    with PrefixCache.kvflow(10 * TOKEN, 20 * TOKEN) as cache:
        assert isinstance(cache.policy, StepsToExecution)


def test_copies_are_on_the_timeline(make):
    cache = make(device=10, host=100)
    for agent in (1, 2, 1):
        serve(cache, prompt(agent, 10))
        cache.settle(timeout=10)
    amounts = {
        track: [span.amount for span in cache.timeline.spans(track)]
        for track in ("load", "offload")
    }
    assert amounts == {"load": [10 * TOKEN], "offload": [10 * TOKEN] * 2}


def test_bad_arguments_say_what_is_wanted(make):
    cache = make()
    with pytest.raises(ValueError, match=r"tiers: got \[HostTier.*, wants a DeviceTier first"):
        PrefixCache([HostTier(1)])
    with pytest.raises(ValueError, match="lease_timeout: got 0, wants a finite number > 0"):
        PrefixCache([DeviceTier(1)], lease_timeout=0)
    with pytest.raises(TypeError, match="ids: got 'x' among them"):
        cache.lookup("xyz")
    with pytest.raises(ValueError, match=r"steps\['b'\]: got -1"):
        cache.update_steps("app", {"a": 1, "b": -1})
    with cache.lookup(prompt(1)) as lease:
        with pytest.raises(ValueError, match="fixed_len: got 9, wants at most the prompt's 8"):
            cache.commit(lease, prompt(1), tail_of(prompt(1), 0), fixed_len=9)
        with pytest.raises(ValueError, match="kv: got 8 tokens, wants at most the 7 of ids"):
            cache.commit(lease, prompt(1, 7), tail_of(prompt(1), 0))
        with pytest.raises(ValueError, match=r"kv: got shape \(3, 2\)"):
            cache.commit(lease, prompt(1), torch.zeros(3, 2))
        cache.commit(lease, prompt(1), tail_of(prompt(1), 0))
        with pytest.raises(ValueError, match=r"kv: got BlockLayout.*float64.*, wants .*float32"):
            cache.commit(lease, prompt(1), tail_of(prompt(1), 0).double())
    with pytest.raises(RuntimeError, match="already released"):
        lease.blocks()
    assert math.inf not in cache.tree.steps("app").values()
