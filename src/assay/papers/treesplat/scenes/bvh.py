"""Motion capture in Biovision's BVH format."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from assay.papers.treesplat.scenes.mesh import Array

_CHANNELS = {f"{axis}{kind}" for axis in "XYZ" for kind in ("position", "rotation")}


class BvhError(ValueError):
    """A file that is no BVH; the message says where it stops being one."""


@dataclass(frozen=True, eq=False)
class BvhMotion:
    """A skeleton and its recorded frames, y up as in the file.

    Args:
        names: of the joints; an end site is named after its parent, with " end".
        parents: the parent of each joint, -1 for the root; parents come first.
        offsets: (J, 3) from parent to joint.
        channels: of each joint, in the order in which its rotations are applied.
        values: (F, C) of all channels, in file order; degrees for rotations.
        frame_time: seconds between frames.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    offsets: Array
    channels: tuple[tuple[str, ...], ...]
    values: Array
    frame_time: float

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.values)

    @property
    def rest(self) -> Array:
        """(J, 3) places of the joints with all channels at zero."""
        places = np.zeros_like(self.offsets)
        for joint, parent in enumerate(self.parents):
            places[joint] = self.offsets[joint] + (places[parent] if parent >= 0 else 0)
        return places

    def world(self, frame: float) -> Array:
        """(J, 4, 4) matrices from joint to world.

        Args:
            frame: 0 to F - 1; between two frames, rotations go along the shortest arc.
        """
        first = min(math.floor(frame), self.n_frames - 1)
        turns, places = self._local(first)
        if frame > first and first + 1 < self.n_frames:
            later_turns, later_places = self._local(first + 1)
            share = frame - first
            step = (turns.inv() * later_turns).as_rotvec()
            turns = turns * Rotation.from_rotvec(share * step)
            places = (1 - share) * places + share * later_places
        matrices = np.tile(np.eye(4), (len(self.names), 1, 1))
        matrices[:, :3, :3], matrices[:, :3, 3] = turns.as_matrix(), places
        for joint, parent in enumerate(self.parents):
            if parent >= 0:
                matrices[joint] = matrices[parent] @ matrices[joint]
        return matrices

    @cached_property
    def _columns(self) -> tuple[list[tuple[int, int, int]], NDArray[np.int64], Array]:
        """Position channels as (joint, axis, column), and (K, J) columns and (K, J, 3) axes of
        the first to the last rotation of each joint; -1 where it has fewer."""
        moves, turns = [], []
        column = 0
        for joint, channels in enumerate(self.channels):
            mine = []
            for channel in channels:
                axis = "XYZ".index(channel[0])
                if channel.endswith("position"):
                    moves.append((joint, axis, column))
                else:
                    mine.append((column, axis))
                column += 1
            turns.append(mine)
        most = max(len(mine) for mine in turns)
        columns = np.full((most, len(turns)), -1)
        axes = np.zeros((most, len(turns), 3))
        for joint, mine in enumerate(turns):
            for k, (column, axis) in enumerate(mine):
                columns[k, joint] = column
                axes[k, joint, axis] = 1
        return moves, columns, axes

    def _local(self, frame: int) -> tuple[Rotation, Array]:
        moves, columns, axes = self._columns
        places = self.offsets.copy()
        for joint, axis, column in moves:
            places[joint, axis] = self.values[frame, column]  # stands in the offset's place
        turns = Rotation.identity(len(places))
        for column, axis in zip(columns, axes, strict=True):
            angles = np.radians(self.values[frame, column])
            turns = turns * Rotation.from_rotvec(axis * angles[:, None])
        return turns, places


def read_bvh(path: str | Path) -> BvhMotion:
    """The motion in a BVH file.

    Args:
        path: the file.

    Raises:
        BvhError: it is no BVH file, or holds fewer numbers than it says; a ValueError.
        OSError: it cannot be read.
    """
    try:
        tokens = iter(Path(path).read_text("utf-8-sig").split())
    except UnicodeDecodeError:
        raise BvhError(f"{path}: no text file") from None
    names: list[str] = []
    parents: list[int] = []
    offsets: list[list[float]] = []
    channels: list[tuple[str, ...]] = []
    try:
        _expect(tokens, "HIERARCHY")
        open_joints = [-1]
        while (token := next(tokens)) != "MOTION":
            if token in ("ROOT", "JOINT", "End"):
                name = next(tokens)
                parents.append(open_joints[-1])
                names.append(f"{names[open_joints[-1]]} end" if token == "End" else name)
                offsets.append([0.0] * 3)
                channels.append(())
                open_joints.append(len(names) - 1)
                _expect(tokens, "{")
            elif token in ("OFFSET", "CHANNELS") and open_joints[-1] < 0:
                raise BvhError(f"{token!r} outside of a joint")
            elif token == "OFFSET":
                offsets[open_joints[-1]] = [float(next(tokens)) for _ in range(3)]
            elif token == "CHANNELS":
                listed = tuple([next(tokens) for _ in range(int(next(tokens)))])
                if unknown := set(listed) - _CHANNELS:
                    raise BvhError(f"channel {min(unknown)!r} of {names[open_joints[-1]]!r}")
                channels[open_joints[-1]] = listed
            elif token == "}":
                open_joints.pop()
                if not open_joints:
                    raise BvhError("a '}' that closes nothing")
            else:
                raise BvhError(f"{token!r} in its hierarchy")
        if len(open_joints) > 1:
            raise BvhError(f"{names[open_joints[-1]]!r} is not closed, a '}}' is missing")
        if parents.count(-1) != 1:
            raise BvhError(f"{parents.count(-1)} roots, wants one")
        _expect(tokens, "Frames:")
        n_frames = int(next(tokens))
        _expect(tokens, "Frame")
        _expect(tokens, "Time:")
        frame_time = float(next(tokens))
        values = np.array([float(token) for token in tokens])
    except StopIteration:
        raise BvhError(f"{path}: ends too early") from None
    except (BvhError, ValueError, IndexError) as error:
        raise BvhError(f"{path}: no BVH file: {error}") from None
    width = sum(len(listed) for listed in channels)
    # Some exporters write a frame more than they say.
    if n_frames < 1 or values.size < n_frames * width or values.size % max(width, 1):
        raise BvhError(f"{path}: {values.size} numbers, {n_frames} frames want {n_frames * width}")
    values = values[: n_frames * width]
    finite = np.all(np.isfinite(values)) and np.all(np.isfinite(offsets))
    if not (finite and math.isfinite(frame_time) and frame_time > 0):
        raise BvhError(f"{path}: NaN or infinity, or a frame time of {frame_time}")
    return BvhMotion(
        tuple(names),
        tuple(parents),
        np.array(offsets),
        tuple(channels),
        values.reshape(n_frames, width),
        frame_time,
    )


def _expect(tokens: Iterator[str], wanted: str) -> None:
    if (token := next(tokens)) != wanted:
        raise BvhError(f"{token!r} where {wanted!r} belongs")
