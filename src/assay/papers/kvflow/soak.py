"""Hours of random workflows and faults on the serving loop: `python -m assay.papers.kvflow.soak`.

Clients come and go; each runs random workflows whose agents it asks in the loop's own process or
over HTTP. Some of the calls are cancelled, some clients leave in the middle of a stream, and some
copies between tiers break off or bring an unreadable block. A sample of the answers is compared,
token for token, with the model's own. Every so often the cache is checked and memory is printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import torch
import uvicorn

from assay.papers.kvflow.cache import PrefixCache
from assay.papers.kvflow.engine import Engine
from assay.papers.kvflow.eviction import StepsToExecution
from assay.papers.kvflow.models import fingerprint, kv_bytes_per_token, load_model
from assay.papers.kvflow.prefetch import Prefetcher
from assay.papers.kvflow.server import create_app
from assay.papers.kvflow.text import decode
from assay.papers.kvflow.tiers import DeviceTier, DiskTier, HostTier, Tier
from assay.papers.kvflow.workloads import parallel_graph, sequential_graph

FAULT_SHARE = 0.02
"""Share of the copies that break off, and of the calls that are cancelled or abandoned."""

CHECK_SHARE = 0.05
"""Share of the answers that are compared with the model's own."""


class Faults:
    """Makes some of a cache's copies fail, at their beginning or in the middle."""

    def __init__(self, cache: PrefixCache, seed: int) -> None:
        """Gets between the cache and its link.

        Args:
            cache: whose copies.
            seed: of which ones.
        """
        self.n = 0
        self._draw = random.Random(seed)
        self._copy = cache._link.copy
        cache._link.copy = self.copy  # type: ignore[method-assign]

    def copy(self, direction: str, source: Any, *arguments: Any, **options: Any) -> Any:
        if self._draw.random() < FAULT_SHARE:
            self.n += 1
            block = source if isinstance(source, torch.Tensor) else source()
            torn = _Torn(block, self._draw.randrange(len(block)))
            source = lambda: torn  # noqa: E731
        return self._copy(direction, source, *arguments, **options)


class _Torn:
    """A block that can be read up to a layer."""

    def __init__(self, block: torch.Tensor, n_layers: int) -> None:
        self._block, self._n_layers = block, n_layers

    def __getitem__(self, layer: int) -> torch.Tensor:
        if layer >= self._n_layers:
            raise OSError("the copy broke off, as it was to")
        return self._block[layer]


class Soak:
    """The loop under test, what its clients share, and what they saw.

    Attributes:
        engine: the loop.
        header: tokens with which all prompts begin.
        n_vocab: token ids are below it.
        counts: of answers, comparisons and faults.
        wrong: descriptions of answers that were not the model's own, and of errors.
        over: set when the clients are to stop.
    """

    def __init__(self, engine: Engine, address: str, seed: int) -> None:
        """Sets up what clients share.

        Args:
            engine: the loop.
            address: where its endpoint listens.
            seed: of everything.
        """
        self.engine = engine
        self.n_vocab = len(engine.tokenizer)
        draw = random.Random(seed)
        self.header = tuple(draw.randrange(4, self.n_vocab) for _ in range(30))
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.over = threading.Event()
        self._address = address
        # A kept connection may be closed by the server just as the next request goes out.
        self._http = httpx.Client(timeout=120, limits=httpx.Limits(max_keepalive_connections=0))

    def failed(self, error: Exception) -> None:
        self.wrong.append(f"{type(error).__name__}: {error}")

    def compare(
        self,
        prompt: Sequence[int],
        n_new: int,
        ids: tuple[int, ...] | None = None,
        text: str | None = None,
    ) -> None:
        """Compares an answer, as tokens or as text, with what `generate` says."""
        model, tokenizer = self.engine.model, self.engine.tokenizer
        given = torch.tensor([list(prompt)], device=model.device)
        full = model.generate(  # type: ignore[operator]
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=n_new,
            do_sample=False,
            eos_token_id=None,
        )
        expected = tuple(full[0, len(prompt) :].tolist())
        self.counts["compared"] += 1
        if ids not in (None, expected) or text not in (None, decode(tokenizer, expected)):
            self.wrong.append(f"answer: got {ids or text!r}, wants {expected}")

    def over_http(
        self,
        client: str,
        agent: str,
        prompt: Sequence[int],
        fixed_len: int,
        steps: dict[str, float],
        n_new: int,
        leaves: bool,
    ) -> str:
        """Asks over HTTP for a stream, and reads it, or leaves in the middle."""
        hints = {
            "client": client,
            "agent": agent,
            "fixed_tokens": fixed_len,
            "steps": {a: None if s == math.inf else s for a, s in steps.items()},
        }
        body = {
            "model": "soak",
            "prompt": list(prompt),
            "max_tokens": n_new,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
            "x_agent": hints,
        }
        text = ""
        with self._http.stream("POST", f"{self._address}/v1/completions", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    text += event["choices"][0]["text"]
                    if leaves:
                        break
        return text

    def check(self) -> None:
        """Stops nobody, and verifies that the cache is consistent as it is."""
        assert self.engine.cache is not None
        self.engine.cache.check()


class Client(threading.Thread):
    """Runs workflows until it is told to stop; now and then it starts anew as someone else."""

    def __init__(self, soak: Soak, seed: int) -> None:
        super().__init__(name=f"client-{seed}", daemon=True)
        self._soak = soak
        self._draw = random.Random(seed)
        self._seed = seed

    def run(self) -> None:
        n = 0
        while not self._soak.over.is_set():
            n += 1
            try:
                self._workflow(f"c{self._seed}.{n}")
            except Exception as error:
                if not self._soak.over.is_set():
                    self._soak.failed(error)

    def _workflow(self, name: str) -> None:
        """Some rounds of a workflow of a client that is never heard of again."""
        draw = self._draw
        graph = draw.choice(
            [sequential_graph(draw.randint(2, 5), draw.randint(1, 2)), parallel_graph(3)]
        )
        # A header that all clients share, and a part of the agent's own.
        fixed = {a: (*self._soak.header, *self._ids(draw.randint(20, 80))) for a in graph.agents}
        run = graph.run()
        for _ in range(draw.randint(3, 25)):
            if not run.ready or self._soak.over.is_set():
                return
            agent = draw.choice(run.ready)
            run.start(agent)
            prompt = (*fixed[agent], *self._ids(draw.randint(1, 30)))
            self._call(name, agent, prompt, len(fixed[agent]), run.steps())
            ways = run.options(agent)
            run.finish(agent, [draw.choice(ways)] if ways else ())

    def _call(
        self,
        client: str,
        agent: str,
        prompt: Sequence[int],
        fixed_len: int,
        steps: dict[str, float],
    ) -> None:
        soak, draw = self._soak, self._draw
        n_new = draw.randint(1, 24)
        if draw.random() < 0.2:
            leaves = draw.random() < 10 * FAULT_SHARE
            text = soak.over_http(client, agent, prompt, fixed_len, steps, n_new, leaves)
            soak.counts["left" if leaves else "over http"] += 1
            if not leaves and draw.random() < CHECK_SHARE:
                soak.compare(prompt, n_new, text=text)
        else:
            future = soak.engine.submit(
                prompt, client, agent, fixed_len, steps, n_new, ignore_eos=True
            )
            if draw.random() < FAULT_SHARE:
                time.sleep(draw.random() * 0.02)
                soak.counts["cancelled"] += future.cancel()
            try:
                answer = future.result(120)
            except CancelledError:
                return
            soak.counts["answers"] += 1
            if draw.random() < CHECK_SHARE:
                soak.compare(prompt, n_new, ids=answer.ids)

    def _ids(self, n: int) -> list[int]:
        return [self._draw.randrange(4, self._soak.n_vocab) for _ in range(n)]


@contextmanager
def serving(model_name: str, device_tokens: int, seed: int) -> Iterator[tuple[Soak, Faults]]:
    """A loop over a small cache on three tiers, whose copies fail now and then, and its endpoint.

    Args:
        model_name: as `load_model` takes it.
        device_tokens: room on the device; the host has twice as much, the disk four times.
        seed: of everything.
    """
    model, tokenizer = load_model(model_name)
    room = device_tokens * kv_bytes_per_token(model)
    with tempfile.TemporaryDirectory() as folder:
        tiers: list[Tier] = [DeviceTier(room), HostTier(2 * room), DiskTier(4 * room, folder)]
        cache = PrefixCache(
            tiers,
            StepsToExecution(),
            Prefetcher(),
            fingerprint=fingerprint(model),
            stale_after=60.0,
        )
        faults = Faults(cache, seed)
        with cache, Engine(model, tokenizer, cache, max_batch=4) as engine:
            config = uvicorn.Config(create_app(engine, "soak"), port=0, log_level="error")
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            while not server.started:
                time.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            try:
                yield Soak(engine, f"http://127.0.0.1:{port}", seed), faults
            finally:
                server.should_exit = True
                thread.join(20)


def run(
    minutes: float,
    model_name: str = "tiny",
    n_clients: int = 4,
    device_tokens: int = 600,
    seed: int = 0,
    every: float = 30.0,
    tell: Callable[[str], Any] = print,
) -> list[str]:
    """Soaks the loop.

    Args:
        minutes: how long.
        model_name: as `load_model` takes it.
        n_clients: clients at once.
        device_tokens: room on the device, in tokens; the pressure.
        seed: of everything.
        every: seconds between two lines.
        tell: takes the lines.

    Returns:
        What was wrong: answers, errors, an inconsistent cache, something left behind, or memory
        that grew: by more than a tenth from the second quarter to the last.
    """
    process, memory = psutil.Process(), []
    with serving(model_name, device_tokens, seed) as (soak, faults):
        clients = [Client(soak, seed * 1000 + i) for i in range(n_clients)]
        for client in clients:
            client.start()
        start = time.monotonic()
        tell(
            f"{'minute':>7} {'RSS MB':>7} {'answers':>8} {'compared':>8} {'wrong':>5} {'faults':>6}"
            f" {'cancelled':>9} {'hit rate':>8} {'nodes':>6} {'threads':>7}"
        )
        while time.monotonic() < start + 60 * minutes:
            time.sleep(min(every, max(0.0, start + 60 * minutes - time.monotonic())))
            soak.check()
            memory.append(process.memory_info().rss / 1e6)
            stats = soak.engine.stats()
            tell(
                f"{(time.monotonic() - start) / 60:7.1f} {memory[-1]:7.0f} "
                f"{stats['completed']:8} {soak.counts['compared']:8} {len(soak.wrong):5} "
                f"{faults.n:6} {stats['cancelled']:9} {stats['cache']['hit_rate']:8.2f} "
                f"{stats['cache']['nodes']:6} {threading.active_count():7}"
            )
        soak.over.set()
        for client in clients:
            client.join(150)
            if client.is_alive():
                soak.wrong.append(f"{client.name}: never got its answer")
        assert soak.engine.cache is not None
        soak.engine.cache.settle(60)
        soak.check()
        stats = soak.engine.stats()
        left = {"running": stats["running"], "waiting": stats["waiting"]}
        left["leases"] = stats["cache"]["leases"]
        if any(left.values()):
            soak.wrong.append(f"left behind: {left}")
        tell(f"{dict(soak.counts)}")
    quarter = len(memory) // 4
    if quarter:
        before = statistics.median(memory[quarter : 2 * quarter])
        after = statistics.median(memory[-quarter:])
        tell(f"memory: {before:.0f} MB in the second quarter, {after:.0f} MB in the last")
        if after > 1.1 * before:
            soak.wrong.append(f"memory grew from {before:.0f} to {after:.0f} MB")
    return soak.wrong


def main() -> None:
    """Reads the command line; ends with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--model", default="tiny", help="smollm2, tiny, a folder, a hub name")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--device-tokens", type=int, default=600, help="room on the device")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two lines")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # the faults are counted
    wrong = run(
        given.minutes, given.model, given.clients, given.device_tokens, given.seed, given.every
    )
    for line in wrong[:20]:
        print("wrong:", line)
    print("sound" if not wrong else f"{len(wrong)} things wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
