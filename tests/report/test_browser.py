"""The report in a real browser, from disk: reading, walking by keyboard, phone, dark screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.report import build_report
from assay.study import Results, Scale, Status

from .toy import FakeExport, FakeLedger, ToyStudy, measured

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium"
)
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def front(toy: ToyStudy, tmp_path: Path) -> str:
    own = measured(toy, Scale.LAPTOP)
    smoke = measured(toy, Scale.SMOKE)
    smoke[0] = replace(smoke[0], status=Status.TIMEOUT, error="word " * 3 + "x" * 400)
    path = build_report(
        tmp_path / "site",
        ledger=FakeLedger({Scale.LAPTOP: own, Scale.SMOKE: smoke}),  # type: ignore[arg-type]
        shipped=[FakeExport(Results(measured(toy, Scale.LAPTOP, -0.1)))],  # type: ignore[list-item]
    )
    return path.as_uri()


class Reader:
    """A page that remembers what it complained about and what it asked for."""

    def __init__(self, browser: Any, width: int = 1440, scheme: str = "light") -> None:
        viewport = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def check(self) -> None:
        assert self.complaints == []
        assert self.requests
        assert all(url.startswith(("file://", "data:")) for url in self.requests), self.requests

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def test_from_the_front_page_to_a_paper_by_click(chromium: Any, front: str) -> None:
    reader = Reader(chromium)
    reader.page.goto(front)
    reader.page.get_by_role("link", name="Gated Widgets").click()
    assert reader.page.url.endswith("/toy/index.html")
    assert reader.page.get_by_role("heading", level=1).inner_text().startswith("Gated")
    reader.page.get_by_role("link", name="Papers", exact=True).click()
    assert reader.page.url == front
    reader.page.locator(".chip", has_text="C2").click()
    assert reader.page.url.endswith("/toy/index.html#C2")
    reader.check()


def test_from_the_front_page_to_a_paper_by_keyboard(chromium: Any, front: str) -> None:
    reader = Reader(chromium)
    page = reader.page
    page.goto(front)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('h3') !== null"):
            break
    outline = "getComputedStyle(document.activeElement, '::after').outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/toy/index.html")
    reader.check()


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_nothing_scrolls_sideways(chromium: Any, front: str, width: int) -> None:
    reader = Reader(chromium, width)
    for address in (front, front.replace("index.html", "toy/index.html")):
        reader.page.goto(address)
        reader.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert reader.sideways() <= 0, address
    reader.check()


def test_every_image_loads_and_has_words(chromium: Any, front: str) -> None:
    reader = Reader(chromium)
    reader.page.goto(front.replace("index.html", "toy/index.html"))
    reader.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    reader.page.wait_for_function("[...document.images].every(i => i.complete)")
    images = reader.page.evaluate(
        "[...document.images].map(i => [i.alt.length > 0 && i.naturalWidth > 0, i.currentSrc])"
    )
    assert len(images) == 6  # two figures each of own laptop, own smoke and shipped laptop
    assert all(good for good, _ in images), images
    reader.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_and_figures_follow_the_screen(chromium: Any, front: str, scheme: str) -> None:
    reader = Reader(chromium, scheme=scheme)
    reader.page.goto(front.replace("index.html", "toy/index.html"))
    shown = reader.page.evaluate("[...document.images].map(i => i.currentSrc)")
    assert shown
    assert all(source.endswith(f".{scheme}.svg") for source in shown), shown
    ground = reader.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(250, 248, 244)" if scheme == "light" else "rgb(20, 23, 27)")
    reader.check()


def test_on_a_phone_each_cell_of_the_claims_says_what_it_is(chromium: Any, front: str) -> None:
    reader = Reader(chromium, 390)
    reader.page.goto(front.replace("index.html", "toy/index.html"))
    display = "getComputedStyle(document.querySelector('.claims td')).display"
    label = "getComputedStyle(document.querySelector('.claims td'), '::before').content"
    assert reader.page.evaluate(display) == "block"
    assert reader.page.evaluate(label) == '"The paper reports"'
    # A table shown as blocks stays a table for those who listen to it.
    assert reader.page.get_by_role("table").first.get_by_role("row").count() > 6
