"""Time that passes as events say, and a link that copies in it; the tensors hold no memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor

from assay.papers.kvflow.blocks import n_bytes
from assay.papers.kvflow.link import DEMAND
from assay.papers.kvflow.tiers import HostTier
from assay.papers.kvflow.timeline import Timeline


class Clock:
    """A heap of events, those of one time in the order in which they were added.

    Attributes:
        now: Seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], Any]]] = []
        self._numbers = count()

    def after(self, seconds: float, event: Callable[[], Any]) -> None:
        """Adds an event.

        Args:
            seconds: From now.
            event: What to call.
        """
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def run(self) -> None:
        """Calls events until there are none."""
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()


class VirtualTransfer:
    """A copy under way, as `link.Transfer`, except that nobody can wait for it.

    Attributes:
        n_parts: Layers.
        n_bytes: All that it moves.
        priority: Of `link`.
        n_copied: Layers that have arrived.
        done: Whether all have, and the owner was told.
        error: Never anything.
    """

    error = None

    def __init__(
        self,
        n_parts: int,
        n_bytes: int,
        priority: int,
        name: str,
        on_done: Callable[[Any], Any],
    ) -> None:
        self.n_parts = n_parts
        self.n_bytes = n_bytes
        self.priority = priority
        self.name = name
        self.n_copied = 0
        self.done = False
        self.on_done = on_done


class VirtualLink:
    """What `link.Link` is to the real cache: one queue per direction, layer by layer."""

    def __init__(
        self,
        clock: Clock,
        copy_s: Callable[[float], float],
        timeline: Timeline,
        on_part: Callable[[], Any],
    ) -> None:
        """Makes an idle link.

        Args:
            clock: Its time.
            copy_s: Seconds for a number of bytes.
            timeline: Where copies are recorded.
            on_part: Called when a layer has arrived.
        """
        self._clock = clock
        self._copy_s = copy_s
        self._timeline = timeline
        self._on_part = on_part
        self._queues: dict[str, list[VirtualTransfer]] = {}
        self._busy: set[str] = set()

    def copy(
        self,
        direction: str,
        source: Any,
        destination: Tensor,
        on_done: Callable[[Any], Any] = lambda transfer: None,
        priority: int = DEMAND,
        name: str = "copy",
    ) -> VirtualTransfer:
        """Starts a copy; the arguments are those of `link.Link.copy`."""
        transfer = VirtualTransfer(len(destination), n_bytes(destination), priority, name, on_done)
        self._queues.setdefault(direction, []).append(transfer)
        # Begun by an event of its own: who asked for it does not have it in hand yet.
        self._clock.after(0.0, lambda: self._start_part(direction))
        return transfer

    def pending(self, direction: str) -> int:
        """Transfers of a direction that have not ended."""
        return len(self._queues.get(direction, ()))

    def _start_part(self, direction: str) -> None:
        queue = self._queues[direction]
        if direction in self._busy or not queue:
            return
        self._busy.add(direction)
        # The queue is in order of arrival, and `min` returns the first of equals.
        transfer = min(queue, key=lambda waiting: waiting.priority)
        seconds = self._copy_s(transfer.n_bytes / transfer.n_parts)
        self._clock.after(seconds, lambda: self._end_part(direction, transfer, seconds))

    def _end_part(self, direction: str, transfer: VirtualTransfer, seconds: float) -> None:
        self._busy.discard(direction)
        now, size = self._clock.now, transfer.n_bytes / transfer.n_parts
        self._timeline.add(direction, transfer.name, now - seconds, now, size)
        transfer.n_copied += 1
        if transfer.n_copied == transfer.n_parts:
            self._queues[direction].remove(transfer)
            transfer.on_done(transfer)
            transfer.done = True
        self._start_part(direction)
        self._on_part()


class VirtualHost(HostTier):
    """A host tier that counts bytes alone."""

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")


class VirtualTimeline(Timeline):
    """A timeline that joins what follows on at once under the same name."""

    def add(self, track: str, name: str, start: float, end: float, amount: float = 0.0) -> None:
        last = self._last.get(track)
        if last is not None and last[0] == name and abs(last[2] - start) <= 1e-9 * (1 + start):
            last[2], last[3] = end, last[3] + amount
            return
        self.flush(track)
        self._last[track] = [name, start, end, amount]

    def __init__(self) -> None:
        super().__init__(limit=10_000_000)
        self._last: dict[str, list[Any]] = {}

    def flush(self, track: str) -> None:
        """Records what `add` holds back of a track."""
        held = self._last.pop(track, None)
        if held is not None:
            super().add(track, *held)

    def flush_all(self) -> None:
        """Records what `add` holds back."""
        for track in list(self._last):
            self.flush(track)
