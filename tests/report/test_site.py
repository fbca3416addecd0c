"""The pages as text: what must stand on them, what must never, and how they reach the disk."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from assay.report import build_report, shipped_exports, site, sources
from assay.study import Figure, Result, Results, Scale, Status, Table

from .toy import HOSTILE, FakeExport, FakeLedger, ToyStudy, measured

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


def _build(tmp_path: Path, own: Iterable[Result] = (), *shipped: FakeExport) -> str:
    found = {Scale.LAPTOP: list(own)}
    ledger = FakeLedger(found if found[Scale.LAPTOP] else {})
    build_report(tmp_path / "site", ledger=ledger, shipped=shipped)  # type: ignore[arg-type]
    return (tmp_path / "site/toy/index.html").read_text("utf-8")


def test_the_page_prints_paper_and_measurement_side_by_side(toy: ToyStudy, tmp_path: Path) -> None:
    own = measured(toy, Scale.LAPTOP)
    page = _build(tmp_path, own, FakeExport(Results(measured(toy, Scale.LAPTOP, 0.1))))
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    for wanted in (
        "1.51 times faster",  # the paper's figure
        "2048 x 8192, fp16, batch 1, RTX 5090",  # its setting
        "Table 4",
        "over 5 pairs, asked > 1.1",  # the verdict's reason
        "Example CPU 9000, 2 cores, 7.8 GiB, 2026-11-28",
        "shipped: Shipped CPU, 8 cores, 2026-11-01",
        "assay run toy --scale gpu --claims C6",
        "0.1.0, commit 0123456789",
        "0 to 4",  # seeds
        "Loss by number of masks",
        "our question",
    ):
        assert wanted in " ".join(text.split()), wanted


def test_every_link_leads_to_a_file_of_the_site_or_is_a_plain_address(
    toy: ToyStudy, tmp_path: Path
) -> None:
    _build(tmp_path, measured(toy, Scale.LAPTOP))
    root = tmp_path / "site"
    for path in root.rglob("*.html"):
        page = path.read_text("utf-8")
        for target in re.findall(r'(?:src|srcset|href)="([^"]+)"', page):
            target = html.unescape(target)
            if target.startswith(("https://", "data:,")):
                continue
            file, _, anchor = target.partition("#")
            reached = (path.parent / file) if file else path
            assert reached.is_file(), target
            if anchor:
                assert f'id="{anchor}"' in reached.read_text("utf-8"), target


def test_no_page_loads_anything_from_elsewhere(toy: ToyStudy, tmp_path: Path) -> None:
    page = _build(tmp_path, measured(toy, Scale.LAPTOP))
    css = (tmp_path / "site/assay.css").read_text("utf-8")
    assert not re.search(r'(?:src|srcset)="(?:https?:)?//', page)
    assert "<script" not in page
    assert not re.search(r"url\(|@import", css)


def test_hostile_words_are_shown_and_never_run(toy: ToyStudy, tmp_path: Path) -> None:
    results = measured(toy, Scale.LAPTOP)
    results[0] = replace(
        results[0], status=Status.RAISED, metrics={}, error=f"Traceback\nValueError: {HOSTILE}"
    )
    results.append(replace(results[1], params={"masks": HOSTILE}, status=Status.CRASHED))
    page = _build(tmp_path, results, FakeExport(Results(results), machine=HOSTILE))
    assert "<script" not in page
    assert "<img src=x" not in page
    assert html.escape("<script>") in page
    assert "<script" not in (tmp_path / "site/index.html").read_text("utf-8")


def test_failed_trials_show_the_end_of_their_traceback(toy: ToyStudy, tmp_path: Path) -> None:
    results = measured(toy, Scale.LAPTOP)
    lines = "\n".join(f"  frame {i}" for i in range(100))
    results[0] = replace(results[0], status=Status.RAISED, error=f"{lines}\nKeyError: 'loss'")
    page = _build(tmp_path, results)
    assert "frame 99" in page
    assert "frame 3\n" not in page
    assert "71 lines before" in page
    assert page.count("failed</span>") >= 5  # each claim that the trial would have decided


def test_nothing_measured_at_all(toy: ToyStudy, tmp_path: Path) -> None:
    front = build_report(tmp_path / "site", ledger=None, shipped=[])
    assert "Nothing has been measured yet" in front.read_text("utf-8")
    page = (tmp_path / "site/toy/index.html").read_text("utf-8")
    assert "No trial of this claim has been run" in page
    assert 'id="provenance"' not in page


def test_results_of_an_old_study_are_named_and_not_judged(toy: ToyStudy, tmp_path: Path) -> None:
    page = _build(tmp_path, (), FakeExport(Results(measured(toy, Scale.LAPTOP)), version=0))
    assert "was measured with version 0" in page
    assert "supported</span>" not in page.partition("How to read")[0]


def test_missing_metrics_cost_nothing_but_the_verdict(toy: ToyStudy, tmp_path: Path) -> None:
    page = _build(
        tmp_path, [replace(r, metrics={"loss": 1.0}) for r in measured(toy, Scale.LAPTOP)]
    )
    assert "no effect to print; asked ratio" in page
    assert page.count("inconclusive</span>") >= 4


def test_a_broken_figure_is_reported_on_the_page(
    toy: ToyStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(results: Results) -> list[Figure]:
        return [Figure("x", "A figure", "alt", lambda: {}["gone"])]

    def no_tables(results: Results) -> list[Table]:
        raise RuntimeError("no rows")

    monkeypatch.setattr(toy, "figures", broken)
    monkeypatch.setattr(toy, "tables", no_tables)
    page = _build(tmp_path, measured(toy, Scale.LAPTOP))
    assert "This figure could not be drawn: KeyError: &#39;gone&#39;" in page
    assert "tables: RuntimeError: no rows" in page


def test_figures_are_drawn_for_both_themes_without_a_ground(toy: ToyStudy, tmp_path: Path) -> None:
    _build(tmp_path, measured(toy, Scale.LAPTOP))
    folder = tmp_path / "site/toy/own-laptop"
    light = (folder / "loss.light.svg").read_text("utf-8")
    dark = (folder / "loss.dark.svg").read_text("utf-8")
    assert ">number of masks</text>" in light  # words stay words
    assert "#1c2026" in light
    assert "#e9e7e2" in dark
    assert 'id="patch_1"' not in light or "fill: none" in light


def test_pictures_of_trials_are_copied_and_lost_ones_named(toy: ToyStudy, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    picture.write_bytes(PNG)
    results = measured(toy, Scale.LAPTOP)
    results[0] = replace(results[0], files={"graph.png": picture, "raw.json": picture})
    results[1] = replace(results[1], files={"lost.png": tmp_path / "gone.png"})
    page = _build(tmp_path, results)
    copies = list((tmp_path / "site/toy/own-laptop").glob("*.png"))
    assert [c.read_bytes() for c in copies] == [PNG]
    assert 'alt="graph.png, saved by the trial masks=1, seed 0"' in page
    assert "picture lost.png of masks=2, seed 0: its file is gone" in page


def test_a_report_is_replaced_as_a_whole(toy: ToyStudy, tmp_path: Path) -> None:
    _build(tmp_path, measured(toy, Scale.LAPTOP))
    assert list((tmp_path / "site").rglob("*.svg"))
    build_report(tmp_path / "site", ledger=None, shipped=[])
    assert not list((tmp_path / "site").rglob("*.svg"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["room", "site"]


def test_a_build_that_breaks_leaves_the_old_report(
    toy: ToyStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _build(tmp_path, measured(toy, Scale.LAPTOP))
    before = (tmp_path / "site/index.html").read_bytes()

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(site, "_write", full)
    with pytest.raises(OSError, match="No space"):
        build_report(tmp_path / "site", ledger=None, shipped=[])
    assert (tmp_path / "site/index.html").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["room", "site"]


def test_a_folder_of_something_else_is_not_touched(toy: ToyStudy, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("x")
    with pytest.raises(ValueError, match="holds other files than a report"):
        build_report(tmp_path / "thesis", ledger=None, shipped=[])
    with pytest.raises(ValueError, match="is a file"):
        build_report(tmp_path / "thesis/chapter.tex", ledger=None, shipped=[])
    assert (tmp_path / "thesis/chapter.tex").read_text() == "x"


def test_no_shipped_results_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "results_folder", lambda: tmp_path / "results")
    assert shipped_exports("toy") == []
