"""Files are written as a whole or not at all; JSON is read with one kind of error."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file as a whole or not at all. Raises OSError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all. Raises OSError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp gives the file to its owner alone.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):  # which names the temporary file, or none
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


def read_json(path: Path) -> Any:
    """What a JSON file holds; a byte order mark, as editors on Windows write it, is let pass.

    Raises:
        ValueError: naming the file, where it is no JSON.
        OSError: where it cannot be read.
    """
    try:
        return parse_json(path.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def parse_json(text: str) -> Any:
    """As `json.loads`, with ValueError also for what is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
