"""Writes the static site: pages from templates, beside them their figures and pictures."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import assay
from assay.report import numbers
from assay.report.card import highlight
from assay.report.findings import tally
from assay.report.pages import PaperPage
from assay.report.style import Theme, css_name, css_variables
from assay.study import Outcome, Protocol, Scale

_TEMPLATES = Path(__file__).parent / "templates"
_MARKER = ".assay-report"


def write_site(out: Path, pages: Sequence[PaperPage]) -> Path:
    """Writes all pages into the folder `out`, replacing a report that is there.

    Returns:
        The path of the front page.

    Raises:
        ValueError: `out` is a file, or a folder that holds something else than a report.
        OSError: the place is not writable; what was there before is untouched.
    """
    total = tally([claim for page in pages for claim in page.claims])
    origins = list(dict.fromkeys(s.measurement.origin for page in pages for s in page.shown))
    front = render("front.html", "index.html", pages=pages, total=total, origins=origins)
    with _replacing(out) as folder:
        _write(folder, "assay.css", stylesheet())
        _write(folder, "index.html", front)
        for page in pages:
            address = f"{page.slug}/index.html"
            _write(folder, address, render("paper.html", address, page=page))
            for name, content in page.assets.items():
                _write(folder, name, content)
    return out / "index.html"


def render(template: str, address: str, **values: Any) -> str:
    """One page. `address` is its own place in the site; all links are relative to it."""
    built = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return environment().get_template(template).render(url=_links(address), built=built, **values)


def stylesheet() -> str:
    """The style sheet with the palette of both themes."""
    return (
        environment()
        .get_template("assay.css")
        .render(light=css_variables(Theme.LIGHT), dark=css_variables(Theme.DARK))
    )


@cache
def environment() -> Environment:
    """The templates with their filters. Autoescape is on everywhere but in the style sheet."""
    env = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=lambda name: not (name or "").endswith(".css"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "number": numbers.number,
        "cells": numbers.cells,
        "duration": numbers.duration,
        "count": numbers.count,
        "css_name": css_name,
        "requirement": numbers.requirement,
        "shell": _shell,
    }
    env.tests["numeric"] = numbers.is_number
    env.globals |= {
        "Outcome": Outcome,
        "Protocol": Protocol,
        "Scale": Scale,
        "assay_version": assay.__version__,
    }
    return env


def _shell(command: str) -> Markup:
    return Markup(highlight(command, "bash").strip())


def _links(address: str) -> Callable[[str], str]:
    """Addresses as seen from a page. A folder's page is named, for a disk has no index."""
    here = posixpath.dirname(address)

    def url(target: str) -> str:
        if not target or target.endswith("/"):
            target += "index.html"
        return posixpath.relpath(target, here or ".")

    return url


def _write(folder: Path, name: str, content: str | bytes | Path) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    elif isinstance(content, str):
        path.write_text(content, "utf-8")
    else:
        path.write_bytes(content)


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `out` when the block ends well."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out: {out} is a file, wants a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARKER).is_file():
        raise ValueError(f"out: {out} holds other files than a report, wants a new or empty folder")
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        (new / _MARKER).write_text(f"assay {assay.__version__}\n", "utf-8")
        yield new
        if out.exists():
            out.replace(old)
        new.replace(out)
