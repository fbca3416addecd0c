"""Files are written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file as a whole or not at all. Raises OSError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp gives the file to its owner alone.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
