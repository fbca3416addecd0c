"""A serving loop over a causal language model, which reads prompts' beginnings from a cache."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import torch
from torch import Tensor

from assay.papers.kvflow.batch import ROOM, Batch, Forward
from assay.papers.kvflow.lease import Lease, LeaseExpired
from assay.papers.kvflow.link import TransferFailed
from assay.papers.kvflow.models import check_model, context_length, fingerprint, kv_shape
from assay.papers.kvflow.sampling import Sampler, Sampling
from assay.papers.kvflow.scheduler import FCFS, Scheduler, StatusAware
from assay.papers.kvflow.text import Detokenizer, Prompt, decode, encode
from assay.papers.kvflow.timeline import Timeline
from assay.toolkits.checks import one_of, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from assay.papers.kvflow.cache import PrefixCache
    from assay.papers.kvflow.step_graph import StepGraph
    from assay.papers.kvflow.tiers import DeviceTier

logger = logging.getLogger(__name__)

Answers = dict[str, list["Completion"]]
"""For each agent of a workflow its answers so far, in the order of its runs."""

_GLANCE_S = 0.005
"""How long the loop waits for a load before it looks whether something else has come."""

_SCHEDULERS: dict[str, Callable[[], Scheduler]] = {"status-aware": StatusAware, "fcfs": FCFS}


@dataclass(frozen=True)
class Completion:
    """An answer.

    Attributes:
        ids: generated tokens, the one that ends the text included.
        text: what they say, without special tokens and without the stop string.
        prompt_tokens: length of the prompt.
        cached_tokens: how many of them came from the cache, by the tier they were found on:
            "device", "host", "disk".
        ttft: seconds from submission to the first token.
        latency: seconds from submission to the last token.
        stall: seconds in which there was room for the request, and only a load held it up.
        finish_reason: "stop" (the model ended the text, or a stop string) or "length".
    """

    ids: tuple[int, ...]
    text: str
    prompt_tokens: int
    cached_tokens: dict[str, int]
    ttft: float
    latency: float
    stall: float
    finish_reason: Literal["stop", "length"]


@dataclass(eq=False)
class _Request:
    """What the loop knows of a request; only the loop's thread changes it."""

    ids: tuple[int, ...]
    fixed_len: int | None
    client: str
    agent: str
    max_new_tokens: int
    ends: frozenset[int]
    sampler: Sampler
    detokenizer: Detokenizer | None
    on_text: Callable[[str], None] | None
    is_ready: Callable[[_Request, bool], bool]
    future: Future[Completion] = field(default_factory=Future)
    submitted: float = field(default_factory=time.perf_counter)
    skips: int = 0
    lease: Lease | None = None
    loads: bool = False
    cached: dict[str, int] = field(default_factory=dict)
    output: list[int] = field(default_factory=list)
    first_token: float = math.nan
    batch: Batch = field(init=False)
    row: int = 0
    held_up: float | None = None
    stall: float = 0.0

    def ready(self, load: bool) -> bool:
        return self.is_ready(self, load)


class Engine:
    """Serves a causal language model: continuous batching over a prefix cache.

    Every step of the loop takes up waiting requests while there is room, computes of their
    prompts what the cache lacks, and then decodes one token for all that run, together. The loop
    has a thread of its own, from the first request on; all methods may be called from any thread.

        with Engine(*load_model("tiny"), cache) as engine:
            answer = engine.submit(("You plan.", " Trip to Rome"), client="app", agent="planner")
            print(answer.result().text)

    Running requests hold their own copy of their keys and values, which does not count towards
    the capacity of the cache's device tier.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        cache: PrefixCache | None = None,
        scheduler: Literal["status-aware", "fcfs"] | Scheduler = "status-aware",
        max_batch: int = 8,
    ) -> None:
        """Puts a model into service.

        Args:
            model: a causal language model of transformers, in evaluation mode.
            tokenizer: its tokenizer.
            cache: where prompts' beginnings are kept; None computes every prompt in full.
            scheduler: "status-aware" runs others while a request's prefix is loaded, "fcfs" takes
                requests as they come and loads layer by layer under their computation; or an
                object with a `pick` as these have.
            max_batch: requests that run at once, >= 1.

        Raises:
            TypeError: max_batch is no integer.
            ValueError: the model's prefixes cannot be reused, the cache is another model's, or an
                argument is out of range.
        """
        check_model(model)
        if isinstance(scheduler, str):
            scheduler = _SCHEDULERS[one_of("scheduler", scheduler, _SCHEDULERS)]()
        if cache is not None:
            cache.require(fingerprint(model))
            device = cast("DeviceTier", cache.tiers[0]).device
            if device.type != model.device.type:
                raise ValueError(f"cache: got a device tier on {device}, wants {model.device}")
        self.model = model
        self.tokenizer = tokenizer
        self.cache = cache
        self.max_batch = whole("max_batch", max_batch)
        self.context = context_length(model)
        self.timeline = Timeline() if cache is None else cache.timeline
        self._scheduler = scheduler
        self._forward = Forward(model)
        self._n_layers = kv_shape(model)[0]
        ends = model.generation_config.eos_token_id
        self._ends = frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)
        self._wake = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._batch: Batch | None = None
        self._thread: threading.Thread | None = None
        self._idle_since: float | None = None
        self._closing = False
        self._no_room = False
        self._counts = {"completed": 0, "cancelled": 0, "failed": 0, "generated_tokens": 0}

    def submit(
        self,
        prompt: Prompt,
        client: str = "default",
        agent: str = "default",
        fixed_len: int | None = None,
        steps: Mapping[str, float] | None = None,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Future[Completion]:
        """Hands in a request.

        Args:
            prompt: a text, a (fixed, dynamic) pair of texts, which are tokenised apart, or token
                ids; at least one token, and fewer than the model's context.
            client: the application; agents of different ones never mix.
            agent: whose call this is.
            fixed_len: tokens from the start that are the same in all calls of this agent; None:
                those of the pair's first text, else left to the cache to find out.
            steps: for every agent of the client's workflow, in how many steps it runs at the
                earliest (`StepGraph.steps`); the cache evicts and prefetches by them.
            max_new_tokens: most tokens to generate, >= 1; None: as the context allows.
            sampling: how tokens are drawn; None: greedily.
            stop: texts that end the answer.
            ignore_eos: whether to go on to max_new_tokens whatever the model says.
            on_text: called, by the loop's thread, with each piece of text as it becomes certain.

        Returns:
            A future of the answer. `cancel` works until there is one: the request ends at the
            loop's next step.

        Raises:
            TypeError: prompt, fixed_len or max_new_tokens are of another type.
            ValueError: one is out of range, or steps do not name the agent.
            RuntimeError: the engine is closed.
        """
        ids, told = encode(self.tokenizer, prompt)
        fixed_len = told if fixed_len is None else whole("fixed_len", fixed_len, 0)
        if not ids:
            raise ValueError("prompt: got no token, wants at least one")
        if len(ids) >= self.context:
            raise ValueError(
                f"prompt: got {len(ids)} tokens, wants fewer than the context of {self.context}"
            )
        if fixed_len is not None and fixed_len > len(ids):
            raise ValueError(f"fixed_len: got {fixed_len}, wants at most the prompt's {len(ids)}")
        room = self.context - len(ids)
        if max_new_tokens is None:
            max_new_tokens = room
        elif whole("max_new_tokens", max_new_tokens) > room:
            raise ValueError(
                f"max_new_tokens: got {max_new_tokens}, wants at most {room}: the context is "
                f"{self.context} and the prompt {len(ids)}"
            )
        if isinstance(stop, str) or not all(isinstance(s, str) and s for s in stop):
            raise ValueError(f"stop: got {stop!r}, wants a list of texts that are not empty")
        if steps is not None and agent not in steps:
            raise ValueError(f"agent: got {agent!r}, wants one of steps: {', '.join(steps)}")
        streams = bool(stop) or on_text is not None
        request = _Request(
            ids=ids,
            fixed_len=fixed_len,
            client=client,
            agent=agent,
            max_new_tokens=max_new_tokens,
            ends=frozenset() if ignore_eos else self._ends,
            sampler=Sampler(sampling or Sampling(), self._forward.device),
            detokenizer=Detokenizer(self.tokenizer, stop) if streams else None,
            on_text=on_text,
            is_ready=self._ready,
        )
        if steps is not None and self.cache is not None:
            self.cache.update_steps(client, steps)
        with self._wake:
            if self._closing:
                raise RuntimeError("engine: it is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
                self._thread.start()
            self._waiting.append(request)
            self._wake.notify_all()
        return request.future

    def run_workflow(
        self,
        graph: StepGraph,
        prompts: Mapping[str, Prompt | Callable[[Answers], Prompt]],
        client: str = "default",
        choose: Callable[[str, Sequence[str], Answers], Sequence[str]] | None = None,
        **options: Any,
    ) -> Answers:
        """Runs a workflow from its entries until nothing is left to start.

        Args:
            graph: which agent waits for which.
            prompts: for each agent of the graph its prompt, or a function that makes it from the
                answers so far.
            client: the application.
            choose: given an agent that has finished, where the graph can go on by branches and
                loops, and the answers so far, returns those to take. Needed where there are any.
            options: of `submit`, for all agents.

        Returns:
            For each agent its answers, in the order of its runs.

        Raises:
            ValueError: prompts and graph do not name the same agents, choose is missing, or what
                `submit` refuses.
        """
        if odd := set(prompts) ^ set(graph.agents):
            raise ValueError(
                f"prompts: got {sorted(prompts)}, wants the graph's agents {list(graph.agents)} "
                f"(differ in {', '.join(sorted(odd))})"
            )
        run = graph.run()
        if choose is None and (forks := [a for a in graph.agents if run.options(a)]):
            raise ValueError(f"choose: got None, wants a function: {forks[0]} branches or loops")
        answers: Answers = {agent: [] for agent in graph.agents}
        running: dict[Future[Completion], str] = {}
        try:
            while run.ready or running:
                starting = run.ready
                for agent in starting:
                    run.start(agent)
                for agent in starting:
                    prompt = prompts[agent]
                    if callable(prompt):
                        prompt = prompt(answers)
                    future = self.submit(prompt, client, agent, steps=run.steps(), **options)
                    running[future] = agent
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    agent = running.pop(future)
                    answers[agent].append(future.result())
                    ways = run.options(agent)
                    run.finish(agent, choose(agent, ways, answers) if choose and ways else ())
                if self.cache is not None:  # already now: prompts may take long to make
                    self.cache.update_steps(client, run.steps())
        finally:
            for future in running:
                future.cancel()
        return answers

    def stats(self) -> dict[str, Any]:
        """Requests waiting and running, those ended and how, tokens generated; and the cache's."""
        with self._wake:
            found: dict[str, Any] = dict(self._counts)
            found |= {"waiting": len(self._waiting), "running": len(self._running)}
        if self.cache is not None:
            found["cache"] = self.cache.stats()
        return found

    def close(self) -> None:
        """Ends the loop; requests that have no answer yet are cancelled. The cache stays open."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with torch.no_grad():
            while self._wait_for_work():
                try:
                    self._step()
                except Exception as error:
                    # Nobody else would tell those who wait for an answer.
                    logger.exception("the serving loop failed")
                    for request in [*self._waiting, *self._running]:
                        self._end(request, error)
        for request in [*self._waiting, *self._running]:
            request.future.cancel()
            self._end(request)

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._closing or self._waiting or self._running):
                self._wake.wait()
            return not self._closing

    def _ready(self, request: _Request, load: bool) -> bool:
        """See `Waiting.ready`."""
        if self.cache is None:
            return True
        try:
            if request.lease is None:
                match = self.cache.peek(request.ids)
                if match.n_device == match.n_tokens:
                    return True
                if not load:
                    return False
                request.lease = self.cache.lookup(request.ids, request.client, request.agent)
            if not request.loads:
                if self._no_room or not load:
                    return False  # who came earlier gets room first
                if not request.lease.load_whole():
                    # It waits for those who will give some up, else it computes what has none.
                    self._no_room = True
                    return not (self.cache.moving or any(r.loads for r in self._waiting))
                request.loads = True
                request.held_up = self.timeline.now()
            return not request.lease.loading
        except LeaseExpired:
            request.lease, request.loads = None, False
            return False

    def _step(self) -> None:
        """Takes up requests, and decodes one token for all that run."""
        with self._wake:
            known = [*self._waiting, *self._running]
        for request in known:
            if request.future.cancelled():
                self._end(request)
        with self._wake:
            waiting = list(self._waiting)
        room = self.max_batch - len(self._running)
        self._no_room = False
        picked = self._scheduler.pick(waiting, room) if room else []
        if waiting and not (picked or self._running):
            self._idle(waiting)
            return
        if self._idle_since is not None:
            self.timeline.add("stall", "idle", self._idle_since, self.timeline.now())
            self._idle_since = None
        for request in picked:
            try:
                self._prefill(request)
            except Exception as error:
                self._end(request, error)
        if self._running:
            try:
                self._decode()
            except Exception as error:  # of memory, say: those that wait may fare better
                for request in list(self._running):
                    self._end(request, error)

    def _idle(self, waiting: Sequence[_Request]) -> None:
        """Waits for the first load to end, and not so long that others would notice."""
        if self._idle_since is None:
            self._idle_since = self.timeline.now()
        lease = next((request.lease for request in waiting if request.loads), None)
        if lease is None:  # others' copies, or a scheduler of the user's, have their reasons
            time.sleep(_GLANCE_S)
            return
        with contextlib.suppress(TimeoutError, LeaseExpired):
            lease.wait(_GLANCE_S)

    def _prefill(self, request: _Request) -> None:
        """Computes what the cache lacks of a prompt, and the first token."""
        with self._wake:
            self._waiting.remove(request)
            self._running.append(request)
        start = self.timeline.now()
        if request.held_up is not None:
            request.stall = start - request.held_up
        if self.cache is not None and request.lease is None:
            request.lease = self.cache.lookup(request.ids, request.client, request.agent)
        n_cached, logits = self._compute(request, request.lease)
        token = request.sampler(logits[0])
        n_new = len(request.ids) - n_cached
        self.timeline.add("compute", f"prefill {request.agent}", start, self.timeline.now(), n_new)
        self._commit(request, n_cached)
        self._take(request, token)

    def _compute(self, request: _Request, lease: Lease | None) -> tuple[int, Tensor]:
        """Runs the model over a prompt; gives what came from the cache, and the logits.

        What does not arrive from a slower tier is computed, with what follows it.
        """
        n_cached = 0
        try:
            if lease is not None:
                n_cached = lease.load()
            read, room = self._reader(request, lease), min(request.max_new_tokens, ROOM)
            batch = Batch.prefix(self._n_layers, n_cached, read, room)
            logits = batch.extend(self._forward, [request.ids[n_cached:]])
        except (TransferFailed, LeaseExpired) as error:
            logger.info("a prompt is computed again: %s", error)
            shorter = lease is not None and lease.n_tokens < n_cached
            return self._compute(request, lease if shorter else None)
        request.batch, request.row = batch, 0
        if request.lease is not None:
            request.cached = _first(n_cached, request.lease.cached_tokens)
        return n_cached, logits

    def _reader(self, request: _Request, lease: Lease | None) -> Callable[[int], Sequence[Tensor]]:
        """Gives the layers of a cached prefix; time spent waiting is the request's stall."""
        if lease is None or not lease.n_tokens:
            return lambda layer: ()
        if lease.ready:
            return lease.layer

        def wait(layer: int) -> Sequence[Tensor]:
            start = self.timeline.now()
            try:
                return lease.layer(layer)
            finally:
                end = self.timeline.now()
                request.stall += end - start
                self.timeline.add("stall", request.agent, start, end)

        return wait

    def _commit(self, request: _Request, start: int) -> None:
        """Gives the cache what was computed of a request from a token on."""
        if self.cache is None or request.lease is None:
            return
        length = request.batch.lengths[request.row]
        if length > start:
            ids = (*request.ids, *request.output)[:length]
            kv = request.batch.block(request.row, start)
            self.cache.commit(request.lease, ids, kv, request.fixed_len)
        request.lease.release()

    def _decode(self) -> None:
        """One token for every running request."""
        start = self.timeline.now()
        running = list(self._running)
        batch = running[0].batch
        if len(batch.lengths) != len(running) or any(r.batch is not batch for r in running):
            batch = Batch.joined([(r.batch, r.row) for r in running])
            for row, request in enumerate(running):
                request.batch, request.row = batch, row
        logits = batch.extend(self._forward, [[r.output[-1]] for r in running])
        likely = logits.argmax(-1).tolist()
        tokens = [
            token if request.sampler.greedy else request.sampler(logits[row])
            for row, (request, token) in enumerate(zip(running, likely, strict=True))
        ]
        self.timeline.add("compute", "decode", start, self.timeline.now(), len(running))
        for request, token in zip(running, tokens, strict=True):
            try:
                self._take(request, token)
            except Exception as error:
                self._end(request, error)

    def _take(self, request: _Request, token: int) -> None:
        """Adds a token to an answer, and ends the answer where it says so."""
        if not request.output:
            request.first_token = time.perf_counter()
        request.output.append(token)
        writer = request.detokenizer
        text = writer.add(token) if writer else ""
        stops = token in request.ends or (writer is not None and writer.stopped)
        full = len(request.output) == request.max_new_tokens
        if writer and (stops or full):
            text += writer.finish()
        if text and request.on_text:
            request.on_text(text)
        if stops or full:
            self._complete(request, "stop" if stops else "length")

    def _complete(self, request: _Request, reason: Literal["stop", "length"]) -> None:
        output = tuple(request.output)
        latency = time.perf_counter() - request.submitted
        self._commit(request, len(request.ids))
        writer = request.detokenizer
        text = writer.text if writer else decode(self.tokenizer, output)
        completion = Completion(
            ids=output,
            text=text,
            prompt_tokens=len(request.ids),
            cached_tokens=request.cached,
            ttft=request.first_token - request.submitted,
            latency=latency,
            stall=request.stall,
            finish_reason=reason,
        )
        self._end(request, completion)

    def _end(self, request: _Request, outcome: Completion | Exception | None = None) -> None:
        """Lets go of all that a request held, and tells its outcome; None: it was cancelled."""
        if request.lease is not None:
            request.lease.release()
        with self._wake:
            for held in (self._waiting, self._running):
                if request in held:
                    held.remove(request)
            heard = request.future.set_running_or_notify_cancel()
            failed = isinstance(outcome, Exception)
            self._counts["cancelled" if not heard else "failed" if failed else "completed"] += 1
            self._counts["generated_tokens"] += len(request.output)
        if not heard:
            return
        if isinstance(outcome, Exception):
            request.future.set_exception(outcome)
        elif outcome is not None:
            request.future.set_result(outcome)


def _first(n_tokens: int, by_tier: Mapping[str, int]) -> dict[str, int]:
    """Of tokens on consecutive tiers, fastest first, the first n."""
    shares = {}
    for tier, n in by_tier.items():
        shares[tier] = min(n, n_tokens)
        n_tokens -= shares[tier]
    return shares
