"""The cache against a plain model, a dict of prefixes to data, over random requests (oracle 5).

Whatever is looked up, loaded, committed, evicted, prefetched, damaged or forgotten in whatever
order: what a lease gives is what was committed for exactly these tokens, only prefixes that were
committed are found, what a lease holds stays, and `check` finds bytes conserved.
"""

import math
from collections import Counter
from typing import ClassVar

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.papers.kvflow.prefix_blocks import TOKEN, block_of, tail_of

from assay.papers.kvflow import residency
from assay.papers.kvflow.blocks import join
from assay.papers.kvflow.cache import PrefixCache
from assay.papers.kvflow.eviction import LFU, LRU, MRU, SLRU, StepsToExecution
from assay.papers.kvflow.link import _LayerCopier
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.tiers import DeviceTier, DiskTier, HostTier

FIXED = {
    "a": (0, 0, 0, 1, 1, 1),
    "b": (0, 0, 0, 2, 2, 2, 2, 2, 2),
    "c": (0, 0, 0, 2, 2, 1),
    "d": (1, 2, 1),
}
AGENTS = tuple(FIXED)
endings = st.lists(st.integers(0, 2), max_size=4).map(tuple)
policies = st.sampled_from([LRU, LFU, MRU, SLRU, StepsToExecution])


class CacheMachine(RuleBasedStateMachine):
    """Requests against a cache of three small tiers."""

    folder = None
    leases = Bundle("leases")

    @initialize(
        policy=policies,
        device=st.integers(8, 30),
        host=st.sampled_from([None, 0, 15, 60, 60]),
        disk=st.sampled_from([None, 10, 40]),
        prefetch=st.booleans(),
        page=st.sampled_from([1, 3]),
    )
    def start(self, policy, device, host, disk, prefetch, page):
        tiers = [DeviceTier(device * TOKEN)]
        if host is not None:
            tiers.append(HostTier(host * TOKEN))
        if disk is not None:
            tiers.append(DiskTier(disk * TOKEN, self.folder))
        self.now = 0.0
        self.cache = PrefixCache(
            tiers, policy(), Prefetcher() if prefetch else None, page_size=page, stale_after=500.0
        )
        self.cache._clock = lambda: self.now
        self.committed = {(): True}
        self.held = {}
        self.failing = False

    @rule(target=leases, agent=st.sampled_from(AGENTS), ending=endings)
    def look_up(self, agent, ending):
        ids = (*FIXED[agent], *ending)
        lease = self.cache.lookup(ids, "app", agent)
        assert ids[: lease.n_tokens] in self.committed
        assert lease.n_tokens < len(ids)
        self.held[lease] = lease.n_tokens
        return lease

    @rule(lease=leases)
    def load(self, lease):
        if lease in self.held:
            self.held[lease] = lease.load()

    @rule(lease=leases)
    def read(self, lease):
        if lease not in self.held:
            return
        # Nothing that is on the device already may be lost while the lease is held.
        safe = 0
        for node, n in lease._segments():
            if not self.cache._residency.on_device(node):
                break
            safe += n
        blocks = lease.blocks()
        assert safe <= lease.n_tokens <= self.held[lease]
        self.held[lease] = lease.n_tokens
        if blocks:
            assert torch.equal(join(blocks), block_of(lease.ids[: lease.n_tokens]))

    @rule(
        lease=consumes(leases),
        answer=endings,
        told=st.booleans(),
        more=st.integers(0, 3),
    )
    def finish(self, lease, answer, told, more):
        if lease not in self.held:
            return
        lease.wait(timeout=20)
        ids = lease.ids + answer
        start = max(0, lease.n_tokens - more)
        fixed = len(FIXED[lease.agent]) if told else None
        self.cache.commit(lease, ids, tail_of(ids, start), fixed)
        page = self.cache.tree.page_size
        self.committed |= {ids[:n]: True for n in range(len(ids) // page * page + 1)}
        lease.release()
        del self.held[lease]

    @rule(agents=st.lists(st.sampled_from(AGENTS), min_size=1, max_size=6), ending=endings)
    def serve(self, agents, ending):
        for agent in agents:
            lease = self.look_up(agent, ending)
            self.finish(lease, (), True, 0)

    @rule(lease=consumes(leases))
    def disconnect(self, lease):
        lease.release()
        self.held.pop(lease, None)

    @rule(steps=st.dictionaries(st.sampled_from(AGENTS), st.sampled_from([0, 1, 2, math.inf])))
    def update_steps(self, steps):
        self.cache.update_steps("app", steps)

    @rule()
    def settle(self):
        self.cache.settle(timeout=20)

    @rule(seconds=st.sampled_from([10.0, 50.0, 200.0]))
    def time_passes(self, seconds):
        """Leases time out after 600 s, and fixed prompts are stale after 500."""
        self.now += seconds
        self.cache.update_steps("app", {})
        for lease in [lease for lease in self.held if lease._expired]:
            del self.held[lease]

    @rule(share=st.sampled_from([0, 3]))
    def links_fail(self, share):
        """From now on every third layer cannot be copied, or all can again."""
        self.cache.settle(timeout=20)
        copied = 0

        def copy(copier, layer):
            nonlocal copied
            copied += 1
            if share and copied % share == 0:
                raise OSError("the link is down")
            original(copier, layer)

        original = CacheMachine.copy_layer
        _LayerCopier.__call__ = copy
        self.failing = bool(share)

    @rule()
    def files_are_damaged(self):
        self.cache.settle(timeout=20)
        disk = self.cache.tiers[-1]
        if isinstance(disk, DiskTier):
            for file in sorted(disk.path.iterdir())[::2]:
                content = bytearray(file.read_bytes())
                content[-2] ^= 4
                file.write_bytes(content)

    @invariant()
    def consistent(self):
        if hasattr(self, "cache"):
            self.cache.check(block_of)

    def teardown(self):
        _LayerCopier.__call__ = CacheMachine.copy_layer
        if not hasattr(self, "cache"):
            return
        for lease in self.held:
            lease.release()
        self.cache.settle(timeout=20)
        self.cache.check(block_of)
        assert all(node.locks == 0 for node in self.cache.tree.nodes())
        CacheMachine.counts.update(self.cache._residency.counts)
        self.cache.close()

    counts: ClassVar = Counter()
    copy_layer = staticmethod(_LayerCopier.__call__)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_cache_does_what_a_dict_of_prefixes_would(tmp_path, monkeypatch):
    monkeypatch.setattr(CacheMachine, "folder", tmp_path)
    monkeypatch.setattr(residency.logger, "disabled", True)  # copies that fail are meant to
    run_state_machine_as_test(
        CacheMachine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None)
    )
    # What never happened was not tested.
    for what in ("device_hit_tokens", "evictions_device", "loaded_bytes"):
        assert CacheMachine.counts[what], what
