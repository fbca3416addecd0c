"""Where a paper's data lie: a folder of the user's, else the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


class MissingData(FileNotFoundError):
    """Data that are nowhere to be found; the message says where was looked and what helps."""


def cache_dir(slug: str) -> Path:
    """The user's cache folder for a paper (not created). `ASSAY_CACHE` moves all of them."""
    root = os.environ.get("ASSAY_CACHE") or platformdirs.user_cache_dir("assay", appauthor=False)
    return Path(root).expanduser() / slug


def data_roots(slug: str) -> list[Path]:
    """The folders in which a paper's data are looked for, first one first."""
    roots = [cache_dir(slug) / "data"]
    if given := os.environ.get("ASSAY_DATA"):
        roots.insert(0, Path(given).expanduser() / slug)
    return roots


def find_data(slug: str, name: str = "") -> Path:
    """The path of DATA/<slug>/name, in the first root that has it.

    Roots are `ASSAY_DATA` (set by `--data`), then the cache that `assay data fetch` fills.
    Raises MissingData.
    """
    roots = data_roots(slug)
    for root in roots:
        if (path := root / name).exists():
            return path
    looked = ", ".join(str(root / name) for root in roots)
    raise MissingData(
        f"data {slug}/{name or '.'}: not in {looked}; "
        f"set ASSAY_DATA (or --data) to a folder that holds {slug}/, or: assay data fetch {slug}"
    )


def fetch_file(url: str, sha256: str, path: Path) -> None:
    """Downloads a file unless it is there, and checks it; a broken one never takes its name.

    Raises ValueError where the checksum differs, OSError where the address cannot be reached.
    """
    import pooch

    try:
        pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, progressbar=False)
    except ValueError as error:
        raise ValueError(f"{url}: its content is not the expected one ({error})") from error
