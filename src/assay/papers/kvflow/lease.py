"""A request's hold on the prefix that was found for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Self

from torch import Tensor

from assay.papers.kvflow.link import DEMAND, TransferFailed
from assay.papers.kvflow.radix_tree import Node
from assay.papers.kvflow.residency import Residency


class LeaseExpired(RuntimeError):
    """A request did not touch its lease for so long that the cache took the prefix back."""


class Lease:
    """Keeps a prefix from being evicted until it is released.

    A context manager. Where only a part of the prefix can be had (no room on the device, a copy
    that fails), `n_tokens` shrinks to that part, and the rest is to be computed.

        with cache.lookup(ids, "app", "planner") as lease:
            lease.load()
            past = lease.blocks()

    Attributes:
        ids: the prompt.
        client, agent: whose it is.
        cached_tokens: tokens found when it was looked up, by tier: "device", "host", "disk".
    """

    def __init__(
        self,
        residency: Residency,
        ids: tuple[int, ...],
        client: str,
        agent: str,
        node: Node,
        cached_tokens: dict[str, int],
        renew: Callable[[Lease], None],
        release: Callable[[Lease], None],
    ) -> None:
        """Made by `PrefixCache.lookup`, which holds the lock.

        Args:
            residency: where the blocks are.
            ids, client, agent, cached_tokens: see the attributes.
            node: the deepest that matched.
            renew, release: told when the lease is used and when it is given up.
        """
        self.ids = ids
        self.client = client
        self.agent = agent
        self.cached_tokens = cached_tokens
        self._residency = residency
        self._node = node
        self._n_tokens = sum(cached_tokens.values())
        self._renew = renew
        self._release = release
        self._held = True
        self._expired = False
        residency.tree.lock_path(node)

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt that need not be computed."""
        return self._n_tokens

    @property
    def ready(self) -> bool:
        """Whether all of them are on the device."""
        with self._residency.tree.lock:
            self._check()
            return all(self._residency.on_device(node) for node, _ in self._segments())

    @property
    def loading(self) -> bool:
        """Whether any of them is on its way to the device."""
        with self._residency.tree.lock:
            self._check()
            return any(self._residency.loading(node) for node, _ in self._segments())

    def load(self) -> int:
        """Starts to load what is not on the device, evicting what room is short of.

        Loads that are under way are not started again; a prefetch among them goes first now.

        Returns:
            `n_tokens`, without what there was no room for.

        Raises:
            LeaseExpired: the prefix was taken back.
        """
        residency = self._residency
        with residency.tree.lock:
            self._check()
            nodes = [node for node, _ in takewhile(lambda s: s[0].attached, self._segments())]
            if residency.load(nodes, DEMAND) is None:
                for node in nodes:
                    if residency.load([node], DEMAND) is None:
                        residency.counts["loads_without_room"] += 1
                        break
            self._shrink()
            return self._n_tokens

    def load_whole(self) -> bool:
        """As `load`, but starts nothing and gives nothing up where there is no room for all.

        Returns:
            Whether all of it is on the device or on its way.

        Raises:
            LeaseExpired: the prefix was taken back.
        """
        residency = self._residency
        with residency.tree.lock:
            self._check()
            nodes = [node for node, _ in self._segments()]
            return all(n.attached for n in nodes) and residency.load(nodes, DEMAND) is not None

    def wait(self, timeout: float | None = None) -> int:
        """Blocks until everything is on the device, after loading what is not.

        Args:
            timeout: seconds to wait at most.

        Returns:
            `n_tokens`, without what could not be loaded.

        Raises:
            LeaseExpired: the prefix was taken back.
            TimeoutError: it took too long.
        """
        residency = self._residency
        with residency.tree.lock:
            self.load()
            if not residency.changed.wait_for(lambda: not self._held or not self.loading, timeout):
                raise TimeoutError(f"lease: prefix not there after {timeout} s")
            self._check()
            self._shrink()
            return self._n_tokens

    def layer(self, layer: int) -> list[Tensor]:
        """Blocks until one layer has arrived, and gives it.

        Args:
            layer: which, from 0.

        Returns:
            Keys and values of consecutive runs of tokens, `n_tokens` together, each
            (2, kv_heads, tokens, head_dim) on the device and not to be written to.

        Raises:
            TransferFailed: it will not arrive; `n_tokens` says what is left, and whatever was
                read of the rest must be computed again.
            LeaseExpired: the prefix was taken back.
        """
        residency = self._residency
        with residency.tree.lock:
            self._check()
            segments = self._segments()
            there = all(residency.on_device(n) or residency.loading(n) for n, _ in segments)
            if not there:
                self._shrink()
                raise TransferFailed("lease: a part of the prefix could not be loaded")
            reads = [(residency.layer(node, layer), n) for node, n in segments]
        try:
            return [read()[:, :, :n] for read, n in reads]
        except TransferFailed:
            with residency.tree.lock:
                if self._held:
                    self._shrink()
            raise

    def wait_layer(self, layer: int) -> None:
        """Blocks until one layer has arrived; see `layer`."""
        self.layer(layer)

    def blocks(self) -> list[Tensor]:
        """Blocks until the prefix is on the device, and gives it.

        Returns:
            Blocks of consecutive runs of tokens, `n_tokens` together, each
            (layers, 2, kv_heads, tokens, head_dim) and not to be written to.

        Raises:
            LeaseExpired: the prefix was taken back.
        """
        residency = self._residency
        with residency.tree.lock:
            self.wait()
            return [residency.read(node)[:, :, :, :n] for node, n in self._segments()]

    def release(self) -> None:
        """Gives the prefix up; further calls do nothing."""
        with self._residency.tree.lock:
            if self._held:
                self._held = False
                self._residency.tree.unlock_path(self._node)
                self._release(self)

    def expire(self) -> None:
        """Takes the prefix back from a request that is never going to release it."""
        with self._residency.tree.lock:
            self._expired = self._expired or self._held
            self.release()

    def path(self) -> list[Node]:
        """The nodes that hold the prefix, from the root down."""
        return self._node.path()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "" if self._held else ", expired" if self._expired else ", released"
        return f"Lease({self.client}/{self.agent}, {self._n_tokens} of {len(self.ids)}{state})"

    def _check(self) -> None:
        if self._expired:
            raise LeaseExpired(f"{self!r}: not used for too long")
        if not self._held:
            raise RuntimeError(f"{self!r}: already released")
        self._renew(self)

    def _segments(self) -> list[tuple[Node, int]]:
        """The nodes on the path, each with how many of its tokens are used."""
        found: list[tuple[Node, int]] = []
        left = self._n_tokens
        for node in self._node.path():
            if left <= 0:  # the last node was matched in part, and split since
                break
            found.append((node, min(left, node.n_tokens)))
            left -= node.n_tokens
        return found

    def _shrink(self) -> None:
        """Lets go of what is neither on the device nor on its way there, and what follows it."""
        residency = self._residency
        kept, n_tokens = residency.tree.root, 0
        for node, n in self._segments():
            if not node.attached or not (residency.on_device(node) or residency.loading(node)):
                break
            kept, n_tokens = node, n_tokens + n
        if kept is self._node:
            return
        residency.counts["lost_tokens"] += self._n_tokens - n_tokens
        residency.tree.lock_path(kept)
        residency.tree.unlock_path(self._node)
        for node in self._node.path():
            residency.offer(node)
        self._node, self._n_tokens = kept, n_tokens
