"""What every loader gives: posed frames with times, read when they are asked for."""

from __future__ import annotations

import reprlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.toolkits.checks import number, one_of, whole

Pixels = NDArray[np.uint8]
BACKGROUNDS = {"white": (1.0, 1.0, 1.0), "black": (0.0, 0.0, 0.0)}


@dataclass(frozen=True, eq=False)
class Frame:
    """One posed image.

    Args:
        name: where it comes from, for messages.
        time: in [0, 1].
        viewmat: (4, 4) world-to-camera, OpenCV axes (x right, y down, z forward).
        K: (3, 3) intrinsics in pixels, whose centres lie at + 0.5.
        width, height: of the image, in pixels.
    """

    name: str
    time: float
    viewmat: Tensor
    K: Tensor
    width: int
    height: int


@dataclass(frozen=True)
class TimeScale:
    """How recorded times became t in [0, 1]: t = (recorded - start) / duration.

    Args:
        start: the recorded time of t = 0.
        duration: from t = 0 to t = 1; 0 where all frames share one time.
        unit: "seconds", "frames", or "clip" for times that came normalised.
    """

    start: float = 0.0
    duration: float = 1.0
    unit: str = "clip"


class DynamicDataset:
    """A split of a capture: frames, and their images read on demand.

    Images may differ in size; each frame says its own.

    Args:
        frames: the frames.
        read: gives frame i's pixels, (H, W, 3) or (H, W, 4) uint8, sRGB.
        background: what transparent pixels are composited on: "white", "black" or None, which
            refuses images that have alpha.
        alpha_mode: "straight" where colours were not multiplied by alpha (PNG's own rule, and
            D-NeRF's), or "premultiplied".
        cache_bytes: bound on the decoded pixels that are kept; the longest unused leave first.

    Raises:
        ValueError: an argument is none of those, or a time is not in [0, 1].
    """

    def __init__(
        self,
        frames: Sequence[Frame],
        read: Callable[[int], Pixels],
        background: str | None = "white",
        alpha_mode: str = "straight",
        cache_bytes: int = 512 * 2**20,
    ):
        if background is not None:
            one_of("background", background, BACKGROUNDS)
        self.frames = tuple(frames)
        self.background = background
        self.alpha_mode = one_of("alpha_mode", alpha_mode, ("straight", "premultiplied"))
        self.cache_bytes = whole("cache_bytes", cache_bytes, 0)
        for frame in self.frames:
            if not 0 <= frame.time <= 1:
                raise ValueError(f"frame {frame.name}: time {frame.time}, wants 0 to 1")
        self._read = read
        self._cache: OrderedDict[int, Pixels] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def times(self) -> Tensor:
        """(F,) times in [0, 1], float64."""
        return torch.tensor([frame.time for frame in self.frames], dtype=torch.float64)

    @property
    def viewmats(self) -> Tensor:
        """(F, 4, 4) world-to-camera matrices."""
        return torch.stack([frame.viewmat for frame in self.frames])

    @property
    def Ks(self) -> Tensor:  # noqa: N802
        """(F, 3, 3) intrinsics."""
        return torch.stack([frame.K for frame in self.frames])

    @property
    def mixed_sizes(self) -> bool:
        """Whether frames differ in size."""
        return len({(frame.width, frame.height) for frame in self.frames}) > 1

    def image(self, i: int, background: Tensor | None = None) -> Tensor:
        """The image of a frame.

        Args:
            i: number of the frame.
            background: (3,) colour in [0, 1] in place of the data set's, as for random ones.

        Returns:
            (H, W, 3) float32 in [0, 1], composited on the background.

        Raises:
            ValueError: it is not of its frame's size, or has alpha and there is no background.
        """
        pixels = torch.from_numpy(self.pixels(i)).float() / 255
        if pixels.shape[-1] == 3:
            return pixels
        if background is None:
            if self.background is None:
                raise ValueError(
                    f"frame {self.frames[i].name}: has alpha, wants background='white' or 'black'"
                )
            background = torch.tensor(BACKGROUNDS[self.background])
        rgb, alpha = pixels[..., :3], pixels[..., 3:]
        if self.alpha_mode == "straight":
            rgb = rgb * alpha
        elif bool((rgb > alpha + 1.5 / 255).any()):
            raise ValueError(
                f"frame {self.frames[i].name}: colours exceed alpha, so they are not "
                "premultiplied: wants alpha_mode='straight'"
            )
        return rgb + (1 - alpha) * background.to(rgb)

    def alpha(self, i: int) -> Tensor | None:
        """(H, W) float32 alpha in [0, 1] of frame i; None where its image has none."""
        pixels = self.pixels(i)
        return torch.from_numpy(pixels[..., 3]).float() / 255 if pixels.shape[-1] == 4 else None

    def pixels(self, i: int) -> Pixels:
        """Frame i as it is stored: (H, W, 3) or (H, W, 4) uint8, not to be written to.

        Raises:
            ValueError: it is no such image, or not of its frame's size.
        """
        i = range(len(self.frames))[i]
        with self._lock:
            if i in self._cache:
                self._cache.move_to_end(i)
                return self._cache[i]
        frame = self.frames[i]
        pixels = np.ascontiguousarray(self._read(i))
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] not in (3, 4):
            raise ValueError(
                f"frame {frame.name}: {pixels.dtype} {pixels.shape}, wants uint8 (H, W, 3 or 4)"
            )
        if pixels.shape[:2] != (frame.height, frame.width):
            raise ValueError(
                f"frame {frame.name}: {pixels.shape[1]} x {pixels.shape[0]} pixels, its camera "
                f"says {frame.width} x {frame.height}"
            )
        with self._lock:
            if i not in self._cache and pixels.nbytes <= self.cache_bytes:
                self._cache[i] = pixels
                self._held += pixels.nbytes
                while self._held > self.cache_bytes:
                    self._held -= self._cache.popitem(last=False)[1].nbytes
        return pixels

    @property
    def cached_bytes(self) -> int:
        """Bytes of decoded pixels now held."""
        return self._held


@dataclass(frozen=True, eq=False)
class Capture:
    """A moving scene as it was filmed: three splits in one world.

    Args:
        train, val, test: frames to fit, to tune on, and to report. Where a source has no
            validation views, `val` is empty.
        points: (P, 3) points to start from, or None where the source has none.
        point_colors: (P, 3) their sRGB colours in [0, 1], or None.
        bounds: (2, 3) lower and upper corner of where the scene is.
        time_scale: how its times were normalised.
        center, scale: how the source's world became this one: (x - center) * scale.
        synthetic: whether it was rendered, so that random points within `bounds` do to start
            from; on filmed scenes they seldom do.
    """

    train: DynamicDataset
    val: DynamicDataset
    test: DynamicDataset
    points: Tensor | None
    point_colors: Tensor | None
    bounds: Tensor
    time_scale: TimeScale = TimeScale()
    center: tuple[float, float, float] = (0.0, 0.0, 0.0)
    scale: float = 1.0
    synthetic: bool = False

    @property
    def background(self) -> Tensor:
        """(3,) colour behind the scene; black where images have no alpha and none was chosen."""
        return torch.tensor(BACKGROUNDS[self.train.background or "black"])

    @property
    def extent(self) -> float:
        """Size of the scene that learning rates scale with, as in 3DGS.

        1.1 times the largest distance of a training camera from their mean; for cameras that
        all but stand in one place, half the diagonal of `bounds`.
        """
        centers = camera_centers(self.train.viewmats.double())
        radius = 1.1 * float((centers - centers.mean(0)).norm(dim=1).max())
        half = float((self.bounds[1] - self.bounds[0]).norm()) / 2
        return radius if radius > 0.01 * half else half

    @property
    def still(self) -> bool:
        """Whether all training frames share one time, so that no motion can be learned."""
        return len({frame.time for frame in self.train.frames}) < 2


def camera_centers(viewmats: Tensor) -> Tensor:
    """(..., 3) where cameras stand, from (..., 4, 4) world-to-camera matrices."""
    rotation, translation = viewmats[..., :3, :3], viewmats[..., :3, 3:]
    return -(rotation.mT @ translation).squeeze(-1)


def normalize_times(
    recorded: Sequence[float | None], names: Sequence[str], unit: str | None = None
) -> tuple[list[float], TimeScale]:
    """Times in [0, 1], and how they were got.

    Times that lie in [0, 1] are kept; others run from the first to the last one.

    Args:
        recorded: a time for each frame of all splits; None where it has none.
        names: of the frames, for messages.
        unit: "seconds" or "frames"; None takes whole numbers for frames, others for seconds.

    Raises:
        ValueError: a time is missing, NaN or infinite; the message names the frame.
    """
    times = []
    for time, name in zip(recorded, names, strict=True):
        if time is None:
            raise ValueError(
                f"frame {name}: has no time, wants one in [0, 1], in seconds or in frames"
            )
        try:
            times.append(number("time", time))
        except (TypeError, ValueError, OverflowError):
            got = reprlib.repr(time)
            raise ValueError(f"frame {name}: time {got}, wants a finite number") from None
    if not times:
        raise ValueError("frames: got none")
    start, end = min(times), max(times)
    if start == end:
        if len(times) > 1:
            warnings.warn(
                f"all {len(times)} frames share the time {start:g}: there is no motion to learn, "
                "train with motion='none'",
                stacklevel=3,
            )
        return [0.0] * len(times), TimeScale(start, 0.0, unit or "clip")
    if unit is None and start >= 0 and end <= 1:
        return times, TimeScale()
    unit = unit or ("frames" if all(time.is_integer() for time in times) else "seconds")
    scaled = [(time - start) / (end - start) for time in times]
    return scaled, TimeScale(start, end - start, unit)
