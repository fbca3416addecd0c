"""Where blocks are kept: device, host and disk, each with a capacity in bytes.

On a CPU the device tier and the host tier are both RAM. They are kept apart all the same: separate
tensors, and real copies between them by the threads of the link.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from assay.papers.kvflow.blocks import checksum, n_bytes
from assay.papers.kvflow.radix_tree import Status
from assay.toolkits.checks import flag, whole
from assay.toolkits.files import write_bytes


class TierFull(RuntimeError):
    """There is no room; something must be evicted first."""


class CorruptBlock(RuntimeError):
    """A stored block is not what was written."""


class Tier(Protocol):
    """A place for blocks. All methods may be called from any thread.

    Attributes:
        status: what a node whose fastest copy is here is said to be.
        capacity_bytes: room for blocks.
        used_bytes: bytes of the blocks held or announced.
    """

    status: Status
    capacity_bytes: int
    used_bytes: int

    def reserve(self, key: int, n_bytes: int) -> None:
        """Announces a block. Raises TierFull."""

    def put(self, key: int, block: Tensor) -> None:
        """Stores a block, in place of its announcement if there was one.

        Raises:
            TierFull: there is no room.
            OSError: the disk cannot be written.
        """

    def get(self, key: int) -> Tensor:
        """A stored block, which must not be written to.

        Raises:
            KeyError: nothing is stored under this key.
            CorruptBlock: it is damaged.
            OSError: the disk cannot be read.
        """

    def free(self, key: int) -> None:
        """Gives up a block or its announcement; a key that is not held is let pass."""

    def sizes(self) -> dict[int, int]:
        """Bytes of each block held or announced."""


class _Accounts:
    """Bytes by key, never above the capacity."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = whole("capacity_bytes", capacity_bytes, least=0)
        self.used_bytes = 0
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    def reserve(self, key: int, n_bytes: int) -> None:
        with self._lock:
            used = self.used_bytes - self._sizes.get(key, 0) + n_bytes
            if used > self.capacity_bytes:
                room = self.capacity_bytes - self.used_bytes
                raise TierFull(f"{type(self).__name__}: {n_bytes} bytes into {room}")
            self._sizes[key] = n_bytes
            self.used_bytes = used

    def free(self, key: int) -> None:
        with self._lock:
            self.used_bytes -= self._sizes.pop(key, 0)

    def sizes(self) -> dict[int, int]:
        with self._lock:
            return dict(self._sizes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.used_bytes} of {self.capacity_bytes} bytes)"


class _MemoryTier(_Accounts):
    def __init__(self, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes)
        self._blocks: dict[int, Tensor] = {}

    def put(self, key: int, block: Tensor) -> None:
        self.reserve(key, n_bytes(block))
        self._blocks[key] = block

    def get(self, key: int) -> Tensor:
        return self._blocks[key]

    def free(self, key: int) -> None:
        self._blocks.pop(key, None)
        super().free(key)


class DeviceTier(_MemoryTier):
    """Memory in which the model reads keys and values.

    Args:
        capacity_bytes: room for blocks, >= 0; what running requests compute with is not counted.
        device: of torch, such as "cpu" or "cuda".

    Raises:
        TypeError, ValueError: the capacity is no integer >= 0.
    """

    status = Status.ON_DEVICE

    def __init__(self, capacity_bytes: int, device: str | torch.device = "cpu") -> None:
        super().__init__(capacity_bytes)
        self.device = torch.device(device)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory to copy a block into."""
        return torch.empty(shape, dtype=dtype, device=self.device)


class HostTier(_MemoryTier):
    """Memory of the host, to which the device's nodes are backed up.

    Args:
        capacity_bytes: room for blocks, >= 0.
        pinned: page-locked memory, which a GPU copies from and to without detours; needs a GPU.

    Raises:
        TypeError, ValueError: the capacity is no integer >= 0, or there is no GPU to pin for.
    """

    status = Status.ON_HOST

    def __init__(self, capacity_bytes: int, pinned: bool = False) -> None:
        super().__init__(capacity_bytes)
        self.pinned = flag("pinned", pinned)
        if pinned and not torch.cuda.is_available():
            raise ValueError("pinned: got True, wants False where there is no GPU")

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory to copy a block into."""
        return torch.empty(shape, dtype=dtype, pin_memory=self.pinned)


class DiskTier(_Accounts):
    """Files of safetensors, one a node, each with a checksum that is verified when it is read.

    They live in a folder of their own, which is removed with the tier: the files of a cache are
    of no use without its tree (`PrefixCache.save` keeps both).

    Args:
        capacity_bytes: room for blocks, >= 0.
        path: an existing folder.

    Raises:
        TypeError, ValueError: the capacity is no integer >= 0.
        OSError: nothing can be written to the folder.
    """

    status = Status.ON_DISK

    def __init__(self, capacity_bytes: int, path: str | Path) -> None:
        super().__init__(capacity_bytes)
        self.path = Path(tempfile.mkdtemp(prefix="kvflow-", dir=path))
        self.close = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def put(self, key: int, block: Tensor) -> None:
        self.reserve(key, n_bytes(block))
        try:
            write_block(self._file(key), block)
        except BaseException:
            super().free(key)
            raise

    def get(self, key: int) -> Tensor:
        if key not in self._sizes:
            raise KeyError(key)
        return read_block(self._file(key))

    def free(self, key: int) -> None:
        super().free(key)
        self._file(key).unlink(missing_ok=True)

    def _file(self, key: int) -> Path:
        return self.path / f"{key}.safetensors"


def write_block(path: Path, block: Tensor) -> None:
    """Writes a block with its checksum, as a whole or not at all. Raises OSError."""
    block = block.detach().cpu().contiguous()
    write_bytes(path, save({"kv": block}, metadata={"crc32": str(checksum(block))}))


def read_block(path: Path) -> Tensor:
    """A block from a file, mapped into memory.

    Raises:
        CorruptBlock: its bytes are not those that were written.
        OSError: it cannot be read.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            block: Tensor = file.get_tensor("kv")
            metadata: dict[str, Any] = file.metadata() or {}
    except SafetensorError as error:
        raise CorruptBlock(f"{path}: {error}") from None
    if metadata.get("crc32") != str(checksum(block)):
        raise CorruptBlock(f"{path}: wrong checksum")
    return block
