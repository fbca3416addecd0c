"""Which waiting requests a serving loop takes up next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from assay.toolkits.checks import whole


class Waiting(Protocol):
    """A request as a scheduler sees it.

    Attributes:
        skips: how often others, that came later, were taken up before it.
    """

    skips: int

    def ready(self, load: bool) -> bool:
        """Whether all that the cache holds of its prompt is on the device.

        Args:
            load: whether to start the load of what is not, unless it is under way already.
        """
        ...


W = TypeVar("W", bound=Waiting)


class Scheduler(Protocol):
    """Chooses among the waiting requests, once before every step of the loop."""

    def pick(self, waiting: Sequence[W], n: int) -> list[W]:
        """The requests to take up now.

        Args:
            waiting: in the order in which they came.
            n: how many there is room for.
        """
        ...


class FCFS:
    """First come, first served; what a request has on slower tiers is loaded when it runs."""

    def pick(self, waiting: Sequence[W], n: int) -> list[W]:
        return list(waiting[:n])


class StatusAware:
    """Takes up what is ready and skips requests whose prefix is being loaded (section 3.4)."""

    def __init__(self, max_skips: int = 8) -> None:
        """Sets the bound that keeps a request from waiting for ever.

        Args:
            max_skips: a request that was skipped so often lets nobody pass any more, >= 1.

        Raises:
            TypeError, ValueError: max_skips is no integer >= 1.
        """
        self.max_skips = whole("max_skips", max_skips)

    def pick(self, waiting: Sequence[W], n: int) -> list[W]:
        picked: list[W] = []
        skipped: list[W] = []
        for request in waiting:
            if len(picked) == n:
                break
            # No more loads than there is room for: they hold device memory until they run.
            if request.ready(load=len(picked) + len(skipped) < n):
                picked.append(request)
                for passed in skipped:
                    passed.skips += 1
            else:
                skipped.append(request)
                if request.skips >= self.max_skips:
                    break
        return picked
