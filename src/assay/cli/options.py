"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from assay import registry
from assay.study import Scale

Papers = Annotated[
    list[str] | None, typer.Argument(metavar="PAPER", help="Slugs; all papers if none.")
]
OneScale = Annotated[Scale, typer.Option("--scale", help="How large.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="URL", help="Path or SQLAlchemy URL. [default: .assay/ledger.sqlite]"
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Folder that holds a folder per paper. [env: ASSAY_DATA]"
    ),
]
_MOST_SEEDS = 10_000

AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines.")]


def chosen(papers: list[str] | None) -> list[str]:
    """The slugs asked for, each known, or all. Raises registry.UnknownPaper."""
    for slug in papers or ():
        registry.paper(slug)
    return list(dict.fromkeys(papers)) if papers else registry.slugs()


def use_data(folder: Path | None) -> None:
    """Makes `--data` count for this process and the workers it spawns. Raises ValueError."""
    if folder is None:
        return
    if not folder.is_dir():
        raise ValueError(f"--data: {folder} is no folder")
    os.environ["ASSAY_DATA"] = str(folder.resolve())


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "10m", "1h30m". Raises ValueError."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text.strip())
    hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    seconds = 3600 * hours + 60 * minutes + rest
    if seconds <= 0:
        raise ValueError(f"--budget: got {text!r}, wants a duration such as 90s, 10m or 1h30m")
    return float(seconds)


def parse_seeds(text: str) -> list[int]:
    """Seeds in "5" (that many, from 0) or "0,3,7" or "4," (only 4). Raises ValueError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds: got {text!r}, wants a count such as 5 or a list such as 0,3,7")
    if any(len(part) > 18 for part in parts):  # the ledger keeps 64 bits
        raise ValueError(f"--seeds: got {text[:40]!r}, wants numbers of at most 18 digits")
    numbers = [int(part) for part in parts]
    if "," in text:
        return numbers
    if numbers[0] == 0:
        raise ValueError("--seeds: got 0, wants at least 1 seed")
    if numbers[0] > _MOST_SEEDS:
        raise ValueError(
            f"--seeds: got {numbers[0]}, wants at most {_MOST_SEEDS} seeds; "
            f"to run only this one write {numbers[0]},"
        )
    return list(range(numbers[0]))


def parse_claims(text: str) -> list[str]:
    """Claims in "C1,mglu:C3". Raises ValueError."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError(f"--claims: got {text!r}, wants ids such as C1,C3 or mglu:C2")
    return names


def parse_overrides(pairs: list[str] | None) -> dict[str, str]:
    """Parameters in ["name=value", ...]. Raises ValueError."""
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"--set: got {pair!r}, wants name=value")
        found[name.strip()] = value.strip()
    return found
