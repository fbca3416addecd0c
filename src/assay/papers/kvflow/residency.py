"""Which node's block is on which tier, and the moves between them.

The rules that keep a radix tree readable at all times (`check` verifies them):

- What is on the device is closed towards the root: a node is there only if its parent is, or is
  on its way. The same holds for the host. Hence only leaves of a tier are evicted from it.
- A node that a request uses is never evicted, nor the source of a move.
- Each tier backs up to the next as soon as it has a copy (write-through), so that evicting is
  dropping a copy. A node that loses its last one leaves the tree.
- Bytes are reserved before a move starts. Blocks are never written to once they are stored.

Every method expects the tree's lock to be held; the link's threads take it when a move ends.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, cast

import torch
from torch import Tensor

from assay.papers.kvflow.blocks import BlockLayout, cut
from assay.papers.kvflow.eviction import EvictionPolicy
from assay.papers.kvflow.eviction_queue import EvictionQueue
from assay.papers.kvflow.link import BACKUP, Link, Transfer
from assay.papers.kvflow.radix_tree import Node, RadixTree, Status

logger = logging.getLogger(__name__)

DEVICE = 0
"""The first tier is where the model reads."""


_MOST_SPARED = 64
"""Nodes that a search for others to evict passes over, before it gives up."""


class Move:
    """A block on its way from one tier to another; a node that is split has its share of it.

    Attributes:
        source, target: positions of the tiers.
        nodes: whose tokens it carries, in order.
        key: the reservation in the target.
        block: where it arrives; None for a file.
        transfer: the link's.
        prefetch: whether nobody waits for it.
        ended: whether it is over, well or not.
    """

    def __init__(
        self, node: Node, source: int, target: int, key: int, block: Tensor | None, prefetch: bool
    ) -> None:
        self.nodes = [node]
        self.source = source
        self.target = target
        self.key = key
        self.block = block
        self.prefetch = prefetch
        self.ended = False
        self.transfer: Transfer

    def share(self, node: Node) -> tuple[int, int]:
        """The tokens of the block that are a node's."""
        start = 0
        for other in self.nodes:
            if other is node:
                break
            start += other.n_tokens
        return start, start + node.n_tokens


class Copies:
    """What a node carries.

    Attributes:
        keys: of its block on each tier; None where there is none.
        children_on: for each tier, how many children are there or on their way there.
        moves: those under way; at most one from or to the device, and one below it.
        prefetched: whether it came to the device before anyone asked for it.
    """

    __slots__ = ("children_on", "keys", "moves", "prefetched")

    def __init__(self, n_tiers: int) -> None:
        self.keys: list[int | None] = [None] * n_tiers
        self.children_on = [0] * n_tiers
        self.moves: list[Move] = []
        self.prefetched = False

    def move_to(self, tier: int) -> Move | None:
        return next((move for move in self.moves if move.target == tier), None)

    def feeds_a_move(self, tier: int) -> bool:
        return any(move.source == tier for move in self.moves)


class Residency:
    """Blocks of the nodes of a tree on its tiers."""

    def __init__(
        self, tiers: list[Any], policy: EvictionPolicy, link: Link, page_size: int = 1
    ) -> None:
        """Makes an empty one.

        Args:
            tiers: fastest first, the first is the device.
            policy: the order in which nodes go, on every tier.
            link: copies between the tiers.
            page_size: of the tree.
        """
        self.tiers = tiers
        self.policy = policy
        self.link = link
        self.layout: BlockLayout | None = None
        self.tree = RadixTree(page_size, on_change=self.offer, on_split=self._split)
        self.tree.root.payload = Copies(len(tiers))
        self.changed = threading.Condition(self.tree.lock)
        self.counts: Counter[str] = Counter()
        self.on_move_end: Callable[[], Any] = lambda: None
        key = cast("Callable[[Node], tuple[float, ...]]", policy.key)
        self._queues = [EvictionQueue(key) for _ in tiers]
        self._keys = count()
        self._lost: list[Node] = []
        self._unsaved: list[Node] = []
        self.n_moves = 0
        self._warned: set[str] = set()

    def on_device(self, node: Node) -> bool:
        return node.payload.keys[DEVICE] is not None

    def loading(self, node: Node) -> Move | None:
        found: Move | None = node.payload.move_to(DEVICE)
        return found

    def coming(self, node: Node) -> bool:
        """Whether a node is on the device or on its way there."""
        return self.on_device(node) or self.loading(node) is not None

    def n_bytes(self, node: Node) -> int:
        assert self.layout is not None
        return self.layout.n_bytes(node.n_tokens)

    def has_copy(self, node: Node) -> bool:
        return any(key is not None for key in node.payload.keys)

    def warn_once(self, what: str, message: str, *args: Any) -> None:
        """Logs a warning the first time that something happens, and counts it each time."""
        self.counts[what] += 1
        if what not in self._warned:
            self._warned.add(what)
            logger.warning(message + " (said once; see stats())", *args)

    # What comes in.

    def place(self, node: Node, block: Callable[[], Tensor]) -> bool:
        """Puts a node's block on the device, evicting what room is short of.

        Args:
            node: one whose parent is on the device or on its way.
            block: gives the block, in memory of its own.

        Returns:
            Whether there was room.
        """
        tier, n_bytes = self.tiers[DEVICE], self.n_bytes(node)
        self._occupy(node, DEVICE)
        if not self.make_room(DEVICE, n_bytes):
            self._vacate(node, DEVICE)
            return False
        key = next(self._keys)
        tier.put(key, block())
        node.payload.keys[DEVICE] = key
        self._settle(node)
        return True

    def restore(self, node: Node, block: Tensor) -> bool:
        """Puts a node's block on the first tier with room to spare, evicting nothing."""
        for t, tier in enumerate(self.tiers):
            free = tier.capacity_bytes - tier.used_bytes
            if free < self.n_bytes(node) or not self._hangs(node, t):
                continue
            key = next(self._keys)
            try:
                tier.put(key, block.to(tier.device) if t == DEVICE else block)
            except OSError as error:
                self.warn_once("disk_failures", "the disk tier failed: %r", error)
                continue
            self._occupy(node, t)
            node.payload.keys[t] = key
            self._settle(node)
            return True
        return False

    def load(
        self,
        nodes: Iterable[Node],
        priority: int,
        worse_than: float | None = None,
        prefetch: bool = False,
    ) -> list[Move] | None:
        """Starts to bring nodes to the device, all or none.

        Args:
            nodes: consecutive ones on a path, the first of which has its parent on the device or
                on its way; those that are there themselves are passed over.
            priority: of the link; a load under way is raised to it.
            worse_than: evict only nodes with a priority above this one.
            prefetch: whether nobody waits for them.

        Returns:
            The moves that were started; None where there is no room.
        """
        missing = []
        for node in nodes:
            move = self.loading(node)
            if move is not None:
                move.transfer.priority = min(move.transfer.priority, priority)
                move.prefetch &= prefetch
            elif not self.on_device(node):
                missing.append(node)
        for node in missing:
            self._occupy(node, DEVICE)
        if not self.make_room(DEVICE, sum(map(self.n_bytes, missing)), worse_than):
            for node in missing:
                self._vacate(node, DEVICE)
            return None
        return [self._start(node, DEVICE, priority, prefetch) for node in missing]

    # What goes out.

    def make_room(self, tier: int, n_bytes: int, worse_than: float | None = None) -> bool:
        """Evicts until so many bytes fit: the shortfall only, and nothing if it cannot be met.

        Args:
            tier: position of the tier.
            n_bytes: what is to come.
            worse_than: spare the nodes whose priority is this or below.

        Returns:
            Whether they fit now.
        """
        capacity = self.tiers[tier].capacity_bytes
        shortfall = self.tiers[tier].used_bytes + n_bytes - capacity
        if n_bytes > capacity:
            return False
        queue = self._queues[tier]
        victims: list[Node] = []
        spared: list[Node] = []
        gone: Counter[Node] = Counter()

        def evictable(node: Node) -> bool:
            return self._evictable(node, tier, gone[node])

        while shortfall > 0 and len(spared) < _MOST_SPARED:
            node = queue.pop(evictable)
            if node is None:
                break
            if worse_than is not None and node.priority <= worse_than:
                spared.append(node)
                continue
            victims.append(node)
            shortfall -= self.n_bytes(node)
            parent = node.parent
            assert parent is not None
            gone[parent] += 1
            if evictable(parent):
                queue.push(parent)
        if shortfall > 0:
            spared += victims
        else:
            for node in victims:
                self._evict(node, tier)
        for node in spared:
            self.offer(node)
        return shortfall <= 0

    def drop(self, node: Node) -> bool:
        """Removes a node with all below it, unless any of it is in use.

        Returns:
            Whether it is gone.
        """
        if node.locks or any(below.payload.moves for below in self.tree.nodes(node)):
            return False
        self._detach(node)
        return True

    def discard_if_empty(self, node: Node) -> None:
        """Removes a node that no block was found a place for."""
        if node.attached and not self.has_copy(node) and not node.payload.moves:
            self._detach(node)

    def offer(self, node: Node) -> None:
        """Says that a node may have become evictable, or its place in the order another."""
        if node.parent is None or node.payload is None:
            return
        for tier, queue in enumerate(self._queues):
            if self._evictable(node, tier):
                queue.push(node)

    def backup(self, node: Node) -> None:
        """Starts to copy a node to the next tiers, from each that has it to one that has not."""
        copies: Copies = node.payload
        for tier in range(len(self.tiers) - 1):
            target = tier + 1
            if copies.keys[tier] is None or copies.keys[target] is not None:
                continue
            if copies.move_to(target) or (tier == DEVICE and copies.move_to(DEVICE)):
                continue
            if not self._hangs(node, target):
                continue
            self._occupy(node, target)
            if self.make_room(target, self.n_bytes(node)):
                self._start(node, target, BACKUP, False, source=tier)
            else:
                self.counts["backups_refused"] += 1
                self._vacate(node, target)

    # Reading.

    def layer(self, node: Node, layer: int) -> Callable[[], Tensor]:
        """What waits for one layer of a node, (2, kv_heads, tokens, head_dim), and gives it.

        The waiting is to be done without the lock.
        """
        key = node.payload.keys[DEVICE]
        if key is not None:
            block = self.tiers[DEVICE].get(key)
            return lambda: block[layer]
        move = self.loading(node)
        assert move is not None
        assert move.block is not None
        start, stop = move.share(node)
        arriving, transfer = move.block, move.transfer

        def wait() -> Tensor:
            transfer.wait(layer)
            return arriving[layer, :, :, start:stop]

        return wait

    def read(self, node: Node) -> Tensor:
        """A node's block from the fastest tier that has it. Raises OSError, CorruptBlock."""
        for tier, key in zip(self.tiers, node.payload.keys, strict=True):
            if key is not None:
                block: Tensor = tier.get(key)
                return block
        raise KeyError(node)

    # How moves start and end.

    def _start(
        self, node: Node, target: int, priority: int, prefetch: bool, source: int | None = None
    ) -> Move:
        copies: Copies = node.payload
        if source is None:
            source = next(t for t, key in enumerate(copies.keys) if key is not None)
        origin, destination = self.tiers[source], self.tiers[target]
        held = copies.keys[source]
        assert held is not None
        assert self.layout is not None
        key, n_bytes = next(self._keys), self.n_bytes(node)
        destination.reserve(key, n_bytes)
        to_disk = destination.status is Status.ON_DISK
        from_disk = origin.status is Status.ON_DISK
        block = None
        if not to_disk:
            block = destination.allocate(self.layout.shape(node.n_tokens), self.layout.dtype)
        move = Move(node, source, target, key, block, prefetch)
        name = f"{node.depth - node.n_tokens}:{node.depth}"

        def on_done(transfer: Transfer) -> None:
            self._end(move, transfer.error)

        if to_disk:
            content = origin.get(held)
            move.transfer = self.link.run(
                "disk_write",
                lambda: destination.put(key, content),
                n_bytes,
                on_done,
                priority,
                name,
            )
        else:
            assert block is not None
            direction = "disk_read" if from_disk else "load" if target == DEVICE else "offload"
            what = (lambda: origin.get(held)) if from_disk else origin.get(held)
            move.transfer = self.link.copy(direction, what, block, on_done, priority, name)
        copies.moves.append(move)
        self.n_moves += 1
        self.counts[f"{'loaded' if target == DEVICE else 'backed_up'}_bytes"] += n_bytes
        self._refresh(node)
        return move

    def _end(self, move: Move, error: BaseException | None) -> None:
        with self.tree.lock:
            self.n_moves -= 1
            move.ended = True
            # A file is whole, and of no use to the parts of a node that was split meanwhile.
            whole_file = move.block is None and len(move.nodes) == 1
            if error is not None or not whole_file:
                self.tiers[move.target].free(move.key)
            if error is not None:
                self._failed(move, error)
            for node in move.nodes:
                copies: Copies = node.payload
                copies.moves.remove(move)
                if not node.attached:
                    if whole_file:
                        self.tiers[move.target].free(move.key)
                elif error is not None or not self._hangs(node, move.target):
                    if whole_file:
                        self.tiers[move.target].free(move.key)
                    self._vacate(node, move.target)
                elif move.block is not None:
                    copies.keys[move.target] = key = next(self._keys)
                    start, stop = move.share(node)
                    one = len(move.nodes) == 1
                    block = move.block if one else cut(move.block, start, stop)
                    self.tiers[move.target].put(key, block)
                    copies.prefetched = move.prefetch
                elif whole_file:
                    copies.keys[move.target] = move.key
                else:
                    self._vacate(node, move.target)
            if any(n.attached and n.payload.keys[move.target] is None for n in move.nodes):
                self._retreat(move)
            self.tidy()
            for node in move.nodes:
                if node.attached:
                    self._settle(node, backup=error is None)
            self.changed.notify_all()
            self.on_move_end()

    def _hangs(self, node: Node, tier: int) -> bool:
        """Whether a node may be on a tier, by what its parent has."""
        parent = node.parent
        assert parent is not None
        above: Copies = parent.payload
        return (
            parent is self.tree.root
            or tier > 1  # below the host, only the union of all tiers is closed
            or above.keys[tier] is not None
            or above.move_to(tier) is not None
        )

    def _failed(self, move: Move, error: BaseException) -> None:
        source, target = self.tiers[move.source].status, self.tiers[move.target].status
        if Status.ON_DISK not in (source, target):
            what = "load_failures" if move.target == DEVICE else "backup_failures"
            self.warn_once(what, "a copy from %s to %s failed: %r", source, target, error)
            return
        self.warn_once("disk_failures", "the disk tier failed: %r", error)
        if source is Status.ON_DISK:  # what could not be read once is not asked for again
            for node in move.nodes:
                if node.attached:
                    self._drop_copy(node, move.source)

    def _retreat(self, move: Move) -> None:
        """Takes off a tier what came to hang on a node that did not arrive there."""
        tier = move.target
        if tier > 1:  # as in `_hangs`
            return
        for node in list(self.tree.nodes(move.nodes[0])):
            copies: Copies = node.payload
            if node in move.nodes or not node.attached or copies.keys[tier] is None:
                continue
            if copies.feeds_a_move(tier) or copies.keys.count(None) + 1 == len(self.tiers):
                self._detach(node)
            else:
                self._drop_copy(node, tier)
                self._refresh(node)

    def _split(self, upper: Node, lower: Node) -> None:
        copies: Copies = lower.payload
        above = Copies(len(self.tiers))
        upper.payload = above
        above.prefetched = copies.prefetched
        for move in copies.moves:
            move.nodes.insert(move.nodes.index(lower), upper)
            above.moves.append(move)
            above.children_on[move.target] += 1
        n, size = upper.n_tokens, upper.n_tokens + lower.n_tokens
        for t, tier in enumerate(self.tiers):
            key = copies.keys[t]
            if key is None:
                continue
            copies.keys[t] = None
            faster = any(other is not None for other in (*above.keys[:t], *copies.keys[:t]))
            on_disk = tier.status is Status.ON_DISK
            # Where a faster copy remains, writing both parts again is left to the link.
            block = None if on_disk and faster else self._take(tier, key)
            tier.free(key)
            if block is None:
                # `upper` counts as a child already, in place of `lower`.
                self._vacate(upper, t)
                continue
            above.children_on[t] += 1
            for part, start, stop in ((above, 0, n), (copies, n, size)):
                part.keys[t] = next(self._keys)
                tier.put(part.keys[t], cut(block, start, stop))
        if self.has_copy(lower):
            self._unsaved += [upper, lower]
        else:
            self._lost.append(upper)

    def _take(self, tier: Any, key: int) -> Tensor | None:
        try:
            block: Tensor = tier.get(key)
        except (OSError, RuntimeError) as error:
            self.warn_once("disk_failures", "the disk tier failed: %r", error)
            return None
        return block

    def tidy(self) -> None:
        """Removes nodes whose only copy was lost, and backs up what a split left without.

        To be called after whatever may have split nodes, when the tree is whole again.
        """
        while self._lost:
            node = self._lost.pop()
            if node.attached:
                self._detach(node)
        while self._unsaved:
            node = self._unsaved.pop(0)
            if node.attached:
                self._settle(node)

    # Bookkeeping.

    def _occupy(self, node: Node, tier: int) -> None:
        assert node.parent is not None
        node.parent.payload.children_on[tier] += 1

    def _vacate(self, node: Node, tier: int) -> None:
        assert node.parent is not None
        node.parent.payload.children_on[tier] -= 1
        self.offer(node.parent)

    def _drop_copy(self, node: Node, tier: int) -> None:
        copies: Copies = node.payload
        key = copies.keys[tier]
        if key is None:
            return
        self.tiers[tier].free(key)
        copies.keys[tier] = None
        if tier == DEVICE and copies.prefetched:
            copies.prefetched = False
            self.counts["wasted_prefetch_bytes"] += self.n_bytes(node)
        self._vacate(node, tier)
        if not self.has_copy(node):
            self._lost.append(node)

    def _detach(self, node: Node) -> None:
        """Removes a node with all below it, whoever uses it; its moves end in nothing."""
        for below in list(self.tree.nodes(node))[::-1]:
            for tier, queue in enumerate(self._queues):
                self._drop_copy(below, tier)
                queue.discard(below)
        for move in node.payload.moves:
            self._vacate(node, move.target)
        self.tree.remove(node, force=True)

    def _evictable(self, node: Node, tier: int, n_gone: int = 0) -> bool:
        copies: Copies = node.payload
        if node.locks or not node.attached or node.parent is None or copies.keys[tier] is None:
            return False
        if copies.children_on[tier] > n_gone or copies.feeds_a_move(tier):
            return False
        if not node.children or copies.keys.count(None) + 1 < len(copies.keys):
            return True
        # Its last copy, and something below: that would go with it.
        return not any(below.payload.moves for below in self.tree.nodes(node))

    def _evict(self, node: Node, tier: int) -> None:
        if node.locks or node.payload.feeds_a_move(tier):
            raise RuntimeError(f"{node!r}: evicted while in use")
        name = self.tiers[tier].status.value
        self.counts[f"evicted_{name}_bytes"] += self.n_bytes(node)
        self.counts[f"evictions_{name}"] += 1
        self._drop_copy(node, tier)
        if not self.has_copy(node) and node.attached:
            self._detach(node)
        if node.attached:
            self._refresh(node)

    def _settle(self, node: Node, backup: bool = True) -> None:
        self._refresh(node)
        if backup:
            self.backup(node)
        self.offer(node)

    def _refresh(self, node: Node) -> None:
        copies: Copies = node.payload
        held = [t for t, key in enumerate(copies.keys) if key is not None]
        if not held:
            return
        fastest: Status = self.tiers[held[0]].status
        if copies.move_to(DEVICE):
            node.status, node.source = Status.LOADING, fastest
        elif copies.feeds_a_move(DEVICE):
            node.status = Status.OFFLOADING
        else:
            node.status = fastest

    def check(self, expected: Callable[[tuple[int, ...]], Tensor] | None = None) -> None:
        """Raises AssertionError where the rules at the top of this file are broken.

        Args:
            expected: gives the block of a whole prefix; every copy in memory is compared with it.
        """
        self.tree.check()
        held: list[dict[int, int]] = [{} for _ in self.tiers]
        moves: set[Move] = set()
        for node in self.tree.nodes():
            copies: Copies = node.payload
            parent = node.parent
            assert parent is not None
            assert self.has_copy(node), f"{node}: no copy anywhere"
            to_device = [m for m in copies.moves if DEVICE in (m.source, m.target)]
            assert len(to_device) <= 1, f"{node}: in two transfer states"
            assert len(copies.moves) - len(to_device) <= 1, f"{node}: two moves below the device"
            for move in copies.moves:
                assert node in move.nodes, f"{node}: a move that does not know it"
                assert copies.keys[move.source] is not None, f"{node}: source of a move evicted"
                assert copies.keys[move.target] is None, f"{node}: moved to where it is"
                moves.add(move)
            for t, key in enumerate(copies.keys):
                there = sum(
                    c.payload.keys[t] is not None or c.payload.move_to(t) is not None
                    for c in node.children.values()
                )
                assert copies.children_on[t] == there, f"{node}: children on tier {t} miscounted"
                if key is not None:
                    held[t][key] = self.n_bytes(node)
                    assert self._hangs(node, t), f"{node}: on tier {t} without its parent"
            before = (node.status, node.source)
            self._refresh(node)
            assert (node.status, node.source) == before, f"{node}: wrong status"
        for move in moves:
            held[move.target][move.key] = sum(map(self.n_bytes, move.nodes))
        for tier, sizes in zip(self.tiers, held, strict=True):
            # A move whose nodes were all removed still holds its reservation until it ends.
            extra = {k: n for k, n in tier.sizes().items() if k not in sizes}
            assert sizes.items() <= tier.sizes().items(), f"{tier}: blocks missing or miscounted"
            assert not extra or self.n_moves, f"{tier}: bytes that belong to no node"
            assert tier.used_bytes == sum(tier.sizes().values()), f"{tier}: bytes miscounted"
            assert tier.used_bytes <= tier.capacity_bytes, f"{tier}: above its capacity"
        if expected is not None:
            self._check_blocks(expected)

    def _check_blocks(self, expected: Callable[[tuple[int, ...]], Tensor]) -> None:
        for node in self.tree.nodes():
            ids = tuple(token for above in node.path() for token in above.ids)
            wanted = expected(ids)[:, :, :, node.depth - node.n_tokens :]
            for tier, key in zip(self.tiers, node.payload.keys, strict=True):
                if key is not None and tier.status is not Status.ON_DISK:
                    assert torch.equal(tier.get(key).cpu(), wanted), f"{node}: torn block"
