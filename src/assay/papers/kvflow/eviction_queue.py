"""Nodes in the order in which a policy gives them up, without sorting them all at each eviction."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from assay.papers.kvflow.radix_tree import Node


class EvictionQueue:
    """A heap that tolerates keys which changed since a node was pushed.

    A node must be pushed when it may have become evictable, and when its key may have become
    smaller; a key that became larger is noticed when the node is popped.
    """

    def __init__(self, key: Callable[[Node], tuple[float, ...]]) -> None:
        """Makes an empty queue.

        Args:
            key: of the policy; the smallest goes first.
        """
        self._key = key
        self._heap: list[tuple[tuple[float, ...], int, Node]] = []
        self._pushed: dict[Node, tuple[float, ...]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._pushed)

    def push(self, node: Node) -> None:
        """Adds a node, or moves it to where its key now belongs."""
        key = self._key(node)
        if self._pushed.get(node) == key:
            return
        self._pushed[node] = key
        heapq.heappush(self._heap, (key, next(self._numbers), node))
        if len(self._heap) > 64 + 4 * len(self._pushed):
            self._heap = [(key, next(self._numbers), node) for node, key in self._pushed.items()]
            heapq.heapify(self._heap)

    def discard(self, node: Node) -> None:
        """Forgets a node, if it is there."""
        self._pushed.pop(node, None)

    def pop(self, evictable: Callable[[Node], bool]) -> Node | None:
        """Takes out the first node that may go; those that may not are forgotten on the way.

        Args:
            evictable: whether a node may go; called again only after it was pushed again.

        Returns:
            The node; None if there is none.
        """
        while self._heap:
            key, _, node = heapq.heappop(self._heap)
            if self._pushed.get(node) != key:
                continue  # pushed again since, with another key
            del self._pushed[node]
            if not evictable(node):
                continue
            if self._key(node) != key:
                self.push(node)
                continue
            return node
        return None
