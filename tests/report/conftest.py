from __future__ import annotations

from pathlib import Path

import pytest

from assay import registry

from .toy import CARD, PAPER, ToyStudy


@pytest.fixture
def study() -> ToyStudy:
    return ToyStudy()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, study: ToyStudy) -> ToyStudy:
    """Makes the toy paper the only one of the registry."""
    room = tmp_path / "room"
    room.mkdir()
    (room / "README.md").write_text(CARD, "utf-8")
    monkeypatch.setattr(registry, "slugs", lambda: ["toy"])
    monkeypatch.setattr(registry, "paper", lambda slug: PAPER)
    monkeypatch.setattr(registry, "study", lambda slug: study)
    monkeypatch.setattr(registry, "room", lambda slug: room)
    return study
