"""The rates of each arm that did best on validation views, with a seed that no claim uses.

Two searches: of the basis (or of the MLP) on one scene, then of the motion's coefficients on every
scene. Both are part of the laptop study, and a test holds what is chosen here to their arg-max.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assay.study import Param

Setting = Mapping[str, float]

TUNING_SEED = 1000

BASIS_SCENE = "fox-run"
BASIS_RATES: Mapping[str, tuple[float, ...]] = {
    "flat": (8e-4, 2e-3, 4e-3, 8e-3, 1.6e-2),
    "tree": (8e-4, 2e-3, 4e-3, 8e-3, 1.6e-2),
    "mlp": (4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3),
}
FINAL_SHARES: Mapping[str, tuple[float, ...]] = {
    "flat": (1.0, 0.1, 0.01, 0.003),
    "tree": (1.0, 0.1, 0.01, 0.003),
    "mlp": (0.1,),
}
"""What is tried for the network that all Gaussians share: its rate, and which share of it is left
at the end."""

MIDDLE = 1.2e-3
"""The coefficients' rate meanwhile."""

RATES: Mapping[str, tuple[float, ...]] = {
    "flat": (4e-5, 7.5e-5, 1.5e-4, 3e-4, 6e-4, 1.2e-3, 2.4e-3),
    "tree": (4e-5, 7.5e-5, 1.5e-4, 3e-4, 6e-4, 1.2e-3, 2.4e-3),
    "polynomial": (6e-4, 1.2e-3, 2.4e-3, 4.8e-3),
}
"""What is tried for the coefficients, over the extent of the scene."""

BASIS: Mapping[str, tuple[float, float]] = {
    "flat": (8e-3, 0.01),
    "tree": (8e-3, 0.01),
    "mlp": (1.6e-3, 0.1),
}
"""The chosen rate and share."""

CHOSEN: Mapping[str, Mapping[str, float]] = {
    "fox-run": {"flat": 3e-4, "tree": 7.5e-5, "polynomial": 1.2e-3},
    "engine": {"flat": 3e-4, "tree": 3e-4, "polynomial": 1.2e-3},
    "jumper": {"flat": 1.5e-4, "tree": 3e-4, "polynomial": 2.4e-3},
    "pendulum": {"tree": 3e-4},
}
"""The chosen rates of the coefficients."""


def setting(scene: str, arm: str) -> Setting:
    """The rates of an arm in a scene: "rate" of coefficients, "basis" and its "final" share.

    Args:
        scene: such as "fox-run"; where none was searched the coefficients get a middle rate.
        arm: "none", "flat", "tree", "polynomial" or "mlp"; each has those that it needs.
    """
    found: dict[str, float] = {}
    if arm in RATES:
        found["rate"] = CHOSEN.get(scene, {}).get(arm, MIDDLE)
    if arm in BASIS:
        found["basis"], found["final"] = BASIS[arm]
    return found


def searched() -> Iterator[dict[str, Param]]:
    """Every candidate, as parameters of a trial."""
    for arm in BASIS:
        if arm != "mlp":
            yield from _basis_candidates(arm)
    for scene, arms in CHOSEN.items():
        for arm in arms:
            for rate in RATES[arm]:
                place = {"search": "rate", "scene": scene, "arm": arm}
                yield {**place, **setting(scene, arm), "rate": rate}


def searched_mlp() -> Iterator[dict[str, Param]]:
    """The candidates of the MLP, which take longest."""
    yield from _basis_candidates("mlp")


def _basis_candidates(arm: str) -> Iterator[dict[str, Param]]:
    place: dict[str, Param] = {"search": "basis", "scene": BASIS_SCENE, "arm": arm}
    if arm in RATES:
        place["rate"] = MIDDLE
    for basis in BASIS_RATES[arm]:
        for final in FINAL_SHARES[arm]:
            yield {**place, "basis": basis, "final": final}
