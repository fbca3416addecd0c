"""Plays a trace on a serving loop: every call as soon as those have ended that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

from assay.papers.kvflow.engine import Completion, Engine
from assay.papers.kvflow.trace import TraceRequest
from assay.toolkits.checks import whole


def play(
    engine: Engine,
    trace: Sequence[TraceRequest],
    on_start: Callable[[int], object] = lambda position: None,
    on_end: Callable[[int], object] = lambda position: None,
) -> list[Completion]:
    """Serves the calls of a trace greedily, at the pace of the engine and not at their times `t`.

    Args:
        engine: who serves them.
        trace: the calls; each generates exactly its `output_len` tokens.
        on_start: called with a call's position in the trace just before it is handed in.
        on_end: called with it once it has ended.

    Returns:
        The answers, in the order of the trace.
    """
    done: dict[int, Completion] = {}
    running: dict[Future[Completion], int] = {}
    waiting = list(range(len(trace)))
    while waiting or running:
        for position in [i for i in waiting if done.keys() >= set(trace[i].after)]:
            waiting.remove(position)
            request = trace[position]
            on_start(position)
            future = engine.submit(
                request.prompt_ids,
                client=request.client,
                agent=request.agent,
                fixed_len=request.fixed_len,
                steps=request.steps or None,
                max_new_tokens=request.output_len,
                ignore_eos=True,
            )
            running[future] = position
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            position = running.pop(future)
            done[position] = future.result()
            request = trace[position]
            if engine.cache is not None and request.next_use is not None:
                engine.cache.update_steps(request.client, {request.agent: request.next_use})
            on_end(position)
    return [done[position] for position in range(len(trace))]


def rounds_of(trace: Sequence[TraceRequest], n_stages: int) -> list[list[TraceRequest]]:
    """Cuts a trace into rounds, each a trace of its own.

    Args:
        trace: workflows that go round, each of `n_stages` calls a round.
        n_stages: see above, >= 1.

    Returns:
        The rounds; the last one may be short. What a call waited for in an earlier round is over.
    """
    whole("n_stages", n_stages)
    counts: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    rounds: list[list[TraceRequest]] = []
    for request in trace:
        n = counts.get(request.client, 0) // n_stages
        counts[request.client] = counts.get(request.client, 0) + 1
        if n == len(rounds):
            rounds.append([])
        after = tuple(places[i][1] for i in request.after if places[i][0] == n)
        places.append((n, len(rounds[n])))
        rounds[n].append(replace(request, after=after))
    return rounds
