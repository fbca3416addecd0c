"""The words: messages, requests, replies, and what a client and a backend have to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Message: TypeAlias = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""

_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Usage:
    """Tokens read and written; None where the server does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.prompt_tokens, other.prompt_tokens),
            _sum(self.completion_tokens, other.completion_tokens),
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


@dataclass(frozen=True)
class Request:
    """One call to a model, complete: equal requests may share a recorded reply.

    Args:
        messages: the conversation so far.
        schema: JSON schema the reply must fit; None for free text.
        choices: the reply must be one of these; an embedded model picks the likeliest.
        max_tokens: longest reply.
        temperature: 0 for the likeliest tokens.
        seed: for sampling, where the backend supports one.
        stop: strings that end the reply.
        repeat: index among repetitions of the same request, which are recorded apart.

    Raises:
        ValueError, TypeError: for values out of range.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    choices: tuple[str, ...] | None = None
    max_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    repeat: int = 0

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("messages: got none, wants at least one")
        for index, message in enumerate(self.messages):
            if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
                raise ValueError(f"messages[{index}]: got {message!r}, wants role and content")
            if message["role"] not in _ROLES:
                raise ValueError(
                    f"messages[{index}].role: got {message['role']!r}, wants {', '.join(_ROLES)}"
                )
            if not isinstance(message["content"], str):
                raise TypeError(
                    f"messages[{index}].content: got {type(message['content']).__name__}, wants str"
                )
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: got {self.max_tokens}, wants at least 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature: got {self.temperature}, wants >= 0")
        if self.choices is not None and len(set(self.choices)) < 2:
            raise ValueError(f"choices: got {self.choices}, wants at least two")

    def data(self) -> dict[str, Any]:
        """The request as JSON values."""
        return {
            "messages": [dict(message) for message in self.messages],
            "schema": None if self.schema is None else dict(self.schema),
            "choices": None if self.choices is None else list(self.choices),
            "max_tokens": self.max_tokens,
            "temperature": float(self.temperature),
            "seed": self.seed,
            "stop": list(self.stop),
            "repeat": self.repeat,
        }


@dataclass(frozen=True)
class Completion:
    """What a backend returns: text, tokens, why it ended ("stop", "length"), and log-likelihoods
    of the request's choices where the backend computes them."""

    text: str
    usage: Usage = Usage()
    finish_reason: str = "stop"
    choice_scores: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Reply:
    """What a client returns.

    Args:
        text: the model's words.
        parsed: the validated value where a schema or choices were given, else None.
        usage: tokens over all attempts.
        cost: US dollars over all attempts, 0 for recorded replies; None where no price is known.
        cached: True where no call was made.
        latency: seconds spent.
        finish_reason: "stop", or "length" where `max_tokens` cut the reply off.
        choice_scores: log-likelihood of each choice, where the backend computes them.
    """

    text: str
    parsed: Any = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    cached: bool = False
    latency: float = 0.0
    finish_reason: str = "stop"
    choice_scores: Mapping[str, float] | None = None


class Backend(Protocol):
    """A model that can be called; several threads may do so at once."""

    @property
    def identity(self) -> Mapping[str, str]:
        """What makes its replies its own: `backend`, `model`, and `weights` (a hash) if local."""
        ...

    @property
    def context_window(self) -> int | None:
        """Most tokens of prompt and reply together; None where it is not known."""
        ...

    @property
    def concurrency(self) -> int:
        """How many calls at once make sense."""
        ...

    def send(self, request: Request) -> Completion:
        """Makes the call. Raises LLMError."""
        ...


class LLM(Protocol):
    """What the methods of papers ask of a language model; `Client` is one."""

    @property
    def context_window(self) -> int | None:
        """Most tokens of prompt and reply together; None where it is not known."""
        ...

    @property
    def concurrency(self) -> int:
        """How many calls at once make sense."""
        ...

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Any = None,
        choices: Sequence[str] | None = None,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        repeat: int = 0,
    ) -> Reply:
        """The model's reply. Raises LLMError."""
        ...

    async def acomplete(self, messages: Sequence[Message], **options: Any) -> Reply:
        """As `complete`, without blocking the event loop."""
        ...
