"""RFC text: cleaning, and cutting into sections that fit a model's context."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from assay.toolkits.files import read_json

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_PAGE_ARTEFACTS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\[Page\s*(?:\d+|[IVXLCDM]+)\]",
        r"^[A-Za-z]+(?=\s+\[Page)",
        r"\bet al\.\b",
        r"\bStandards\s+Track\b",
        r"\bInformational\b",
        r"\bRFC\s*\d+\b",
        r"\b[A-Z][A-Za-z]*-\d+\b",
        rf"\b(?:{_MONTHS})\s+\d{{4}}\b",
    )
]
_CONTENTS_LINE = re.compile(
    r"\s*(?:(?P<appendix>Appendix)\s+(?P<letter>[A-Z]+(?:\.\d+)*)"
    r"|(?P<number>\d+(?:\.\d+)*|[A-Z](?:\.\d+)+|[A-Z](?=\.)))"
    r"\.?\s+(?P<title>.+?)(?:\s+\.{2,}\s*\d+)?\s*"
)
_UNNUMBERED_CONTENTS_LINE = re.compile(r".*\s\.{2,}\s*\d+\s*")
_HEADING_LINE = re.compile(r"(?P<number>\d+(?:\.\d+)*)\.?\s+(?P<title>[A-Z]\S.*)")

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Four characters to a token, rounded up: for English text, when no tokenizer is at hand."""
    return -(-len(text) // 4)


@dataclass(frozen=True)
class Heading:
    """An entry of a table of contents: `number` ends in a dot ("3.2.", "Appendix A.")."""

    number: str
    title: str

    @property
    def level(self) -> int:
        return len(self.number.rstrip(".").split("."))

    def __str__(self) -> str:
        return _squeezed(f"{self.number} {self.title}")


@dataclass(frozen=True)
class Section:
    """A piece of a document.

    Args:
        number: such as "3."; empty where the document has no headings.
        name: its title.
        tag: what names it in a prompt, such as "Section 3. Headers".
        content: its text.
    """

    number: str
    name: str
    tag: str
    content: str


@dataclass(frozen=True)
class RFCDocument:
    """An RFC: its `text`. `clean` it before cutting it into `sections`."""

    text: str

    @classmethod
    def from_text(cls, source: str | Path) -> RFCDocument:
        """A document from a string, or from a UTF-8 file given as a `Path`.

        Raises:
            TypeError: for anything else.
            ValueError: where there is no text in it, or the file is not UTF-8.
            OSError: where the file cannot be read.
        """
        if not isinstance(source, str | Path):
            raise TypeError(f"source: got {type(source).__name__}, wants str or Path")
        name = str(source) if isinstance(source, Path) else "source"
        try:
            text = source.read_text("utf-8") if isinstance(source, Path) else source
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}: not UTF-8 text: {error}") from None
        if not text.strip():
            raise ValueError(f"{name}: got no text, wants an RFC")
        return cls(text)

    def clean(self) -> RFCDocument:
        """The document without page headers and footers and without blank lines.

        A line goes where at least two of eight page artefacts are found in it (page marker,
        surname before one, "et al.", "Standards Track", "Informational", RFC number, an
        identifier with a number, month and year).
        """
        lines = [
            line
            for line in self.text.replace("\f", "\n").splitlines()
            if sum(bool(pattern.search(line)) for pattern in _PAGE_ARTEFACTS) < 2
        ]
        return replace(self, text=re.sub(r"\n{2,}", "\n", "\n".join(lines)))

    def contents(self) -> tuple[list[Heading], RFCDocument]:
        """The table of contents, and the document without it.

        The table starts at a line "Table of Contents" and ends at the first line that is neither
        blank nor one of its entries, or that repeats one: the first heading. Without a table,
        headings are the lines that start at the margin with a number and a capitalised title.
        """
        entries: list[Heading] = []
        kept: list[str] = []
        inside = found = False
        for line in self.text.splitlines():
            if not inside:
                if line.strip().lower().startswith("table of contents"):
                    inside = found = True
                else:
                    kept.append(line)
            elif line.strip():
                entry = _contents_entry(line)
                if entry and entry not in entries:
                    entries.append(entry)
                elif entry or not _UNNUMBERED_CONTENTS_LINE.fullmatch(line):
                    inside = False
                    kept.append(line)
        if not found:
            matches = (_HEADING_LINE.fullmatch(line.rstrip()) for line in kept)
            entries = [Heading(f"{m['number']}.", m["title"]) for m in matches if m]
        return entries, RFCDocument("\n".join(kept))

    def sections(
        self, max_tokens: int = 40_000, count_tokens: CountTokens = estimate_tokens
    ) -> list[Section]:
        """The document cut at its top-level headings.

        A section of more than `max_tokens` is cut at its second-level headings, and neighbours are
        joined again as long as they fit; without such headings it stays whole (an extractor cuts it
        further, with overlap). A document without any headings is one section.

        Args:
            max_tokens: largest section that is left alone.
            count_tokens: the model's own token count; the default takes four characters for one.

        Raises:
            ValueError: where `max_tokens` is below 1.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens: got {max_tokens}, wants at least 1")
        headings, document = self.contents()
        top = [heading for heading in headings if heading.level == 1]
        sections: list[Section] = []
        for heading, content in _split(document.text, top):
            if heading is None:
                continue
            tag = f"Section {heading}"
            section = Section(heading.number, heading.title, tag, content)
            children = [h for h in headings if h.level == 2 and h.number.startswith(heading.number)]
            if count_tokens(content) <= max_tokens or not children:
                sections.append(section)
            else:
                sections += _joined(section, children, max_tokens, count_tokens)
        return sections or [Section("", "Document", "Document", document.text.strip())]


def _contents_entry(line: str) -> Heading | None:
    match = _CONTENTS_LINE.fullmatch(line)
    if match is None:
        return None
    number = f"Appendix {match['letter']}" if match["appendix"] else match["number"]
    return Heading(f"{number}.", match["title"].strip())


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _split(text: str, headings: list[Heading]) -> list[tuple[Heading | None, str]]:
    """Text before the first heading (None), then each heading with the text that follows it."""
    by_line: dict[str, Heading] = {}
    for heading in headings:
        by_line.setdefault(str(heading), heading)
    parts: list[tuple[Heading | None, list[str]]] = [(None, [])]
    for line in text.splitlines():
        if found := by_line.get(_squeezed(line)):
            parts.append((found, []))
        else:
            parts[-1][1].append(line)
    return [(heading, "\n".join(lines).strip()) for heading, lines in parts]


def _joined(
    section: Section, headings: list[Heading], max_tokens: int, count_tokens: CountTokens
) -> list[Section]:
    groups: list[tuple[list[str], str, int]] = []
    for heading, content in _split(section.content, headings):
        if heading is None and not content:
            continue
        name = [str(heading)] if heading else []
        tokens = count_tokens(content)
        if groups and groups[-1][2] + tokens <= max_tokens:
            names, joined, total = groups.pop()
            groups.append((names + name, f"{joined}\n{content}", total + tokens))
        else:
            groups.append((name, content, tokens))
    return [
        replace(section, tag=" ".join([section.tag, *names]), content=content)
        for names, content, _ in groups
    ]


def read_sections(path: Path) -> list[Section]:
    """Sections from a file of the data set (``*_segments.json``).

    Raises:
        ValueError: naming the file and the path inside it.
        OSError: where it cannot be read.
    """
    items = read_json(path)
    if not isinstance(items, list):
        raise ValueError(f"{path}: got {type(items).__name__}, wants a list of sections")
    sections = []
    for index, item in enumerate(items):
        values = []
        for key in ("section_number", "section_name", "tag", "content"):
            value = item.get(key) if isinstance(item, dict) else None
            if not isinstance(value, str):
                raise ValueError(f"{path}: [{index}].{key}: missing, wants a string")
            values.append(value)
        sections.append(Section(*values))
    return sections
