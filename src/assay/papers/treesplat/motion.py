"""What every motion of a set of Gaussians has in common: it moves them, and it grows with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Rows:
    """Where the rows of a parameter come from after growth, for the optimizer to follow.

    Attributes:
        source: ``(R,)`` int64, the old row that each new row was made from.
        fresh: ``(R,)`` bool, whether the row is a new one: it inherits the second moment of its
            source and starts without a first moment.
    """

    source: Tensor
    fresh: Tensor

    @classmethod
    def kept(cls, source: Tensor) -> Rows:
        """Old rows that stay what they were, in the order of `source` (R,)."""
        return cls(source, torch.zeros_like(source, dtype=torch.bool))

    @classmethod
    def appended(cls, n: int, source: Tensor) -> Rows:
        """The `n` old rows, then one new row for each of `source` (K,)."""
        old = torch.arange(n, device=source.device)
        rows = torch.cat([old, source])
        return cls(
            rows,
            rows.new_zeros(len(rows), dtype=torch.bool).index_fill_(
                0, torch.arange(n, len(rows), device=source.device), True
            ),
        )


class Motion(nn.Module):
    """Displacements of N Gaussians at a time, from parameters that grow with the Gaussians.

    A subclass names in `rows` its parameters with one row for each Gaussian. All motions start at
    or very near zero motion.
    """

    kind: ClassVar[str]
    rows: ClassVar[tuple[str, ...]] = ()
    indices: ClassVar[tuple[str, ...]] = ()
    """Buffers whose length changes with growth."""
    not_stored: ClassVar[tuple[str, ...]] = ()
    """Buffers that a file can do without."""

    @property
    def n(self) -> int:
        """Number of Gaussians N."""
        return len(getattr(self, self.rows[0]))

    def forward(self, t: float, means: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Displacements ``(N, 3)`` of means, in scene units, and ``(N, 4)`` of quaternions (wxyz).

        Both are added to the static values; the sum of quaternions is normalised later.

        Args:
            t: Time in [0, 1].
            means: Static means ``(N, 3)``, for motions that depend on them.

        Raises:
            TypeError, ValueError: A time that is no number in [0, 1].
        """
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """What the constructor needs, beside the number of Gaussians, as JSON."""
        return {}

    def merge(self, frames: int | None = None) -> Motion:
        """The same motion as coefficients of a basis, without anything to grow it.

        Args:
            frames: Tabulate the basis at so many equally spaced times; None keeps the MLP.

        Raises:
            TypeError: This kind of motion has no coefficients.
        """
        raise TypeError(f"motion: got {self.kind!r}, wants one with a basis to merge")

    def row_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters whose rows follow growth, by name."""
        return {name: getattr(self, name) for name in self.rows if getattr(self, name) is not None}

    def shared_parameters(self) -> list[nn.Parameter]:
        """The other parameters: those of the basis or the network."""
        mine = {id(p) for p in self.row_parameters().values()}
        return [p for p in self.parameters() if id(p) not in mine]

    def expand(self, idx: Any) -> dict[str, Rows]:
        """Appends a copy of each Gaussian in `idx`, which moves as its source does.

        Args:
            idx: Distinct indices ``(K,)``, or a bool mask ``(N,)``.

        Returns:
            For each of `row_parameters`, where its rows come from.

        Raises:
            TypeError, ValueError: Indices out of range, repeated, or of no integer type.
        """
        return self._take(Rows.appended(self.n, self._indices("idx", idx)))

    def promote(self, idx: Any) -> dict[str, Rows]:
        """As `expand`; a motion tree also goes one level deeper there.

        Args:
            idx: As in `expand`.

        Returns:
            As `expand`.

        Raises:
            TypeError, ValueError: As `expand`.
        """
        return self.expand(idx)

    def prune(self, mask: Any) -> dict[str, Rows]:
        """Removes Gaussians; the others keep their order.

        Args:
            mask: bool ``(N,)``, True where a Gaussian goes. Not all of them.

        Returns:
            As `expand`.

        Raises:
            TypeError, ValueError: No bool mask of that length, or nothing would stay.
        """
        return self._take(Rows.kept(self._staying(mask)))

    def reorder(self, order: Any) -> dict[str, Rows]:
        """Permutes the Gaussians.

        Args:
            order: ``(N,)``, the old index of each new one.

        Returns:
            As `expand`.

        Raises:
            TypeError, ValueError: No permutation.
        """
        return self._take(Rows.kept(self._permutation(order)))

    def _take(self, rows: Rows) -> dict[str, Rows]:
        for name, parameter in self.row_parameters().items():
            self._set(name, parameter.detach()[rows.source])
        return dict.fromkeys(self.row_parameters(), rows)

    def _set(self, name: str, value: Tensor) -> None:
        """A new Parameter: autograd remembers the shape of an old one while its graph is alive."""
        setattr(self, name, nn.Parameter(value, requires_grad=getattr(self, name).requires_grad))

    def _device(self) -> torch.device:
        tensors = [*self.parameters(), *self.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    def _indices(self, name: str, value: Any) -> Tensor:
        return check_indices(name, value, self.n, self._device())

    def _staying(self, mask: Any) -> Tensor:
        mask = check_mask("mask", mask, self.n, self._device())
        if bool(mask.all()):
            raise ValueError(f"mask: would remove all {self.n} Gaussians, wants one that stays")
        return (~mask).nonzero().squeeze(1)

    def _permutation(self, order: Any) -> Tensor:
        order = self._indices("order", order)
        if len(order) != self.n:
            raise ValueError(f"order: got {len(order)} indices, wants a permutation of {self.n}")
        return order

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # A state of a model that has grown since is loaded like any other.
        for name in (*self.row_parameters(), *self.indices):
            mine, new = getattr(self, name), state_dict.get(prefix + name)
            if new is not None and new.shape[1:] == mine.shape[1:] and len(new) != len(mine):
                resized = mine.detach().new_empty(new.shape)
                if isinstance(mine, nn.Parameter):
                    self._set(name, resized)
                else:
                    setattr(self, name, resized)
        super()._load_from_state_dict(state_dict, prefix, *args)


def check_indices(name: str, value: Any, n: int, device: torch.device | None = None) -> Tensor:
    """The value as distinct int64 indices ``(K,)`` below `n`.

    Args:
        name: Of the argument, for the message.
        value: Integers, or a bool mask of length `n`.
        n: How many there are to choose from.
        device: Where the result lies.

    Raises:
        TypeError: Neither integers nor bools.
        ValueError: Out of range, repeated, not one axis, or a mask of another length.
    """
    idx = _tensor(name, value, device)
    if idx.dtype == torch.bool:
        return check_mask(name, idx, n, device).nonzero().squeeze(1)
    if idx.numel() == 0:
        idx = idx.long()
    if idx.is_floating_point() or idx.is_complex():
        raise TypeError(f"{name}: got {idx.dtype}, wants integers or a bool mask")
    if idx.dim() != 1:
        raise ValueError(f"{name}: got shape {tuple(idx.shape)}, wants (K,)")
    idx = idx.long()
    if len(idx) and (int(idx.min()) < 0 or int(idx.max()) >= n):
        worst = int(idx.min()) if int(idx.min()) < 0 else int(idx.max())
        raise ValueError(f"{name}: got index {worst}, wants 0 to {n - 1}")
    if len(idx.unique()) != len(idx):
        raise ValueError(f"{name}: got an index more than once, wants distinct ones")
    return idx


def check_mask(name: str, value: Any, n: int, device: torch.device | None = None) -> Tensor:
    """The value as a bool mask ``(n,)``.

    Args:
        name: Of the argument, for the message.
        value: Bools.
        n: Its length.
        device: Where the result lies.

    Raises:
        TypeError: Not bools.
        ValueError: Of another shape.
    """
    mask = _tensor(name, value, device)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: got {mask.dtype}, wants a bool mask")
    if mask.shape != (n,):
        raise ValueError(f"{name}: got shape {tuple(mask.shape)}, wants ({n},)")
    return mask


def _tensor(name: str, value: Any, device: torch.device | None) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(device) if device is not None else value
    if not isinstance(value, Sequence) and not hasattr(value, "__array__"):
        raise TypeError(f"{name}: got {value!r}, wants a tensor or a list")
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: got no numbers: {error}") from None
