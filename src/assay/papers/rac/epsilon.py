"""How the share of random actions falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.toolkits.checks import number, whole


@dataclass(frozen=True)
class Epsilon:
    """Falls on a straight line from `start` to `end` within `steps` environment steps.

    It is asked for at the start of an episode and kept until its end: only so does an episode
    have one joint policy, and its return one meaning.

    Args:
        start: Share of random actions at step 0, 0 to 1.
        end: From step `steps` on, 0 to 1.
        steps: Length of the fall in environment steps, >= 1.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.
    """

    start: float = 1.0
    end: float = 0.05
    steps: int = 50_000

    def __post_init__(self) -> None:
        number("start", self.start, least=0, most=1)
        number("end", self.end, least=0, most=1)
        whole("steps", self.steps)

    def __call__(self, step: Any) -> Any:
        """The share at an environment step, or at each of many.

        Args:
            step: A number of steps, or an array of them.
        """
        share = np.minimum(step / self.steps, 1.0)
        return self.start + share * (self.end - self.start)
