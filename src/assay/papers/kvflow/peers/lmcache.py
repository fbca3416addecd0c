"""LMCache: steps-to-execution as the order of its local store.

Its policies see chunks by their keys; which chunks are whose fixed prompt must be told in its
process, with the keys that its own token database gives:

    hints = register()                                   # adds "KVFLOW" to its policies
    keys = [key for _, end, key in database.process_tokens(fixed_ids) if end <= len(fixed_ids)]
    hints.tell("app", "planner", keys, graph.steps(["planner"]))

and in its configuration `cache_policy: KVFLOW`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from assay.papers.kvflow.peers.hints import BlockHints


def make_policy_class(hints: BlockHints, base: type | None = None) -> type:
    """The class of a cache policy of LMCache.

    Args:
        hints: Whose fixed prompt a chunk belongs to.
        base: The interface; None: LMCache's `BaseCachePolicy`.

    Returns:
        A class without arguments. Chunks that LMCache pins are never offered.

    Raises:
        ImportError: LMCache is not installed and no base is given.
    """
    if base is None:
        from lmcache.v1.storage_backend.cache_policy.base_policy import BaseCachePolicy

        base = BaseCachePolicy

    class StepsCachePolicy(base):  # type: ignore[valid-type, misc]
        """KVFlow's order on the chunks of LMCache; least recently used breaks ties."""

        def init_mutable_mapping(self) -> OrderedDict[Any, Any]:
            return OrderedDict()

        def update_on_hit(self, key: Any, cache_dict: OrderedDict[Any, Any]) -> None:
            cache_dict.move_to_end(key)

        def update_on_put(self, key: Any) -> None:
            """A new chunk is the last of the mapping already."""

        def update_on_force_evict(self, key: Any) -> None:
            """Nothing is kept of a chunk."""

        def get_evict_candidates(
            self, cache_dict: OrderedDict[Any, Any], num_candidates: int = 1
        ) -> list[Any]:
            keys = [key for key, chunk in cache_dict.items() if chunk.can_evict]
            # The sort keeps the order of use among equals.
            return sorted(keys, key=lambda key: -hints.priority(key))[:num_candidates]

    return StepsCachePolicy


def register(name: str = "KVFLOW", hints: BlockHints | None = None) -> BlockHints:
    """Adds the policy to LMCache's table.

    Args:
        name: To choose it by, in capitals.
        hints: Whose fixed prompt a chunk belongs to; None: a new one.

    Returns:
        The hints.

    Raises:
        ImportError: LMCache is not installed.
        ValueError: The name is taken.
    """
    from lmcache.v1.storage_backend.cache_policy import POLICY_MAPPING

    if name in POLICY_MAPPING:
        raise ValueError(f"name: got {name!r}, which is taken")
    hints = hints or BlockHints()
    POLICY_MAPPING[name] = make_policy_class(hints)
    return hints
