"""A chain that swings: the one scene whose true hierarchy of motion has any depth one likes."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.transform import Rotation

from assay.papers.treesplat.scenes.capsules import Capsule, CapsuleBody
from assay.papers.treesplat.scenes.mesh import Array
from assay.toolkits.checks import number, whole


class Pendulum(CapsuleBody):
    """Links that hang from one another, each swinging against the one above it.

    Not a mechanical double pendulum, which is chaotic: link k turns about its joint by two
    sines of whole numbers of periods, so that the motion closes at t = 1 and each link moves
    with all those above it. `parents` is the chain 0, 1, ..., the true tree.

    Args:
        n_links: links in the chain; the last one's motion is a product of as many.
        swing: largest angle at a joint, in radians.
        duration: seconds of one period.
        seed: of phases and axes.
    """

    def __init__(self, n_links: int = 4, swing: float = 0.5, duration: float = 2.0, seed: int = 0):
        whole("n_links", n_links), number("swing", swing, least=0, most=math.pi)
        rng = np.random.default_rng(seed)
        phases = rng.uniform(0, 2 * math.pi, (n_links, 2))
        periods = rng.integers(1, 3, (n_links, 2))
        down = np.array([0.0, 0, -1])

        def pose(t: float) -> Array:
            angles = swing * np.sin(2 * math.pi * periods * t + phases)
            angles[0] /= 2  # else the whole chain would often swing out of the picture
            world = np.tile(np.eye(4), (n_links, 1, 1))
            for k, turn in enumerate(Rotation.from_euler("xy", angles)):
                above = world[k - 1] if k else np.eye(4)
                world[k, :3, :3] = above[:3, :3] @ turn.as_matrix()
                world[k, :3, 3] = above[:3, 3] + above[:3, :3] @ (down if k else np.zeros(3))
            return world

        links = [Capsule(k, 0.12 * down, 0.88 * down, 0.14) for k in range(n_links)]
        super().__init__(range(-1, n_links - 1), links, pose, duration)
