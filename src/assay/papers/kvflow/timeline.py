"""What computed and what copied when: spans on tracks, as the timeline figure draws them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from assay.toolkits.checks import whole


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time.

    Attributes:
        track: "compute", "load", "offload" or "disk".
        name: what it was.
        start, end: seconds since the timeline was made.
        amount: tokens of a computation, bytes of a copy.
    """

    track: str
    name: str
    start: float
    end: float
    amount: float


class Timeline:
    """Spans recorded by any number of threads; the oldest are dropped beyond a limit."""

    def __init__(self, limit: int = 100_000) -> None:
        """Makes an empty timeline whose clock starts now.

        Args:
            limit: how many spans are kept at most, >= 1.

        Raises:
            TypeError, ValueError: limit is no integer >= 1.
        """
        self._spans: deque[Span] = deque(maxlen=whole("limit", limit))
        self._lock = threading.Lock()
        self._origin = time.perf_counter()

    def now(self) -> float:
        """Seconds since the timeline was made."""
        return time.perf_counter() - self._origin

    def add(self, track: str, name: str, start: float, end: float, amount: float = 0.0) -> None:
        """Records a span, of which the arguments are the attributes."""
        with self._lock:
            self._spans.append(Span(track, name, start, end, amount))

    @contextmanager
    def span(self, track: str, name: str, amount: float = 0.0) -> Iterator[None]:
        """Records how long the body takes, also where it raises."""
        start = self.now()
        try:
            yield
        finally:
            self.add(track, name, start, self.now(), amount)

    def spans(self, track: str | None = None) -> list[Span]:
        """What was recorded, in order of its end; of one track if it is named."""
        with self._lock:
            return [span for span in self._spans if track in (None, span.track)]

    def busy(self, track: str) -> float:
        """Seconds during which anything ran on a track."""
        return sum(end - start for start, end in self._union(track))

    def overlap(self, track: str, other: str) -> float:
        """Seconds during which two tracks were busy at once."""
        theirs = self._union(other)
        return sum(
            max(0.0, min(end, other_end) - max(start, other_start))
            for start, end in self._union(track)
            for other_start, other_end in theirs
        )

    def clear(self) -> None:
        """Forgets all spans; the clock goes on."""
        with self._lock:
            self._spans.clear()

    def _union(self, track: str) -> list[tuple[float, float]]:
        merged: list[tuple[float, float]] = []
        for start, end in sorted((span.start, span.end) for span in self.spans(track)):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged
