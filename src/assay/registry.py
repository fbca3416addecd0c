"""Finds papers by their paper.toml; imports a study only when it is asked for."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from assay import papers
from assay.study import DataSource, Paper, Scale, Study


class UnknownPaper(LookupError):
    """No paper has this slug; the message names the nearest ones."""


class MissingExtra(ImportError):
    """A paper's own dependencies are not installed; the message says how to install them."""


def slugs() -> list[str]:
    """The slugs of all papers, sorted."""
    return sorted(
        {file.parent.name for f in papers.__path__ for file in Path(f).glob("*/paper.toml")}
    )


@cache
def paper(slug: str) -> Paper:
    """The paper as its paper.toml describes it.

    Raises UnknownPaper, or ValueError where the file is malformed (naming file and field).
    """
    path = room(slug) / "paper.toml"
    if not slug.isidentifier() or not path.is_file():  # "mglu/" finds a file and is no slug
        near = difflib.get_close_matches(slug, slugs(), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(slugs())}"
        raise UnknownPaper(f"unknown paper {slug!r}: {hint}")
    try:
        return _parse(tomllib.loads(path.read_text("utf-8")), path.parent)
    except (tomllib.TOMLDecodeError, TypeError, ValueError, KeyError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def _parse(fields: dict[str, Any], folder: Path) -> Paper:
    for name in ("authors", "modules"):
        if name in fields:
            fields[name] = tuple(fields[name])
    fields["data"] = tuple(
        DataSource(
            **{
                **source,
                "scales": tuple(Scale(s) for s in source["scales"]),
                "files": _files(source["name"], source.get("files", {}), folder),
            }
        )
        for source in fields.get("data", ())
    )
    return Paper(**fields)


def _files(name: str, files: dict[str, Any] | str, folder: Path) -> dict[str, tuple[str, str]]:
    """A table of files, or those of the source in a JSON file of the room with such tables."""
    if isinstance(files, str):
        listed = json.loads((folder / files).read_text("utf-8"))
        files = {k: v for k, v in listed.items() if k == name or k.startswith(f"{name}/")}
    return {path: (entry["url"], entry["sha256"]) for path, entry in files.items()}


def room(slug: str) -> Path:
    """The folder of a paper: the first that has its paper.toml, as imports are resolved."""
    folders = [Path(folder) / slug for folder in papers.__path__]
    return next((f for f in folders if (f / "paper.toml").is_file()), folders[0])


def missing_modules(slug: str) -> list[str]:
    """The modules of the paper's extra that are not installed."""
    return [m for m in paper(slug).modules if importlib.util.find_spec(m) is None]


def require(slug: str) -> None:
    """Raises MissingExtra where the paper's own dependencies are not installed."""
    if missing := missing_modules(slug):
        raise MissingExtra(
            f"assay[{slug}] is not installed ({', '.join(missing)} missing): "
            f"pip install 'assay[{slug}]'"
        )


def study(slug: str) -> Study:
    """The paper's study; importing it needs none of the paper's extra.

    Raises UnknownPaper, or ImportError naming the file where its module is broken.
    """
    paper(slug)
    try:
        module = importlib.import_module(f"assay.papers.{slug}.study")
    except Exception as error:
        file = room(slug) / "study.py"
        raise ImportError(f"{file}: {type(error).__name__}: {error}") from error
    found = getattr(module, "study", None)
    if not isinstance(found, Study):
        kind = type(found).__name__
        raise ImportError(f"{module.__file__}: study: got {kind}, wants a Study")
    return found
