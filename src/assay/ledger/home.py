"""Where a user's ledger, logs and files lie."""

from __future__ import annotations

import os
from pathlib import Path


class LedgerError(ValueError):
    """A ledger that cannot be used; one line says what is wrong and what to do."""


def home() -> Path:
    """The folder `ASSAY_HOME`, by default `.assay` in the working directory; made on demand.

    Raises LedgerError where it cannot be made or written.
    """
    folder = Path(os.environ.get("ASSAY_HOME") or ".assay").expanduser().absolute()
    make_folder(folder)
    return folder


def make_folder(folder: Path) -> None:
    """Makes a folder that git ignores. Raises LedgerError where that is not possible."""
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".gitignore").write_text("*\n", "utf-8")
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "Permission denied")


def _unwritable(folder: Path, why: str) -> LedgerError:
    return LedgerError(
        f"{folder}: cannot be written ({why}); set ASSAY_HOME to a folder that you may write"
    )
