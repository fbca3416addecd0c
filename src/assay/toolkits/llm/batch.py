"""Many calls at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.toolkits.llm.errors import LLMError
from assay.toolkits.llm.protocol import LLM, Reply


def complete_all(
    llm: LLM,
    calls: Sequence[Mapping[str, Any]],
    concurrency: int | None = None,
    on_reply: Callable[[int, Reply | LLMError], None] | None = None,
) -> list[Reply | LLMError]:
    """Makes all calls and returns their replies in the order of the calls.

    A call that fails leaves its error in the list and does not disturb the others.

    Args:
        llm: the model.
        calls: keyword arguments of `LLM.complete`, `messages` among them.
        concurrency: most calls at once; None for what the model's backend suggests.
        on_reply: called with index and outcome as each call ends, from the thread that made it.

    Raises:
        ValueError: where `concurrency` is below 1.
    """
    workers = llm.concurrency if concurrency is None else concurrency
    if workers < 1:
        raise ValueError(f"concurrency: got {workers}, wants at least 1")

    def make(index: int) -> Reply | LLMError:
        outcome: Reply | LLMError
        try:
            outcome = llm.complete(**calls[index])
        except LLMError as error:
            outcome = error
        if on_reply:
            on_reply(index, outcome)
        return outcome

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(make, range(len(calls))))
