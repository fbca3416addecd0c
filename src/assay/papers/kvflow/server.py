"""An OpenAI-compatible endpoint over the serving loop, which takes workflow hints.

A request may carry an object `x_agent` (the openai package sends it by `extra_body`):

    {"client": "my-app", "agent": "planner", "fixed_tokens": 812,
     "steps": {"planner": 0, "writer": 1, "critic": null}}

`steps` are those of `StepGraph.steps`, null where these are infinite (JSON has no such number):
the agent will not run again. In a conversation
`fixed_messages`, the number of leading messages that never change, stands in for `fixed_tokens`.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from assay.papers.kvflow.engine import Completion, Engine
from assay.papers.kvflow.sampling import Sampling
from assay.papers.kvflow.text import Prompt, encode, encode_chat

Off = Annotated[float, Field(ge=0, le=0)] | None
"""What a parameter may be set to that this server does not implement."""


_POLL_S = 0.05

_ARGUMENTS = {
    "max_new_tokens": "max_tokens",
    "fixed_len": "x_agent.fixed_tokens",
    "fixed_messages": "x_agent.fixed_messages",
    "agent": "x_agent.agent",
}
"""What the arguments of the engine are called here."""


Steps = Annotated[int, Field(ge=0)] | None


class AgentHints(BaseModel):
    """Whose call a request is, and who comes next."""

    model_config = ConfigDict(extra="forbid")

    client: str = "default"
    agent: str = "default"
    fixed_tokens: Annotated[int, Field(ge=0)] | None = None
    fixed_messages: Annotated[int, Field(ge=0)] | None = None
    steps: dict[str, Steps] | None = None


class StepsBody(BaseModel):
    """What /v1/steps is sent."""

    model_config = ConfigDict(extra="forbid")

    client: str = "default"
    steps: dict[str, Steps]


class StreamOptions(BaseModel):
    """What a stream holds besides the text."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    x_agent: AgentHints = AgentHints()
    n: Literal[1, None] = None
    frequency_penalty: Off = None
    presence_penalty: Off = None
    logprobs: Off = None
    logit_bias: dict[str, float] | None = Field(default=None, max_length=0)
    # Clients send these by themselves; here they change nothing.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    parallel_tool_calls: bool | None = None


class CompletionBody(_Body):
    """What /v1/completions is sent."""

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = 16
    echo: Off = None
    best_of: Literal[1, None] = None
    suffix: None = None


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """Role and text, as chat templates take them. Raises ValueError on other content."""
        content = self.content or ""
        if not isinstance(content, str):
            if odd := [part.get("type") for part in content if part.get("type") != "text"]:
                raise ValueError(f"messages: got content of type {odd[0]!r}, wants text")
            if odd := [part for part in content if not isinstance(part.get("text"), str)]:
                raise ValueError(f"messages: got {odd[0]!r}, wants a text in it")
            content = "".join(part["text"] for part in content)
        return {"role": self.role, "content": content}


class ChatBody(_Body):
    """What /v1/chat/completions is sent."""

    messages: list[Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    top_logprobs: Off = None
    response_format: dict[Literal["type"], Literal["text"]] | None = None


def create_app(engine: Engine, name: str) -> FastAPI:
    """The endpoint.

    Args:
        engine: what answers; it is not closed with the app.
        name: of the model, as clients must call it.

    Returns:
        An ASGI application with /v1/completions, /v1/chat/completions, /v1/models, /v1/steps
        (which takes a client and its steps, where those change without a request) and /stats.
    """
    app = FastAPI(title="assay kvflow", docs_url=None, redoc_url=None)
    started = int(time.time())

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return _error(400, f"{where}: {first['msg']}", where)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(ValueError)
    async def wrong(_: Request, error: ValueError) -> JSONResponse:
        name, colon, rest = str(error).partition(":")
        name = _ARGUMENTS.get(name, name)
        return _error(400, f"{name}{colon}{rest}", name if colon else None)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return _error(500, f"{type(error).__name__}: {error}", kind="server_error")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = {"id": name, "object": "model", "created": started, "owned_by": "assay"}
        return {"object": "list", "data": [model]}

    @app.get("/stats")
    async def stats() -> Any:
        return _plain(engine.stats())

    @app.post("/v1/steps")
    async def steps(told: StepsBody) -> dict[str, Any]:
        if engine.cache is not None:
            engine.cache.update_steps(told.client, _steps(told.steps))
        return {"object": "steps", "client": told.client}

    @app.post("/v1/completions", response_model=None)
    async def completions(body: CompletionBody, request: Request) -> Any:
        if body.model != name:
            return _unknown_model(body.model, name)
        encoded = [encode(engine.tokenizer, prompt)[0] for prompt in _prompts(body.prompt)]
        answers = _Answers(engine, body, body.max_tokens, encoded, body.x_agent.fixed_tokens)
        return await _respond(answers, _Shape(name, chat=False), request)

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(body: ChatBody, request: Request) -> Any:
        if body.model != name:
            return _unknown_model(body.model, name)
        messages = [message.plain() for message in body.messages]
        hints = body.x_agent
        ids, fixed_len = encode_chat(engine.tokenizer, messages, hints.fixed_messages)
        if hints.fixed_tokens is not None:
            fixed_len = hints.fixed_tokens
        most = body.max_completion_tokens
        if most is None:
            most = body.max_tokens
        answers = _Answers(engine, body, most, [ids], fixed_len)
        return await _respond(answers, _Shape(name, chat=True), request)

    return app


def _steps(told: dict[str, int | None]) -> dict[str, float]:
    return {agent: math.inf if s is None else s for agent, s in told.items()}


def _prompts(given: Any) -> list[Prompt]:
    """One prompt, a text or ids, or several of them, as a list."""
    several = isinstance(given, list) and given and not isinstance(given[0], int)
    return given if several else [given]


class _Answers:
    """The answers to one HTTP request, one for each of its prompts.

    Attributes:
        events: (number of the prompt, text that has become certain, or the future when it is
            done), as they come.
    """

    def __init__(
        self,
        engine: Engine,
        body: _Body,
        most: int | None,
        prompts: list[tuple[int, ...]],
        fixed_len: int | None,
    ) -> None:
        self.stream = body.stream
        self.usage = body.stream_options is not None and body.stream_options.include_usage
        self.events: asyncio.Queue[tuple[int, str | Future[Completion]]] = asyncio.Queue()
        self.futures: list[Future[Completion]] = []
        hints, loop = body.x_agent, asyncio.get_running_loop()
        steps = None if hints.steps is None else _steps(hints.steps)
        temperature = 1.0 if body.temperature is None else body.temperature
        top_p = 1.0 if body.top_p is None else body.top_p
        sampling = Sampling(temperature, body.top_k, top_p, body.seed)
        stop = [body.stop] if isinstance(body.stop, str) else body.stop or []

        def tell(index: int, event: str | Future[Completion]) -> None:
            # Else the server is gone, and nobody is left to be told.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.events.put_nowait, (index, event))

        try:
            for index, ids in enumerate(prompts):
                future = engine.submit(
                    ids,
                    hints.client,
                    hints.agent,
                    fixed_len,
                    steps,
                    most,
                    sampling,
                    stop,
                    body.ignore_eos,
                    on_text=partial(tell, index) if body.stream else None,
                )
                future.add_done_callback(partial(tell, index))
                self.futures.append(future)
        except BaseException:
            self.cancel()
            raise

    async def done(self) -> list[Completion]:
        """Waits for all of them."""
        for _ in self.futures:
            _, future = await self.events.get()
            assert isinstance(future, Future)
            future.result()
        return [future.result() for future in self.futures]

    def cancel(self) -> None:
        for future in self.futures:
            future.cancel()


class _Shape:
    """What answers look like on the wire, as a text or as a turn of a conversation."""

    def __init__(self, model: str, chat: bool) -> None:
        self.chat = chat
        self.head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, answers: list[Completion]) -> dict[str, Any]:
        kind = "chat.completion" if self.chat else "text_completion"
        choices = [self._choice(i, answer.text, answer) for i, answer in enumerate(answers)]
        return self.head | {"object": kind, "choices": choices, "usage": self.usage(answers)}

    def chunk(self, index: int, text: str, answer: Completion | None = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        choice = self._choice(index, text, answer)
        if self.chat:
            choice["delta"] = choice.pop("message")
        return self.head | {"object": kind, "choices": [choice]}

    def last(self, answers: list[Completion]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self.head | {"object": kind, "choices": [], "usage": self.usage(answers)}

    def usage(self, answers: list[Completion]) -> dict[str, Any]:
        prompt = sum(answer.prompt_tokens for answer in answers)
        written = sum(len(answer.ids) for answer in answers)
        cached = sum(sum(answer.cached_tokens.values()) for answer in answers)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _choice(self, index: int, text: str, answer: Completion | None) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text}
        if self.chat:
            said = {"message": {"role": "assistant", "content": text}}
        choice = {"index": index, **said, "logprobs": None, "finish_reason": None}
        if answer is not None:
            choice["finish_reason"] = answer.finish_reason
            choice["x_agent"] = {
                "cached_tokens": answer.cached_tokens,
                "ttft": answer.ttft,
                "latency": answer.latency,
                "stall": answer.stall,
            }
        return choice


class _Stream(StreamingResponse):
    """Server-sent events; whatever ends it, the requests behind it end too."""

    def __init__(self, answers: _Answers, shape: _Shape) -> None:
        super().__init__(_events(answers, shape), media_type="text/event-stream")
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answers.cancel()


async def _events(answers: _Answers, shape: _Shape) -> AsyncIterator[str]:
    left = len(answers.futures)
    while left:
        index, event = await answers.events.get()
        if isinstance(event, str):
            yield _event(shape.chunk(index, event))
            continue
        left -= 1
        try:
            yield _event(shape.chunk(index, "", event.result()))
        except Exception as error:
            yield _event({"error": _problem(f"{type(error).__name__}: {error}", "server_error")})
            return
    if answers.usage:
        yield _event(shape.last([future.result() for future in answers.futures]))
    yield "data: [DONE]\n\n"


async def _respond(answers: _Answers, shape: _Shape, request: Request) -> Any:
    if answers.stream:
        return _Stream(answers, shape)
    done = asyncio.ensure_future(answers.done())
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        return shape.whole(await done) if done.done() else None
    finally:
        answers.cancel()
        done.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(_POLL_S)


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


def _problem(message: str, kind: str, param: str | None = None, code: str | None = None) -> Any:
    return {"message": message, "type": kind, "param": param, "code": code}


def _error(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    kind: str = "invalid_request_error",
) -> JSONResponse:
    return JSONResponse({"error": _problem(message, kind, param, code)}, status)


def _unknown_model(asked: str, name: str) -> JSONResponse:
    return _error(404, f"model: got {asked!r}, wants {name!r}", "model", "model_not_found")


def _plain(value: Any) -> Any:
    """As JSON can write it: infinity and NaN are null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
