"""What an agent's prompts have in common: the boundary of its fixed prompt (section 3.3)."""

from __future__ import annotations

from collections import deque

from assay.papers.kvflow.radix_tree import common_prefix

N_PROMPTS = 3
"""Prompts whose common beginning is taken for the fixed prompt where nobody says what it is."""


class AgentPrompts:
    """The last prompts of one agent.

    Attributes:
        calls: prompts so far.
        fixed_len: tokens of its fixed prompt, as told or found; None before either.
        last_seen: when the last came, in seconds of the cache's clock.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.fixed_len: int | None = None
        self.last_seen = 0.0
        self._last: deque[tuple[int, ...]] = deque(maxlen=N_PROMPTS)
        self._shared: int | None = None
        self._fixed_tokens = 0
        self._fixed_hits = 0

    def add(self, prompt: tuple[int, ...], now: float) -> None:
        """Takes note of a prompt."""
        self.calls += 1
        self.last_seen = now
        if self._last:
            self._shared = common_prefix(self._last[-1], prompt)
        self._last.append(prompt)

    def found(self) -> int | None:
        """Length of the common beginning of the last prompts; None after only one."""
        if len(self._last) < 2:
            return None
        first = self._last[0]
        return min(common_prefix(first, other) for other in list(self._last)[1:])

    def count(self, fixed_len: int, n_cached: int) -> None:
        """Takes note of how much of a fixed prompt was cached when it was asked for."""
        self.fixed_len = fixed_len
        self._fixed_tokens += fixed_len
        self._fixed_hits += min(fixed_len, n_cached)

    def stats(self) -> dict[str, float | int | None]:
        """See `PrefixCache.stats`."""
        differs = self._shared is not None and self._shared < (self.fixed_len or 0)
        share = self._fixed_hits / self._fixed_tokens if self._fixed_tokens else None
        return {
            "calls": self.calls,
            "fixed_len": self.fixed_len,
            "fixed_hit_share": share,
            "first_difference": self._shared if differs else None,
        }
