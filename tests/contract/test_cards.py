"""Cards and README say only what the shipped measurements say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_figure_in_a_measured_table_is_that_of_the_results():
    answer = subprocess.run(
        [sys.executable, ROOT / "scripts" / "cards.py", "--check"], capture_output=True, text=True
    )
    assert answer.returncode == 0, f"{answer.stdout}{answer.stderr}run: make cards"


def test_a_card_has_a_measured_table(slug, room):
    assert re.search(r"<!-- measured:laptop -->", (room / "README.md").read_text())


def test_a_figure_changed_by_hand_is_found(tmp_path):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import cards
    finally:
        sys.path.pop(0)
    card = tmp_path / "README.md"
    card.write_text("<!-- measured:laptop -->\n0.99\n<!-- /measured -->\n")
    assert cards.rewrite(card, "measured", lambda scale: "0.42", check=True)
    assert "0.99" in card.read_text()
    assert cards.rewrite(card, "measured", lambda scale: "0.42", check=False)
    assert not cards.rewrite(card, "measured", lambda scale: "0.42", check=True)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_links_in_the_top_documents_lead_somewhere(name):
    text = (ROOT / name).read_text()
    for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (ROOT / link).exists(), link
