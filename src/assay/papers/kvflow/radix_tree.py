"""Radix tree over token ids, with the priorities of section 3.2.

A node owns a segment of tokens and whatever holds their keys and values. The last node of an
agent's fixed prompt is given the agent's steps-to-execution; a node above takes the smallest of
its users', and what hangs below a fixed prompt has none (infinity), so that it goes first.
"""

from __future__ import annotations

import logging
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, Protocol, Self

from assay.toolkits.checks import whole

logger = logging.getLogger(__name__)

AgentKey = tuple[str, str]
"""(client, agent): two applications may have agents of one name."""


class Status(Enum):
    """Where a node's keys and values are: the fastest complete copy, or under way."""

    ON_DEVICE = "device"
    ON_HOST = "host"
    ON_DISK = "disk"
    LOADING = "loading"
    OFFLOADING = "offloading"


class Payload(Protocol):
    """What a node carries; the tree only ever cuts it in two along the tokens."""

    def split(self, n_tokens: int) -> tuple[Self, Self]: ...


class Node:
    """A segment of tokens that follows its parent's.

    Attributes:
        ids: the tokens of the segment; empty for the root alone.
        depth: tokens from the root to the end of the segment.
        status: where the keys and values are.
        source: where they come from while the status is LOADING.
        payload: what the owner of the tree attached.
        locks: running requests whose path leads through this node.
        last_access: the tree's clock at the last match or insertion through this node.
        hits: matches that led through this node.
        inserted: the tree's clock when it was inserted.
        assigned: steps-to-execution of the agents whose fixed prompt ends here.
        priority: the smallest of those here and below; infinity without any.
        fixed: whether it is at or above the end of a fixed prompt.
        attached: whether it is still in the tree.
    """

    __slots__ = (
        "_n_fixed",
        "_users",
        "assigned",
        "attached",
        "children",
        "depth",
        "hits",
        "ids",
        "inserted",
        "last_access",
        "locks",
        "parent",
        "payload",
        "priority",
        "source",
        "status",
    )

    def __init__(self, ids: tuple[int, ...], parent: Node | None, clock: int) -> None:
        self.ids = ids
        self.parent = parent
        self.children: dict[tuple[int, ...], Node] = {}
        self.depth: int = len(ids) + (parent.depth if parent else 0)
        self.status = Status.ON_DEVICE
        self.source = Status.ON_HOST
        self.payload: Any = None
        self.locks = 0
        self.last_access = clock
        self.hits = 0
        self.inserted = clock
        self.assigned: dict[AgentKey, float] = {}
        self.priority = math.inf
        self.attached = True
        # How often each finite priority occurs among the children and the own assignments:
        # few distinct values, so that the smallest is found without visiting all children.
        self._users: dict[float, int] = {}
        self._n_fixed = 0

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def fixed(self) -> bool:
        return self._n_fixed > 0

    @property
    def tier(self) -> Status:
        """ON_DEVICE, ON_HOST or ON_DISK: where it can be read from, also while it is copied."""
        if self.status is Status.LOADING:
            return self.source
        return Status.ON_DEVICE if self.status is Status.OFFLOADING else self.status

    def path(self) -> list[Node]:
        """The nodes from below the root down to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def __repr__(self) -> str:
        return (
            f"Node({self.depth - self.n_tokens}:{self.depth}, {self.status.value}, "
            f"priority={self.priority}, locks={self.locks})"
        )


@dataclass(frozen=True, slots=True)
class Match:
    """The longest prefix that a tree holds.

    Attributes:
        node: the deepest node reached; its segment may be matched in part.
        n_device, n_host, n_disk: matched tokens by where they can be read from.
    """

    node: Node
    n_device: int
    n_host: int
    n_disk: int

    @property
    def n_tokens(self) -> int:
        return self.n_device + self.n_host + self.n_disk


@dataclass(frozen=True, slots=True)
class Insertion:
    """What `RadixTree.insert` did.

    Attributes:
        node: the node at which the inserted ids end.
        new: the node that was made for them; None where the tree held them all.
        n_matched: tokens that the tree already held.
    """

    node: Node
    new: Node | None
    n_matched: int


def token_ids(ids: Any) -> tuple[int, ...]:
    """Ids as a tuple of integers.

    Args:
        ids: a sequence of integers, or a one-dimensional array or tensor of them.

    Raises:
        TypeError: it is none of these.
    """
    found = tuple(ids.tolist() if hasattr(ids, "tolist") else ids)
    if set(map(type, found)) <= {int}:
        return found
    try:
        return tuple(map(operator.index, found))
    except TypeError:
        strange = next(token for token in found if not hasattr(token, "__index__"))
        raise TypeError(f"ids: got {strange!r} among them, wants integers") from None


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences of ids share."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # halving compares slices, at the speed of C
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _split_payload(upper: Node, lower: Node) -> None:
    if lower.payload is not None:
        upper.payload, lower.payload = lower.payload.split(upper.n_tokens)


class RadixTree:
    """Prefixes of token ids, shared between those who use them.

    Every method may be called from any thread; `lock` guards them all and may be held around
    several calls that belong together.
    """

    def __init__(
        self,
        page_size: int = 1,
        on_change: Callable[[Node], Any] | None = None,
        on_split: Callable[[Node, Node], Any] | None = None,
    ) -> None:
        """Makes an empty tree.

        Args:
            page_size: nodes begin and end at multiples of so many tokens, >= 1.
            on_change: called with each node whose priority or `fixed` has changed.
            on_split: called with the upper and the lower part of a node that was cut in two, to
                divide the payload, which the lower part still has; None calls its `split`.

        Raises:
            TypeError, ValueError: page_size is no integer >= 1.
        """
        self.page_size = whole("page_size", page_size)
        self.root = Node((), None, 0)
        self.clock = 0
        self.lock = threading.RLock()
        self._on_change = on_change or (lambda node: None)
        self._on_split = on_split or _split_payload
        self._ends: dict[AgentKey, Node] = {}
        self._steps: dict[str, dict[str, float]] = {}

    def match(self, ids: Any, touch: bool = True) -> Match:
        """The longest prefix of ids in the tree, in whole pages.

        Args:
            ids: token ids.
            touch: whether this counts as a use of the nodes on the path.

        Returns:
            The match; the root and zeros where there is none.

        Raises:
            TypeError: ids are no integers.
        """
        ids = token_ids(ids)
        counts = {Status.ON_DEVICE: 0, Status.ON_HOST: 0, Status.ON_DISK: 0}
        with self.lock:
            self.clock += touch
            node = self.root
            for node, n in self._walk(ids):
                counts[node.tier] += n
                if touch:
                    node.last_access = self.clock
                    node.hits += 1
        return Match(node, *counts.values())

    def insert(self, ids: Any, payload: Payload | None = None) -> Insertion:
        """Adds ids, of which the whole pages are kept.

        Args:
            ids: token ids.
            payload: what belongs to the ids, all of them; what is not kept, or held already, is
                cut off. None where the caller attaches it to the new node.

        Returns:
            The node at which the ids end, and the one that was made.

        Raises:
            TypeError: ids are no integers.
        """
        given = token_ids(ids)
        ids = given[: len(given) // self.page_size * self.page_size]
        with self.lock:
            self.clock += 1
            node, held = self._split_at(ids)
            for above in node.path():
                above.last_access = self.clock
            if held == len(ids):
                return Insertion(node, None, held)
            new = Node(ids[held:], node, self.clock)
            if payload is not None:
                whole_pages = payload if ids == given else payload.split(len(ids))[0]
                new.payload = whole_pages.split(held)[1] if held else whole_pages
            node.children[new.ids[: self.page_size]] = new
            return Insertion(new, new, held)

    def remove(self, node: Node, force: bool = False) -> None:
        """Takes a node out of the tree, with what is below it.

        Marks that it carried pass to its parent: what is left of the agent's fixed prompt.

        Args:
            node: any but the root.
            force: also where requests use it; their `unlock` goes on working.

        Raises:
            ValueError: it is the root, or in use.
        """
        with self.lock:
            if node.parent is None:
                raise ValueError("node: got the root, wants one below it")
            if node.locks and not force:
                raise ValueError(f"node: got {node!r}, wants one that no request uses")
            if not node.attached:
                return
            for below in list(self.nodes(node)):
                for key in list(below.assigned):
                    self._assign(key, node.parent)
                below.attached = False
            del node.parent.children[node.ids[: self.page_size]]

    def lock_path(self, node: Node) -> None:
        """Counts a running request on every node from the root to this one."""
        self._add_locks(node, 1)

    def unlock_path(self, node: Node) -> None:
        """Takes back what `lock_path` counted; splits in between do not matter."""
        self._add_locks(node, -1)

    def mark_fixed(self, client: str, agent: str, ids: Any) -> Node:
        """Says that an agent's prompts all begin with ids.

        Args:
            client: the application.
            agent: the agent in it.
            ids: the fixed prompt; whole pages of it count. Where the tree holds only a part, the
                mark goes to the end of that part.

        Returns:
            The marked node; the root where nothing is held, which marks nothing.

        Raises:
            TypeError: ids are no integers.
        """
        ids = token_ids(ids)
        if len(ids) % self.page_size:
            logger.info("fixed prompt of %s/%s: %d tokens rounded down", client, agent, len(ids))
            ids = ids[: len(ids) // self.page_size * self.page_size]
        with self.lock:
            node, held = self._find(ids)
            if held == len(ids) and held != node.depth:
                node, _ = self._split_at(ids)
            elif held != node.depth:  # the prompt leaves the tree inside this node
                node = node.parent or node
            self._assign((client, agent), node)
            return node

    def unmark(self, client: str, agent: str) -> None:
        """Forgets an agent's fixed prompt and its steps."""
        with self.lock:
            self._assign((client, agent), None)
            self._steps.get(client, {}).pop(agent, None)

    def forget_steps(self, client: str) -> None:
        """Forgets all steps-to-execution of a client; its fixed prompts stay, without priority."""
        with self.lock:
            self.update_steps(client, dict.fromkeys(self._steps.get(client, {}), math.inf))
            self._steps.pop(client, None)

    def fixed_end(self, client: str, agent: str) -> Node | None:
        """The last node held of an agent's fixed prompt; None before it was marked."""
        return self._ends.get((client, agent))

    def marked(self) -> dict[AgentKey, Node]:
        """The last node held of every fixed prompt."""
        with self.lock:
            return dict(self._ends)

    def steps(self, client: str) -> dict[str, float]:
        """The steps-to-execution last told by a client."""
        with self.lock:
            return dict(self._steps.get(client, {}))

    def update_steps(self, client: str, steps: Mapping[str, float]) -> None:
        """Gives agents their steps-to-execution; only paths on which one changed are visited.

        Args:
            client: the application.
            steps: for each agent, in how many steps it runs at the earliest: an integer >= 0, or
                infinity. Agents not named keep theirs; one whose prompt is not marked yet gets
                its value when it is.

        Raises:
            TypeError, ValueError: naming the agent whose value is none of these.
        """
        for agent, s in steps.items():
            if not isinstance(s, Real):
                raise TypeError(f"steps[{agent!r}]: got {s!r}, wants an integer >= 0 or infinity")
            if isinstance(s, bool) or not (s == math.inf or (s >= 0 and s == int(s))):
                raise ValueError(f"steps[{agent!r}]: got {s!r}, wants an integer >= 0 or infinity")
        with self.lock:
            known = self._steps.setdefault(client, {})
            for agent, s in steps.items():
                if known.get(agent) == s:
                    continue
                known[agent] = s
                end = self._ends.get((client, agent))
                if end is not None:
                    old, end.assigned[client, agent] = end.assigned[client, agent], s
                    self._count(end, old, s)

    def nodes(self, below: Node | None = None) -> Iterator[Node]:
        """Every node below the root, or a node and what is below it; parents first."""
        stack = [below] if below is not None else list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def __len__(self) -> int:
        with self.lock:
            return sum(1 for _ in self.nodes())

    def check(self) -> None:
        """Raises AssertionError where the tree contradicts itself."""
        with self.lock:
            for node in self.nodes():
                parent, page = node.parent, self.page_size
                assert node.attached, f"{node}: in the tree, marked as gone"
                assert parent is not None, f"{node}: no parent"
                assert parent.children[node.ids[:page]] is node, f"{node}: not its parent's child"
                assert node.ids, f"{node}: empty"
                assert node.n_tokens % page == 0, f"{node}: no whole pages"
                assert node.depth == parent.depth + node.n_tokens, f"{node}: wrong depth"
                assert node.locks >= sum(child.locks for child in node.children.values()), (
                    f"{node}: locked less often than its children"
                )
                users = [*node.assigned.values(), *(c.priority for c in node.children.values())]
                assert node.priority == min(users, default=math.inf), f"{node}: wrong priority"
                n_fixed = len(node.assigned) + sum(c._n_fixed for c in node.children.values())
                assert node._n_fixed == n_fixed, f"{node}: wrong number of fixed prompts"
            for (client, agent), end in self._ends.items():
                assert end.attached, f"{client}/{agent}: its fixed prompt ends at a removed node"
                known = self._steps.get(client, {}).get(agent, math.inf)
                assert end.assigned[client, agent] == known, f"{client}/{agent}: stale steps"

    def _walk(self, ids: tuple[int, ...]) -> Iterator[tuple[Node, int]]:
        """The nodes along ids, each with how many of its tokens match."""
        node, at, page = self.root, 0, self.page_size
        while at + page <= len(ids):
            child = node.children.get(ids[at : at + page])
            if child is None:
                return
            n = common_prefix(child.ids, ids[at : at + child.n_tokens]) // page * page
            yield child, n
            if n < child.n_tokens:
                return
            node, at = child, at + n

    def _find(self, ids: tuple[int, ...]) -> tuple[Node, int]:
        node, held = self.root, 0
        for node, n in self._walk(ids):  # noqa: B007
            held += n
        return node, held

    def _split_at(self, ids: tuple[int, ...]) -> tuple[Node, int]:
        """The node at whose end ids leave the tree, which is cut there if need be."""
        node, held = self._find(ids)
        return (node, held) if held == node.depth else (self._split(node, held), held)

    def _split(self, lower: Node, depth: int) -> Node:
        """Cuts a node in two; the old object becomes the lower part, the new one is returned."""
        parent = lower.parent
        assert parent is not None
        n = depth - parent.depth
        upper = Node(lower.ids[:n], parent, lower.inserted)
        upper.status, upper.source = lower.status, lower.source
        upper.locks, upper.hits, upper.last_access = lower.locks, lower.hits, lower.last_access
        upper.priority, upper._n_fixed = lower.priority, lower._n_fixed
        if lower.priority < math.inf:
            upper._users[lower.priority] = 1
        parent.children[upper.ids[: self.page_size]] = upper
        lower.ids, lower.parent = lower.ids[n:], upper
        upper.children[lower.ids[: self.page_size]] = lower
        self._on_split(upper, lower)
        return upper

    def _add_locks(self, node: Node, n: int) -> None:
        with self.lock:
            for above in node.path():
                above.locks += n

    def _assign(self, key: AgentKey, node: Node | None) -> None:
        """Moves an agent's mark to a node; the root and None hold none."""
        if node is self.root:
            node = None
        old = self._ends.get(key)
        if old is node:
            return
        if old is not None:
            del self._ends[key]
            self._add_fixed(old, -1)
            self._count(old, old.assigned.pop(key), None)
        if node is not None:
            client, agent = key
            self._ends[key] = node
            s = self._steps.get(client, {}).get(agent, math.inf)
            node.assigned[key] = s
            self._add_fixed(node, 1)
            self._count(node, None, s)

    def _add_fixed(self, node: Node, n: int) -> None:
        for above in node.path():
            was = above.fixed
            above._n_fixed += n
            if above.fixed != was:
                self._on_change(above)

    def _count(self, node: Node, old: float | None, new: float | None) -> None:
        """Replaces one user's priority and goes up for as long as that changes the smallest."""
        above: Node | None = node
        while above is not None and above is not self.root and old != new:
            users = above._users
            if old is not None and old < math.inf:
                users[old] -= 1
                if not users[old]:
                    del users[old]
            if new is not None and new < math.inf:
                users[new] = users.get(new, 0) + 1
            old, above.priority = above.priority, min(users, default=math.inf)
            new = above.priority
            if old != new:
                self._on_change(above)
            above = above.parent
