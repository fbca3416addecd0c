"""Particles of a run, as an animation."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

_SIZE, _MARGIN = 340, 26
_EVERY = 2
_STEP, _REST = 90, 2500  # milliseconds a frame, and on the last one


def film(frames: np.ndarray, lambdas: Sequence[float], modes: np.ndarray) -> bytes:
    """A GIF of particles in the plane, which repeats.

    Args:
        frames: positions, ``(F, N, 2)``.
        lambdas: where on the path each frame is, F numbers.
        modes: places to mark, ``(K, 2)``.
    """
    from PIL import Image, ImageDraw, ImageFont

    low, high = modes.min() - 4, modes.max() + 4
    font = ImageFont.load_default(size=14)

    def place(points: np.ndarray) -> list[tuple[float, float]]:
        x, y = ((points - low) / (high - low)).T
        return [(_SIZE * a, _MARGIN + _SIZE * (1 - b)) for a, b in zip(x, y, strict=True)]

    pictures = []
    for index in [*range(0, len(frames) - 1, _EVERY), len(frames) - 1]:
        picture = Image.new("RGB", (_SIZE, _SIZE + _MARGIN), "white")
        pen = ImageDraw.Draw(picture)
        pen.text((8, 5), f"lambda = {lambdas[index]:.2f}", "black", font)
        for x, y in place(modes):
            pen.line((x - 5, y, x + 5, y), "#cc3370", 2)
            pen.line((x, y - 5, x, y + 5), "#cc3370", 2)
        for x, y in place(frames[index]):
            if y > _MARGIN:
                pen.ellipse((x - 1.5, y - 1.5, x + 1.5, y + 1.5), "#2e7ebc")
        pictures.append(picture.quantize(16))
    content = io.BytesIO()
    durations = [_STEP] * (len(pictures) - 1) + [_REST]
    pictures[0].save(
        content, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0
    )
    return content.getvalue()
