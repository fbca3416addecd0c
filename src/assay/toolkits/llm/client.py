"""The client: a backend with recorded replies, a budget and structured output."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError, create_model

from assay.toolkits.llm.budget import Budget
from assay.toolkits.llm.cache import ReplyCache
from assay.toolkits.llm.errors import StructuredOutputError
from assay.toolkits.llm.prices import PriceTable
from assay.toolkits.llm.protocol import Backend, Completion, Message, Reply, Request, Usage

_REASKS = 2


class Client:
    """An `LLM` over one backend; threads may share it.

    Args:
        backend: makes the calls.
        cache: recorded replies; None for none.
        budget: limits; None for none.
        prices: for `Reply.cost` and `Budget.max_cost`; None for the table that comes with assay.
    """

    def __init__(
        self,
        backend: Backend,
        cache: ReplyCache | None = None,
        budget: Budget | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        self.backend = backend
        self.cache = cache
        self.budget = budget or Budget()
        self.prices = prices or PriceTable.default()

    @property
    def context_window(self) -> int | None:
        """Most tokens of prompt and reply together; None where it is not known."""
        return self.backend.context_window

    @property
    def concurrency(self) -> int:
        """How many calls at once make sense."""
        return self.backend.concurrency

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
        """The model's reply.

        Args:
            messages: the conversation, as ``{"role": ..., "content": ...}``.
            schema: a pydantic model or any type that pydantic validates; `Reply.parsed` is then
                such a value. A reply that does not fit is sent back with the reason, twice at most.
            choices: the reply must be one of these, and is `Reply.parsed`.
            max_tokens, temperature, seed, stop, repeat: see `Request`.

        Raises:
            LLMError: no reply; also BudgetExceeded, ReplayMiss, StructuredOutputError.
            ValueError, TypeError: for an argument out of its range.
        """
        if schema is not None and choices is not None:
            raise ValueError("schema, choices: got both, wants one of them")
        labels = None if choices is None else tuple(choices)
        if labels is not None and len(set(labels)) < 2:
            raise ValueError(f"choices: got {labels}, wants at least two")
        adapter: TypeAdapter[Any] | None = None
        if labels is not None:
            adapter = _choice_adapter(labels)
        elif schema is not None:
            adapter = TypeAdapter(schema)
        request = Request(
            messages=tuple(messages),
            schema=adapter.json_schema() if adapter else None,
            choices=labels,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            stop=tuple(stop),
            repeat=repeat,
        )
        reply = self._send(request)
        if adapter is None:
            return reply
        for attempt in range(_REASKS + 1):
            try:
                return replace(reply, parsed=_parsed(reply.text, adapter, labels))
            except (ValidationError, ValueError) as error:
                if attempt == _REASKS:
                    raise StructuredOutputError(
                        f"no reply fits the schema after {attempt + 1} attempts: {error}; "
                        f"the last one starts {reply.text[:80]!r}"
                    ) from None
                complaint = f"That does not fit: {error}\nReply again with only the JSON value."
                request = replace(
                    request,
                    messages=(
                        *request.messages,
                        {"role": "assistant", "content": reply.text},
                        {"role": "user", "content": complaint},
                    ),
                )
                reply = _joined(reply, self._send(request))
        raise AssertionError("unreachable")

    async def acomplete(self, messages: Sequence[Message], **options: Any) -> Reply:
        """As `complete`, in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.complete, messages, **options)

    def _send(self, request: Request) -> Reply:
        start = time.perf_counter()
        identity = self.backend.identity
        if self.cache is not None and (found := self.cache.get(identity, request)):
            return _reply(found, 0.0, time.perf_counter() - start, cached=True)
        model = identity["model"]
        with self.budget.charge(self.prices.cost(model, _most(request))) as charge:
            completion = self.backend.send(request)
            charge.cost = self.prices.cost(model, completion.usage)
        if self.cache is not None:
            self.cache.put(identity, request, completion)
        return _reply(completion, charge.cost, time.perf_counter() - start, cached=False)


def _most(request: Request) -> Usage:
    """An upper bound on a call's tokens: none is shorter than one byte of UTF-8."""
    texts = [message["content"] for message in request.messages]
    if request.schema is not None:
        texts.append(json.dumps(dict(request.schema)))
    return Usage(sum(len(text.encode()) + 16 for text in texts), request.max_tokens)


def _reply(completion: Completion, cost: float | None, latency: float, cached: bool) -> Reply:
    return Reply(
        text=completion.text,
        usage=completion.usage,
        cost=cost,
        cached=cached,
        latency=latency,
        finish_reason=completion.finish_reason,
        choice_scores=completion.choice_scores,
    )


def _joined(earlier: Reply, last: Reply) -> Reply:
    known = earlier.cost is not None and last.cost is not None
    return replace(
        last,
        usage=earlier.usage + last.usage,
        cost=(earlier.cost or 0.0) + (last.cost or 0.0) if known else None,
        cached=earlier.cached and last.cached,
        latency=earlier.latency + last.latency,
    )


@cache
def _choice_adapter(labels: tuple[str, ...]) -> TypeAdapter[Any]:
    # Servers want an object at the root of a schema.
    choice: Any = Literal[labels]
    return TypeAdapter(create_model("Choice", choice=(choice, ...)))


def _parsed(text: str, adapter: TypeAdapter[Any], labels: tuple[str, ...] | None) -> Any:
    text = text.strip()
    if labels is not None and text in labels:
        return text
    # Models like to fence JSON even where they are told not to.
    if fenced := re.fullmatch(r"```\w*\s*(.*?)\s*```", text, re.DOTALL):
        text = fenced[1]
    value = adapter.validate_json(text)
    return value if labels is None else value.choice
