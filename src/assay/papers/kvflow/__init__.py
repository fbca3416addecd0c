"""KVFlow: a prefix cache that knows which agent of a workflow runs next.

"KVFlow: Efficient Prefix Caching for Accelerating LLM-Based Multi-Agent Workflows", Pan, Patel,
Shen, Hu, Guan, Li, Qin, Wang and Ding, NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.kvflow.blocks import BlockLayout
    from assay.papers.kvflow.eviction import (
        LFU,
        LRU,
        MRU,
        SLRU,
        Belady,
        EvictionPolicy,
        Replay,
        StepsToExecution,
        replay,
    )
    from assay.papers.kvflow.link import Link, TransferFailed
    from assay.papers.kvflow.radix_tree import Insertion, Match, Node, RadixTree, Status
    from assay.papers.kvflow.step_graph import StepGraph
    from assay.papers.kvflow.tiers import (
        CorruptBlock,
        DeviceTier,
        DiskTier,
        HostTier,
        Tier,
        TierFull,
    )
    from assay.papers.kvflow.timeline import Span, Timeline
    from assay.papers.kvflow.workflow_run import WorkflowRun

__all__ = [
    "LFU",
    "LRU",
    "MRU",
    "SLRU",
    "Belady",
    "BlockLayout",
    "CorruptBlock",
    "DeviceTier",
    "DiskTier",
    "EvictionPolicy",
    "HostTier",
    "Insertion",
    "Link",
    "Match",
    "Node",
    "RadixTree",
    "Replay",
    "Span",
    "Status",
    "StepGraph",
    "StepsToExecution",
    "Tier",
    "TierFull",
    "Timeline",
    "TransferFailed",
    "WorkflowRun",
    "replay",
]

_HOMES = {
    "blocks": ["BlockLayout"],
    "eviction": [
        "LFU",
        "LRU",
        "MRU",
        "SLRU",
        "Belady",
        "EvictionPolicy",
        "Replay",
        "StepsToExecution",
        "replay",
    ],
    "link": ["Link", "TransferFailed"],
    "radix_tree": ["Insertion", "Match", "Node", "RadixTree", "Status"],
    "step_graph": ["StepGraph"],
    "tiers": ["CorruptBlock", "DeviceTier", "DiskTier", "HostTier", "TierFull", "Tier"],
    "timeline": ["Span", "Timeline"],
    "workflow_run": ["WorkflowRun"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
