from __future__ import annotations

from pathlib import Path

from assay.report.card import Card, markdown


def test_sections_are_found_by_heading_and_headings_in_code_are_not() -> None:
    card = Card("# Title\n\nIntro.\n\n## Use\n\n```bash\n## a comment\nls\n```\n\n## Limits\nfew\n")
    assert card[""] == "<p>Intro.</p>\n"
    assert "## a comment" in card["Use"]
    assert card["Limits"] == "<p>few</p>\n"
    assert card["Nothing"] == ""


def test_no_card_is_an_empty_card(tmp_path: Path) -> None:
    assert Card.read(tmp_path / "README.md")["Use"] == ""


def test_raw_html_and_dangerous_links_are_shown_as_text() -> None:
    html = markdown("<script>alert(1)</script> [x](javascript:alert(1)) `<b>`")
    assert "<script" not in html
    assert "href" not in html
    assert "&lt;script&gt;" in html


def test_code_is_highlighted_and_escaped() -> None:
    html = markdown("```python\nimport os  # <b>\n```\n\n```nolanguage\n<b>\n```\n")
    assert '<span class="kn">import</span>' in html
    assert html.count("&lt;b&gt;") == 2


def test_comments_of_the_source_are_dropped() -> None:
    assert "measured" not in Card("## Limits\n<!-- measured:laptop -->\nx\n")["Limits"]


def test_tables_scroll_on_their_own() -> None:
    assert '<div class="scroll" tabindex="0"><table>' in markdown("| a |\n| --- |\n| 1 |\n")
