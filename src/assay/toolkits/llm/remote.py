"""Any server with the OpenAI chat interface: hosted services, vLLM, llama.cpp, Ollama."""

from __future__ import annotations

import json
from typing import Any

from assay.toolkits.llm.errors import LLMError, RequestRefused
from assay.toolkits.llm.protocol import Completion, Request, Usage


class RemoteBackend:
    """Calls a chat-completions server through the official `openai` client.

    Args:
        model: the server's name of the model.
        base_url: the server's address; None for OPENAI_BASE_URL, else OpenAI's own.
        api_key: None for OPENAI_API_KEY; servers that want none get a placeholder.
        timeout: seconds until a call is given up.
        max_retries: further attempts after a timeout, a lost connection, 429 or 5xx, with growing
            pauses.
        context_window: most tokens of prompt and reply together; None where it is not known.
        concurrency: calls at once.

    Raises:
        ImportError: where `openai` is not installed.
        ValueError: for values out of range.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        max_retries: int = 3,
        context_window: int | None = None,
        concurrency: int = 8,
    ) -> None:
        import os

        import openai

        if not model:
            raise ValueError("model: got an empty name")
        if not timeout > 0:
            raise ValueError(f"timeout: got {timeout}, wants seconds > 0")
        if max_retries < 0:
            raise ValueError(f"max_retries: got {max_retries}, wants >= 0")
        if concurrency < 1:
            raise ValueError(f"concurrency: got {concurrency}, wants at least 1")
        self.model = model
        self.context_window = context_window
        self.concurrency = concurrency
        self.identity = {"backend": "openai-chat", "model": model}
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=api_key or os.environ.get("OPENAI_API_KEY") or "none",
            timeout=timeout,
            max_retries=max_retries,
        )
        self._takes_schema = True

    def send(self, request: Request) -> Completion:
        """Makes the call. Raises LLMError."""
        if request.schema is None or not self._takes_schema:
            return self._send_checked(request, with_schema=False)
        try:
            return self._send_checked(request, with_schema=True)
        except RequestRefused:
            # It may know no response_format: say it in words; if that helps, from now on.
            completion = self._send_checked(request, with_schema=False)
        self._takes_schema = False
        return completion

    def _send_checked(self, request: Request, with_schema: bool) -> Completion:
        import openai

        try:
            return self._send(request, with_schema)
        except openai.BadRequestError as error:
            raise RequestRefused(
                f"{self.model}: the server refused the request: {error}"
            ) from error
        except openai.APITimeoutError as error:
            raise LLMError(f"{self.model}: no reply in time: {error}") from error
        except openai.APIConnectionError as error:
            raise LLMError(f"{self.model}: no connection: {error}") from error
        except openai.APIStatusError as error:
            raise LLMError(
                f"{self.model}: the server answered {error.status_code}: {error}"
            ) from error
        except (openai.OpenAIError, ValueError) as error:
            raise LLMError(f"{self.model}: the reply is malformed: {error}") from error

    def _send(self, request: Request, with_schema: bool) -> Completion:
        messages: list[Any] = [dict(message) for message in request.messages]
        options: dict[str, Any] = {}
        if with_schema:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": dict(request.schema or {})},
            }
        elif request.schema is not None:
            text = json.dumps(dict(request.schema), ensure_ascii=False)
            rule = f"Reply with one JSON value and nothing else. It must fit this schema: {text}"
            messages.insert(0, {"role": "system", "content": rule})
        if request.stop:
            options["stop"] = list(request.stop)
        answer = self._client.chat.completions.create(
            model=self.model,
            messages=messages,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            **options,
        )
        choices = getattr(answer, "choices", None)
        if not choices or choices[0].message is None:
            raise LLMError(f"{self.model}: the reply is malformed: it holds no message")
        usage = answer.usage
        return Completion(
            text=choices[0].message.content or "",
            usage=Usage(usage.prompt_tokens, usage.completion_tokens) if usage else Usage(),
            finish_reason=choices[0].finish_reason or "stop",
        )
