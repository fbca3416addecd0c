"""A serving loop in virtual time, for models and GPUs that are not at hand.

The cache is the real one: the same radix tree, policies and moves between tiers, over tensors
without memory. Virtual are the link and the computation, whose times come from `hardware`. The
loop is that of `Engine`: in each step the scheduler takes up waiting requests, their prompts are
computed one after the other, and then one token for all that run.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from assay.papers.kvflow.blocks import BlockLayout
from assay.papers.kvflow.eviction import LRU, Belady, EvictionPolicy, StepsToExecution
from assay.papers.kvflow.hardware import Costs, ModelShape
from assay.papers.kvflow.link import DEMAND
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.radix_tree import Node, RadixTree
from assay.papers.kvflow.residency import DEVICE, Copies, Residency
from assay.papers.kvflow.scheduler import FCFS, Scheduler, StatusAware
from assay.papers.kvflow.tiers import DeviceTier
from assay.papers.kvflow.timeline import Span, Timeline
from assay.papers.kvflow.trace import TraceRequest
from assay.papers.kvflow.virtual import Clock, VirtualHost, VirtualLink, VirtualTimeline
from assay.toolkits.checks import flag, one_of, whole

_DTYPES = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}

SYSTEMS = ("gpu-only", "hicache", "eviction", "prefetch", "kvflow")


@dataclass(frozen=True)
class ServedRequest:
    """How a request fared; times are in seconds, lengths in tokens.

    Attributes:
        client: The application.
        agent: The agent in it.
        arrival: When it was handed in.
        first_token: When its first token was there.
        end: When its last token was.
        stall: Time in which there was room for it, and only a load held it up.
        prompt_len: Length of its prompt.
        fixed_len: Length of its fixed prompt.
        device: Tokens of the prompt found on the device.
        prefetched: Of those, the ones that a prefetch had brought there.
        host: Tokens of the prompt that were loaded for it.
        recomputed: Tokens computed that an endless cache would have held.
    """

    client: str
    agent: str
    arrival: float
    first_token: float
    end: float
    stall: float
    prompt_len: int
    fixed_len: int
    device: int
    prefetched: int
    host: int
    recomputed: int

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.first_token - self.arrival

    @property
    def latency(self) -> float:
        """Seconds from arrival to the last token."""
        return self.end - self.arrival


@dataclass(frozen=True)
class Report:
    """What a simulation measured.

    Attributes:
        requests: How each fared, in the order of the trace.
        timeline: Spans of the tracks "compute", "load" and "offload".
        counts: Of the cache: bytes loaded, backed up, evicted, `wasted_prefetch_bytes` (loaded
            ahead and evicted unused) and `unused_prefetch_bytes` (unused at the end).
        idle: Seconds in which nothing was computed although requests waited.
        contents: If asked for: at each arrival the time and, for every agent seen so far, where
            its fixed prompt is: "device", "loading" or "host" (some of it is there alone).
    """

    requests: tuple[ServedRequest, ...]
    timeline: Timeline = field(repr=False)
    counts: dict[str, int]
    idle: float
    contents: tuple[tuple[float, dict[tuple[str, str], str]], ...] = field(default=(), repr=False)

    def window(self, first: int) -> Report:
        """The same for the requests from a position of the trace on, as after a warm-up.

        Times, shares and rates follow; `counts`, `idle` and `contents` stay those of the whole.

        Args:
            first: Position of the first request that counts, >= 0.

        Raises:
            ValueError: No request is left.
        """
        if whole("first", first, 0) >= len(self.requests):
            raise ValueError(f"first: got {first}, wants less than {len(self.requests)}")
        return replace(self, requests=self.requests[first:])

    @property
    def begin(self) -> float:
        """When the first request arrived."""
        return min(r.arrival for r in self.requests)

    @property
    def makespan(self) -> float:
        """Seconds from the first arrival to the last end."""
        return max(r.end for r in self.requests) - self.begin

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that did not have to be computed."""
        hits = sum(r.device + r.host for r in self.requests)
        return hits / sum(r.prompt_len for r in self.requests)

    @property
    def device_hit_rate(self) -> float:
        """Share of the prompts' tokens that were on the device in time."""
        return sum(r.device for r in self.requests) / sum(r.prompt_len for r in self.requests)

    @property
    def stall(self) -> float:
        """Seconds for which loads held requests up, summed over them."""
        return sum(r.stall for r in self.requests)

    @property
    def recomputed_tokens(self) -> int:
        """Tokens that were computed once more."""
        return sum(r.recomputed for r in self.requests)

    def ttft(self, quantile: float = 0.5) -> float:
        """A quantile of the seconds to the first token.

        Args:
            quantile: From 0 to 1.
        """
        return float(np.quantile([r.ttft for r in self.requests], quantile))

    def latency(self, quantile: float = 0.5) -> float:
        """A quantile of the seconds to the last token.

        Args:
            quantile: From 0 to 1.
        """
        return float(np.quantile([r.latency for r in self.requests], quantile))

    def busy(self, track: str) -> float:
        """Share of the makespan in which a track was busy.

        Args:
            track: "compute", "load" or "offload".
        """
        end = self.begin + self.makespan
        spans: list[Span] = self.timeline.spans(track)
        return sum(max(0.0, min(s.end, end) - max(s.start, self.begin)) for s in spans) / (
            self.makespan
        )


class Simulator:
    """Serves a trace in virtual time.

    A request that waits for others (`TraceRequest.after`) arrives when they have ended. With a
    host tier, every node is backed up to it when it is made (write-through).
    """

    def __init__(
        self,
        trace: Sequence[TraceRequest],
        hardware: Costs,
        model: ModelShape,
        device_bytes: int,
        host_bytes: int = 0,
        policy: EvictionPolicy | None = None,
        prefetch: Prefetcher | None = None,
        scheduler: Literal["status-aware", "fcfs"] = "fcfs",
        max_batch: int = 8,
        running_on_device: bool = True,
        record_contents: bool = False,
    ) -> None:
        """Sets up a simulation.

        Args:
            trace: The requests.
            hardware: Times of computations and copies.
            model: Shape of the model.
            device_bytes: Room on the device for keys and values, >= 0.
            host_bytes: Room on the host, >= 0; 0: there is no host tier.
            policy: What is evicted; None: the least recently used.
            prefetch: Loads ahead; None: only on demand. Its two numbers are taken.
            scheduler: "fcfs" takes requests as they come and loads layer by layer while it
                computes; "status-aware" passes over those whose prefix is not on the device yet.
            max_batch: Requests that run at once, >= 1.
            running_on_device: Whether what running requests compute takes room on the device, as
                in the pool of a GPU's engine. `Engine` keeps it apart.
            record_contents: Whether the report says what was where at each arrival.

        Raises:
            TypeError, ValueError: An argument is of another type or out of range.
        """
        if not trace:
            raise ValueError("trace: got no request, wants at least one")
        for at, request in enumerate(trace):
            if any(i >= at for i in request.after):
                raise ValueError(
                    f"trace: request {at} waits for {request.after}, wants earlier ones"
                )
        if model.dtype_bytes not in _DTYPES:
            raise ValueError(f"dtype_bytes: got {model.dtype_bytes}, wants one of {list(_DTYPES)}")
        self.trace = list(trace)
        self.hardware = hardware
        self.model = model
        self.device_bytes = whole("device_bytes", device_bytes, 0)
        self.host_bytes = whole("host_bytes", host_bytes, 0)
        self.policy = policy or LRU()
        self.prefetch = prefetch
        self.scheduler = one_of("scheduler", scheduler, ("status-aware", "fcfs"))
        self.max_batch = whole("max_batch", max_batch)
        self.running_on_device = flag("running_on_device", running_on_device)
        self.record_contents = flag("record_contents", record_contents)
        if prefetch is not None and not host_bytes:
            raise ValueError("prefetch: got one without a host tier, wants host_bytes > 0")

    @classmethod
    def system(
        cls,
        name: str,
        trace: Sequence[TraceRequest],
        hardware: Costs,
        model: ModelShape,
        device_bytes: int,
        host_bytes: int,
        **options: Any,
    ) -> Simulator:
        """One of the systems that the paper compares.

        Args:
            name: "gpu-only" (LRU, no host tier), "hicache" (LRU on both tiers, layer-wise loads
                on demand), "eviction" (that with steps-to-execution as the order), "prefetch"
                (that with prefetching and status-aware scheduling instead) or "kvflow" (both).
            trace: The requests.
            hardware: Times of computations and copies.
            model: Shape of the model.
            device_bytes: Room on the device.
            host_bytes: Room on the host, which "gpu-only" does without.
            options: Further ones of the constructor.

        Raises:
            ValueError: There is no such system.
        """
        one_of("name", name, SYSTEMS)
        ahead = name in ("prefetch", "kvflow")
        chosen: dict[str, Any] = {
            "host_bytes": 0 if name == "gpu-only" else host_bytes,
            "policy": StepsToExecution() if name in ("eviction", "kvflow") else LRU(),
            "prefetch": Prefetcher() if ahead else None,
            "scheduler": "status-aware" if ahead else "fcfs",
        }
        return cls(trace, hardware, model, device_bytes, **(chosen | options))

    def run(self) -> Report:
        """Serves the whole trace; each call starts with an empty cache.

        Returns:
            What was measured.
        """
        return _Run(self).report()


class _Waiting:
    """A request on its way through the loop."""

    def __init__(self, run: _Run, position: int, request: TraceRequest, arrival: float) -> None:
        self.run = run
        self.position = position
        self.request = request
        self.arrival = arrival
        self.skips = 0
        self.locked: list[Node] = []
        self.held_since: float | None = None
        self.stall = 0.0
        self.loaded: set[Node] = set()
        self.ahead: set[Node] = set()
        self.found = {"device": 0, "prefetched": 0, "host": 0}
        self.n_out = 0
        self.first_token = math.nan
        self.recomputed = 0
        self.reserved = False
        self.has_room = False

    def ready(self, load: bool) -> bool:
        return self.run.ready(self, load)

    @property
    def length(self) -> int:
        return len(self.request.prompt_ids) + self.n_out


class _Run:
    """One simulation: its clock, its cache, and the loop as a process that sleeps and wakes."""

    def __init__(self, simulator: Simulator) -> None:
        self.sim = simulator
        self.clock = Clock()
        self.timeline = VirtualTimeline()
        self.policy = copy.deepcopy(simulator.policy)
        tiers: list[Any] = [DeviceTier(simulator.device_bytes, "meta")]
        if simulator.host_bytes:
            tiers.append(VirtualHost(simulator.host_bytes))
        self.device = tiers[DEVICE]
        link: Any = VirtualLink(self.clock, simulator.hardware.copy_s, self.timeline, self.wake)
        self.cache = Residency(tiers, self.policy, link)
        model = simulator.model
        self.layout = BlockLayout(
            model.n_layers, model.n_kv_heads, model.head_dim, _DTYPES[model.dtype_bytes]
        )
        self.cache.layout = self.layout
        self.cache.on_move_end = self.prefetch
        self.link = link
        self.tree = self.cache.tree
        self.seen = RadixTree()
        self.scheduler: Scheduler = (
            StatusAware() if simulator.scheduler == "status-aware" else FCFS()
        )
        self.waiting: list[_Waiting] = []
        self.running: list[_Waiting] = []
        ahead = simulator.prefetch
        self.prefetcher = ahead and Prefetcher(ahead.ahead, ahead.max_inflight)
        self.served: dict[int, ServedRequest] = {}
        self.contents: list[tuple[float, dict[tuple[str, str], str]]] = []
        self.idle = 0.0
        self.uncached = 0
        self.no_room = False
        self.slept_since: float | None = None
        self.awaited: list[set[int]] = [set(request.after) for request in simulator.trace]
        self.process = self.serve()

    def report(self) -> Report:
        self.clock.after(0.0, self.advance)
        for position, request in enumerate(self.sim.trace):
            if not request.after:
                self.clock.after(request.t, self.arrival(position))
        self.clock.run()
        if len(self.served) < len(self.sim.trace):
            raise RuntimeError(f"{len(self.sim.trace) - len(self.served)} requests were not served")
        self.timeline.flush_all()
        counts = dict(self.cache.counts)
        counts["uncached_requests"] = self.uncached
        counts["unused_prefetch_bytes"] = sum(
            self.cache.n_bytes(node) for node in self.tree.nodes() if node.payload.prefetched
        )
        counts.setdefault("wasted_prefetch_bytes", 0)
        counts.setdefault("loaded_bytes", 0)
        requests = tuple(self.served[i] for i in range(len(self.sim.trace)))
        return Report(requests, self.timeline, counts, self.idle, tuple(self.contents))

    # The loop.

    def advance(self) -> None:
        """Lets the loop go on until it next takes time, or sleeps."""
        seconds = next(self.process)
        if seconds is None:
            self.slept_since = self.clock.now
        else:
            self.clock.after(seconds, self.advance)

    def wake(self) -> None:
        if self.slept_since is not None:
            if self.waiting and not self.running:
                self.idle += self.clock.now - self.slept_since
            self.slept_since = None
            self.clock.after(0.0, self.advance)

    def serve(self) -> Iterator[float | None]:
        while True:
            # What happens at this very time is seen by this step.
            yield 0.0
            room = self.sim.max_batch - len(self.running)
            self.no_room = False
            picked = self.scheduler.pick(self.waiting, room) if room else []
            progress = False
            for request in picked:
                if not self.admit(request):
                    if request.held_since is None and not self.running:
                        request.held_since = self.clock.now
                    break
                progress = True
                self.waiting.remove(request)
                self.running.append(request)
                yield from self.prefill(request)
            if self.running:
                yield from self.decode()
            elif not progress:
                yield None

    def prefill(self, request: _Waiting) -> Iterator[float | None]:
        n_cached = request.found["device"] + request.found["host"]
        n_new = len(request.request.prompt_ids) - n_cached
        seconds = self.sim.hardware.prefill_s(self.sim.model, n_new, n_cached)
        loads: list[Any] = [
            m.transfer for n in request.locked if (m := self.cache.loading(n)) is not None
        ]
        name, start = f"prefill {request.request.agent}", self.clock.now
        if not loads:
            yield seconds
        else:
            n_layers = self.sim.model.n_layers
            for layer in range(n_layers):
                since = self.clock.now
                while any(not t.done and t.n_copied <= layer for t in loads):
                    yield None
                if self.clock.now > since:
                    request.stall += self.clock.now - since
                    if since > start:
                        self.timeline.add("compute", name, start, since)
                    start = self.clock.now
                yield seconds / n_layers
        self.timeline.add("compute", name, start, self.clock.now, n_new)
        request.first_token = self.clock.now
        self.emit(request)
        if request in self.running:
            self.commit(request, request.request.prompt_ids)

    def decode(self) -> Iterator[float | None]:
        batch = list(self.running)
        start = self.clock.now
        lengths = [request.length for request in batch]
        yield self.sim.hardware.decode_s(self.sim.model, lengths)
        self.timeline.add("compute", "decode", start, self.clock.now, len(batch))
        for request in batch:
            self.emit(request)

    def emit(self, request: _Waiting) -> None:
        request.n_out += 1
        if request.n_out == request.request.output_len:
            self.finish(request)

    # A request's way through it.

    def arrival(self, position: int) -> Any:
        def arrive() -> None:
            request = self.sim.trace[position]
            if request.steps:
                self.update_steps(request.client, request.steps)
            if self.sim.record_contents:
                self.contents.append((self.clock.now, self.where()))
            self.waiting.append(_Waiting(self, position, request, self.clock.now))
            self.wake()

        return arrive

    def update_steps(self, client: str, steps: Any) -> None:
        self.tree.update_steps(client, steps)
        self.policy.on_steps(client, steps)
        if self.prefetcher:
            self.prefetcher.on_steps(client, steps)
        self.prefetch()

    def path(self, request: TraceRequest) -> tuple[list[Node], int]:
        """The nodes that hold a prompt's beginning, and how long that is; one token is left."""
        match = self.tree.match(request.prompt_ids[:-1], touch=False)
        return match.node.path(), match.n_tokens

    def ready(self, request: _Waiting, load: bool) -> bool:
        nodes, n_cached = self.path(request.request)
        missing = [node for node in nodes if not self.cache.on_device(node)]
        if load and not request.has_room:
            moves = {node: self.cache.loading(node) for node in missing}
            ahead = [node for node, move in moves.items() if move and move.prefetch]
            if self.no_room or not self.take_room(request, nodes, n_cached):
                # Nobody that came later takes it either. It waits while anything may still make
                # some, else it computes.
                self.no_room = True
                return not (self.running or self.moving())
            request.loaded.update(node for node, move in moves.items() if move is None)
            request.ahead.update(ahead)
        if missing and request.held_since is None:
            request.held_since = self.clock.now
        return not missing

    def take_room(self, request: _Waiting, nodes: list[Node], n_cached: int) -> bool:
        """Takes all that a request needs on the device, or nothing, and starts its loads.

        Requests that wait with their prefixes pinned, and no room left to run in, would be in
        each other's way.
        """
        self.lock(request, nodes)
        missing = sum(node.n_tokens for node in nodes if not self.cache.coming(node))
        new = self.room(request, n_cached) if self.sim.running_on_device else 0
        if not self.cache.make_room(DEVICE, self.layout.n_bytes(missing + new)):
            self.lock(request, [])
            return False
        self.cache.load(nodes, DEMAND)
        self.reserve(request, new)
        request.has_room = True
        return True

    def room(self, request: _Waiting, n_cached: int) -> int:
        """Tokens that a request will compute."""
        return len(request.request.prompt_ids) - n_cached + request.request.output_len

    def moving(self) -> bool:
        return bool(self.link.pending("load") or self.link.pending("offload"))

    def admit(self, request: _Waiting) -> bool:
        """Pins what the cache holds of a prompt, starts its loads and takes room for the rest."""
        ids = request.request.prompt_ids
        nodes, n_cached = self.path(request.request)
        self.lock(request, nodes)
        missing = [node for node in nodes if not self.cache.coming(node)]
        if missing and self.cache.load(nodes, DEMAND) is None:
            if self.running or self.moving():
                return False
            nodes = nodes[: nodes.index(missing[0])]
            n_cached = min(n_cached, nodes[-1].depth if nodes else 0)
            self.lock(request, nodes)
            missing = []
        request.loaded.update(missing)
        self.release(request)  # what was taken with the loads
        if not self.reserve(request, self.room(request, n_cached)):
            if self.running or self.moving():
                return False
            self.uncached += 1
        if request.held_since is not None:
            request.stall += self.clock.now - request.held_since
        self.tree.match(ids[:-1])
        for node in nodes:
            n_tokens = min(node.depth, n_cached) - (node.depth - node.n_tokens)
            request.found["host" if node in request.loaded else "device"] += n_tokens
            if node.payload.prefetched or node in request.ahead:
                request.found["prefetched"] += n_tokens
                node.payload.prefetched = False
            elif (move := self.cache.loading(node)) is not None and move.prefetch:
                move.prefetch = False
        request.recomputed = self.seen.match(ids[:-1]).n_tokens - n_cached
        if isinstance(self.policy, Belady):
            self.policy.serve(request.position)
        return True

    def lock(self, request: _Waiting, nodes: list[Node]) -> None:
        """Pins a path in place of the one that the request had pinned before."""
        before, request.locked = request.locked, nodes
        if nodes:
            self.tree.lock_path(nodes[-1])
        if before:
            self.tree.unlock_path(before[-1])
            for node in before[-1].path():
                self.cache.offer(node)

    def commit(self, request: _Waiting, ids: tuple[int, ...]) -> None:
        """Gives the cache what was computed of ids, as far as there is room."""
        self.release(request)
        asked = request.request
        for stop in sorted({asked.fixed_len or len(ids), len(ids)}):
            end = self.tree.insert(ids[:stop])
            if end.new is not None:
                end.new.payload = Copies(len(self.cache.tiers))
            self.lock(request, end.node.path())
            if stop == asked.fixed_len:
                # Before anything is evicted for it, so that its rank is known.
                self.tree.mark_fixed(asked.client, asked.agent, ids[:stop])
            self.cache.tidy()
            for node in end.node.path():
                if self.cache.coming(node):
                    continue
                if not self.cache.place(node, partial(self.block, node.n_tokens)):
                    break
            self.lock(request, [node for node in end.node.path() if self.cache.has_copy(node)])
            if end.new is not None:
                self.cache.discard_if_empty(end.new)
        self.seen.insert(ids)
        self.reserve(request, asked.output_len - request.n_out)

    def block(self, n_tokens: int) -> torch.Tensor:
        return torch.empty(self.layout.shape(n_tokens), dtype=self.layout.dtype, device="meta")

    def reserve(self, request: _Waiting, n_tokens: int) -> bool:
        """Takes room for what a request will compute, where that counts."""
        n_bytes = self.layout.n_bytes(n_tokens)
        if self.sim.running_on_device and n_tokens:
            if not self.cache.make_room(DEVICE, n_bytes):
                return False
            self.device.reserve(-1 - request.position, n_bytes)
            request.reserved = True
        return True

    def release(self, request: _Waiting) -> None:
        if request.reserved:
            self.device.free(-1 - request.position)
            request.reserved = False

    def finish(self, request: _Waiting) -> None:
        asked = request.request
        # The last token's keys and values are not computed; which tokens they are is no matter.
        made = tuple(-1 - (request.position << 20) - i for i in range(asked.output_len - 1))
        self.commit(request, asked.prompt_ids + made)
        self.release(request)
        self.lock(request, [])
        self.running.remove(request)
        self.served[request.position] = ServedRequest(
            client=asked.client,
            agent=asked.agent,
            arrival=request.arrival,
            first_token=request.first_token,
            end=self.clock.now,
            stall=request.stall,
            prompt_len=len(asked.prompt_ids),
            fixed_len=asked.fixed_len,
            recomputed=request.recomputed,
            **request.found,
        )
        if asked.next_use is not None:
            self.update_steps(asked.client, {asked.agent: asked.next_use})
        else:
            self.prefetch()
        for position, awaited in enumerate(self.awaited):
            if request.position in awaited:
                awaited.remove(request.position)
                if not awaited:
                    delay = max(0.0, self.sim.trace[position].t - self.clock.now)
                    self.clock.after(delay, self.arrival(position))

    # Ahead of requests.

    def prefetch(self) -> None:
        if self.prefetcher:
            self.prefetcher.start(self.cache)

    def where(self) -> dict[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for key, end in self.tree.marked().items():
            nodes = end.path()
            if all(self.cache.on_device(node) for node in nodes):
                found[key] = "device"
            else:
                found[key] = "loading" if any(map(self.cache.loading, nodes)) else "host"
        return found
