"""A paper's card: the README.md of its room, read section by section."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

_SECTION = re.compile(r"^## +(.+?) *$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


class Card:
    """Sections of a card by heading, as HTML; a section that is not there is empty."""

    def __init__(self, text: str) -> None:
        self._sections = _split(_COMMENT.sub("", text))

    @classmethod
    def read(cls, path: Path) -> Card:
        """The card at `path`; an empty one where there is no such file."""
        return cls(path.read_text("utf-8") if path.is_file() else "")

    def __getitem__(self, heading: str) -> Markup:
        """A section rendered; raw HTML in the card is shown as text. "" names the introduction."""
        return markdown(self._sections.get(heading, ""))


def _split(text: str) -> dict[str, str]:
    # A line "## x" inside a code block is a comment of that code, no heading.
    hidden = _FENCE.sub(lambda m: re.sub("^#", "\0", m[0], flags=re.MULTILINE), text)
    introduction, *rest = _SECTION.split(hidden)
    found = {"": re.sub(r"\A\s*# .*\n?", "", introduction)}
    found |= zip(rest[::2], rest[1::2], strict=True)
    return {heading: body.replace("\0", "#").strip() for heading, body in found.items()}


def markdown(text: str) -> Markup:
    """Markdown as HTML. Raw HTML in it is escaped and code is highlighted."""
    return Markup(_renderer().render(text))


@cache
def _renderer() -> MarkdownIt:
    renderer = MarkdownIt("js-default", {"html": False, "linkify": False, "highlight": highlight})
    renderer.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>')
    renderer.add_render_rule("table_close", lambda *_: "</table></div>")
    return renderer


def highlight(code: str, language: str, _attributes: Any = None) -> str:
    """Code as spans with pygments' short class names; "" (plain) for an unknown language."""
    from pygments import highlight as paint
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    return str(paint(code, lexer, HtmlFormatter(nowrap=True)))
