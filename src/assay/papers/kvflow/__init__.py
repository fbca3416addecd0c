"""KVFlow: a prefix cache that knows which agent of a workflow runs next.

"KVFlow: Efficient Prefix Caching for Accelerating LLM-Based Multi-Agent Workflows", Pan, Patel,
Shen, Hu, Guan, Li, Qin, Wang and Ding, NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.kvflow.blocks import BlockLayout
    from assay.papers.kvflow.cache import PrefixCache
    from assay.papers.kvflow.engine import Completion, Engine
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
    from assay.papers.kvflow.eviction_queue import EvictionQueue
    from assay.papers.kvflow.hardware import Hardware, ModelShape
    from assay.papers.kvflow.lease import Lease, LeaseExpired
    from assay.papers.kvflow.link import Link, TransferFailed
    from assay.papers.kvflow.models import fingerprint, kv_bytes_per_token, load_model
    from assay.papers.kvflow.prefetch import Prefetcher
    from assay.papers.kvflow.radix_tree import Insertion, Match, Node, RadixTree, Status
    from assay.papers.kvflow.sampling import Sampling
    from assay.papers.kvflow.scheduler import FCFS, Scheduler, StatusAware
    from assay.papers.kvflow.server import create_app
    from assay.papers.kvflow.simulator import Report, ServedRequest, Simulator
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
    from assay.papers.kvflow.trace import TraceRequest, merge_traces, read_trace, write_trace
    from assay.papers.kvflow.workflow_run import WorkflowRun
    from assay.papers.kvflow.workloads import (
        PeerApplication,
        Sizes,
        concurrent_workflows,
        parallel_graph,
        peer_applications,
        peer_graph,
        peer_questions,
        peer_workflows,
        run_graph,
        sequential_graph,
        synthetic_workflow,
    )

__all__ = [
    "FCFS",
    "LFU",
    "LRU",
    "MRU",
    "SLRU",
    "Belady",
    "BlockLayout",
    "Completion",
    "CorruptBlock",
    "DeviceTier",
    "DiskTier",
    "Engine",
    "EvictionPolicy",
    "EvictionQueue",
    "Hardware",
    "HostTier",
    "Insertion",
    "Lease",
    "LeaseExpired",
    "Link",
    "Match",
    "ModelShape",
    "Node",
    "PeerApplication",
    "Prefetcher",
    "PrefixCache",
    "RadixTree",
    "Replay",
    "Report",
    "Sampling",
    "Scheduler",
    "ServedRequest",
    "Simulator",
    "Sizes",
    "Span",
    "Status",
    "StatusAware",
    "StepGraph",
    "StepsToExecution",
    "Tier",
    "TierFull",
    "Timeline",
    "TraceRequest",
    "TransferFailed",
    "WorkflowRun",
    "concurrent_workflows",
    "create_app",
    "fingerprint",
    "kv_bytes_per_token",
    "load_model",
    "merge_traces",
    "parallel_graph",
    "peer_applications",
    "peer_graph",
    "peer_questions",
    "peer_workflows",
    "read_trace",
    "replay",
    "run_graph",
    "sequential_graph",
    "synthetic_workflow",
    "write_trace",
]

_HOMES = {
    "blocks": ["BlockLayout"],
    "cache": ["PrefixCache"],
    "engine": ["Completion", "Engine"],
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
    "eviction_queue": ["EvictionQueue"],
    "hardware": ["Hardware", "ModelShape"],
    "lease": ["Lease", "LeaseExpired"],
    "link": ["Link", "TransferFailed"],
    "models": ["fingerprint", "kv_bytes_per_token", "load_model"],
    "prefetch": ["Prefetcher"],
    "radix_tree": ["Insertion", "Match", "Node", "RadixTree", "Status"],
    "sampling": ["Sampling"],
    "scheduler": ["FCFS", "Scheduler", "StatusAware"],
    "server": ["create_app"],
    "simulator": ["Report", "ServedRequest", "Simulator"],
    "step_graph": ["StepGraph"],
    "tiers": ["CorruptBlock", "DeviceTier", "DiskTier", "HostTier", "Tier", "TierFull"],
    "timeline": ["Span", "Timeline"],
    "trace": ["TraceRequest", "merge_traces", "read_trace", "write_trace"],
    "workflow_run": ["WorkflowRun"],
    "workloads": [
        "PeerApplication",
        "Sizes",
        "concurrent_workflows",
        "parallel_graph",
        "peer_applications",
        "peer_graph",
        "peer_questions",
        "peer_workflows",
        "run_graph",
        "sequential_graph",
        "synthetic_workflow",
    ],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
