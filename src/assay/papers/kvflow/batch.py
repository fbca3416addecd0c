"""Keys and values of running requests, as the model reads and extends them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROOM = 64
"""Tokens by which a layer's memory grows when it is full."""


class KVLayer(DynamicLayer):
    """One layer's keys and values, whose beginning may still be on its way.

    `DynamicLayer` copies all it holds for every token; this one writes the token into room kept
    free. It lets all tokens be seen, also where the model's mask then hides some.
    """

    def __init__(
        self,
        length: int = 0,
        read: Callable[[], Sequence[Tensor]] = tuple,
        room: int = ROOM,
    ) -> None:
        """Describes the beginning, without touching it.

        Args:
            length: tokens that it holds.
            read: waits for them and gives them: blocks of (2, kv_heads, tokens, head_dim), whose
                tokens add up to length.
            room: tokens for which to keep memory free besides.
        """
        super().__init__()
        self._length = length
        self._read = read
        self._room = room
        self.memory: Tensor
        """(2, batch, kv_heads, tokens and room, head_dim)"""

    @classmethod
    def joined(cls, rows: Sequence[tuple[KVLayer, int, int]], room: int = ROOM) -> KVLayer:
        """Requests side by side, padded on the left with zeros to the longest.

        Args:
            rows: for each request the layer that holds it, its row there, and its length.
            room: as in the constructor.
        """
        layer = cls(max(length for *_, length in rows), room=room)
        first = rows[0][0].memory
        shape = (2, len(rows), first.shape[2], layer._length + room, first.shape[4])
        layer._take(first.new_zeros(shape))
        for i, (source, row, length) in enumerate(rows):
            layer.memory[:, i, :, layer._length - length : layer._length] = source.last(row, length)
        return layer

    def last(self, row: int, length: int) -> Tensor:
        """The last tokens of a row, (2, kv_heads, length, head_dim); a view."""
        return self.memory[:, row, :, self._length - length : self._length]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Adds tokens, (batch, kv_heads, tokens, head_dim), and returns all there are."""
        batch, heads, new, dim = key_states.shape
        if not self.is_initialized:
            shape = (2, batch, heads, self._length + new + self._room, dim)
            self._take(key_states.new_empty(shape))
            at = 0
            for block in self._read():
                n = block.shape[2]
                self.memory[:, 0, :, at : at + n] = block
                at += n
            self._read = tuple  # lets go of the blocks
        end = self._length + new
        if end > self.memory.shape[3]:
            full = self.memory
            self._take(full.new_empty((*full.shape[:3], end + ROOM, full.shape[4])))
            self.memory[:, :, :, : self._length] = full[:, :, :, : self._length]
        self.memory[0, :, :, self._length : end] = key_states
        self.memory[1, :, :, self._length : end] = value_states
        self._length = end
        self.keys, self.values = self.memory[0, :, :, :end], self.memory[1, :, :, :end]
        return self.keys, self.values

    def get_seq_length(self, *args: Any, **kwargs: Any) -> int:
        return self._length

    def _take(self, memory: Tensor) -> None:
        self.memory, self.device, self.dtype = memory, memory.device, memory.dtype
        self.is_initialized = True


class Forward:
    """A model's forward pass over some new tokens of one or several requests.

    Attributes:
        device: where the tokens must be.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Looks at what the model can be told.

        Args:
            model: a causal language model of transformers.
        """
        self._model = model
        self.device = model.device
        known = inspect.signature(model.forward).parameters
        self._cache = "cache" if "cache" in known else "past_key_values"
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in known else {}

    def __call__(self, ids: Tensor, positions: Tensor, cache: Cache, mask: Tensor | None) -> Tensor:
        """Extends the cache.

        Args:
            ids: the new tokens, (batch, tokens).
            positions: where they stand in their prompts, (batch, tokens).
            cache: what came before; the new tokens are added.
            mask: (batch, tokens before and new), 0 where it is padding; None: no padding.

        Returns:
            Logits that follow the last token, (batch, vocabulary).
        """
        answer = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            **{self._cache: cache},
            **self._options,
        )
        return answer.logits[:, -1]


class Batch:
    """Requests that decode together.

    Attributes:
        lengths: tokens of each whose keys and values are held.
    """

    def __init__(self, layers: Sequence[KVLayer], lengths: list[int]) -> None:
        """Takes requests that already stand side by side.

        Args:
            layers: of the model, with a row for each request.
            lengths: tokens of each row.
        """
        self.lengths = lengths
        self._layers = layers
        self._cache = Cache(layers=list(layers))

    @classmethod
    def prefix(
        cls, n_layers: int, length: int, read: Callable[[int], Sequence[Tensor]], room: int
    ) -> Batch:
        """One request of which a cache holds the beginning.

        Args:
            n_layers: of the model.
            length: tokens that the cache holds.
            read: waits for a layer, by its number, and gives its blocks; see `KVLayer`.
            room: tokens that will follow.
        """

        def layer(i: int) -> KVLayer:
            return KVLayer(length, lambda: read(i), room)

        return cls([layer(i) for i in range(n_layers)], [length])

    @classmethod
    def joined(cls, rows: Sequence[tuple[Batch, int]]) -> Batch:
        """Requests from several batches in a new one.

        Args:
            rows: for each request its batch and its row there.
        """
        lengths = [batch.lengths[row] for batch, row in rows]
        layers = [
            KVLayer.joined(
                [
                    (batch._layers[i], row, length)
                    for (batch, row), length in zip(rows, lengths, strict=True)
                ]
            )
            for i in range(len(rows[0][0]._layers))
        ]
        return cls(layers, lengths)

    def block(self, row: int, start: int) -> Tensor:
        """Keys and values of a row from a token on, (layers, 2, kv_heads, tokens, head_dim)."""
        length = self.lengths[row] - start
        return torch.stack([layer.last(row, length) for layer in self._layers])

    def extend(self, forward: Forward, ids: Sequence[Sequence[int]]) -> Tensor:
        """Runs the model over the next tokens of every request.

        Args:
            forward: the model.
            ids: equally many for each request.

        Returns:
            Logits that follow, (requests, vocabulary).
        """
        new, width = len(ids[0]), self._layers[0].get_seq_length()
        device = forward.device
        lengths = torch.tensor(self.lengths, device=device)[:, None]
        mask = None
        if any(length < width for length in self.lengths):
            mask = (torch.arange(width + new, device=device) >= width - lengths).long()
        positions = lengths + torch.arange(new, device=device)
        logits = forward(torch.tensor(ids, device=device), positions, self._cache, mask)
        self.lengths = [length + new for length in self.lengths]
        return logits
