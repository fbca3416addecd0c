"""The scenes that the study films, by name."""

from __future__ import annotations

from collections.abc import Callable

from assay.papers.treesplat.scenes.capsules import CapsuleBody
from assay.papers.treesplat.scenes.engine import BoxerEngine
from assay.papers.treesplat.scenes.gltf import load_gltf
from assay.papers.treesplat.scenes.mesh import AnimatedMesh
from assay.papers.treesplat.scenes.pendulum import Pendulum
from assay.toolkits.checks import one_of
from assay.toolkits.data import find_data


def _fox(clip: str) -> AnimatedMesh:
    return load_gltf(find_data("treesplat", "Fox.glb"), clip)


def _body(name: str, start: float, seconds: float) -> AnimatedMesh:
    return CapsuleBody.from_bvh(find_data("treesplat", name), start, seconds)


_SCENES: dict[str, Callable[[], AnimatedMesh]] = {
    "fox-run": lambda: _fox("Run"),
    "fox-walk": lambda: _fox("Walk"),
    "fox-survey": lambda: _fox("Survey"),
    "engine": lambda: BoxerEngine(find_data("treesplat", "2CylinderEngine.glb")),
    "jumper": lambda: _body("01_01.bvh", 3.0, 2.0),
    "pendulum": Pendulum,
}
NAMES = tuple(_SCENES)


def load(name: str) -> AnimatedMesh:
    """A scene of the study.

    Args:
        name: one of `NAMES`; "pendulum" reads no data.

    Raises:
        ValueError: there is no such scene; the message lists them.
        MissingData: its file is not there.
    """
    return _SCENES[one_of("name", name, NAMES)]()
