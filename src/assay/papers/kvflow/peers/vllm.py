"""vLLM: steps-to-execution as the order of the host tier of its CPU offloading.

The device's free queue has no hook. The host tier takes a `CachePolicy` by module and class:

    vllm serve ... --kv-transfer-config '{"kv_connector": "OffloadingConnector",
        "kv_role": "kv_both", "kv_connector_extra_config": {"cpu_bytes_to_use": 40000000000,
        "eviction_policy": "StepsCachePolicy",
        "cache_policy_module_path": "assay.papers.kvflow.peers.vllm"}}'

Releases without `cache_policy_module_path` know "lru" and "arc" alone; there `CachePolicyFactory`
or the manager's table must be told in vLLM's own process.

A request says who it is in `kv_transfer_params` (over the OpenAI endpoint: `extra_body`), with the
number of tokens of an offloaded block, since the policy sees blocks:

    {"kv_transfer_params": {"x_agent": {"client": "app", "agent": "planner", "fixed_tokens": 900,
                                        "block_tokens": 16, "steps": {"planner": 0, "writer": 1}}}}

There is no call to prefetch; `prefetch_body` is a request that does it by asking for one token.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from assay.papers.kvflow.peers.hints import BlockHints, steps_of

logger = logging.getLogger(__name__)


def make_policy_class(base: type | None = None) -> type:
    """The class of a cache policy of vLLM.

    Args:
        base: The interface; None: vLLM's `CachePolicy`.

    Returns:
        A class that vLLM makes with `cache_capacity=`. Blocks of which a transfer reads or
        writes are never evicted.

    Raises:
        ImportError: vLLM is not installed and no base is given.
    """
    if base is None:
        from vllm.v1.kv_offload.cpu.policies.base import CachePolicy

        base = CachePolicy

    class StepsCachePolicy(base):  # type: ignore[valid-type, misc]
        """KVFlow's order on the blocks of vLLM's host tier; least recently used breaks ties."""

        def __init__(self, cache_capacity: int) -> None:
            self.hints = BlockHints()
            self.blocks: OrderedDict[Any, Any] = OrderedDict()

        def get(self, key: Any) -> Any:
            return self.blocks.get(key)

        def insert(self, key: Any, block: Any) -> None:
            self.blocks[key] = block

        def remove(self, key: Any) -> None:
            del self.blocks[key]

        def clear(self) -> None:
            self.blocks.clear()

        def touch(self, keys: Iterable[Any], req_context: Any = None) -> None:
            keys = list(keys)
            listen(self.hints, keys, req_context)
            # A prompt's last block becomes the oldest of them: it is of no use without the first.
            for key in reversed(keys):
                if key in self.blocks:
                    self.blocks.move_to_end(key)

        def evict(self, n: int, protected: set[Any], *context: Any) -> list[tuple[Any, Any]] | None:
            idle = [
                (key, block)
                for key, block in self.blocks.items()
                if block.ref_cnt == 0 and key not in protected
            ]
            if len(idle) < n:
                return None
            # The sort keeps the order of use among equals.
            idle.sort(key=lambda entry: -self.hints.priority(entry[0]))
            for key, _ in idle[:n]:
                del self.blocks[key]
            return idle[:n]

    return StepsCachePolicy


def listen(hints: BlockHints, keys: Sequence[Any], req_context: Any) -> None:
    """Takes the hint of a request; a wrong one is logged.

    Args:
        hints: Where it is kept.
        keys: Of the prompt's blocks, from the first on.
        req_context: vLLM's `ReqContext`.
    """
    params = getattr(req_context, "kv_transfer_params", None)
    hint = params.get("x_agent") if isinstance(params, dict) else None
    if not hint:
        return
    try:
        n_blocks = int(hint["fixed_tokens"]) // int(hint["block_tokens"])
        hints.tell(hint["client"], hint["agent"], keys[:n_blocks], steps_of(hint))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        # A client's mistake must not stop the scheduler.
        logger.warning("x_agent: ignored %r: %r", hint, error)


def prefetch_body(model: str, fixed_ids: Sequence[int]) -> dict[str, Any]:
    """A completions request that brings a fixed prompt to the device.

    Args:
        model: Name of the served model.
        fixed_ids: Token ids of the fixed prompt, at least one.

    Returns:
        The body to post to `/v1/completions`.

    Raises:
        ValueError: There is no token.
    """
    if not fixed_ids:
        raise ValueError("fixed_ids: got no token, wants at least one")
    return {"model": model, "prompt": list(fixed_ids), "max_tokens": 1, "temperature": 0.0}


def __getattr__(name: str) -> Any:
    # vLLM looks the class up here by its name.
    if name == "StepsCachePolicy":
        return make_policy_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
