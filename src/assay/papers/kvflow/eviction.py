"""Which node of the cache goes first: eviction policies, and hit rates of items under them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.toolkits.checks import whole


class Evictable(Protocol):
    """What a policy may read of a node (of the radix tree, or of `replay`).

    Attributes:
        last_access: Logical time of the last lookup that used it.
        inserted: Logical time at which it was made.
        hits: Number of lookups that found it.
        priority: Steps until the earliest agent needs it; infinity for suffixes and outputs.
        ids: Token ids of its own segment.
        parent: The node before it; None for the root.
    """

    last_access: int
    inserted: int
    hits: int
    priority: float
    ids: Sequence[Any]
    parent: Any


class EvictionPolicy(Protocol):
    """An order on the leaves of the cached tree."""

    def key(self, node: Evictable) -> tuple[float, ...]:
        """A node's place in the order; the node with the SMALLEST key is evicted first.

        Args:
            node: A leaf that nobody uses.
        """

    def on_steps(self, client: str, steps: Mapping[str, float]) -> None:
        """Tells the policy a workflow's fresh step values; the tree has them in `priority`.

        Args:
            client: The application that sent them.
            steps: Steps to execution of each agent.
        """


class _Policy:
    def on_steps(self, client: str, steps: Mapping[str, float]) -> None:
        """Nothing to keep: what the policy reads is on the nodes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class LRU(_Policy):
    """Least recently used: what SGLang, vLLM and LMCache do by default."""

    def key(self, node: Evictable) -> tuple[float, ...]:
        return (node.last_access,)


class MRU(_Policy):
    """Most recently used first. For one cyclic workflow it makes the optimal choices."""

    def key(self, node: Evictable) -> tuple[float, ...]:
        return (-node.last_access,)


class LFU(_Policy):
    """Least frequently used, and of those the least recently used."""

    def key(self, node: Evictable) -> tuple[float, ...]:
        return (node.hits, node.last_access)


class SLRU(_Policy):
    """Segmented LRU: nodes that were found often enough go after all others.

    Args:
        protected_hits: Lookups that must have found a node before it is protected; SGLang's
            `slru` has 2.

    Raises:
        ValueError: It is below 1.
    """

    def __init__(self, protected_hits: int = 2) -> None:
        self.protected_hits = whole("protected_hits", protected_hits)

    def key(self, node: Evictable) -> tuple[float, ...]:
        return (node.hits >= self.protected_hits, node.last_access)


class StepsToExecution(_Policy):
    """KVFlow's order: suffixes first, then the prefix that is needed last (Algorithm 2).

    Args:
        tie: "lru" (the paper names no rule), or a policy that orders nodes of equal priority.

    Raises:
        ValueError: `tie` is neither.
    """

    def __init__(self, tie: str | EvictionPolicy = "lru") -> None:
        if isinstance(tie, str) and tie != "lru":
            raise ValueError(f"tie: got {tie!r}, wants 'lru' or an eviction policy")
        if not isinstance(tie, str) and not hasattr(tie, "key"):
            raise TypeError(f"tie: got {tie!r}, wants 'lru' or an eviction policy")
        self.tie: EvictionPolicy = LRU() if isinstance(tie, str) else tie

    def key(self, node: Evictable) -> tuple[float, ...]:
        return (-node.priority, *self.tie.key(node))


class Belady(_Policy):
    """The optimum for a known future: what is used again last goes first (Belady, 1966).

    With nodes of one size no policy misses less; with nodes of several sizes it is a strong
    heuristic and no bound. Whoever replays the trace calls `advance`, or
    `serve` where requests overtake each other.

    Args:
        trace: Every request to come, in order: token ids, or one hashable item (which then
            stands for a prompt of one token, as in `replay`).
    """

    def __init__(self, trace: Sequence[Any]) -> None:
        prompts = [_prompt(request) for request in trace]
        # Prompts that share a prefix are neighbours in sorted order.
        self._order = sorted(range(len(prompts)), key=prompts.__getitem__)
        self._sorted = [prompts[i] for i in self._order]
        self._uses: dict[tuple[Any, ...], list[int]] = {}
        self._served = bytearray(len(prompts))
        self._position = 0

    def serve(self, position: int) -> None:
        """Says that a request's lookup is over.

        Args:
            position: Of the request in the trace.

        Raises:
            ValueError: There is no such position.
        """
        if not 0 <= position < len(self._served):
            raise ValueError(f"position: got {position}, wants one of {len(self._served)} requests")
        self._served[position] = True

    def advance(self) -> None:
        """Says that the lookup of the first request that was not served yet is over."""
        while self._position < len(self._served) and self._served[self._position]:
            self._position += 1
        if self._position < len(self._served):
            self._served[self._position] = True

    def next_use(self, prefix: Sequence[Any]) -> float:
        """Position in the trace of the next request that starts with a prefix, or infinity.

        Args:
            prefix: Token ids.
        """
        prefix = tuple(prefix)
        uses = self._uses.get(prefix)
        if uses is None:
            size = len(prefix)
            low = bisect_left(self._sorted, prefix)
            high = bisect_right(self._sorted, prefix, lo=low, key=lambda prompt: prompt[:size])
            uses = self._uses[prefix] = sorted(self._order[low:high], reverse=True)
        while uses and self._served[uses[-1]]:
            uses.pop()
        return uses[-1] if uses else math.inf

    def key(self, node: Evictable) -> tuple[float, ...]:
        return (-self.next_use(_path(node)), node.last_access)


def _prompt(request: Any) -> tuple[Any, ...]:
    if isinstance(request, str | bytes) or not hasattr(request, "__iter__"):
        return (request,)
    return tuple(int(i) for i in request)


def _path(node: Evictable) -> tuple[Any, ...]:
    segments = []
    at: Any = node
    while at is not None:
        segments.append(at.ids)
        at = at.parent
    return tuple(i for segment in reversed(segments) for i in segment)


@dataclass(slots=True)
class _Item:
    ids: Sequence[Any]
    inserted: int
    last_access: int
    hits: int = 0
    priority: float = math.inf
    parent: Any = None


@dataclass(frozen=True)
class Replay:
    """What `replay` counted.

    Attributes:
        hits: One flag per request of the trace.
        evicted: The items that went, in order.
    """

    hits: tuple[bool, ...] = field(repr=False)
    evicted: tuple[Hashable, ...] = field(repr=False)

    @property
    def hit_rate(self) -> float:
        """Share of the requests that found their item; NaN for an empty trace."""
        return sum(self.hits) / len(self.hits) if self.hits else math.nan

    @property
    def misses(self) -> int:
        """Number of requests that did not."""
        return len(self.hits) - sum(self.hits)


def replay(
    trace: Sequence[Hashable],
    capacity: int,
    policy: EvictionPolicy,
    steps: Sequence[Mapping[Hashable, float]] | None = None,
) -> Replay:
    """Hits of a cache of items of one size, which takes in every item that it missed.

    Args:
        trace: The items asked for, in order.
        capacity: Number of items that fit.
        policy: Chooses what goes. A `Belady` is advanced here.
        steps: For each request, the steps to execution of the items at that time (those left
            out: infinity). Without it every item has the priority infinity.

    Returns:
        Which requests were hits, and what was evicted.

    Raises:
        ValueError: The capacity is below 1, or `steps` has another length than the trace.
    """
    whole("capacity", capacity)
    if steps is not None and len(steps) != len(trace):
        raise ValueError(f"steps: got {len(steps)} mappings, wants {len(trace)}, one a request")
    cached: dict[Hashable, _Item] = {}
    hits: list[bool] = []
    evicted: list[Hashable] = []
    for now, name in enumerate(trace):
        if isinstance(policy, Belady):
            policy.advance()
        if steps is not None:
            for held, item in cached.items():
                item.priority = steps[now].get(held, math.inf)
        hits.append(name in cached)
        if name in cached:
            cached[name].hits += 1
            cached[name].last_access = now
            continue
        if len(cached) == capacity:
            victim = min(cached, key=lambda held: policy.key(cached[held]))
            del cached[victim]
            evicted.append(victim)
        priority = math.inf if steps is None else steps[now].get(name, math.inf)
        cached[name] = _Item((name,), inserted=now, last_access=now, priority=priority)
    return Replay(tuple(hits), tuple(evicted))
