"""The claims of the paper, some questions of ours, and what decides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from assay.study import Claim, Compare, Holds, Param, Protocol, Sample, Scale, Threshold, Trend

HARDWARE: Mapping[str, str] = {"h100": "qwen2.5-32b", "a10g": "llama-3.1-8b"}
"""The machines that are simulated, and the model on each."""

LINKS = (2.0, 4.0, 8.0, 16.0, 32.0, 50.0)
JUDGED_LINK: Mapping[str, float] = {"h100": 8.0, "a10g": 4.0}
"""GB/s of the host link in the judged simulations: an eighth of what PCIe has there."""

FAST_LINK = 50.0
FIXED = (2048, 4096, 8192)
JUDGED_FIXED = 4096
LONG_FIXED = 8192
OUTPUTS = (32, 128, 256)
AGENTS = 10
WORKFLOWS = (8, 16, 32, 64)
CROWD = 64
SMALL_CROWD = 4
CROWD_AGENTS = 5
CROWD_ARMS = ("lru", "hicache", "kvflow")
CROWD_FIXED = 1024
SEEDS = 5
CASES: Mapping[str, str] = {
    "cycle": "one cyclic workflow",
    "branches": "one workflow, stages of two agents",
    "crowd": "four workflows at once",
    "peer": "PEER on FinQA",
    "paced": "one cyclic workflow, paced link",
    "peer-paced": "PEER on FinQA, paced link",
}
"""Workloads of the real loop, in words."""

TIERED = ("hicache", "eviction", "prefetch", "kvflow")
"""Arms with a tier in host memory: LRU loaded on demand, then KVFlow's parts and their sum."""

UNTIERED = ("lru", "lfu", "slru", "mru", "mru_fixed", "pin", "steps", "belady")
"""Arms that recompute what was evicted; "steps" is KVFlow's eviction, "mru_fixed" an MRU that first
lets go of what follows fixed prompts."""

FASTER = 1.05
CLOSE = 1.15

_SIMULATED = {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.PROXY}
_LOOP = dict.fromkeys((Scale.SMOKE, Scale.LAPTOP, Scale.GPU), Protocol.PROXY)
_ENGINE = {**_LOOP, Scale.PAPER: Protocol.REDUCED}
_SINGLE = "10 agents in sequence, batch 1, greedy, fixed/dynamic/output tokens 4096/32/32"
_H100 = f"H100 80 GB, Qwen2.5-32B, {_SINGLE}"
_A10G = "A10G 24 GB, Llama-3.1-8B, 10 agents in sequence, 8192/32/32 tokens"
_CROWD = "H100 80 GB, Qwen2.5-32B and Llama-3.1-8B, 512 or 1024 fixed tokens, 256/256"
_EIGHTH = (
    "A simulation, over a link that delivers an eighth of PCIe's nominal rate, which is what the "
    "paper's own gap suggests; the figure of the link has the other rates."
)
_LAPTOP_LOOP = (
    "Real tensors and real tokens: SmolLM2-135M in fp32 on a CPU, arms interleaved cycle by cycle "
    "at equal bytes. A prefix that was evicted is computed again."
)
_PACED = (
    "The real loop with an EMULATED link: copies between two parts of the same memory, slowed "
    "down until a prefix takes a quarter of its prefill to load, as on an H100 at 8 GB/s."
)


def _simulated(hardware: str, **more: Param) -> dict[str, Param]:
    return {
        "part": "sequential",
        "hardware": hardware,
        "link_gbps": JUDGED_LINK[hardware],
        "output": 32,
        **more,
    }


def _crowds(ours: str, than: str, op: Literal[">", "<"], margin: float) -> dict[Scale, Compare]:
    """Requests a second of 64 workflows; at smoke scale of four."""
    found = {}
    for scale, workflows in ((Scale.SMOKE, SMALL_CROWD), (Scale.LAPTOP, CROWD)):
        where: dict[str, Param] = {
            "part": "concurrent",
            "model": HARDWARE["h100"],
            "workflows": workflows,
            "fixed": CROWD_FIXED,
        }
        found[scale] = Compare(
            Sample(f"{ours}_per_s", where),
            Sample(f"{than}_per_s", where),
            op,
            margin,
            how="ratio",
            interval="exact",  # all start at once, and nothing in it is left to chance
            min_trials=1,
        )
    return found


def _faster(
    where: Mapping[str, Param],
    than: str,
    *,
    ours: str = "kvflow",
    margin: float = FASTER,
    seeds: int = SEEDS,
) -> Compare:
    """Requests a second of one arm over those of another; a single seed is one without chance."""
    return Compare(
        Sample(f"{ours}_per_s", where),
        Sample(f"{than}_per_s", where),
        ">",
        margin,
        how="ratio",
        interval="exact" if seeds == 1 else "t",
        min_trials=seeds,
    )


def _more_hits(where: Mapping[str, Param], seeds: int = SEEDS) -> Compare:
    return Compare(
        Sample("steps_hit_rate", where), Sample("lru_hit_rate", where), ">", 0.0, min_trials=seeds
    )


def _single_claims() -> tuple[Claim, ...]:
    h100, a10g = _simulated("h100"), _simulated("a10g", fixed=LONG_FIXED)
    judged = {**h100, "fixed": JUDGED_FIXED, "branches": 1}
    fast = {**judged, "link_gbps": FAST_LINK}
    return (
        Claim(
            "C1-hicache",
            "In simulation a single workflow of large prompts is more than 5 % faster than with "
            "hierarchical LRU.",
            "1.24x against HiCache at 4096/32/32; means 1.22x at 4096 and 1.30x at 8192",
            _H100,
            "Section on single workflows, its figure",
            _faster(judged, "hicache", seeds=1),
            _SIMULATED,
            _EIGHTH,
        ),
        Claim(
            "C1-hicache-fast",
            "In simulation this holds also over a link that delivers 50 GB/s.",
            "1.24x against HiCache at 4096/32/32, PCIe Gen5 at 64 GB/s",
            _H100,
            "Section on single workflows, its figure",
            _faster(fast, "hicache", seeds=1),
            _SIMULATED,
            "A simulation. The paper states the link's nominal rate and not what it delivers.",
        ),
        Claim(
            "C1-lru",
            "In simulation a single workflow of large prompts is more than 5 % faster than with "
            "LRU and nothing in host memory.",
            "1.42x against SGLang at 4096/32/32",
            _H100,
            "Section on single workflows, its figure",
            _faster(judged, "lru", seeds=1),
            _SIMULATED,
            _EIGHTH,
        ),
        Claim(
            "C1-v1-hicache",
            "In simulation the smaller machine is more than 5 % faster than with hierarchical LRU.",
            "up to 1.83x (the abstract's figure; its experiment is in arXiv v1 only)",
            _A10G,
            "abstract; arXiv v1, Section on single workflows",
            _faster(a10g, "hicache", seeds=1),
            _SIMULATED,
            f"{_EIGHTH} The later text of the paper drops this experiment and keeps its figure.",
        ),
        Claim(
            "C1-v1-lru",
            "In simulation the smaller machine is more than 5 % faster than with LRU and nothing "
            "in host memory.",
            "2.91x (arXiv v1 only)",
            _A10G,
            "arXiv v1, Section on single workflows",
            _faster(a10g, "lru", seeds=1),
            _SIMULATED,
            _EIGHTH,
        ),
        Claim(
            "C1-fixed",
            "In simulation the gain over hierarchical LRU grows with the length of the fixed "
            "prompt.",
            "means 1.22x at 4096 and 1.30x at 8192 (1.28x and 1.48x in arXiv v1)",
            "both machines",
            "Section on single workflows, its figure",
            Trend(
                "fixed",
                Sample("speedup_hicache", {"part": "sequential", "output": 32, "branches": 1}),
                low=0.0,
                log_x=True,
                group=("hardware", "link_gbps"),
            ),
            {Scale.LAPTOP: Protocol.PROXY},
            "A simulation. Slope of the speed-up in the logarithm of the length. Prompts of 2048 "
            "tokens all fit on the H100, and there is nothing to gain.",
        ),
        Claim(
            "C1-output",
            "In simulation the gain over hierarchical LRU shrinks with the length of the output.",
            "lower at 256 output tokens (curves only)",
            "both machines",
            "Section on single workflows, its figure",
            Trend(
                "output",
                Sample(
                    "speedup_hicache", {"part": "sequential", "fixed": LONG_FIXED, "branches": 1}
                ),
                high=0.0,
                log_x=True,
                group=("hardware", "link_gbps"),
            ),
            {Scale.LAPTOP: Protocol.PROXY},
            "A simulation. Slope of the speed-up in the logarithm of the length.",
        ),
        Claim(
            "C1-loop",
            "On a real loop without host memory a single workflow is more than 5 % faster than "
            "with LRU.",
            "1.42x against SGLang",
            _H100,
            "Section on single workflows, its figure",
            _faster({"part": "times", "case": "cycle"}, "lru", ours="steps"),
            _ENGINE,
            _LAPTOP_LOOP,
        ),
        Claim(
            "C1-paced",
            "On a real loop with host memory a single workflow is more than 5 % faster than with "
            "hierarchical LRU.",
            "1.24x against HiCache (1.83x in the abstract)",
            _H100,
            "Section on single workflows, its figure",
            _faster({"part": "times", "case": "paced"}, "hicache"),
            _ENGINE,
            f"{_PACED} At gpu and paper scale the link is real.",
        ),
    )


def _crowd_claims() -> tuple[Claim, ...]:
    return (
        Claim(
            "C2-lru",
            "In simulation 64 concurrent workflows (4 at smoke scale) are more than "
            "5 % faster than with LRU and nothing in host memory.",
            "up to 1.25x against SGLang",
            _CROWD,
            "Section on concurrent workflows, its figure",
            _crowds("kvflow", "lru", ">", FASTER),
            _SIMULATED,
            "A simulation of 1024 fixed tokens on Qwen2.5-32B, five agents each. The abstract has "
            "2.19x instead, against a HiCache that is itself slower than no host memory: this is "
            "the comparison that tells whether KVFlow helps.",
        ),
        Claim(
            "C2-hicache",
            "In simulation 64 concurrent workflows (4 at smoke scale) are more than "
            "5 % faster than with hierarchical LRU.",
            "up to 2.19x against HiCache",
            _CROWD,
            "abstract; Section on concurrent workflows, its figure",
            _crowds("kvflow", "hicache", ">", FASTER),
            _SIMULATED,
            "A simulation of 1024 fixed tokens on Qwen2.5-32B, five agents each.",
        ),
        Claim(
            "C2-hicache-slow",
            "In simulation 64 concurrent workflows (4 at smoke scale) are slower with "
            "hierarchical LRU than with nothing in host memory.",
            "0.57x",
            _CROWD,
            "Section on concurrent workflows, its figure",
            _crowds("hicache", "lru", "<", 1.0),
            _SIMULATED,
            "A simulation, whose hierarchical LRU has none of the faults of an early version.",
        ),
        Claim(
            "C2-loop",
            "On a real loop without host memory four concurrent workflows are more than 5 % "
            "faster than with LRU.",
            "up to 1.25x against SGLang",
            _CROWD,
            "Section on concurrent workflows, its figure",
            _faster({"part": "times", "case": "crowd"}, "lru", ours="steps"),
            _ENGINE,
            _LAPTOP_LOOP,
        ),
    )


def _part_claims() -> tuple[Claim, ...]:
    branched = _simulated("h100", fixed=JUDGED_FIXED, branches=2)
    paced: Mapping[str, Param] = {"part": "times", "case": "paced"}
    steps = (
        ("eviction", "hicache", "Eviction by steps alone is", "hierarchical LRU", "1.11x"),
        ("kvflow", "eviction", "Prefetching makes it", "eviction by steps alone", "1.29x in all"),
    )
    names = {"eviction": "eviction", "kvflow": "prefetch"}
    simulated = tuple(
        Claim(
            f"C3-{names[ours]}",
            f"{statement} faster than {baseline} in simulation.",
            f"{figure} over HiCache (mean)",
            _H100,
            "Section on ablations, its figure",
            _faster(branched, than, ours=ours, margin=1.0),
            _SIMULATED,
            "A simulation of a workflow whose stages pick one of two agents at random, so that "
            "seeds differ.",
        )
        for ours, than, statement, baseline, figure in steps
    )
    real = tuple(
        Claim(
            f"C3-{names[ours]}-paced",
            f"{statement} faster than {baseline} on a real loop.",
            f"{figure} over HiCache (mean)",
            _H100,
            "Section on ablations, its figure",
            _faster(paced, than, ours=ours, margin=1.0),
            _LOOP,
            _PACED,
        )
        for ours, than, statement, baseline, figure in steps
    )
    return simulated + real


def _branch_claims() -> tuple[Claim, ...]:
    branched = _simulated("h100", fixed=JUDGED_FIXED, branches=2)
    setting = f"each stage picks one of two agents at random; {_H100}"
    source = "Section on single workflows, its figure with two branches"
    return (
        Claim(
            "C4-hits",
            "Where each stage picks one of two agents, eviction by steps hits more often than LRU.",
            "none printed",
            setting,
            source,
            _more_hits({"part": "hits", "case": "branches"}),
            {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.PROXY},
            "The real loop with a small random model: what is cached does not depend on weights.",
        ),
        Claim(
            "C4-hicache",
            "In simulation such a workflow is more than 5 % faster than with hierarchical LRU.",
            "still faster with two branches (curves only)",
            setting,
            source,
            _faster(branched, "hicache"),
            _SIMULATED,
            _EIGHTH,
        ),
        Claim(
            "C4-waste",
            "Prefetching both candidates wastes nothing: in simulation less than 5 % of the bytes "
            "it loads go unused.",
            "none printed; asserted in words",
            setting,
            "Section on prefetching",
            Threshold(Sample("kvflow_wasted_share", branched), "<", 0.05, min_trials=SEEDS),
            _SIMULATED,
            "A simulation. Bytes that were loaded ahead and evicted, or left, before any use.",
        ),
    )


def _peer_claims() -> tuple[Claim, ...]:
    setting = "4 agents, prompts of tens to hundreds of tokens, Financial QA; H100"
    source = "Section on a workflow in the style of PEER, its table"
    return (
        Claim(
            "C5-hits",
            "On PEER's prompts and questions eviction by steps hits more often than LRU.",
            "none printed",
            setting,
            source,
            _more_hits({"part": "hits", "case": "peer"}),
            {Scale.LAPTOP: Protocol.PROXY},
            "The real questions and templates, in several groups of applications; role lines and "
            "examples vary by a table, where the paper had a language model write them.",
        ),
        Claim(
            "C5-lru",
            "On PEER's prompts and questions a real loop is more than 5 % faster than with LRU.",
            "up to 1.12x against SGLang",
            setting,
            source,
            _faster({"part": "times", "case": "peer"}, "lru", ours="steps"),
            dict.fromkeys((Scale.LAPTOP, Scale.GPU), Protocol.PROXY),
            _LAPTOP_LOOP,
        ),
        Claim(
            "C5-hicache",
            "On PEER's prompts and questions a real loop with host memory is more than 5 % faster "
            "than with hierarchical LRU.",
            "up to 1.08x against HiCache",
            setting,
            source,
            _faster({"part": "times", "case": "peer-paced"}, "hicache"),
            dict.fromkeys((Scale.LAPTOP, Scale.GPU), Protocol.PROXY),
            _PACED,
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    *_single_claims(),
    *_crowd_claims(),
    *_part_claims(),
    *_branch_claims(),
    *_peer_claims(),
    Claim(
        "C6",
        "Outputs do not change: every token equals that without a cache.",
        "none printed; by construction",
        "greedy",
        "Section on the method",
        Holds(Sample("equal_rate", {"part": "exactness"}), at_least=1.0),
        {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.REDUCED},
        "50 prompts in fp32 for each policy, under so little memory that prefixes are evicted "
        "and come back; a trial without evictions or without hits is an error.",
    ),
    Claim(
        "C7",
        "A metadata update and an eviction together take less than 1 % of a decoding step.",
        "none printed; negligible, in words",
        "any",
        "Section on the implementation",
        Holds(Sample("share_of_step", {"part": "overhead"}), at_most=0.01),
        {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.PROXY},
        "Trees of 1,000 to 100,000 nodes; the step is SmolLM2-135M's, on the same CPU.",
    ),
    Claim(
        "X1",
        "The simulator predicts how much faster than LRU the real loop is, to within 15 %.",
        "none printed",
        "the real loop's own workload and sizes",
        "ours",
        Holds(
            Sample("predicted_over_measured", {"part": "times", "predicted": True}),
            at_least=1 / CLOSE,
            at_most=CLOSE,
        ),
        {Scale.SMOKE: Protocol.EXACT, Scale.LAPTOP: Protocol.EXACT},
        "From rates of prefill, decoding and link that are measured apart, beforehand; nothing is "
        "fitted to the ratio. With recomputation and with the paced link.",
    ),
    Claim(
        "X2",
        "For a single cyclic workflow an MRU of fixed prompts hits as often as eviction by steps.",
        "none printed; MRU is not compared",
        "the real loop with a small random model",
        "ours",
        Holds(
            Sample("mru_fixed_minus_steps", {"part": "hits", "case": "cycle"}),
            at_least=-0.01,
            at_most=0.01,
        ),
        {Scale.SMOKE: Protocol.EXACT, Scale.LAPTOP: Protocol.EXACT},
        "It lets go of suffixes first, and knows no graph; one that does not, as in SGLang, keeps "
        "old suffixes for ever.",
    ),
    Claim(
        "X3",
        "For a single cyclic workflow eviction by steps hits as often as Belady's optimum.",
        "none printed; no optimum is compared",
        "the real loop with a small random model",
        "ours",
        Holds(
            Sample("belady_minus_steps", {"part": "hits", "case": "cycle"}),
            at_most=0.01,
        ),
        {Scale.SMOKE: Protocol.EXACT, Scale.LAPTOP: Protocol.EXACT},
        "Prefixes of equal length; with lengths that differ Belady's rule is no strict bound.",
    ),
    *(
        Claim(
            f"X4-{case}",
            f"{where} eviction by steps hits more often than an MRU of fixed prompts.",
            "none printed; MRU is not compared",
            "the real loop with a small random model",
            "ours",
            Compare(
                Sample("steps_hit_rate", {"part": "hits", "case": case}),
                Sample("mru_fixed_hit_rate", {"part": "hits", "case": case}),
                ">",
                0.0,
                min_trials=SEEDS,
            ),
            {Scale.LAPTOP: Protocol.EXACT},
            "What the graph is worth where a cycle is not all there is.",
        )
        for case, where in (
            ("branches", "Where each stage picks one of two agents,"),
            ("crowd", "With four workflows at once"),
        )
    ),
)
