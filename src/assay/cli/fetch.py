"""`assay data fetch`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from assay import registry
from assay.toolkits.data import cache_dir, fetch_file


def fetch(slugs: Sequence[str], *, yes: bool) -> None:
    """Shows what would be fetched, asks, and fetches it into the cache."""
    for slug in slugs:
        sources = registry.paper(slug).data
        if not sources:
            print(f"{slug}: its study reads no data")
        for source in sources:
            if not source.files:
                print(f"{slug}/{source.name}: cannot be fetched, see {source.url or 'its card'}")
                continue
            folder = cache_dir(slug) / "data"
            print(f"{slug}/{source.name}: {source.summary}")
            print(f"  licence: {source.licence}")
            for path, (url, sha256) in source.files.items():
                print(f"  {path} from {url} (sha256 {sha256[:16]}...)")
            if not yes and not typer.confirm(f"Fetch {len(source.files)} files into {folder}?"):
                continue
            for path, (url, sha256) in source.files.items():
                fetch_file(url, sha256, folder / path)
            print(f"  fetched into {folder}")
