"""The return-aware context: which interval of returns an episode's return falls into."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.toolkits.checks import whole

MAX_CLIPPED = 0.05
"""Largest share of episodes outside the bounds that passes without a warning."""


class ReturnContext:
    """Discretises the undiscounted return of an episode into one of m contexts.

    Equal intervals of [low, high], or intervals of any width given by their left edges. A return
    outside the bounds counts to the nearest interval.

    Note that the return tells what *all* agents did and how lucky they were: where rewards are
    random, a context is partly luck, and the maximum over contexts expects the best of it.

    Args:
        low: Smallest expected return, in units of reward.
        high: Largest expected return.
        bins: Number of contexts m >= 1.
        edges: Instead of the three, the left edges of the intervals, increasing; the last
            interval has no upper end.

    Attributes:
        edges: Left edges, ``(m,)`` float64.
        bins: m.
        counts: Episodes counted in each interval so far, ``(m,)``.
        clipped: How many of them were outside the bounds.

    Raises:
        TypeError: Where neither form is given whole, or `bins` is no integer.
        ValueError: Where ``low >= high``, ``bins < 1``, or edges do not increase.

    Source: the paper's section on the method.
    """

    def __init__(
        self,
        low: float | None = None,
        high: float | None = None,
        bins: int | None = None,
        *,
        edges: Sequence[float] | None = None,
    ) -> None:
        if edges is not None:
            if low is not None or high is not None or bins is not None:
                raise TypeError("edges: got low, high or bins as well, wants one form or the other")
            self.edges = np.array(edges, dtype=np.float64)
            if self.edges.ndim != 1 or not self.edges.size or not np.isfinite(self.edges).all():
                raise ValueError(f"edges: got {edges}, wants a list of finite numbers")
            if not (np.diff(self.edges) > 0).all():
                raise ValueError(f"edges: got {list(edges)}, wants increasing numbers")
            self.high = np.inf
        else:
            if low is None or high is None or bins is None:
                raise TypeError("low, high, bins: wants all three, or edges")
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise ValueError(f"low, high: got {low} and {high}, wants finite low < high")
            with np.errstate(over="ignore", invalid="ignore"):
                self.edges = np.linspace(low, high, whole("bins", bins), endpoint=False)
            if not (np.diff(self.edges, append=high) > 0).all():
                raise ValueError(f"bins: got {bins}, wants fewer between {low!r} and {high!r}")
            self.high = float(high)
        self.bins = len(self.edges)
        self.counts = np.zeros(self.bins, dtype=np.int64)
        self.clipped = 0

    @classmethod
    def from_returns(cls, returns: ArrayLike, bins: int, tail: float = 0.01) -> ReturnContext:
        """Bounds at two quantiles of returns seen, such as those of random episodes.

        Args:
            returns: Returns of at least two episodes.
            bins: Number of contexts m.
            tail: Share of the returns left outside each bound, 0 to 0.5.

        Raises:
            ValueError: Where the two quantiles are equal.
        """
        low, high = np.quantile(np.asarray(returns, dtype=np.float64), [tail, 1 - tail])
        return cls(float(low), float(high), bins)

    def index(self, returns: ArrayLike) -> np.ndarray:
        """The context of each return.

        Args:
            returns: Undiscounted returns, of any shape.

        Returns:
            Indices 0 to m - 1, int64, of the same shape.

        Raises:
            ValueError: Where a return is NaN or infinite.
        """
        values = np.asarray(returns, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("returns: got NaN or infinity, wants finite returns")
        return (np.searchsorted(self.edges, values, side="right") - 1).clip(0)

    def onehot(self, returns: ArrayLike) -> np.ndarray:
        """The context of each return as a float32 vector, ``(..., m)``.

        Args:
            returns: As in `index`, which also says what it raises.
        """
        return np.eye(self.bins, dtype=np.float32)[self.index(returns)]

    def count(self, returns: ArrayLike) -> None:
        """Adds finished training episodes to `counts` and `clipped`.

        Args:
            returns: As in `index`, which also says what it raises.
        """
        values = np.asarray(returns, dtype=np.float64)
        self.counts += np.bincount(self.index(values).ravel(), minlength=self.bins)
        self.clipped += int(((values < self.edges[0]) | (values > self.high)).sum())

    def problem(self) -> str | None:
        """What makes these intervals useless for the episodes counted, or None."""
        total = self.counts.sum()
        if not total:
            return None
        if self.clipped > MAX_CLIPPED * total:
            return (
                f"{self.clipped / total:.0%} of the returns are outside "
                f"[{self.edges[0]:g}, {self.high:g}] and share an end interval with others"
            )
        if self.bins > 1 and self.counts.max() == total:
            return f"all {total} returns fall into one of {self.bins} intervals"
        return None

    def warn(self) -> None:
        """Warns where `problem` finds one."""
        if problem := self.problem():
            warnings.warn(f"the return context says little: {problem}", stacklevel=2)

    def state_dict(self) -> dict[str, Any]:
        """Edges, upper bound and counts, as lists and numbers."""
        return {
            "edges": self.edges.tolist(),
            "high": None if self.high == np.inf else self.high,
            "counts": self.counts.tolist(),
            "clipped": self.clipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Args:
            state: Of a context with any number of intervals.
        """
        self.edges = np.array(state["edges"], dtype=np.float64)
        self.high = np.inf if state["high"] is None else float(state["high"])
        self.bins = len(self.edges)
        self.counts = np.array(state["counts"], dtype=np.int64)
        self.clipped = int(state["clipped"])
