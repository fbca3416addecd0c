"""The next token, greedy or sampled, by transformers' own logits warpers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.toolkits.checks import number, whole


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: >= 0; 0 takes the most likely token.
        top_k: draws among the k most likely, >= 1; None: all.
        top_p: draws among the most likely that together reach this probability, in (0, 1].
        seed: of this request's own random stream, >= 0; None: another one each time.

    Raises:
        TypeError, ValueError: one of them is something else.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        number("temperature", self.temperature, least=0)
        if self.top_k is not None:
            whole("top_k", self.top_k)
        number("top_p", self.top_p, above=0, most=1)
        if self.seed is not None:
            whole("seed", self.seed, 0)


class Sampler:
    """Draws the tokens of one request, whatever else runs beside it."""

    def __init__(self, sampling: Sampling, device: torch.device | str = "cpu") -> None:
        """Starts the random stream.

        Args:
            sampling: how to draw.
            device: where the logits are.
        """
        from transformers import (
            LogitsProcessorList,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
            TopPLogitsWarper,
        )

        self.greedy = sampling.temperature == 0
        self._warpers = LogitsProcessorList()
        if self.greedy:
            return
        if sampling.temperature != 1:
            self._warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
        if sampling.top_k is not None:
            self._warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._warpers.append(TopPLogitsWarper(float(sampling.top_p)))
        self._generator = torch.Generator(device)
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def __call__(self, logits: Tensor) -> int:
        """The next token.

        Args:
            logits: (vocabulary,).
        """
        if self.greedy:
            return int(logits.argmax())
        nothing = torch.empty(1, 0, dtype=torch.long)  # none of the warpers looks back
        scores = self._warpers(nothing, logits[None].float())  # type: ignore[arg-type]
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self._generator))
