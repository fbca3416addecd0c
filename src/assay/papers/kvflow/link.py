"""Background copies between tiers: one thread and one queue per direction.

PCIe is full duplex, so loads and offloads do not wait for each other. A transfer goes layer by
layer, which lets the model start on the first layers while the rest is still under way, and lets
a load that a request waits for overtake a prefetch in the middle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor

from assay.papers.kvflow.blocks import n_bytes
from assay.papers.kvflow.timeline import Timeline
from assay.toolkits.checks import number, one_of

logger = logging.getLogger(__name__)

DIRECTIONS = ("load", "offload", "disk_read", "disk_write")

DEMAND, PREFETCH, BACKUP = 0, 1, 2
"""Priorities of transfers; the smallest goes first."""

_IDLE_S = 2.0


class TransferFailed(RuntimeError):
    """A copy between tiers did not end well; what it was to bring must be computed again."""


class Transfer:
    """A copy under way.

    Attributes:
        n_parts: into how many parts it is divided, the layers of a block.
        n_bytes: all that it moves.
        priority: DEMAND, PREFETCH or BACKUP; may be changed while it waits.
        error: what went wrong; None until then.
    """

    def __init__(
        self,
        part: Callable[[int], Any],
        n_parts: int,
        n_bytes: int,
        priority: int,
        name: str,
        on_done: Callable[[Transfer], Any],
    ) -> None:
        self.n_parts = n_parts
        self.n_bytes = n_bytes
        self.priority = priority
        self.name = name
        self.error: BaseException | None = None
        self._part = part
        self._on_done = on_done
        self._n_copied = 0
        self._done = False
        self._changed = threading.Condition()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not, and its owner was told."""
        return self._done

    def wait(self, layer: int | None = None, timeout: float | None = None) -> None:
        """Blocks until a layer has arrived.

        Args:
            layer: which; None waits until all have, and until the transfer's owner was told.
            timeout: seconds to wait at most.

        Raises:
            TransferFailed: the transfer failed before it.
            TimeoutError: it took too long.
        """
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._done or (layer is not None and self._n_copied > layer), timeout
            )
            if layer is not None and self._n_copied > layer:
                return
            if self.error is not None:
                raise TransferFailed(f"{self.name}: {self.error!r}") from self.error
        if not there:
            raise TimeoutError(f"{self.name}: not there after {timeout} s")

    def _copy_part(self) -> None:
        self._part(self._n_copied)

    def _advance(self) -> None:
        with self._changed:
            self._n_copied += 1
            self._changed.notify_all()

    def _finish(self, error: BaseException | None) -> None:
        self.error = error
        try:
            self._on_done(self)
        except Exception:
            logger.exception("%s: its owner could not take the end of the transfer", self.name)
        with self._changed:
            self._done = True
            self._changed.notify_all()


class Link:
    """The way between the tiers.

    Attributes:
        gbps: the rate to which loads and offloads are slowed down, in 10^9 bytes a second each
            way; None copies as fast as the machine does. A rate is an emulation of a slower link,
            by sleeping, and figures made with one must say so.
        timeline: where the copies are recorded, if anywhere.
    """

    def __init__(self, gbps: float | None = None, timeline: Timeline | None = None) -> None:
        """Makes an idle link; its threads are started as they are needed.

        Args:
            gbps: see above, > 0.
            timeline: see above.

        Raises:
            TypeError, ValueError: gbps is no number > 0.
        """
        self.gbps = gbps if gbps is None else number("gbps", gbps, above=0.0)
        self.timeline = timeline
        self._queues: dict[str, list[Transfer]] = {name: [] for name in DIRECTIONS}
        self._workers: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._numbers = count()
        self._closed = False

    @property
    def emulated(self) -> bool:
        """Whether copies are slowed down to a stated rate."""
        return self.gbps is not None

    def copy(
        self,
        direction: str,
        source: Tensor | Callable[[], Tensor],
        destination: Tensor,
        on_done: Callable[[Transfer], Any] = lambda transfer: None,
        priority: int = DEMAND,
        name: str = "copy",
    ) -> Transfer:
        """Copies a block into another, layer by layer.

        Args:
            direction: "load", "offload", "disk_read" or "disk_write".
            source: the block, or what reads it (in the link's thread).
            destination: a block of the same shape, which nobody else writes to.
            on_done: called in the link's thread once it has ended; look at `error`.
            priority: DEMAND, PREFETCH or BACKUP.
            name: for the timeline.

        Raises:
            ValueError: the direction is none.
            RuntimeError: the link is closed.
        """
        copier = _LayerCopier(source, destination)
        return self._submit(
            direction,
            Transfer(copier, len(destination), n_bytes(destination), priority, name, on_done),
        )

    def run(
        self,
        direction: str,
        work: Callable[[], Any],
        n_bytes: int,
        on_done: Callable[[Transfer], Any] = lambda transfer: None,
        priority: int = BACKUP,
        name: str = "write",
    ) -> Transfer:
        """Calls `work` in the thread of a direction; the other arguments are those of `copy`.

        Args:
            direction, on_done, priority, name: as for `copy`.
            work: what to call.
            n_bytes: what it moves.

        Raises:
            ValueError: the direction is none.
            RuntimeError: the link is closed.
        """
        part = Transfer(lambda _: work(), 1, n_bytes, priority, name, on_done)
        return self._submit(direction, part)

    def pending(self, direction: str) -> int:
        """Transfers of a direction that have not ended."""
        return len(self._queues[direction])

    def close(self) -> None:
        """Fails what is still under way and stops the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            workers = list(self._workers.values())
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join()

    def _submit(self, direction: str, transfer: Transfer) -> Transfer:
        one_of("direction", direction, DIRECTIONS)
        with self._changed:
            if self._closed:
                raise RuntimeError("link: closed")
            self._queues[direction].append(transfer)
            if direction not in self._workers:
                worker = threading.Thread(
                    target=self._work, args=(direction,), name=f"kvflow-{direction}", daemon=True
                )
                self._workers[direction] = worker
                worker.start()
            self._changed.notify_all()
        return transfer

    def _work(self, direction: str) -> None:
        queue = self._queues[direction]
        run = _Run(direction, self.timeline)
        free_at = time.perf_counter()
        while True:
            with self._changed:
                if not queue:
                    self._changed.wait_for(lambda: queue or self._closed, _IDLE_S)
                    free_at = time.perf_counter()
                if not queue:  # idle threads end, so that a forgotten link can be collected
                    del self._workers[direction]
                    return
                # The queue is in order of arrival, and `min` returns the first of equals.
                transfer = min(queue, key=lambda waiting: waiting.priority)
                closed = self._closed
            run.switch_to(transfer)
            error: BaseException | None = None
            try:
                if closed:
                    raise RuntimeError("link: closed")
                transfer._copy_part()
            except BaseException as raised:  # whatever ends this copy must not end the thread
                error = raised
            if error is None:
                free_at = self._pace(direction, transfer, free_at)
                transfer._advance()
                if transfer._n_copied < transfer.n_parts:
                    continue
            run.switch_to(None)
            with self._changed:
                queue.remove(transfer)
            transfer._finish(error)

    def _pace(self, direction: str, transfer: Transfer, free_at: float) -> float:
        """Sleeps until the emulated link would be free again, and returns when that is.

        The time is carried from part to part, so that sleeping a little too long adds up to
        nothing.
        """
        now = time.perf_counter()
        if self.gbps is None or direction not in ("load", "offload"):
            return now
        free_at = max(now, free_at + transfer.n_bytes / transfer.n_parts / (self.gbps * 1e9))
        time.sleep(free_at - now)
        return free_at


class _LayerCopier:
    """Copies one layer a call; on a GPU in a stream of its own, finished when it returns."""

    def __init__(self, source: Tensor | Callable[[], Tensor], destination: Tensor) -> None:
        self._source = source
        self._destination = destination
        self._stream: Any = None
        gpus = [t for t in (source, destination) if isinstance(t, Tensor) and t.is_cuda]
        if gpus:
            self._stream = torch.cuda.Stream(gpus[0].device)
            # Kernels that fill the source, or still read the memory that the destination was
            # given, may be queued in the stream of whoever asked for the copy.
            self._stream.wait_stream(torch.cuda.current_stream(gpus[0].device))

    def __call__(self, layer: int) -> None:
        if callable(self._source):
            self._source = self._source()
        if self._stream is None:
            self._destination[layer].copy_(self._source[layer])
            return
        with torch.cuda.stream(self._stream):
            self._destination[layer].copy_(self._source[layer], non_blocking=True)
        self._stream.synchronize()


class _Run:
    """Consecutive parts of one transfer, recorded as one span."""

    def __init__(self, direction: str, timeline: Timeline | None) -> None:
        self._track = "disk" if direction.startswith("disk") else direction
        self._timeline = timeline
        self._transfer: Transfer | None = None
        self._since = 0.0
        self._from = 0

    def switch_to(self, transfer: Transfer | None) -> None:
        if self._timeline is None or transfer is self._transfer:
            return
        now, last = self._timeline.now(), self._transfer
        if last is not None:
            share = (last._n_copied - self._from) / last.n_parts
            self._timeline.add(self._track, last.name, self._since, now, share * last.n_bytes)
        if transfer is not None:
            self._since, self._from = now, transfer._n_copied
        self._transfer = transfer
