"""Text to tokens and back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.papers.kvflow.serving import TOKENIZER, ids

from assay.papers.kvflow.text import Detokenizer, encode, encode_chat

CHAT = [
    {"role": "system", "content": "You plan."},
    {"role": "user", "content": "Rome"},
]


def test_a_chat_is_the_templates_text_cut_after_the_fixed_messages():
    found, fixed_len = encode_chat(TOKENIZER, CHAT, 1)
    text = "<|system|>You plan.<|end|><|user|>Rome<|end|><|assistant|>"
    assert TOKENIZER.decode(found) == text
    assert TOKENIZER.decode(found[:fixed_len]) == "<|system|>You plan.<|end|>"
    assert encode_chat(TOKENIZER, CHAT) == (found, None)
    assert encode_chat(TOKENIZER, CHAT, 0) == (found, 0)


def test_the_fixed_ids_do_not_depend_on_what_follows():
    merging, _ = encode(TOKENIZER, "You plan. Rome")
    parts, fixed_len = encode(TOKENIZER, ("You plan.", " Rome"))
    assert (merging, fixed_len) == (parts, 9)
    assert parts[:9] == encode(TOKENIZER, ("You plan.", "x"))[0][:9]


@pytest.mark.parametrize(
    ("messages", "fixed", "message"),
    [
        ([], None, "messages: got none"),
        (CHAT, 3, "fixed_messages: got 3, wants one from 0 to 2"),
        (CHAT, -1, "fixed_messages: got -1"),
    ],
)
def test_bad_chats_are_refused(messages, fixed, message):
    with pytest.raises(ValueError, match=message):
        encode_chat(TOKENIZER, messages, fixed)


def test_templates_may_be_missing_or_refuse(monkeypatch):
    monkeypatch.setattr(TOKENIZER, "chat_template", "{{ raise_exception('no system role') }}")
    with pytest.raises(ValueError, match="the chat template refuses them: no system role"):
        encode_chat(TOKENIZER, CHAT)
    monkeypatch.setattr(TOKENIZER, "chat_template", None)
    with pytest.raises(ValueError, match="this model has no chat template"):
        encode_chat(TOKENIZER, CHAT)


@example("ba", ["a", "ba"])
@given(
    st.text(max_size=30) | st.text("abc", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
)
def test_pieces_make_the_text_up_to_the_first_stop(text, stop):
    writer = Detokenizer(TOKENIZER, stop)
    pieces = []
    for token in TOKENIZER(text).input_ids:
        pieces.append(writer.add(token))
        if writer.stopped:
            break
    pieces.append(writer.finish())
    ends = [text.index(s) for s in stop if s in text]
    assert writer.stopped == bool(ends)
    assert "".join(pieces) == writer.text == text[: min(ends, default=len(text))]


def test_characters_are_not_given_out_in_parts():
    writer = Detokenizer(TOKENIZER)
    assert [writer.add(token) for token in TOKENIZER("aé").input_ids] == ["a", "", "é"]


def test_what_is_no_text_is_decoded_as_the_tokenizer_does():
    for seed in range(20):
        writer = Detokenizer(TOKENIZER)
        pieces = [writer.add(token) for token in ids(30, seed)]
        pieces.append(writer.finish())
        assert "".join(pieces) == TOKENIZER.decode(ids(30, seed))


def test_half_a_character_is_refused():
    told = {"role": "user", "content": "\ud800"}
    for prompt in ("\ud800x", ("fine", "\ud800")):
        with pytest.raises(ValueError, match="prompt: got half a character at 0, wants text"):
            encode(TOKENIZER, prompt)
    with pytest.raises(ValueError, match="messages: got half a character"):
        encode_chat(TOKENIZER, [told])
