"""Many threads at once: no lost node, no torn block, no wrong bytes, whatever the interleaving."""

import random
import sys
import threading
import time
from contextlib import suppress

import pytest
import torch
from tests.papers.kvflow.prefix_blocks import TOKEN, block_of, tail_of

from assay.papers.kvflow.blocks import join
from assay.papers.kvflow.cache import PrefixCache
from assay.papers.kvflow.eviction import LRU, StepsToExecution
from assay.papers.kvflow.lease import LeaseExpired
from assay.papers.kvflow.link import TransferFailed, _LayerCopier
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.tiers import DeviceTier, DiskTier, HostTier

HEADER = (9, 9, 9, 9)
AGENTS = {str(k): (*HEADER, *range(100 * k, 100 * k + 12)) for k in range(6)}


@pytest.fixture
def switching():
    """Threads change places as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Clients:
    """Threads that serve requests until time is up; the first error stops them all."""

    def __init__(self, cache, n_threads, seconds, layerwise):
        self.cache = cache
        self.until = time.monotonic() + seconds
        self.layerwise = layerwise
        self.served = 0
        self.cached = 0
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(k,)) for k in range(n_threads)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def join(self):
        for thread in self.threads:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in self.threads), "deadlock"
        if self.errors:
            raise self.errors[0]

    def run(self, seed):
        chance = random.Random(seed)
        try:
            while time.monotonic() < self.until and not self.errors:
                # On a busy machine a client may be slower than its lease.
                with suppress(LeaseExpired):
                    self.request(chance)
        except BaseException as error:
            self.errors.append(error)

    def request(self, chance):
        agent = chance.choice(list(AGENTS))
        ids = (*AGENTS[agent], *chance.choices(range(3), k=chance.randrange(1, 6)))
        self.cache.update_steps("app", {k: chance.randrange(4) for k in AGENTS})
        with self.cache.lookup(ids, "app", agent) as lease:
            lease.load()
            if chance.random() < 0.1:
                return  # a client that disconnects
            past = self.layers(lease) if self.layerwise else lease.blocks()
            n = sum(block.shape[3] for block in past)
            if past:
                assert torch.equal(join(past), block_of(ids[:n])), "wrong keys and values"
            full = (*ids, *chance.choices(range(3), k=2))
            self.cache.commit(lease, full, tail_of(full, n), len(AGENTS[agent]))
        self.served += 1
        self.cached += n

    @staticmethod
    def layers(lease):
        """As an engine reads that computes under the load, and starts again if it breaks off."""
        while True:
            try:
                layers = [torch.cat(lease.layer(k), dim=2) for k in range(3) if lease.n_tokens]
            except TransferFailed:
                continue
            return [torch.stack(layers)] if layers else []


def churn(cache, layerwise, seconds=1.2, n_threads=4):
    clients = Clients(cache, n_threads, seconds, layerwise).start()
    while any(thread.is_alive() for thread in clients.threads):
        cache.check(block_of)
        cache.stats()
        time.sleep(0.01)
    clients.join()
    cache.settle(timeout=20)
    cache.check(block_of)
    stats = cache.stats()
    assert stats["leases"] == 0
    assert clients.served > 50
    assert clients.cached > 0
    return stats


@pytest.mark.parametrize("layerwise", [True, False], ids=["layers", "blocks"])
@pytest.mark.parametrize("kvflow", [True, False], ids=["kvflow", "hicache"])
def test_no_node_is_lost_or_torn_under_pressure(kvflow, layerwise, tmp_path, switching):
    tiers = [DeviceTier(70 * TOKEN), HostTier(120 * TOKEN), DiskTier(200 * TOKEN, tmp_path)]
    policy, prefetch = (StepsToExecution(), Prefetcher()) if kvflow else (LRU(), None)
    with PrefixCache(tiers, policy, prefetch) as cache:
        stats = churn(cache, layerwise)
    assert min(stats["evictions_device"], stats["evictions_host"], stats["loaded_bytes"]) > 0
    assert bool(stats.get("prefetches")) == kvflow


def test_copies_that_fail_at_random_never_give_a_wrong_token(tmp_path, switching, monkeypatch):
    chance = random.Random(5)
    copy = _LayerCopier.__call__

    def fail_sometimes(self, layer):
        if chance.random() < 0.05:
            raise chance.choice([OSError("link down"), SystemExit(), MemoryError()])
        copy(self, layer)

    monkeypatch.setattr(_LayerCopier, "__call__", fail_sometimes)
    tiers = [DeviceTier(60 * TOKEN), HostTier(120 * TOKEN), DiskTier(200 * TOKEN, tmp_path)]
    with PrefixCache(tiers, StepsToExecution(), Prefetcher()) as cache:
        stats = churn(cache, layerwise=True)
    assert stats["load_failures"] + stats["backup_failures"] > 0
    assert stats["lost_tokens"] > 0


def test_leases_that_time_out_under_load_leave_no_lock_behind(switching):
    tiers = [DeviceTier(70 * TOKEN), HostTier(200 * TOKEN)]
    with PrefixCache(tiers, StepsToExecution(), Prefetcher(), lease_timeout=0.3) as cache:
        forgotten = [cache.lookup((*AGENTS[k], 1), "app", k) for k in AGENTS]
        stats = churn(cache, layerwise=False)
    assert stats["expired_leases"] >= len(forgotten)
