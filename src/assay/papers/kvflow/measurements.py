"""What one trial of the study measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import lru_cache
from statistics import fmean, median
from typing import Any

import torch

from assay.papers.kvflow.arms import Arm, Workload, looks_ahead, simulate
from assay.papers.kvflow.cache_cost import cache_cost
from assay.papers.kvflow.claims import CROWD_ARMS, TIERED, UNTIERED
from assay.papers.kvflow.engine import Completion, Engine
from assay.papers.kvflow.hardware import Hardware, MeasuredHardware, ModelShape
from assay.papers.kvflow.models import kv_bytes_per_token, kv_shape, load_model
from assay.papers.kvflow.playback import rounds_of
from assay.papers.kvflow.simulator import Report
from assay.papers.kvflow.timeline import Span
from assay.papers.kvflow.trace import TraceRequest
from assay.papers.kvflow.workloads import (
    Sizes,
    concurrent_workflows,
    peer_workflows,
    sequential_graph,
    synthetic_workflow,
)
from assay.study import Context, Param
from assay.toolkits.timing import MAX_FOREIGN, Load

Params = Mapping[str, Param]
Metrics = dict[str, float]

WARM_UP = 2
"""Rounds before any is measured, which fill the caches."""

TRIES = 3
"""How often a measurement against the clock is taken anew where the machine was busy."""

LOAD_TO_PREFILL = 1 / 4
"""Time to load a prefix over that of its prefill: the simulated H100 has 0.26 at 8 GB/s."""

_CROWD = 4
_TIMED = {"paced": TIERED, "peer-paced": ("hicache", "kvflow")}
_EXACTNESS: Params = {
    "case": "branches",
    "agents": 3,
    "fixed": 64,
    "dynamic": 12,
    "output": 8,
    "room": 4,
}
_MODELS = {"qwen2.5-32b": ModelShape.qwen2_5_32b, "llama-3.1-8b": ModelShape.llama3_1_8b}


def _named(arm: str, metrics: Mapping[str, float]) -> Metrics:
    return {f"{arm}_{name}": value for name, value in metrics.items()}


# Simulations


def sequential(params: Params, context: Context) -> Metrics:
    """A single workflow on a simulated machine; with `room` given, under every policy."""
    hardware, model = _machine(params)
    graph = sequential_graph(int(params["agents"]), int(params["branches"]))
    cycles = int(params["cycles"])
    trace = synthetic_workflow(graph, _sizes(params), WARM_UP + cycles, seed=context.seed)
    capacity = hardware.kv_bytes(model) // model.kv_bytes_per_token
    arms: Sequence[str] = ("lru", "steps", *TIERED)
    if "room" in params:
        arms = (*UNTIERED, *TIERED)
        running = int(params["dynamic"]) + int(params["output"])
        capacity = int(params["room"]) * int(params["fixed"]) + running
    load = Workload(trace, int(params["agents"]), capacity)
    return _simulated(load, hardware, model, context, arms)


def crowd(params: Params, context: Context) -> Metrics:
    """Many workflows at once on a simulated machine."""
    hardware, model = _machine(params)
    workflows, agents = int(params["workflows"]), int(params["agents"])
    graph = sequential_graph(agents)
    n_rounds = 1 + int(params["cycles"])
    trace = concurrent_workflows(graph, workflows, _sizes(params), n_rounds, context.seed)
    load = Workload(trace, agents, hardware.kv_bytes(model) // model.kv_bytes_per_token)
    return _simulated(load, hardware, model, context, CROWD_ARMS, 1, max_batch=workflows)


def _machine(params: Params) -> tuple[Hardware, ModelShape]:
    """Hardware whose link delivers `link_gbps`, and the model on it."""
    make = {"h100": Hardware.h100, "a10g": Hardware.a10g}[str(params["hardware"])]
    hardware = make(float(params["link_gbps"]), link_efficiency=1.0)
    return hardware, _MODELS[str(params["model"])]()


def _sizes(params: Params) -> Sizes:
    return Sizes(*(int(params[name]) for name in ("fixed", "dynamic", "output")))


def _simulated(
    load: Workload,
    hardware: Hardware,
    model: ModelShape,
    context: Context,
    arms: Sequence[str],
    warm_up: int = WARM_UP,
    **options: Any,
) -> Metrics:
    found: Metrics = {}
    clients = len({r.client for r in load.trace})
    first = warm_up * load.n_stages * clients
    for arm in arms:
        report = simulate(arm, load, hardware, model, **options)
        found |= _named(arm, _reported(report, first, model))
        if looks_ahead(arm):
            found[f"{arm}_wasted_share"] = _wasted(report, model)
        if clients == 1 and arm in ("hicache", "kvflow"):
            start = report.requests[first].arrival
            end = report.requests[first + load.n_stages - 1].end
            _record_spans(report.timeline.spans(), start, end, arm, context)
    for than in ("lru", "hicache"):
        found[f"speedup_{than}"] = found["kvflow_per_s"] / found[f"{than}_per_s"]
    return found


def _reported(report: Report, first: int, model: ModelShape) -> Metrics:
    """What a report says of the requests from a position on."""
    window = report.window(first)
    requests = window.requests
    return {
        "per_s": len(requests) / window.makespan,
        "hit_rate": sum(min(r.device, r.fixed_len) for r in requests)
        / sum(r.fixed_len for r in requests),
        "recomputed_tokens": float(sum(r.prompt_len - r.device - r.host for r in requests)),
        "ttft_p50_s": window.ttft(0.5),
        "ttft_p95_s": window.ttft(0.95),
        "latency_s": fmean(r.latency for r in requests),
        "stall_s": window.stall / len(requests),
        "link_busy": window.busy("load"),
    }


def _wasted(report: Report, model: ModelShape) -> float:
    """Share of the bytes loaded ahead that were evicted before anyone asked for them."""
    wasted = report.counts["wasted_prefetch_bytes"]
    used = sum(r.prefetched for r in report.requests) * model.kv_bytes_per_token
    return wasted / (wasted + used) if wasted else 0.0


def _record_spans(
    spans: Sequence[Span], start: float, end: float, arm: str, context: Context
) -> None:
    """Keeps what ran between two times, counted from the first."""
    for span in spans:
        if span.end > start and span.start < end:
            name = f"span/{arm}/{span.track}"
            context.record(name, max(0.0, span.start - start), span.end - start)


# The real loop


@lru_cache(maxsize=2)
def _loaded(name: str, device: str) -> tuple[Any, Any]:
    """A model and its tokenizer, once for all trials of a worker."""
    if name == "small":
        _, tokenizer = load_model("smollm2")
        return _small_model(len(tokenizer)), tokenizer
    return load_model(name, "bfloat16" if device == "cuda" else "float32", device)


def _model_of(params: Params, context: Context) -> tuple[Any, Any]:
    name = str(params["model"])
    if name not in ("tiny", "small", "smollm2"):
        name = str(context.data(name))
    return _loaded(name, context.device)


def _small_model(n_vocab: int) -> Any:
    """Two random layers over a real vocabulary: what is cached does not depend on weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=n_vocab,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
    )
    return LlamaForCausalLM(config).eval()


def workload(params: Params, tokenizer: Any, n_rounds: int, seed: int) -> Workload:
    """The calls that a trial of the real loop plays.

    Args:
        params: `case` and its sizes.
        tokenizer: of the model.
        n_rounds: how many rounds.
        seed: of tokens and choices.
    """
    case, n_agents = str(params["case"]).removesuffix("-paced"), int(params["agents"])
    if case == "peer":
        groups, output = int(params["groups"]), int(params["output"])
        trace = peer_workflows(
            lambda text: tokenizer(text).input_ids, groups, n_rounds, output, 0, seed
        )
    else:
        graph = sequential_graph(n_agents, 2 if case == "branches" else 1)
        n_vocab = len(tokenizer)
        if case == "crowd":
            trace = concurrent_workflows(
                graph, _CROWD, _sizes(params), n_rounds, seed, n_vocab=n_vocab
            )
        else:
            trace = synthetic_workflow(graph, _sizes(params), n_rounds, seed=seed, n_vocab=n_vocab)
    clients = len({r.client for r in trace})
    longest = max(r.fixed_len for r in trace)
    rest = max(len(r.prompt_ids) - r.fixed_len + r.output_len for r in trace)
    return Workload(trace, n_agents, int(params["room"]) * longest + clients * rest)


def hits(params: Params, context: Context) -> Metrics:
    """What each policy finds on the device, on the real loop, whatever the machine's load."""
    model, tokenizer = _model_of(params, context)
    n_rounds = WARM_UP + int(params["cycles"])
    load = workload(params, tokenizer, n_rounds, context.seed)
    found: Metrics = {}
    for name in UNTIERED:
        with closing(Arm(name, load, model, tokenizer)) as arm:
            for n in range(WARM_UP):
                arm.play(n)
            arm.forget()
            for n in range(WARM_UP, n_rounds):
                shown = name in ("lru", "steps") and n < WARM_UP + 4
                arm.play(n, _residency(arm, name, load, context) if shown else lambda call: None)
            found |= _named(name, arm.found())
    for name in ("mru_fixed", "belady"):
        found[f"{name}_minus_steps"] = found[f"{name}_hit_rate"] - found["steps_hit_rate"]
    return found


def _residency(
    arm: Arm, name: str, load: Workload, context: Context
) -> Callable[[TraceRequest], object]:
    """Records at each turn whose turn it is, and whose fixed prompts the device holds."""
    agents = list(load.fixed)
    turn = len(arm.answers)

    def record(call: TraceRequest) -> None:
        nonlocal turn
        key = (call.client, call.agent)
        context.record(f"turn/{name}", turn, agents.index(key))
        context.record(f"hit/{name}", turn, float(arm.holds(load.fixed[key])))
        for place, ids in enumerate(load.fixed.values()):
            if arm.holds(ids):
                context.record(f"resident/{name}", turn, place)
        turn += 1

    return record


def times(params: Params, context: Context) -> Metrics:
    """Arms against the clock, in turn within each round; NaN where the machine was busy."""
    model, tokenizer = _model_of(params, context)
    cycles, paced = int(params["cycles"]), str(params["case"]).endswith("paced")
    load = workload(params, tokenizer, 1 + TRIES * cycles, context.seed)
    rates = measured_rates(model, tokenizer, load)
    if paced and context.device == "cpu":
        # Emulated: the copy itself is one from memory to memory.
        rates = _paced(rates, kv_bytes_per_token(model))
    link_gbps = rates.link_gbps if math.isfinite(rates.link_gbps) else None
    with ExitStack() as stack:
        arms = {
            name: stack.enter_context(closing(Arm(name, load, model, tokenizer, link_gbps)))
            for name in _TIMED.get(str(params["case"]), ("lru", "steps"))
        }
        for arm in arms.values():
            arm.play(0)
        for attempt in range(TRIES):
            first = 1 + attempt * cycles
            foreign = _interleaved(arms, range(first, first + cycles))
            if foreign <= MAX_FOREIGN:
                break
        found: Metrics = {"foreign": foreign, "attempts": attempt + 1.0}
        for name, arm in arms.items():
            clock = arm.clock()
            if foreign > MAX_FOREIGN:
                clock = dict.fromkeys(clock, math.nan)
            found |= _named(name, {**clock, **arm.found()})
            if name in ("hicache", "kvflow"):
                _record_spans(arm.timeline.spans(), *arm.last_round, name, context)
    ours, than = ("kvflow", "hicache") if paced else ("steps", "lru")
    if params["predicted"]:
        rounds = range(first, first + cycles)
        seconds = {arm: _predicted(arm, load, rates, model, rounds) for arm in (ours, than)}
        found["predicted_speedup"] = seconds[than] / seconds[ours]
        measured = found[f"{ours}_per_s"] / found[f"{than}_per_s"]
        found["predicted_over_measured"] = found["predicted_speedup"] / measured
    return found


def _paced(rates: MeasuredHardware, bytes_per_token: int) -> MeasuredHardware:
    """The rates, with a link on which a prefix loads in `LOAD_TO_PREFILL` of its prefill."""
    bytes_per_s = bytes_per_token * rates.prefill_tokens_per_s / LOAD_TO_PREFILL
    return replace(rates, link_gbps=bytes_per_s / 1e9)


def _interleaved(arms: Mapping[str, Arm], rounds: Sequence[int]) -> float:
    """Plays rounds on all arms in turn; returns the share of CPU time that others took."""
    for arm in arms.values():
        arm.forget()
    load = Load()
    names = list(arms)
    for n in rounds:
        for i in range(len(names)):
            arms[names[(i + n) % len(names)]].play(n)
    return load.foreign()


def measured_rates(model: Any, tokenizer: Any, load: Workload) -> MeasuredHardware:
    """What the simulator is told of this machine: costs timed apart from any arm, without a cache.

    Prompts of two lengths give what a prefill takes a token and besides, a longer answer gives a
    decoding step; medians.
    """
    longest = load.longest
    long, short = longest.prompt_ids, longest.prompt_ids[longest.fixed_len :] or (0,)
    with Engine(model, tokenizer) as engine:

        def timed(prompt: Sequence[int], n_tokens: int) -> Completion:
            return engine.submit(prompt, max_new_tokens=n_tokens, ignore_eos=True).result()

        timed(long, 2)
        longs, shorts = (
            median(timed(prompt, 1).ttft for _ in range(3)) for prompt in (long, short)
        )
        answers = [timed(short, 9) for _ in range(3)]
    per_token = max(longs - shorts, 1e-9) / (len(long) - len(short))
    return Hardware.measured(
        prefill_tokens_per_s=1 / per_token,
        decode_step_s=median((a.latency - a.ttft) / 8 for a in answers),
        prefill_s=max(0.0, shorts - per_token * len(short)),
    )


def _predicted(
    arm: str, load: Workload, rates: MeasuredHardware, model: Any, rounds: range
) -> float:
    """Seconds that the simulator gives the measured rounds."""
    layers, kv_heads, head_dim = kv_shape(model)
    shape = ModelShape(
        model.num_parameters(),
        layers,
        model.config.num_attention_heads,
        kv_heads,
        head_dim,
        model.dtype.itemsize,
    )
    report = simulate(arm, load, rates, shape, running_on_device=False)
    calls = len(load.trace) // len(rounds_of(load.trace, load.n_stages))
    served = report.requests[rounds.start * calls : rounds.stop * calls]
    return max(r.end for r in served) - min(r.arrival for r in served)


def exactness(params: Params, context: Context) -> Metrics:
    """Tokens of a policy under pressure against those of `generate`, which knows no cache."""
    model, tokenizer = _model_of(params, context)
    name = str(params["policy"])
    load = workload(_EXACTNESS, tokenizer, -(-int(params["prompts"]) // 3), context.seed)
    with closing(Arm(name, load, model, tokenizer)) as arm:
        for n in range(len(arm.rounds)):
            arm.play(n)
        evictions = arm.cache.stats()["evictions_device"]
    cached = sum(sum(a.cached_tokens.values()) for _, a in arm.answers)
    if not evictions or not cached:
        raise RuntimeError(f"{name}: {evictions} evictions, {cached} cached tokens: no test of it")
    equal = [
        answer.ids == _generated(str(params["model"]), context.device, call.prompt_ids)
        for call, answer in arm.answers
    ]
    return {
        "equal_rate": fmean(equal),
        "prompts": float(len(equal)),
        "cached_tokens": float(cached),
        "evictions": float(evictions),
    }


@lru_cache(maxsize=512)
def _generated(name: str, device: str, prompt: tuple[int, ...], n_tokens: int = 8) -> Any:
    """What `generate` adds to a prompt, by itself."""
    model, _ = _loaded(name, device)
    ids = torch.tensor([prompt], device=device)
    with torch.no_grad():
        answer = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=n_tokens,
            max_new_tokens=n_tokens,
        )
    return tuple(answer[0, len(prompt) :].tolist())


def overhead(params: Params, context: Context) -> Metrics:
    """What the cache itself costs in a full tree, against a decoding step of a model."""
    model, _ = _model_of(params, context)
    return cache_cost(model, int(params["nodes"]), context.seed)


PARTS: Mapping[str, Callable[[Params, Context], Metrics]] = {
    "sequential": sequential,
    "pressure": sequential,
    "concurrent": crowd,
    "hits": hits,
    "times": times,
    "exactness": exactness,
    "overhead": overhead,
}
