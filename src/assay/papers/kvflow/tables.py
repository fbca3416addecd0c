"""The tables of the study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, geometric_mean, median
from typing import Any

from assay.papers.kvflow.claims import (
    CASES,
    CROWD,
    CROWD_FIXED,
    HARDWARE,
    JUDGED_FIXED,
    JUDGED_LINK,
    LONG_FIXED,
    TIERED,
)
from assay.papers.kvflow.figures import (
    ARMS,
    MACHINES,
    arms_of,
    baseline_of,
    by,
    mean_of,
    speedups,
    was_quiet,
)
from assay.study import Result, Results, Table


def tables(results: Results) -> Iterable[Table]:
    """Those for which there are results."""
    for make in (_printed, _hits, _times, _simulated, _overhead):
        if table := make(results):
            yield table


def _printed(results: Results) -> Table | None:
    """The paper's own figures beside the nearest measurement, each with its setting."""
    single = results.where(part="sequential", output=32, branches=1)
    h100, a10g = (
        single.where(hardware=hardware, link_gbps=JUDGED_LINK[hardware], fixed=fixed)
        for hardware, fixed in (("h100", JUDGED_FIXED), ("a10g", LONG_FIXED))
    )
    crowd = results.where(
        part="concurrent", model=HARDWARE["h100"], workflows=CROWD, fixed=CROWD_FIXED
    )
    cycle, paced, four, peer, peer_paced = (
        [r for r in results.where(part="times", case=case) if was_quiet(r)]
        for case in ("cycle", "paced", "crowd", "peer", "peer-paced")
    )
    one, v1 = "one workflow, H100, 4096/32/32", "one workflow, A10G, 8192/32/32"
    many = "64 workflows, H100, 1024/256/256"
    rows: list[tuple[Any, ...]] = []
    for printed, setting, found, ours, than in (
        ("1.24x over HiCache", one, h100, "kvflow", "hicache"),
        ("1.24x over HiCache", one, paced, "kvflow", "hicache"),
        ("1.42x over SGLang", one, h100, "kvflow", "lru"),
        ("1.42x over SGLang", one, cycle, "steps", "lru"),
        ("1.83x over HiCache (abstract; arXiv v1 only)", v1, a10g, "kvflow", "hicache"),
        ("2.91x over SGLang (arXiv v1 only)", v1, a10g, "kvflow", "lru"),
        ("2.19x over a HiCache at 0.57x of SGLang (abstract)", many, crowd, "kvflow", "hicache"),
        ("0.57x: that HiCache over SGLang", many, crowd, "hicache", "lru"),
        ("1.25x over SGLang", many, crowd, "kvflow", "lru"),
        ("1.25x over SGLang", many, four, "steps", "lru"),
        ("1.12x over SGLang", "PEER", peer, "steps", "lru"),
        ("1.08x over HiCache", "PEER", peer_paced, "kvflow", "hicache"),
    ):
        if found:
            ratio = geometric_mean(speedups(found, ours, than))
            rows.append((printed, setting, f"{ratio:.2f}x over {ARMS[than][0]}", _where(found[0])))
    columns = ("the paper's figure", "its setting", "measured here", "how")
    title = "The paper's figures beside what was measured"
    return Table("printed", title, columns, tuple(rows)) if rows else None


def _where(result: Result) -> str:
    p = result.params
    if p["part"] != "times":
        return f"simulated, link {p['link_gbps']:g} GB/s"
    return f"real loop, {p['model']}, {CASES[str(p['case'])]}"


def _hits(results: Results) -> Table | None:
    found = results.where(part="hits")
    rows = []
    for case, group in by(found, "case").items():
        optimum = mean_of(group, "belady_hit_rate")
        for arm in arms_of(group, "hit_rate"):
            rate = mean_of(group, f"{arm}_hit_rate")
            rows.append(
                (
                    CASES[str(case)],
                    ARMS[arm][0],
                    round(rate, 3),
                    round(optimum - rate, 3),
                    round(mean_of(group, f"{arm}_recomputed_tokens")),
                )
            )
    columns = ("workload", "policy", "hit rate", "below Belady", "prompt tokens computed")
    title = "Real loop: share of fixed prompts' tokens found on the device, equal bytes for all"
    return Table("hits", title, columns, tuple(rows)) if rows else None


def _times(results: Results) -> Table | None:
    found = [r for r in results.where(part="times") if was_quiet(r)]
    rows = []
    for case, group in by(found, "case").items():
        _, than = baseline_of(group[0])
        rows += [
            (CASES[str(case)], ARMS[arm][0], *_clock(group, arm, than)) for arm in arms_of(group)
        ]
    columns = ("workload", "arm", *_CLOCK)
    title = "Real loop against the clock: means over seeds; speed-up over the first baseline"
    return Table("times", title, columns, tuple(rows)) if rows else None


_CLOCK = (
    "speed-up",
    "hit rate",
    "TTFT p50, s",
    "TTFT p95, s",
    "end to end, s",
    "stall, s",
)


def _clock(group: Sequence[Result], arm: str, than: str) -> tuple[str, ...]:
    names = ("ttft_p50_s", "ttft_p95_s", "latency_s", "stall_s")
    return (
        f"{geometric_mean(speedups(group, arm, than)):.2f}",
        f"{mean_of(group, f'{arm}_hit_rate'):.2f}",
        *(f"{mean_of(group, f'{arm}_{name}'):.3f}" for name in names),
    )


def _simulated(results: Results) -> Table | None:
    rows = []
    for part, name in (("sequential", "one workflow"), ("concurrent", "64 workflows")):
        for group in _judged(results, part):
            p = group[0].params
            what = f"{name}, {MACHINES['h100'].split(',')[0]}, {p['fixed']:,} fixed"
            if p.get("branches") == 2:
                what += ", two branches"
            for arm in arms_of(group):
                tiered = arm in TIERED
                wasted = fmean(r.metrics.get(f"{arm}_wasted_share", 0.0) for r in group)
                rows.append(
                    (
                        what,
                        ARMS[arm][0],
                        *_clock(group, arm, "lru"),
                        f"{mean_of(group, f'{arm}_link_busy'):.2f}" if tiered else "",
                        f"{wasted:.2f}" if arm in ("prefetch", "kvflow") else "",
                    )
                )
    columns = ("workload", "arm", *_CLOCK, "link busy", "prefetch wasted")
    title = "Simulated: every arm at equal bytes; speed-up over LRU without host memory"
    return Table("simulated", title, columns, tuple(rows)) if rows else None


def _judged(results: Results, part: str) -> Iterable[Sequence[Result]]:
    if part == "concurrent":
        groups = [
            results.where(part=part, model=HARDWARE["h100"], workflows=CROWD, fixed=CROWD_FIXED)
        ]
    else:
        judged = results.where(
            part=part, hardware="h100", link_gbps=JUDGED_LINK["h100"], fixed=JUDGED_FIXED, output=32
        )
        groups = [judged.where(branches=branches) for branches in (1, 2)]
    return [group for group in groups if group]


def _overhead(results: Results) -> Table | None:
    found = [r for r in results.where(part="overhead") if was_quiet(r)]
    rows = tuple(
        (
            f"{nodes:,}",
            f"{1e6 * median(r.metrics['update_s'] for r in group):.1f}",
            f"{1e6 * median(r.metrics['evict_s'] for r in group):.1f}",
            f"{1e3 * median(r.metrics['step_s'] for r in group):.1f}",
            f"{median(r.metrics['share_of_step'] for r in group):.2%}",
        )
        for nodes, group in by(found, "nodes").items()
    )
    columns = ("nodes", "update, µs", "eviction, µs", "decoding step, ms", "share of the step")
    title = "Time of a metadata update and of an eviction"
    return Table("overhead", title, columns, rows) if rows else None
