"""The experiments behind the claims: simulations of large machines, and a real loop on this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from assay.papers.kvflow.claims import (
    AGENTS,
    CLAIMS,
    CROWD_AGENTS,
    CROWD_FIXED,
    FAST_LINK,
    FIXED,
    HARDWARE,
    JUDGED_FIXED,
    JUDGED_LINK,
    LINKS,
    LONG_FIXED,
    OUTPUTS,
    SEEDS,
    SMALL_CROWD,
    WORKFLOWS,
)
from assay.study import (
    Context,
    Figure,
    Need,
    Param,
    Results,
    Scale,
    Study,
    Table,
    Trial,
)

POLICIES = ("lru", "lfu", "slru", "mru", "steps", "belady", "kvflow")
"""Arms whose outputs must equal those without a cache; the last has a host tier and prefetches."""

NODES = (1_000, 10_000, 100_000)
ROOMS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)

_QWEN = Need.data(
    "Qwen2.5-32B", "the folder of huggingface.co/Qwen/Qwen2.5-32B, as DATA/kvflow/Qwen2.5-32B"
)
_PEER = Need.data("FinQA.jsonl", "FinQA.jsonl and the prompts of PEER, from agentUniverse")

Sizes = Mapping[str, Param]

HITS: Mapping[Scale, Mapping[str, Sizes]] = {
    Scale.SMOKE: {
        "cycle": {"agents": 5, "fixed": 48, "dynamic": 8, "output": 2, "room": 3, "cycles": 8},
        "branches": {"agents": 4, "fixed": 48, "dynamic": 8, "output": 2, "room": 4, "cycles": 8},
    },
    Scale.LAPTOP: {
        "cycle": {"agents": 10, "fixed": 128, "dynamic": 16, "output": 2, "room": 6, "cycles": 9},
        "branches": {"agents": 9, "fixed": 128, "dynamic": 16, "output": 2, "room": 8, "cycles": 9},
        "crowd": {"agents": 5, "fixed": 128, "dynamic": 16, "output": 2, "room": 12, "cycles": 6},
        "peer": {"agents": 4, "groups": 5, "output": 2, "room": 10, "cycles": 8},
    },
}  # fmt: skip
"""The real loop without a clock: `room` is how many fixed prompts the device holds beside the
tokens of what runs, `cycles` how often every workflow goes round."""

TIMES: Mapping[Scale, Mapping[str, Sizes]] = {
    Scale.SMOKE: {
        "cycle": {"agents": 5, "fixed": 64, "dynamic": 8, "output": 2, "room": 3, "cycles": 2},
        "paced": {"agents": 5, "fixed": 64, "dynamic": 8, "output": 4, "room": 3, "cycles": 2},
        "crowd": {"agents": 3, "fixed": 32, "dynamic": 8, "output": 2, "room": 8, "cycles": 2},
    },
    Scale.LAPTOP: {
        "cycle": {"agents": 5, "fixed": 160, "dynamic": 16, "output": 4, "room": 3, "cycles": 4},
        "paced": {"agents": 5, "fixed": 256, "dynamic": 16, "output": 4, "room": 3, "cycles": 4},
        "crowd": {"agents": 3, "fixed": 64, "dynamic": 16, "output": 4, "room": 8, "cycles": 3},
        "peer": {"agents": 4, "groups": 1, "output": 4, "room": 2, "cycles": 3},
        "peer-paced": {"agents": 4, "groups": 1, "output": 4, "room": 2, "cycles": 3},
    },
    Scale.GPU: {
        "cycle": {"agents": 10, "fixed": 4096, "dynamic": 32, "output": 32, "room": 5, "cycles": 9},
        "paced": {"agents": 10, "fixed": 4096, "dynamic": 32, "output": 32, "room": 5, "cycles": 9},
        "crowd": {"agents": 5, "fixed": 1024, "dynamic": 256, "output": 64, "room": 9, "cycles": 3},
        "peer": {"agents": 4, "groups": 5, "output": 32, "room": 10, "cycles": 10},
        "peer-paced": {"agents": 4, "groups": 5, "output": 32, "room": 10, "cycles": 10},
    },
    Scale.PAPER: {
        "cycle": {"agents": 10, "fixed": 4096, "dynamic": 32, "output": 32, "room": 5, "cycles": 9},
        "paced": {"agents": 10, "fixed": 4096, "dynamic": 32, "output": 32, "room": 5, "cycles": 9},
        "crowd": {"agents": 5, "fixed": 1024, "dynamic": 256, "output": 96, "room": 9, "cycles": 3},
    },
}  # fmt: skip
"""The real loop against the clock. Over N - 1 cycles of N agents the hits of a policy repeat."""

MODELS: Mapping[Scale, str] = {
    Scale.SMOKE: "tiny",
    Scale.LAPTOP: "smollm2",
    Scale.GPU: "smollm2",
    Scale.PAPER: "Qwen2.5-32B",
}
_SECONDS: Mapping[Scale, float] = {
    Scale.SMOKE: 2.0,
    Scale.LAPTOP: 40.0,
    Scale.GPU: 15.0,
    Scale.PAPER: 600.0,
}
"""Of a trial against the clock. One core, as the other is left to the link and to the system."""


class KVFlowStudy(Study):
    """Claims of the paper, with trials of several sorts told apart by the parameter `part`.

    A trial measures all arms on one workload: of a simulation the same trace, of the real loop the
    same prompts, cycle by cycle in turn.
    """

    version = 1
    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        if scale is Scale.SMOKE:
            return _smoke(seeds or (0, 1))
        if scale is Scale.LAPTOP:
            return _laptop(seeds)
        return _times(scale, seeds or range(SEEDS))

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        from assay.papers.kvflow.measurements import PARTS

        return PARTS[str(trial.params["part"])](trial.params, context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.kvflow.figures import figures

        return figures(results.ok)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.kvflow.tables import tables

        return tables(results.ok)


def _smoke(seeds: Sequence[int]) -> Iterator[Trial]:
    scale = Scale.SMOKE
    for hardware, link, fixed in (
        ("h100", JUDGED_LINK["h100"], JUDGED_FIXED),
        ("h100", FAST_LINK, JUDGED_FIXED),
        ("a10g", JUDGED_LINK["a10g"], LONG_FIXED),
    ):
        yield _sequential(scale, hardware, fixed, link, cycles=1)
    for seed in seeds:
        yield _sequential(
            scale, "h100", JUDGED_FIXED, JUDGED_LINK["h100"], branches=2, seed=seed, cycles=1
        )
    yield _concurrent(scale, HARDWARE["h100"], SMALL_CROWD, CROWD_FIXED)
    yield from _hits(scale, seeds[:1])
    yield from _times(scale, seeds[:1])
    yield from _exactness(scale, "tiny", prompts=30)
    yield from _overhead(scale, NODES[:1], seeds[:1])


def _laptop(seeds: Sequence[int] | None) -> Iterator[Trial]:
    scale = Scale.LAPTOP
    for hardware, judged in JUDGED_LINK.items():
        for link in LINKS:
            for fixed in FIXED:
                yield _sequential(scale, hardware, fixed, link)
            for output in OUTPUTS:
                if output != OUTPUTS[0]:
                    yield _sequential(scale, hardware, LONG_FIXED, link, output=output)
        for seed in seeds or range(SEEDS):
            yield _sequential(scale, hardware, JUDGED_FIXED, judged, branches=2, seed=seed)
    for room in ROOMS:
        yield _pressure(scale, room)
    for model in HARDWARE.values():
        for fixed in (512, CROWD_FIXED):
            for workflows in WORKFLOWS:
                yield _concurrent(scale, model, workflows, fixed)
    yield from _hits(scale, seeds or range(SEEDS))
    yield from _exactness(scale, "smollm2", prompts=50)
    yield from _times(scale, seeds or range(SEEDS))
    yield from _overhead(scale, NODES, seeds or range(3))


def claims_of(params: Mapping[str, Param], scale: Scale) -> tuple[str, ...]:
    """The claims whose tests read the trials of these parameters at a scale."""
    return tuple(claim.id for claim in CLAIMS if claim.reads(params, scale))


def _sequential(
    scale: Scale,
    hardware: str,
    fixed: int,
    link: float,
    *,
    output: int = OUTPUTS[0],
    branches: int = 1,
    seed: int = 0,
    cycles: int = AGENTS - 1,
) -> Trial:
    params: Mapping[str, Param] = {
        "part": "sequential",
        "hardware": hardware,
        "model": HARDWARE[hardware],
        "agents": AGENTS,
        "branches": branches,
        "fixed": fixed,
        "dynamic": 32,
        "output": output,
        "link_gbps": link,
        "cycles": cycles,
    }
    return Trial(params, seed, claims_of(params, scale), cost=3.0)


def _pressure(scale: Scale, room: int) -> Trial:
    """The judged single workflow, with room for more or fewer of its fixed prompts."""
    params: Mapping[str, Param] = {
        "part": "pressure",
        "hardware": "h100",
        "model": HARDWARE["h100"],
        "agents": AGENTS,
        "branches": 1,
        "fixed": JUDGED_FIXED,
        "dynamic": 32,
        "output": OUTPUTS[0],
        "link_gbps": JUDGED_LINK["h100"],
        "cycles": AGENTS - 1,
        "room": room,
    }
    return Trial(params, 0, claims_of(params, scale), cost=6.0)


def _concurrent(scale: Scale, model: str, workflows: int, fixed: int) -> Trial:
    params: Mapping[str, Param] = {
        "part": "concurrent",
        "hardware": "h100",
        "model": model,
        "workflows": workflows,
        "agents": CROWD_AGENTS,
        "fixed": fixed,
        "dynamic": 256,
        "output": 256,
        "link_gbps": JUDGED_LINK["h100"],
        "cycles": 1,
    }
    cost = workflows**2 / 200
    return Trial(params, 0, claims_of(params, scale), cost=cost, timeout=900.0)


def _hits(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    for case, sizes in HITS[scale].items():
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "hits",
                "case": case,
                "model": "tiny" if scale is Scale.SMOKE else "small",
                **sizes,
            }
            yield Trial(
                params,
                seed,
                claims_of(params, scale),
                cost=2.0 if scale is Scale.SMOKE else 30.0,
                needs=(_PEER,) if case == "peer" else (),
            )


def _times(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    for case, sizes in TIMES[scale].items():
        paper, gpus = scale is Scale.PAPER, int(scale in (Scale.GPU, Scale.PAPER))
        peer = case.startswith("peer") and scale is not Scale.SMOKE
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "times",
                "case": case,
                "model": MODELS[scale],
                "predicted": case in ("cycle", "paced"),
                **sizes,
            }
            yield Trial(
                params,
                seed,
                claims_of(params, scale),
                cost=_SECONDS[scale],
                gpus=gpus,
                exclusive=True,
                timeout=None if paper else 900.0,
                needs=(Need.gpu(),) * gpus + (_QWEN,) * paper + (_PEER,) * peer,
            )


def _exactness(scale: Scale, model: str, prompts: int) -> Iterator[Trial]:
    for policy in POLICIES:
        params: Mapping[str, Param] = {
            "part": "exactness",
            "policy": policy,
            "model": model,
            "prompts": prompts,
        }
        cost = 1.0 if scale is Scale.SMOKE else 90.0
        yield Trial(params, 0, claims_of(params, scale), cost=cost)


def _overhead(scale: Scale, sizes: Sequence[int], seeds: Sequence[int]) -> Iterator[Trial]:
    for nodes in sizes:
        for seed in seeds:
            params: Mapping[str, Param] = {
                "part": "overhead",
                "nodes": nodes,
                "model": MODELS[scale],
            }
            yield Trial(
                params,
                seed,
                claims_of(params, scale),
                cost=8.0,
                timeout=300.0,
                exclusive=True,
            )


study = KVFlowStudy()
