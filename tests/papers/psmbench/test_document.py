"""Cleaning and cutting RFCs."""

from __future__ import annotations

import json

import pytest

from assay.papers.psmbench import RFCDocument
from assay.papers.psmbench.document import read_sections

RFC = """Network Working Group                                  J. Doe
RFC 9999           The Example Protocol          July 2024

                            Table of Contents

   1.     Introduction ..........................    1
   1.1.   Words .................................    2

   2.     Machine
   2.1.   States ................................    2
   2.2.   Events ................................    3
   Appendix A. History ..........................    4
   AUTHOR'S ADDRESS .............................    5

   Copyright notice.

1.  Introduction

   In July 2024 this line stays.

Doe                      Standards Track                    [Page 1]
\fRFC 9999           The Example Protocol          July 2024

2.  Machine

   Lead text.

2.1.  States

   Open and Closed.

2.2.  Events

   Many.

Appendix A.  History

   None.
"""


def test_page_artefacts_go_and_text_stays():
    text = RFCDocument.from_text(RFC).clean().text
    assert "[Page" not in text
    assert "The Example Protocol" not in text
    assert "In July 2024 this line stays." in text
    assert "\n\n" not in text


def test_the_table_of_contents_is_read_and_removed():
    headings, rest = RFCDocument.from_text(RFC).clean().contents()
    assert [str(h) for h in headings] == [
        "1. Introduction",
        "1.1. Words",
        "2. Machine",
        "2.1. States",
        "2.2. Events",
        "Appendix A. History",
    ]
    assert [h.level for h in headings] == [1, 2, 1, 2, 2, 1]
    assert "....." not in rest.text
    assert "Copyright notice." in rest.text


def test_a_heading_right_after_the_table_ends_it():
    text = "Table of Contents\n1. One .... 1\n2. Two .... 2\n1. One\nThe text.\n2. Two\nMore."
    sections = RFCDocument.from_text(text).sections()
    assert [(s.tag, s.content) for s in sections] == [
        ("Section 1. One", "The text."),
        ("Section 2. Two", "More."),
    ]


def test_sections_follow_the_top_level():
    sections = RFCDocument.from_text(RFC).clean().sections()
    assert [s.tag for s in sections] == [
        "Section 1. Introduction",
        "Section 2. Machine",
        "Section Appendix A. History",
    ]
    assert sections[0].content == "In July 2024 this line stays."


def test_a_large_section_is_cut_at_the_second_level_and_joined_again():
    document = RFCDocument.from_text(RFC).clean()

    def words(text: str) -> int:
        return len(text.split())

    small = [s for s in document.sections(max_tokens=3, count_tokens=words) if s.number == "2."]
    assert [s.content for s in small] == ["Lead text.", "Open and Closed.", "Many."]
    assert small[0].tag == "Section 2. Machine"
    joined = [s for s in document.sections(max_tokens=5, count_tokens=words) if s.number == "2."]
    assert [s.content for s in joined] == ["Lead text.\nOpen and Closed.", "Many."]
    assert [s.tag for s in joined] == [
        "Section 2. Machine 2.1. States",
        "Section 2. Machine 2.2. Events",
    ]


def test_no_word_is_lost_in_cutting():
    document = RFCDocument.from_text(RFC).clean()
    whole = " ".join(s.content for s in document.sections()).split()
    pieces = " ".join(s.content for s in document.sections(max_tokens=1)).split()
    headings = ["2.1.", "States", "2.2.", "Events"]
    assert sorted(pieces + headings) == sorted(whole)


def test_without_a_table_of_contents_headings_are_found():
    text = "1. Start\nHello.\n2. End\nBye."
    assert [s.tag for s in RFCDocument.from_text(text).sections()] == [
        "Section 1. Start",
        "Section 2. End",
    ]


def test_without_headings_the_document_is_one_section():
    (section,) = RFCDocument.from_text("just words\n").sections()
    assert section.content == "just words"


@pytest.mark.parametrize("text", ["", " \n\f "])
def test_no_text_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match="no text"):
        RFCDocument.from_text(text)


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(TypeError, match="source: got int"):
        RFCDocument.from_text(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_tokens: got 0"):
        RFCDocument.from_text("x").sections(max_tokens=0)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(ValueError, match=r"binary\.txt: not UTF-8"):
        RFCDocument.from_text(tmp_path / "binary.txt")


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"a": 1}, "wants a list"),
        ([{"section_number": "1."}], r"\[0\].section_name: missing"),
        (["text"], r"\[0\].section_number"),
    ],
)
def test_a_malformed_segments_file_names_the_place(content, where, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=where):
        read_sections(path)


def test_the_published_sections_of_ppp_come_out_of_its_raw_text(bench):
    raw = bench.root / "segments" / "PPP_rfc1661_raw.txt"
    if not raw.is_file():
        pytest.skip(f"{raw}: not there")
    assert RFCDocument.from_text(raw).clean().sections() == bench.segments("PPP")
