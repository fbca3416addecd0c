"""Hard limits on calls and money."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from assay.toolkits.llm.errors import BudgetExceeded


class Charge:
    """One call in a budget: `cost` is 0 until it succeeds, None where it is not known."""

    def __init__(self) -> None:
        self.cost: float | None = 0.0


class Budget:
    """Raises before the call that might go past a limit. Clients may share one, across threads.

    Args:
        max_cost: US dollars; needs a known price.
        max_calls: calls that reach the model, failed ones too; recorded replies are free.

    Raises:
        ValueError: for a limit below 0.
    """

    def __init__(self, max_cost: float | None = None, max_calls: int | None = None) -> None:
        for name, limit in (("max_cost", max_cost), ("max_calls", max_calls)):
            if limit is not None and not limit >= 0:
                raise ValueError(f"{name}: got {limit}, wants >= 0 or None")
        self.max_cost = max_cost
        self.max_calls = max_calls
        self.cost = 0.0
        self.calls = 0
        self._reserved = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def charge(self, estimate: float | None) -> Iterator[Charge]:
        """Around a call of at most `estimate` US dollars (None: unknown).

        Raises:
            BudgetExceeded: before the call.
        """
        with self._lock:
            if self.max_calls is not None and self.calls >= self.max_calls:
                raise BudgetExceeded(f"max_calls: {self.calls} of {self.max_calls} calls made")
            if self.max_cost is not None:
                if estimate is None:
                    raise BudgetExceeded(
                        "max_cost: no price is known for this model; pass a PriceTable or no limit"
                    )
                spoken_for = self.cost + self._reserved
                if spoken_for + estimate > self.max_cost:
                    raise BudgetExceeded(
                        f"max_cost: {spoken_for:.4f} of {self.max_cost:.4f} US dollars spent or "
                        f"reserved, the next call may cost {estimate:.4f}"
                    )
            reserved = estimate or 0.0
            self.calls += 1
            self._reserved += reserved
        charge = Charge()
        try:
            yield charge
        finally:
            with self._lock:
                self._reserved -= reserved
                # A reply without a token count is charged what was set aside for it.
                self.cost += reserved if charge.cost is None else charge.cost
