"""The prefix cache: which keys and values are kept where, for whom, and who waits for them."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from assay.papers.kvflow.agent_prompts import AgentPrompts
from assay.papers.kvflow.blocks import BlockLayout, checksum, cut, n_tokens
from assay.papers.kvflow.eviction import LRU, EvictionPolicy, StepsToExecution
from assay.papers.kvflow.lease import Lease
from assay.papers.kvflow.link import Link
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.radix_tree import AgentKey, Match, Node, token_ids
from assay.papers.kvflow.residency import Copies, Residency
from assay.papers.kvflow.tiers import (
    CorruptBlock,
    DeviceTier,
    HostTier,
    Tier,
    read_block,
    write_block,
)
from assay.papers.kvflow.timeline import Timeline
from assay.toolkits.checks import number, whole
from assay.toolkits.files import read_json, write_text

__all__ = ["Lease", "PrefixCache"]

_INDEX = {"fingerprint", "page_size", "nodes", "marks"}
"""What the index of a saved cache holds."""


class PrefixCache:
    """Keys and values of prompts' beginnings, for all requests of one model.

        cache = PrefixCache([DeviceTier(2**30), HostTier(2**32)], StepsToExecution(), Prefetcher())
        cache.update_steps("app", graph.steps({"planner"}))
        with cache.lookup(ids, "app", "planner") as lease:
            past = lease.blocks()                   # for lease.n_tokens tokens
            ...                                     # the model computes the rest
            cache.commit(lease, ids, computed, fixed_len=900)

    Every method may be called from any thread. What fails (a full disk, a damaged file, a copy
    that breaks off) costs a recomputation and one warning, never a wrong token.

    Attributes:
        tiers: fastest first.
        policy: which node goes first.
        fingerprint: of the model.
        tree: the prefixes.
        timeline: what was copied when.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        policy: EvictionPolicy | None = None,
        prefetch: Prefetcher | None = None,
        fingerprint: str = "",
        page_size: int = 1,
        link_gbps: float | None = None,
        timeline: Timeline | None = None,
        lease_timeout: float = 600.0,
        stale_after: float = 600.0,
    ) -> None:
        """Makes an empty cache.

        Args:
            tiers: a `DeviceTier`, and slower ones to which it is backed up.
            policy: which node goes first, on every tier; None for LRU.
            prefetch: loads what is needed soon; None loads on demand only.
            fingerprint: of the model whose keys and values these are (weights, dtype, rotary
                scaling, adapters), by `models.fingerprint`; an `Engine` refuses another.
            page_size: nodes begin and end at multiples of so many tokens, >= 1.
            link_gbps: slows the copies between device and host down to this rate, in 10^9 bytes
                a second each way, to emulate a slower link; None does not.
            timeline: where copies are recorded; None makes one.
            lease_timeout: seconds after which an unused lease is taken back, > 0.
            stale_after: seconds after which a fixed prompt that nobody asked for is dropped, > 0.

        Raises:
            TypeError, ValueError: an argument is out of range, or the first tier is no device.
        """
        if not tiers or not isinstance(tiers[0], DeviceTier):
            raise ValueError(f"tiers: got {list(tiers)}, wants a DeviceTier first")
        self.tiers = list(tiers)
        self._device = tiers[0].device
        self.policy = LRU() if policy is None else policy
        self.fingerprint = fingerprint
        self.timeline = Timeline() if timeline is None else timeline
        self._link = Link(link_gbps, self.timeline)
        self._residency = Residency(self.tiers, self.policy, self._link, page_size)
        self._residency.on_move_end = self._prefetch
        self.tree = self._residency.tree
        self._prefetcher = prefetch
        self._prompts: dict[AgentKey, AgentPrompts] = {}
        self._heard: dict[str, float] = {}
        self._leases: OrderedDict[Lease, float] = OrderedDict()
        self._lease_timeout = number("lease_timeout", lease_timeout, above=0.0)
        self._stale_after = number("stale_after", stale_after, above=0.0)
        self._next_look = 0.0
        self._clock: Callable[[], float] = time.monotonic

    @classmethod
    def hicache(
        cls, device_bytes: int, host_bytes: int, device: str = "cpu", **options: Any
    ) -> Self:
        """SGLang's hierarchical cache: LRU on device and host, written through, loaded on demand.

        Args:
            device_bytes, host_bytes: capacities.
            device: of torch; host memory is pinned unless it is the CPU.
            options: other arguments of `PrefixCache`.
        """
        return cls(_device_and_host(device_bytes, host_bytes, device), LRU(), **options)

    @classmethod
    def kvflow(
        cls, device_bytes: int, host_bytes: int, device: str = "cpu", **options: Any
    ) -> Self:
        """The paper's: steps-to-execution on device and host, and prefetches.

        Args:
            device_bytes, host_bytes: capacities.
            device: of torch; host memory is pinned unless it is the CPU.
            options: other arguments of `PrefixCache`.
        """
        tiers = _device_and_host(device_bytes, host_bytes, device)
        return cls(tiers, StepsToExecution(), Prefetcher(), **options)

    def require(self, fingerprint: str) -> None:
        """Refuses keys and values of another model.

        Args:
            fingerprint: of the model that is to use the cache.

        Raises:
            ValueError: it is another one's.
        """
        if fingerprint != self.fingerprint:
            if not self.fingerprint:
                raise ValueError(
                    "cache: made without a fingerprint, wants fingerprint=fingerprint(model)"
                )
            raise ValueError(
                f"fingerprint: got {fingerprint!r}, wants {self.fingerprint!r}: "
                "keys and values of one model are of no use to another"
            )

    @property
    def moving(self) -> bool:
        """Whether copies are under way, which keep others from being evicted."""
        return self._residency.n_moves > 0

    def peek(self, ids: Any) -> Match:
        """What a lookup would find, without counting as one.

        Args:
            ids: the prompt.
        """
        return self.tree.match(token_ids(ids)[:-1], touch=False)

    def lookup(self, ids: Any, client: str = "default", agent: str = "default") -> Lease:
        """Finds the longest cached prefix of a prompt and keeps it from being evicted.

        At most all tokens but one: the model must compute the last to say what follows it.

        Args:
            ids: the prompt, as token ids; texts that are put together from a fixed and a varying
                part are to be tokenised apart, as tokens may reach across the border.
            client: the application.
            agent: who of it asks.

        Returns:
            The lease, to be released by the caller.

        Raises:
            TypeError: ids are no integers.
        """
        ids = token_ids(ids)
        residency = self._residency
        with self.tree.lock:
            self._look_after()
            match = self.tree.match(ids[:-1])
            found = {
                tier.status.value: n
                for tier, n in ((tier, self._matched(match, tier)) for tier in self.tiers)
            }
            lease = Lease(
                residency, ids, client, agent, match.node, found, self._renew, self._release
            )
            self._renew(lease)
            for node in lease.path():
                self._count_prefetched(node)
            counts = residency.counts
            counts["requests"] += 1
            counts["prompt_tokens"] += len(ids)
            for name, n in found.items():
                counts[f"{name}_hit_tokens"] += n
            prompts = self._prompts.setdefault((client, agent), AgentPrompts())
            prompts.add(ids, self._clock())
            return lease

    def commit(self, lease: Lease, ids: Any, kv: Tensor, fixed_len: int | None = None) -> int:
        """Takes in what was computed for a request.

        Args:
            lease: of the request; one that expired will do.
            ids: the prompt and whatever of the answer has keys and values.
            kv: keys and values of the last tokens of ids, at least of those beyond the lease,
                (layers, 2, kv_heads, tokens, head_dim).
            fixed_len: tokens at the beginning of the prompt that the agent's prompts all share;
                rounded down to whole pages. None takes what its last three have in common.

        Returns:
            Tokens of ids that are now on the device or on their way.

        Raises:
            TypeError, ValueError: kv is no block, of another layout than those before or longer
                than ids; or fixed_len is out of range.
        """
        ids = token_ids(ids)
        layout = BlockLayout.of(kv)
        start = len(ids) - n_tokens(kv)
        if start < 0:
            raise ValueError(f"kv: got {n_tokens(kv)} tokens, wants at most the {len(ids)} of ids")
        if fixed_len is not None and whole("fixed_len", fixed_len, least=0) > len(lease.ids):
            raise ValueError(
                f"fixed_len: got {fixed_len}, wants at most the prompt's {len(lease.ids)}"
            )
        residency, page = self._residency, self.tree.page_size
        with self.tree.lock:
            self._require_layout(layout)
            self._look_after()
            key = (lease.client, lease.agent)
            prompts = self._prompts.setdefault(key, AgentPrompts())
            fixed = prompts.found() if fixed_len is None else fixed_len
            whole_pages = ids[: len(ids) // page * page]
            if fixed is not None:
                prompts.count(fixed, sum(lease.cached_tokens.values()))
                fixed = min(fixed, len(ids)) // page * page
            for stop in sorted({fixed or len(whole_pages), len(whole_pages)}):
                mark = key if stop == fixed else None
                if stop and not self._admit(whole_pages[:stop], start, kv, mark):
                    break
            residency.changed.notify_all()
            self._prefetch()
            match = self.tree.match(ids, touch=False)
            on_the_way = (n for n in match.node.path() if residency.loading(n))
            return match.n_device + sum(node.n_tokens for node in on_the_way)

    def update_steps(self, client: str, steps: Mapping[str, float]) -> None:
        """Takes fresh steps-to-execution, and starts the prefetches that follow from them.

        Args:
            client: the application.
            steps: for each agent, in how many steps it runs at the earliest: an integer >= 0, or
                infinity. Agents not named keep theirs.

        Raises:
            ValueError: naming the agent whose value is none of these.
        """
        with self.tree.lock:
            self._heard[client] = self._clock()
            self.tree.update_steps(client, steps)
            self.policy.on_steps(client, steps)
            if self._prefetcher is not None:
                self._prefetcher.on_steps(client, steps)
            self._look_after()
            self._residency.counts["prefetches_refused"] += self._prefetch()

    def stats(self) -> dict[str, Any]:
        """What happened so far.

        Returns:
            "requests", "prompt_tokens", "<tier>_hit_tokens", "hit_rate" (of the prompts' tokens,
            on whatever tier), "leases", "nodes"; "tiers": used and capacity in bytes;
            "agents": for each "client/agent" its calls, the length of its fixed prompt, the share
            of it that was cached when it was asked for, and "first_difference": at which token
            its last two prompts differ although they should not (a date, a session id), else
            None. And whatever else was counted: evictions and their bytes by tier, bytes loaded
            and backed up, prefetches, "used_prefetch_bytes", "wasted_prefetch_bytes",
            "not_admitted", failures, expired leases.
        """
        with self.tree.lock:
            counts = dict(self._residency.counts)
            tiers = {tier.status.value: tier for tier in self.tiers}
            hits = sum(counts.get(f"{name}_hit_tokens", 0) for name in tiers)
            return {
                **counts,
                "hit_rate": hits / counts["prompt_tokens"] if hits else 0.0,
                "leases": len(self._leases),
                "nodes": len(self.tree),
                "tiers": {
                    name: {"used_bytes": tier.used_bytes, "capacity_bytes": tier.capacity_bytes}
                    for name, tier in tiers.items()
                },
                "agents": {
                    f"{client}/{agent}": prompts.stats()
                    for (client, agent), prompts in self._prompts.items()
                },
            }

    def settle(self, timeout: float | None = None) -> None:
        """Blocks until no copy is under way.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it took too long.
        """
        residency = self._residency
        with self.tree.lock:
            if not residency.changed.wait_for(lambda: not residency.n_moves, timeout):
                raise TimeoutError(f"cache: copies under way after {timeout} s")

    def check(self, expected: Callable[[tuple[int, ...]], Tensor] | None = None) -> None:
        """Verifies that the cache is consistent, for tests.

        Args:
            expected: gives the block of a whole prefix, with which every copy in memory is
                compared.

        Raises:
            AssertionError: it is not.
        """
        with self.tree.lock:
            self._residency.check(expected)
            locks: dict[Node, int] = {}
            for lease in self._leases:
                for node in lease.path():
                    locks[node] = locks.get(node, 0) + 1
            for node in self.tree.nodes():
                assert node.locks == locks.get(node, 0), f"{node}: locked by nobody, or too little"

    def close(self) -> None:
        """Stops the copies and removes the files of the disk tier."""
        self._link.close()
        for tier in self.tiers:
            getattr(tier, "close", lambda: None)()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Files.

    def save(self, path: str | Path) -> None:
        """Writes all blocks and marks to a folder, for `load`.

        Args:
            path: the folder; made if need be. A cache that was saved there before is replaced.

        Raises:
            OSError: it cannot be written.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        numbers: dict[Node, int] = {}
        nodes: list[dict[str, Any]] = []
        with self.tree.lock:
            for node in self.tree.nodes():
                try:
                    block = self._residency.read(node)
                except (OSError, CorruptBlock) as error:
                    self._residency.warn_once("disk_failures", "the disk tier failed: %r", error)
                    continue
                above = numbers.get(node.parent) if node.parent is not None else None
                if above is None and node.parent is not self.tree.root:
                    continue
                numbers[node] = len(nodes)
                write_block(folder / f"{len(nodes)}.safetensors", block)
                # The index has the checksum too: should writing end half-way, blocks of this
                # save do not pass for those of the one before.
                nodes.append({"parent": above, "ids": node.ids, "crc32": checksum(block)})
            marks = [
                [client, agent, numbers[end], self._prompts[client, agent].fixed_len]
                for (client, agent), end in self.tree.marked().items()
                if end in numbers and (client, agent) in self._prompts
            ]
        index = {
            "fingerprint": self.fingerprint,
            "page_size": self.tree.page_size,
            "nodes": nodes,
            "marks": marks,
        }
        write_text(folder / "cache.json", json.dumps(index))
        kept = {f"{number}.safetensors" for number in range(len(nodes))}
        for file in folder.glob("*.safetensors"):
            if file.name not in kept:
                file.unlink(missing_ok=True)

    def load(self, path: str | Path) -> int:
        """Takes in what `save` wrote, as far as there is room without evicting anything.

        Args:
            path: the folder.

        Returns:
            Tokens taken in. Damaged blocks are left out, with a warning.

        Raises:
            OSError: there is no saved cache.
            ValueError: it is of another model, page size or layout, or no saved cache.
        """
        folder = Path(path)
        index = read_json(folder / "cache.json")
        if not isinstance(index, dict) or not index.keys() >= _INDEX:
            raise ValueError(f"{folder / 'cache.json'}: wants {', '.join(sorted(_INDEX))}")
        self.require(index["fingerprint"])
        if index["page_size"] != self.tree.page_size:
            raise ValueError(f"page_size: got {index['page_size']}, wants {self.tree.page_size}")
        prefixes: list[tuple[int, ...] | None] = []
        taken = 0
        for number_, saved in enumerate(index["nodes"]):
            above = () if saved["parent"] is None else prefixes[saved["parent"]]
            block = self._read_saved(folder / f"{number_}.safetensors", saved["crc32"])
            prefix = None if above is None else above + tuple(saved["ids"])
            if prefix is not None and block is not None:
                n = self._restore(prefix, len(above or ()), block)
                taken += n or 0
                prefix = None if n is None else prefix
            prefixes.append(prefix if block is not None else None)
        with self.tree.lock:
            for client, agent, number_, fixed_len in index["marks"]:
                prefix = prefixes[number_]
                if prefix is not None:
                    self.tree.mark_fixed(client, agent, prefix)
                    self._residency.tidy()
                    prompts = self._prompts.setdefault((client, agent), AgentPrompts())
                    prompts.fixed_len, prompts.last_seen = fixed_len, self._clock()
        return taken

    def _read_saved(self, file: Path, crc32: int) -> Tensor | None:
        try:
            block = read_block(file)
            if checksum(block) != crc32:
                raise CorruptBlock(f"{file}: belongs to another save")
        except (OSError, CorruptBlock) as error:
            self._residency.warn_once("load_failures", "a saved block is left out: %s", error)
            return None
        return block

    def _restore(self, ids: tuple[int, ...], start: int, block: Tensor) -> int | None:
        """Tokens of ids taken in; None where they cannot be held at all."""
        residency = self._residency
        with self.tree.lock:
            self._require_layout(BlockLayout.of(block))
            inserted = self.tree.insert(ids)
            residency.tidy()
            new = inserted.new
            if new is None:
                return 0
            new.payload = Copies(len(self.tiers))
            own = cut(block, inserted.n_matched - start, n_tokens(block))
            if inserted.n_matched < start or not residency.restore(new, own):
                residency.discard_if_empty(new)
                return None
            return new.n_tokens

    # What happens under the lock.

    def _require_layout(self, layout: BlockLayout) -> None:
        known = self._residency.layout
        if known is not None and known != layout:
            raise ValueError(f"kv: got {layout}, wants {known}")
        self._residency.layout = layout

    @staticmethod
    def _matched(match: Match, tier: Tier) -> int:
        return {"device": match.n_device, "host": match.n_host, "disk": match.n_disk}[
            tier.status.value
        ]

    def _admit(self, ids: tuple[int, ...], start: int, kv: Tensor, mark: AgentKey | None) -> bool:
        """Puts ids on the device, as far as kv has them, evicting the shortfall."""
        residency = self._residency
        assert residency.layout is not None
        if residency.layout.n_bytes(len(ids)) > self.tiers[0].capacity_bytes:
            residency.warn_once(
                "too_large",
                "a prefix of %d tokens is not cached: %d bytes, and the device tier has %d",
                len(ids),
                residency.layout.n_bytes(len(ids)),
                self.tiers[0].capacity_bytes,
            )
            return False
        inserted = self.tree.insert(ids)
        end, new = inserted.node, inserted.new
        if new is not None:
            new.payload = Copies(len(self.tiers))
        self.tree.lock_path(end)
        try:
            if mark is not None:  # before anything is evicted for it, so that its rank is known
                self.tree.mark_fixed(*mark, ids)
            residency.tidy()
            for node in end.path():
                if not node.attached:
                    return False
                if residency.on_device(node) or residency.loading(node):
                    continue
                begin = node.depth - node.n_tokens - start
                if begin < 0:
                    return False
                stop = node.depth - start
                if not residency.place(node, partial(self._own, kv, begin, stop)):
                    residency.counts["not_admitted"] += 1
                    return False
            return True
        finally:
            self.tree.unlock_path(end)
            if new is not None:
                residency.discard_if_empty(new)
            self._offer(end.path())

    def _own(self, kv: Tensor, start: int, stop: int) -> Tensor:
        return cut(kv.detach(), start, stop).to(self._device)

    def _prefetch(self) -> bool:
        """Starts loads of what is needed soon; whether one was refused."""
        return self._prefetcher is not None and self._prefetcher.start(self._residency)

    def _count_prefetched(self, node: Node) -> None:
        """A prefetched node is used: at the first lookup that finds it, also on its way."""
        copies: Copies = node.payload
        move = self._residency.loading(node)
        if copies.prefetched or (move is not None and move.prefetch):
            self._residency.counts["used_prefetch_bytes"] += self._residency.n_bytes(node)
        copies.prefetched = False
        if move is not None:
            move.prefetch = False

    def _renew(self, lease: Lease) -> None:
        self._leases[lease] = self._clock() + self._lease_timeout
        self._leases.move_to_end(lease)

    def _release(self, lease: Lease) -> None:
        self._leases.pop(lease, None)
        path = lease.path()
        for node in path:
            if node.attached:
                self._residency.backup(node)
        self._offer(path)
        self._prefetch()

    def _offer(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._residency.offer(node)

    def _look_after(self) -> None:
        """Takes back forgotten leases, and drops fixed prompts that nobody asks for any more."""
        now = self._clock()
        while self._leases and next(iter(self._leases.values())) <= now:
            next(iter(self._leases)).expire()
            self._residency.counts["expired_leases"] += 1
        if now < self._next_look:
            return
        self._next_look = now + self._stale_after / 10
        stale = [k for k, p in self._prompts.items() if p.last_seen + self._stale_after <= now]
        for client, agent in stale:
            self._forget(client, agent)
        # Also of agents that never asked for anything.
        for client in [c for c, at in self._heard.items() if at + self._stale_after <= now]:
            del self._heard[client]
            self.tree.forget_steps(client)
            if self._prefetcher is not None:
                self._prefetcher.forget(client)

    def _forget(self, client: str, agent: str) -> None:
        node = self.tree.fixed_end(client, agent)
        del self._prompts[client, agent]
        self.tree.unmark(client, agent)
        if self._prefetcher is not None:
            self._prefetcher.forget(client, agent)
        self._residency.counts["expired_prompts"] += 1
        while node is not None and node.parent is not None and not node.fixed:
            above = node.parent
            if (above is not self.tree.root and len(above.children) == 1) and not above.fixed:
                node = above
                continue
            self._residency.drop(node)
            return


def _device_and_host(device_bytes: int, host_bytes: int, device: str) -> list[Tier]:
    on_device = DeviceTier(device_bytes, device)
    return [on_device, HostTier(host_bytes, pinned=on_device.device.type == "cuda")]
