"""How alike two strings are: sentence embeddings, or lexical baselines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from assay.toolkits.embedding import Embedder, MiniLM

Pairwise: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``(rows, columns)``, arrays of indices into a list of strings -> ``(len(rows), len(columns))`` of
similarities, 1 for equal strings."""


class Similarity(Protocol):
    """Compares strings. `over` sees all strings at once, so that each is worked on only once."""

    def over(self, texts: Sequence[str]) -> Pairwise:
        """The similarity of any of these strings to any other."""
        ...


def official_form(name: str) -> str:
    """The published normal form of a state name: lower case, other signs to single blanks.

    Camel case is not split, since case is lost first: "SynSent" gives "synsent" and "SYN_SENT"
    gives "syn sent".
    """
    return re.sub(r"[\W_]+", " ", name.lower()).strip()


def strict_form(name: str) -> str:
    """As `official_form`, with camel case split first: "SynSent" gives "syn sent"."""
    return official_form(_CAMEL.sub(" ", name))


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Cosine:
    """Cosine similarity of an embedder's vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def over(self, texts: Sequence[str]) -> Pairwise:
        vectors = np.asarray(self.embedder.encode(texts))
        if vectors.shape[:1] != (len(texts),) or vectors.ndim != 2:
            raise ValueError(
                f"embedder: got vectors of shape {vectors.shape}, wants ({len(texts)}, d)"
            )
        if vectors.dtype.kind not in "fiu" or not np.isfinite(vectors).all():
            raise ValueError(
                f"embedder: got {vectors.dtype} vectors, wants real and finite numbers in them"
            )
        return lambda rows, columns: vectors[rows] @ vectors[columns].T


class Exact:
    """1 where two strings have the same strict normal form, else 0."""

    def over(self, texts: Sequence[str]) -> Pairwise:
        forms = np.array([strict_form(text) for text in texts], object)
        return lambda rows, columns: (forms[rows][:, None] == forms[columns]).astype(np.float32)


class TokenSort:
    """Edit similarity of the strict normal forms with their words sorted (RapidFuzz)."""

    def over(self, texts: Sequence[str]) -> Pairwise:
        from rapidfuzz import fuzz, process

        forms = [strict_form(text) for text in texts]

        def compare(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
            left, right = [forms[i] for i in rows], [forms[j] for j in columns]
            return process.cdist(left, right, scorer=fuzz.token_sort_ratio) / 100

        return compare


class Tfidf:
    """Cosine of TF-IDF weights of the words in strict normal form, fitted on the strings."""

    def over(self, texts: Sequence[str]) -> Pairwise:
        from sklearn.feature_extraction.text import TfidfVectorizer

        forms = [strict_form(text) for text in texts]
        equal = Exact().over(texts)
        if not any(forms):
            return equal
        vectors = TfidfVectorizer(token_pattern=r"\S+").fit_transform(forms)
        # A string without words has no weights, and still equals itself.
        return lambda rows, columns: np.maximum(
            (vectors[rows] @ vectors[columns].T).toarray(), equal(rows, columns)
        )


SIMILARITIES: dict[str, Callable[[], Similarity]] = {
    MiniLM.name: lambda: Cosine(MiniLM()),
    "exact": Exact,
    "token-sort": TokenSort,
    "tfidf": Tfidf,
}
"""What a scorer accepts by name."""


def similarity(choice: str | Embedder | Similarity) -> Similarity:
    """A similarity by name, around an embedder, or as it is. Raises ValueError or TypeError."""
    if isinstance(choice, str):
        if choice not in SIMILARITIES:
            raise ValueError(f"embedder: got {choice!r}, wants one of {', '.join(SIMILARITIES)}")
        return SIMILARITIES[choice]()
    if isinstance(choice, Embedder):
        return Cosine(choice)
    if hasattr(choice, "over"):
        return choice
    raise TypeError(
        f"embedder: got {type(choice).__name__}, wants a name, an object with encode(texts) "
        "or one with over(texts)"
    )
