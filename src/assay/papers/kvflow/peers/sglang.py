"""SGLang: steps-to-execution as the order of its radix tree.

SGLang asks an `EvictionStrategy` for the priority of a node, evicts the smallest first, and only
ever asks for leaves. `register` adds a tree named "kvflow"; SGLang's processes call it by
themselves, as assay names it under the entry points "sglang.srt.plugins":

    python -m sglang.launch_server --model-path ... --radix-cache-backend kvflow

A request says who it is in its sampling parameters (over the OpenAI endpoint: `extra_body`):

    {"custom_params": {"x_agent": {"client": "app", "agent": "planner", "fixed_tokens": 900,
                                   "steps": {"planner": 0, "writer": 1, "critic": null}}}}

Only the Python trees can be given a strategy; the one in Rust has a fixed list. Prefetching and
status-aware scheduling would need changes in its scheduler and are not offered.
"""

from __future__ import annotations

import logging
import math
from functools import wraps
from typing import Any

from assay.papers.kvflow.peers.hints import PrefixHints, steps_of

logger = logging.getLogger(__name__)


def make_strategy(hints: PrefixHints, base: type | None = None) -> Any:
    """An eviction strategy of SGLang.

    Args:
        hints: What is known of the workflows.
        base: The interface; None: `sglang.srt.mem_cache.evict_policy.EvictionStrategy`.

    Returns:
        An object whose `get_priority(node)` returns (-steps, last access): suffixes first, then
        what is needed last, and of those what was used longest ago.

    Raises:
        ImportError: SGLang is not installed and no base is given.
    """
    if base is None:
        from sglang.srt.mem_cache.evict_policy import EvictionStrategy

        base = EvictionStrategy

    class StepsToExecutionStrategy(base):  # type: ignore[valid-type, misc]
        """KVFlow's order on the nodes of SGLang's tree."""

        def get_priority(self, node: Any) -> tuple[float, float]:
            return (-_steps(node, hints), node.last_access_time)

    return StepsToExecutionStrategy()


def attach(cache: Any, hints: PrefixHints | None = None, base: type | None = None) -> PrefixHints:
    """Gives a tree of SGLang the strategy, and lets it read what requests say.

    Args:
        cache: A `RadixCache`, `HiRadixCache` or `UnifiedRadixCache`.
        hints: Where what they say is kept; None: a new one.
        base: As for `make_strategy`.

    Returns:
        The hints.

    Raises:
        TypeError: The tree takes no strategy.
    """
    hints = hints or PrefixHints()
    owner = getattr(cache, "tree_core", cache)
    if not hasattr(owner, "eviction_strategy"):
        raise TypeError(f"cache: got {type(cache).__name__}, wants a tree with eviction_strategy")
    owner.eviction_strategy = make_strategy(hints, base)
    match_prefix = cache.match_prefix

    @wraps(match_prefix)
    def match_and_listen(params: Any, *args: Any, **options: Any) -> Any:
        listen(hints, params)
        return match_prefix(params, *args, **options)

    cache.match_prefix = match_and_listen
    return hints


def listen(hints: PrefixHints, params: Any) -> None:
    """Takes the hint of a request whose prefix is being looked up; a wrong one is logged.

    Args:
        hints: Where it is kept.
        params: SGLang's `MatchPrefixParams`.
    """
    request: Any = getattr(params, "req", None)
    custom = getattr(getattr(request, "sampling_params", None), "custom_params", None)
    hint = custom.get("x_agent") if isinstance(custom, dict) else None
    if not hint:
        return
    ids = request.origin_input_ids
    try:
        hints.tell(hint["client"], hint["agent"], ids, hint["fixed_tokens"], steps_of(hint))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # A client's mistake must not stop the scheduler.
        logger.warning("x_agent: ignored %r: %r", hint, error)


def register(name: str = "kvflow") -> None:
    """Adds SGLang's own tree, with the strategy, to its `--radix-cache-backend`.

    Args:
        name: To choose it by.

    Raises:
        ImportError: SGLang is not installed.
        ValueError: The name is taken.
    """
    from sglang.srt.mem_cache.registry import (
        default_radix_cache_factory,
        register_radix_cache_backend,
    )

    def factory(context: Any) -> Any:
        cache = default_radix_cache_factory(context)
        attach(cache)
        return cache

    register_radix_cache_backend(name, factory)


def _steps(node: Any, hints: PrefixHints) -> float:
    segments, n_tokens = [], 0
    while node is not None and node.key is not None:
        segments.append(node.key.token_ids)
        n_tokens += len(segments[-1])
        if n_tokens > hints.longest:
            return math.inf
        node = node.parent
    return hints.priority(i for segment in reversed(segments) for i in segment)
