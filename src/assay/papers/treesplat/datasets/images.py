"""Pictures and films as pixels, read when they are asked for."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from assay.papers.treesplat.datasets.frames import Pixels

SUFFIXES = (".png", ".jpg", ".jpeg")


def image_file(folder: Path, name: str) -> Path:
    """The picture that a file's entry names, with or without its suffix.

    Raises:
        FileNotFoundError: there is none; the message says what was looked for.
    """
    path = folder / name
    candidates = [path, *(path.with_name(path.name + suffix) for suffix in SUFFIXES)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{path}: no such picture, nor one ending in {', '.join(SUFFIXES)}")


def image_size(path: Path) -> tuple[int, int]:
    """Width and height, from the file's head alone. Raises ValueError where it is no picture."""
    with _opened(path, path) as image:
        return image.size


def read_image(path: Path) -> Pixels:
    """(H, W, 3) or, where the file has alpha, (H, W, 4) uint8; 16 bits are rounded to 8.

    Raises:
        ValueError: it is no picture, is damaged, or its values have no white that is known.
        OSError: it cannot be read.
    """
    return decode_image(path, path)


def decode_image(source: Path | BinaryIO, name: Path | str) -> Pixels:
    """As `read_image`, from a file or from the bytes of one; `name` is for messages."""
    with _opened(source, name) as image:
        clear = "transparency" in image.info
        if image.mode.startswith("I;16") and not clear:
            gray = np.rint(np.asarray(image, np.float64) * (255 / 65535)).astype(np.uint8)
            return np.repeat(gray[..., None], 3, -1)
        if image.mode[0] in "IF":
            raise ValueError(
                f"{name}: pixels of mode {image.mode}, wants 8 bits, or 16 of opaque gray"
            )
        alpha = image.mode in ("RGBA", "LA", "PA") or clear
        return np.array(image.convert("RGBA" if alpha else "RGB"))


@contextmanager
def _opened(source: Path | BinaryIO, name: Path | str) -> Iterator[Any]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source) as image:
            yield image
    except UnidentifiedImageError:
        raise ValueError(f"{name}: no picture") from None
    except (OSError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        if getattr(error, "filename", None) is not None and isinstance(error, OSError):
            raise  # the file itself cannot be opened, and the message names it
        raise ValueError(f"{name}: damaged picture: {error}") from error


def shrink(pixels: Pixels, factor: int, alpha_mode: str) -> Pixels:
    """Means over squares of factor x factor pixels; colours of straight alpha weigh by it."""
    from PIL import Image

    if factor == 1:
        return pixels
    image = Image.fromarray(pixels)
    if alpha_mode == "premultiplied":
        return np.array(Image.merge(image.mode, [b.reduce(factor) for b in image.split()]))
    return np.array(image.reduce(factor))


class Film:
    """A video file whose frames are read in any order.

    Reading on from the last frame is cheap; a jump decodes from the key frame before.

    Args:
        path: the file.

    Attributes:
        width, height: in pixels.
        rate: frames per second.
        n_frames: how many there are.

    Raises:
        ValueError: it is no video.
    """

    def __init__(self, path: Path):
        import av

        self.path = path
        self._lock = threading.Lock()
        try:
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
        except (av.FFmpegError, IndexError) as error:
            raise ValueError(f"{path}: no video: {error}") from None
        if self._stream.average_rate is None or self._stream.time_base is None:
            raise ValueError(f"{path}: says no frame rate")
        self.width, self.height = self._stream.width, self._stream.height
        self.rate = float(self._stream.average_rate)
        self._tick = float(self._stream.time_base)  # seconds
        self._start = self._stream.start_time or 0
        self.n_frames = self._stream.frames or sum(
            packet.pts is not None for packet in self._container.demux(self._stream)
        )
        self._next = -1
        self._frames: Iterator[Any] = iter(())

    def read(self, i: int) -> Pixels:
        """Frame i as (H, W, 3) uint8.

        Raises:
            ValueError: the film ends before it.
        """
        with self._lock:
            if i != self._next:
                ticks = int(i / self.rate / self._tick)
                self._container.seek(self._start + ticks, stream=self._stream)
                self._frames = self._container.decode(self._stream)
            for frame in self._frames:
                if (frame.pts - self._start) * self._tick * self.rate > i - 0.5:
                    self._next = i + 1
                    return frame.to_ndarray(format="rgb24")
            self._next = -1
        raise ValueError(f"{self.path}: has no frame {i}")
