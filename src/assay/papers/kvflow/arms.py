"""The arms of the study: one trace under different caches, on the real loop and simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean, quantiles
from typing import Any

from assay.papers.kvflow.cache import PrefixCache
from assay.papers.kvflow.claims import TIERED
from assay.papers.kvflow.engine import Completion, Engine
from assay.papers.kvflow.eviction import (
    LFU,
    LRU,
    MRU,
    SLRU,
    Belady,
    EvictionPolicy,
    StepsToExecution,
)
from assay.papers.kvflow.hardware import Costs, ModelShape
from assay.papers.kvflow.lease import Lease
from assay.papers.kvflow.models import fingerprint, kv_bytes_per_token
from assay.papers.kvflow.playback import play, rounds_of
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.simulator import Report, Simulator
from assay.papers.kvflow.tiers import DeviceTier, HostTier
from assay.papers.kvflow.timeline import Timeline
from assay.papers.kvflow.trace import TraceRequest

_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = {
    "lru": LRU,
    "lfu": LFU,
    "slru": SLRU,
    "mru": MRU,
    "mru_fixed": lambda: StepsToExecution(tie=MRU()),
    "pin": StepsToExecution,
    "steps": StepsToExecution,
    "hicache": LRU,
    "prefetch": LRU,
    "eviction": StepsToExecution,
    "kvflow": StepsToExecution,
}


@dataclass(frozen=True)
class Workload:
    """Calls of one or several workflows that go round.

    Attributes:
        trace: the calls.
        n_stages: calls of a workflow in a round.
        capacity: tokens that the device holds.
    """

    trace: Sequence[TraceRequest]
    n_stages: int
    capacity: int

    @cached_property
    def fixed(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """The fixed prompt of each (client, agent)."""
        return {(r.client, r.agent): r.prompt_ids[: r.fixed_len] for r in self.trace}

    @cached_property
    def longest(self) -> TraceRequest:
        """A call with the longest prompt."""
        return max(self.trace, key=lambda request: len(request.prompt_ids))

    @cached_property
    def tokens(self) -> int:
        """Of all calls, which is more than any cache needs."""
        return sum(len(r.prompt_ids) + r.output_len for r in self.trace)

    def seen_by(self, arm: str) -> Sequence[TraceRequest]:
        """The calls as an arm is told of them."""
        if arm == "pin":  # the first agents' prompts stay
            return _with_steps(self.trace, range(len(self.fixed)))
        if arm == "mru_fixed":  # none is nearer than another
            return _with_steps(self.trace, [0] * len(self.fixed))
        return self.trace


def _with_steps(trace: Sequence[TraceRequest], values: Sequence[int]) -> list[TraceRequest]:
    """The calls with steps that never change: a value for each agent, in order of appearance."""
    steps: dict[str, dict[str, float]] = {}
    keys = dict.fromkeys((r.client, r.agent) for r in trace)
    for (client, agent), value in zip(keys, values, strict=True):
        steps.setdefault(client, {})[agent] = value
    return [replace(r, steps=steps[r.client], next_use=None) for r in trace]


def policy_of(arm: str, trace: Sequence[TraceRequest]) -> EvictionPolicy:
    """The order in which an arm evicts; Belady's is told the whole trace."""
    return Belady([r.prompt_ids for r in trace]) if arm == "belady" else _POLICIES[arm]()


def looks_ahead(arm: str) -> bool:
    """Whether an arm prefetches, and passes over requests whose prefix is under way."""
    return arm in ("prefetch", "kvflow")


class _Foretold(PrefixCache):
    """Tells Belady's policy, at each lookup, which request of the trace that is.

    Neither earlier nor later will do: until then the request is the next use of its prefix, and
    from then on the one after it is.
    """

    def __init__(self, trace: Sequence[TraceRequest], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._positions: dict[tuple[int, ...], list[int]] = {}
        for position, request in reversed(list(enumerate(trace))):
            self._positions.setdefault(request.prompt_ids, []).append(position)

    def lookup(self, ids: Any, client: str = "default", agent: str = "default") -> Lease:
        lease = super().lookup(ids, client, agent)
        assert isinstance(self.policy, Belady)
        self.policy.serve(self._positions[lease.ids].pop())
        return lease


class Arm:
    """One way to manage the cache, on a real loop of its own.

    Attributes:
        answers: calls measured so far, each with its answer.
        seconds: how long they took together.
        last_round: begin and end of the last round, on the clock of `timeline`.
        timeline: what was computed and copied.
    """

    def __init__(
        self,
        name: str,
        load: Workload,
        model: Any,
        tokenizer: Any,
        link_gbps: float | None = None,
    ) -> None:
        """Starts a loop with an empty cache.

        Args:
            name: one of `TIERED` or `UNTIERED`.
            load: what it is to serve.
            model, tokenizer: with which.
            link_gbps: emulates a link of this rate between host and device; None does not.
        """
        self.rounds = rounds_of(load.seen_by(name), load.n_stages)
        self.answers: list[tuple[TraceRequest, Completion]] = []
        self.seconds = 0.0
        self.last_round = (0.0, 0.0)
        self.timeline = Timeline()
        trace = [request for calls in self.rounds for request in calls]
        policy = policy_of(name, trace)
        per_token = kv_bytes_per_token(model)
        tiers: list[Any] = [DeviceTier(load.capacity * per_token, model.device)]
        if name in TIERED:
            tiers.append(HostTier(load.tokens * per_token, model.device.type == "cuda"))
        make = partial(_Foretold, trace) if name == "belady" else PrefixCache
        self.cache = make(
            tiers,
            policy,
            Prefetcher() if looks_ahead(name) else None,
            fingerprint(model),
            link_gbps=link_gbps,
            timeline=self.timeline,
        )
        # HiCache waits for a load layer by layer; KVFlow passes over who is not ready.
        scheduler: Any = "status-aware" if looks_ahead(name) else "fcfs"
        self.engine = Engine(model, tokenizer, self.cache, scheduler)

    def play(self, n: int, on_start: Callable[[TraceRequest], object] = lambda call: None) -> None:
        """Serves round n; what it finds is added to that of the rounds before.

        The time runs until all copies have ended, so that a prefetch for the next round is paid
        for by the arm that makes it, and takes nothing from the one that plays next.
        """
        calls = self.rounds[n]
        begin, start = self.timeline.now(), time.perf_counter()
        answers = play(self.engine, calls, lambda position: on_start(calls[position]))
        self.cache.settle()
        self.seconds += time.perf_counter() - start
        self.last_round = (begin, self.timeline.now())
        self.answers += zip(calls, answers, strict=True)

    def forget(self) -> None:
        """Drops what was measured; the cache keeps what it holds."""
        self.answers, self.seconds = [], 0.0
        self.timeline.clear()

    def holds(self, ids: Sequence[int]) -> bool:
        """Whether the device has a whole prompt."""
        return self.cache.tree.match(ids, touch=False).n_device == len(ids)

    def found(self) -> dict[str, float]:
        """Shares and counts of tokens, which do not depend on the machine's load."""
        found = sum(min(a.cached_tokens["device"], r.fixed_len) for r, a in self.answers)
        computed = sum(a.prompt_tokens - sum(a.cached_tokens.values()) for _, a in self.answers)
        return {
            "hit_rate": found / sum(r.fixed_len for r, _ in self.answers),
            "recomputed_tokens": float(computed),
        }

    def clock(self) -> dict[str, float]:
        """Requests a second; first token, end to end and stall in seconds."""
        answers = [answer for _, answer in self.answers]
        ttft = quantiles([a.ttft for a in answers], n=20, method="inclusive")
        return {
            "per_s": len(answers) / self.seconds,
            "ttft_p50_s": ttft[9],
            "ttft_p95_s": ttft[18],
            "latency_s": fmean(a.latency for a in answers),
            "stall_s": fmean(a.stall for a in answers),
        }

    def close(self) -> None:
        """Ends the loop and its cache."""
        self.engine.close()
        self.cache.close()


def simulate(
    arm: str, load: Workload, hardware: Costs, model: ModelShape, **options: Any
) -> Report:
    """An arm in virtual time.

    Args:
        arm: one of `TIERED` or `UNTIERED`.
        load: what it serves.
        hardware, model: on what, and which.
        options: further ones of `Simulator`.
    """
    trace = load.seen_by(arm)
    return Simulator(
        trace,
        hardware,
        model,
        device_bytes=load.capacity * model.kv_bytes_per_token,
        host_bytes=load.tokens * model.kv_bytes_per_token if arm in TIERED else 0,
        policy=policy_of(arm, trace),
        prefetch=Prefetcher() if looks_ahead(arm) else None,
        scheduler="status-aware" if looks_ahead(arm) else "fcfs",
        **options,
    ).run()
