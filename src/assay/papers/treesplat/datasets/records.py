"""Files that are not what they should be: every error is a ValueError that names file and key."""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.toolkits.checks import number
from assay.toolkits.files import read_json

_MALFORMED = (
    LookupError, TypeError, AttributeError, ArithmeticError, EOFError, MemoryError, struct.error,
)  # fmt: skip


@contextmanager
def malformed(path: Path, kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Whatever a broken file makes its reader raise becomes one kind of error that names it.

    Args:
        path: the file.
        kind: of the error.

    Raises:
        ValueError: in place of any error of the body but an OSError; one that names the file
            already passes.
    """
    try:
        yield
    except ValueError as error:
        if path.name in str(error):
            raise
        if isinstance(error, kind) and not isinstance(error, UnicodeError):
            error.args = (f"{path}: {error}",)
            raise
        raise kind(f"{path}: {error}") from error
    except _MALFORMED as error:
        raise kind(f"{path}: a part of it is missing or malformed: {error!r}") from error


class Record:
    """A JSON object whose values are checked when they are taken.

    Args:
        where: the file, and what of it, for messages.
        content: the object.

    Raises:
        ValueError: it is no object.
    """

    def __init__(self, where: Path | str, content: Any):
        self.where = where
        if not isinstance(content, Mapping):
            raise ValueError(f"{where}: got {reprlib.repr(content)}, wants a JSON object")
        self.content = content

    @classmethod
    def read(cls, path: Path) -> Record:
        """The object that a JSON file holds. Raises ValueError, OSError."""
        return cls(path, read_json(path))

    def __contains__(self, key: str) -> bool:
        return key in self.content

    def wrong(self, key: str, wants: str) -> ValueError:
        """The error that says what a key holds and what it should."""
        got = reprlib.repr(self.content[key]) if key in self else "nothing"
        return ValueError(f"{self.where}: {key}: got {got}, wants {wants}")

    def number(self, key: str, default: float | None = None, above: float = -math.inf) -> float:
        """A finite number > `above`. Raises ValueError."""
        if default is not None and key not in self:
            return default
        try:
            return number(key, self.content.get(key), above=above)
        except (TypeError, ValueError, OverflowError):
            bound = "" if above == -math.inf else f" > {above:g}"
            raise self.wrong(key, f"a finite number{bound}") from None

    def array(self, key: str, shape: tuple[int, ...], default: Any = None) -> NDArray[np.float64]:
        """Finite numbers of a shape, in which one length may be -1. Raises ValueError."""
        value = default if default is not None and key not in self else self.content.get(key)
        try:
            found = np.array(value)
            if found.dtype.kind in "iuf" and np.all(np.isfinite(found)):
                return found.astype(np.float64).reshape(shape)
        except ValueError:
            pass
        size = " x ".join("n" if length < 0 else str(length) for length in shape)
        raise self.wrong(key, f"{size} finite numbers")

    def text(self, key: str) -> str:
        """A string. Raises ValueError."""
        if not isinstance(value := self.content.get(key), str):
            raise self.wrong(key, "a string")
        return value

    def names(self, key: str, default: list[str] | None = None) -> list[str]:
        """A list of strings or, as some write names, of whole numbers. Raises ValueError."""
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list) or not all(
            isinstance(item, str | int) and not isinstance(item, bool) for item in value
        ):
            raise self.wrong(key, "a list of names")
        return [str(item) for item in value]

    def inner(self, key: str) -> Record:
        """The object under a key; an empty one where there is none. Raises ValueError."""
        return Record(f"{self.where}: {key}", self.content.get(key, {}))
