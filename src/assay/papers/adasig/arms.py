"""The ways of clipping that are compared, and the grid on which each is tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.study import Param

ROUNDS = ((0.05, 0.1, 0.2, 0.4, 0.8, 1.6), (3.2,))
"""Learning rates of the first round of tuning and, as quantile clipping was still best at the end
of that grid, of a second round."""

RATES = ROUNDS[0] + ROUNDS[1]
"""Learning rates of the grid, each times the clipping bound C: an update's size does not depend on
how its unit is chosen, so that one grid serves all."""

TUNING_SEEDS = 8


@dataclass(frozen=True)
class Arm:
    """One way of clipping.

    Args:
        name: in words.
        clipping: as `AdaSigPrivacyEngine` calls it.
        knob: its own parameter, by the name the engine gives it.
        values: the two values of it that are tried with each learning rate.
        options: what else the engine is told.
    """

    name: str
    clipping: str
    knob: str
    values: tuple[float, float]
    options: Mapping[str, Param] = field(default_factory=dict)


ARMS: Mapping[str, Arm] = {
    "flat": Arm("constant", "flat", "max_grad_norm", (0.1, 1.0)),
    "adaptive": Arm(
        "quantile",
        "adaptive",
        "target_unclipped_quantile",
        (0.3, 0.7),
        {
            "clipbound_learning_rate": 0.2,
            "min_clipbound": 1e-4,
            "max_clipbound": 1e4,
        },
    ),
    "auto_s": Arm("AUTO-S", "auto_s", "r", (0.01, 0.1)),
    "psac": Arm("PSAC", "psac", "r", (0.1, 1.0)),
    "sigmoid": Arm("fixed sigmoid", "sigmoid", "initial_slope", (1.0, 5.0)),
    "adasig": Arm("AdaSig", "adasig", "initial_slope", (1.0, 5.0)),
    "joint": Arm(
        "AdaSig, joint accounting", "adasig", "initial_slope", (1.0, 5.0), {"accounting": "joint"}
    ),
}
"""C is 1, from which quantile clipping starts and which constant clipping tunes.

AUTO-S and PSAC are only scaled by C, which the learning rate does as well: r is what they have to
tune. Quantile clipping learns C at the rate its authors recommend, with their noise on the count
of unclipped gradients, a twentieth of a batch."""

BASELINES = ("flat", "adaptive", "auto_s", "psac")
