"""What a model is asked, and how its answer is read.

The wording is ours; it asks for what the paper's prompts ask for: one JSON object between
``<json>`` and ``</json>`` or None there, the same fields, the same rules for names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from assay.toolkits.files import parse_json
from assay.toolkits.llm import Message

_NAMES = """\
- A state is one to three words and at most 30 characters, in CamelCase or snake_case, without
  blanks or punctuation. It names a phase or status of the protocol: Authenticated,
  awaiting_password. It does not describe ("waiting for a command") or count ("State 1").
- An event says what triggers the transition. Where it fits it starts with receive, send, timeout
  or cond: receive USER, timeout 5s, cond valid_credentials.
- An action says what is done, a verb and at most three further words: reply 230, log failure. Good
  verbs are reply, send, set, log, reset, close, collect, open, record, stop.
- A transition has exactly the keys from, event, action and to, all of them strings.
- Invent nothing, and use one name for one thing throughout."""

_ANSWER = """\
Answer with one JSON object between <json> and </json> and write nothing else: no explanation, no
comment, no code fence."""

_EXTRACT = """\
Below is the part "{tag}" of the specification of the protocol {protocol}. Extract what it says of
the protocol's state machine: states, transitions, diagrams, reply codes, orders of messages.

{answer} If the text holds nothing of the kind, answer exactly <json>None</json>.

The object has two fields, "states" (all names used in "from" or "to") and "transitions":
<json>{{"states": ["Closed", "Listening"], "transitions": [
{{"from": "Closed", "event": "receive OPEN", "action": "open port", "to": "Listening"}}]}}</json>

{names}

<section>
{text}
</section>"""

_MERGE = """\
Below are partial state machines of the protocol {protocol}, taken from different parts of its
specification, each between <partial> and </partial>. Ignore those that are None. Merge the others
into one state machine.

- Give states that are the same one name ("Init", "Initialization").
- Keep one of several transitions that differ only in wording.
- Keep similar states apart where they play different roles.
- "initial_state" is the state that no transition leads to; "final_states" are those that none
  leaves.

{answer} The object has the fields "states", "initial_state", "final_states" and "transitions".

{names}

{partials}"""


def extraction_messages(protocol: str, tag: str, text: str) -> list[Message]:
    """The conversation that asks for the partial machine in one section of a specification."""
    prompt = _EXTRACT.format(protocol=protocol, tag=tag, text=text, names=_NAMES, answer=_ANSWER)
    return [{"role": "user", "content": prompt}]


def merge_messages(protocol: str, partials: Sequence[str]) -> list[Message]:
    """The conversation that asks for one machine out of the raw replies for all sections."""
    blocks = "\n\n".join(f"<partial>\n{partial}\n</partial>" for partial in partials)
    prompt = _MERGE.format(protocol=protocol, partials=blocks, names=_NAMES, answer=_ANSWER)
    return [{"role": "user", "content": prompt}]


def parse_reply(text: str) -> Any | None:
    """The JSON in a model's reply; None where it says that there is nothing.

    The first ``<json>`` block counts; a code fence inside it is ignored, and a reply that is JSON
    as a whole needs no tags.

    Raises:
        ValueError: where there is neither, or the JSON is broken.
    """
    block = re.search(r"<json>(.*?)</json>", text, re.DOTALL | re.IGNORECASE)
    inner = (block[1] if block else text).strip()
    if fenced := re.fullmatch(r"```\w*\s*(.*?)\s*```", inner, re.DOTALL):
        inner = fenced[1]
    if inner.lower() == "none" or (block and not inner):
        return None
    try:
        return parse_json(inner)
    except ValueError as error:
        what = "broken JSON" if block else "no <json> block"
        raise ValueError(f"{what} in the reply {text[:80]!r}: {error}") from None
