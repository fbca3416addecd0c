"""Files kept under the hash of their content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from assay.ledger.home import LedgerError

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""What a trial may call a file: a name that is safe in every folder."""


class ArtifactStore:
    """A folder of files named after the sha256 of what they hold; equal files are kept once.

    A file is written to a temporary name and renamed, so that a reader sees all of it or nothing,
    whoever writes at the same time.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, content: bytes | Path) -> str:
        """Keeps bytes, or a copy of a file, and returns their sha256 in hex.

        Raises LedgerError where the disk is full or the folder cannot be written.
        """
        sha256 = file_sha256(content) if isinstance(content, Path) else _sha256(content)
        path = self.path(sha256)
        if path.exists():
            return sha256
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        except OSError as error:
            raise LedgerError(
                f"{path.parent}: cannot keep a file ({error.strerror}); make room there and run "
                "again: finished trials are kept"
            ) from error
        return sha256

    def path(self, sha256: str) -> Path:
        """Where the file with this hash lies, or would lie."""
        return self.root / sha256[:2] / sha256[2:]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, content: bytes | Path) -> None:
    """Writes bytes, or a copy of a file, to `path` at once: a temporary name, then a rename."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as target:
            if isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, target)
            else:
                target.write(content)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
