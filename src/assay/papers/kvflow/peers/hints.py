"""What a peer's policy must know of workflows: whose fixed prompt a token or a block belongs to."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from assay.papers.kvflow.radix_tree import AgentKey, RadixTree
from assay.toolkits.checks import whole


class PrefixHints:
    """Fixed prompts by their tokens, for engines whose policies see tokens."""

    def __init__(self) -> None:
        self._tree = RadixTree()
        self._lengths: dict[AgentKey, int] = {}

    def tell(
        self,
        client: str,
        agent: str,
        prompt_ids: Iterable[int],
        fixed_tokens: int,
        steps: Mapping[str, float],
    ) -> None:
        """Takes what a request says of its workflow.

        Args:
            client: The application.
            agent: Whose call it is.
            prompt_ids: Token ids of its prompt.
            fixed_tokens: How many of them, from the start, are the same in all its calls.
            steps: Steps to execution of the client's agents; infinity for those out of reach.

        Raises:
            ValueError: `fixed_tokens` is longer than the prompt, or a step value is none.
        """
        ids = tuple(prompt_ids)
        if whole("fixed_tokens", fixed_tokens, 0) > len(ids):
            raise ValueError(f"fixed_tokens: got {fixed_tokens}, wants at most {len(ids)}")
        with self._tree.lock:
            self._tree.update_steps(client, steps)
            if fixed_tokens:
                before = self._tree.fixed_end(client, agent)
                self._tree.insert(ids[:fixed_tokens])
                end = self._tree.mark_fixed(client, agent, ids[:fixed_tokens])
                self._lengths[client, agent] = fixed_tokens
                if before is not None and before is not end:
                    self._forget(before)

    def priority(self, prefix_ids: Iterable[int]) -> float:
        """Steps until somebody needs a prefix; infinity for one beyond all fixed prompts.

        Args:
            prefix_ids: All tokens from the start to the end of a node.
        """
        ids = tuple(prefix_ids)
        with self._tree.lock:
            match = self._tree.match(ids, touch=False)
            held = match.n_tokens == len(ids) and bool(ids)
            return match.node.priority if held else math.inf

    @property
    def longest(self) -> int:
        """Tokens of the longest fixed prompt: what goes further needs no look."""
        return max(self._lengths.values(), default=0)

    def _forget(self, node: Any) -> None:
        """Removes what no fixed prompt leads through any more."""
        while node.parent is not None and not node.fixed and not node.children:
            above = node.parent
            self._tree.remove(node)
            node = above


class BlockHints:
    """Fixed prompts by the keys of their blocks, for engines whose policies see hashes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[AgentKey, tuple[Hashable, ...]] = {}
        self._users: dict[Hashable, set[AgentKey]] = {}
        self._steps: dict[AgentKey, float] = {}

    def tell(
        self, client: str, agent: str, keys: Iterable[Hashable], steps: Mapping[str, float]
    ) -> None:
        """Takes what a request says of its workflow.

        Args:
            client: The application.
            agent: Whose call it is.
            keys: Of the blocks that lie wholly in its fixed prompt; they replace those told
                before. None at all only brings fresh steps.
            steps: Steps to execution of the client's agents; infinity for those out of reach.

        Raises:
            ValueError: A step value is no integer >= 0 and not infinity.
        """
        for name, value in steps.items():
            if value != math.inf:
                whole(f"steps[{name!r}]", value, 0)
        told = tuple(keys)
        owner = (client, agent)
        with self._lock:
            self._steps |= {(client, name): value for name, value in steps.items()}
            if not told:
                return
            for key in self._keys.get(owner, ()):
                self._users[key].discard(owner)
                if not self._users[key]:
                    del self._users[key]
            self._keys[owner] = told
            for key in told:
                self._users.setdefault(key, set()).add(owner)

    def priority(self, key: Hashable) -> float:
        """Steps until somebody needs a block; infinity for one of no fixed prompt.

        Args:
            key: Of the block.
        """
        with self._lock:
            users = self._users.get(key, ())
            return min((self._steps.get(user, math.inf) for user in users), default=math.inf)


def steps_of(hint: Mapping[str, Any]) -> dict[str, float]:
    """The step values of a request's hint, in which null stands for infinity.

    Args:
        hint: The `x_agent` object of a request.
    """
    return {a: math.inf if s is None else s for a, s in (hint.get("steps") or {}).items()}
