"""Text to tokens and back, with the border between fixed and dynamic part kept.

Cutting a tokenised prompt at that border would let the tokens beside it change with what follows,
so the two parts are tokenised apart and their ids put together. Tokenizers that mark the start of
a text (SentencePiece) then mark it twice, which is seen by the model, in every call alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Prompt = str | tuple[str, str] | Sequence[int]
"""A text, a (fixed, dynamic) pair of texts, or token ids."""


def encode(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt
) -> tuple[tuple[int, ...], int | None]:
    """Token ids of a prompt, and how many of them are its fixed part.

    Args:
        tokenizer: of the model.
        prompt: a text, a (fixed, dynamic) pair of texts, or token ids.

    Returns:
        The ids, and the length of the fixed part in tokens; None where none was told apart.

    Raises:
        TypeError: prompt is none of these.
        ValueError: an id is not in the vocabulary.
    """
    if isinstance(prompt, str):
        return tuple(tokenizer(_writable("prompt", prompt)).input_ids), None
    if isinstance(prompt, tuple) and len(prompt) == 2 and isinstance(prompt[0], str):
        fixed, dynamic = (_writable("prompt", part) for part in prompt)
        first = tokenizer(fixed).input_ids
        second = tokenizer(dynamic, add_special_tokens=False).input_ids
        return (*first, *second), len(first)
    if isinstance(prompt, bytes | Mapping) or not hasattr(prompt, "__iter__"):
        raise TypeError(f"prompt: got {type(prompt).__name__}, wants text, two texts or token ids")
    ids = tuple(prompt.tolist() if hasattr(prompt, "tolist") else prompt)
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int):
            raise TypeError(f"prompt: got {token!r} among the ids, wants integers")
        if not 0 <= token < len(tokenizer):
            raise ValueError(f"prompt: got id {token}, wants one from 0 to {len(tokenizer) - 1}")
    return ids, None


def _writable(name: str, text: str) -> str:
    """A text, unless tokenizers would refuse it without saying why."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: got half a character at {error.start}, wants text") from None
    return text


def encode_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    n_fixed: int | None = None,
) -> tuple[tuple[int, ...], int | None]:
    """Token ids of a conversation as the model's chat template writes it.

    Args:
        tokenizer: of the model, with a chat template.
        messages: each with role and content.
        n_fixed: how many of them, from the start, are the same in all of an agent's calls; None:
            not told.

    Returns:
        The ids, and the length of the fixed messages in tokens, or None.

    Raises:
        ValueError: no template, no messages, n_fixed out of range, or the template refuses.
    """
    from jinja2 import TemplateError

    if not messages:
        raise ValueError("messages: got none, wants at least one")
    if tokenizer.chat_template is None:
        raise ValueError("messages: this model has no chat template, wants a text prompt")
    if n_fixed is not None and not 0 <= n_fixed <= len(messages):
        raise ValueError(f"fixed_messages: got {n_fixed}, wants one from 0 to {len(messages)}")

    def text(said: Sequence[Mapping[str, Any]], asks: bool) -> str:
        try:
            written = tokenizer.apply_chat_template(
                [dict(m) for m in said], tokenize=False, add_generation_prompt=asks
            )
        except TemplateError as error:
            raise ValueError(f"messages: the chat template refuses them: {error}") from None
        return _writable("messages", cast(str, written))

    full = text(messages, True)
    if not n_fixed:
        ids = tokenizer(full, add_special_tokens=False).input_ids
        return tuple(ids), None if n_fixed is None else 0
    # Templates may end a conversation otherwise than they go on with it.
    pairs = zip(full, text(messages[:n_fixed], False), strict=False)
    fixed = "".join(a for a, b in takewhile(lambda pair: pair[0] == pair[1], pairs))
    first = tokenizer(fixed, add_special_tokens=False).input_ids
    second = tokenizer(full[len(fixed) :], add_special_tokens=False).input_ids
    return (*first, *second), len(first)


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """What tokens say, without special tokens.

    Args:
        tokenizer: of the model.
        ids: the tokens.
    """
    return cast(str, tokenizer.decode(list(ids), skip_special_tokens=True))


class Detokenizer:
    """The text of an answer while it is written, up to a stop string.

    Attributes:
        ids: the tokens so far.
        stopped: whether a stop string was met.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()) -> None:
        """Begins an answer.

        Args:
            tokenizer: of the model; a fast one.
            stop: texts that end the answer and are not part of it.
        """
        from tokenizers.decoders import DecodeStream

        self.ids: list[int] = []
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._text = ""
        self._given = 0

    def add(self, token: int) -> str:
        """Takes a token.

        Args:
            token: its id.

        Returns:
            The text that has become certain; empty while a character is incomplete or a stop
            string may have begun.
        """
        self.ids.append(token)
        self._text += self._stream.step(self._tokenizer.backend_tokenizer, token) or ""
        return self._certain(held_back=self._begun())

    def finish(self) -> str:
        """What was held back, at the end of the answer."""
        if not self.stopped:
            whole = decode(self._tokenizer, self.ids)
            if whole.startswith(self._text):  # else its end is an incomplete character
                self._text = whole
        return self._certain(held_back=0)

    @property
    def text(self) -> str:
        """All that was given out."""
        return self._text[: self._given]

    def _certain(self, held_back: int) -> str:
        # What was given out holds the beginning of no stop string: it was held back.
        ends = [at for stop in self._stop if (at := self._text.find(stop, self._given)) >= 0]
        if ends:
            self._text = self._text[: min(ends)]
            self.stopped = True
            held_back = 0
        new = self._text[self._given : len(self._text) - held_back]
        self._given += len(new)
        return new

    def _begun(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for n in range(min(longest, len(self._text) - self._given), 0, -1):
            if any(stop.startswith(self._text[-n:]) for stop in self._stop):
                return n
        return 0
