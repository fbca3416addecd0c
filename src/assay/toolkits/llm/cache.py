"""Recorded replies: the same request is paid for once, and tests need no model."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from assay.toolkits.llm.errors import ReplayMiss
from assay.toolkits.llm.protocol import Completion, Request, Usage


class CacheMode(StrEnum):
    """How recorded replies are used."""

    LIVE = "live"  # always call, and record the newest reply
    RECORD = "record"  # call only where nothing is recorded, and record that
    REPLAY = "replay"  # never call
    OFF = "off"  # always call, record nothing


class ReplyCache:
    """Replies by request, in one SQLite file (WAL) that threads and processes may share.

    The key is the SHA-256 of the canonical JSON of the backend's identity and the request, so
    addresses, headers and API keys are no part of it and are never stored. Failed calls are not
    recorded.

    Args:
        path: the file; made where it is not there, except for replay.
        mode: "live", "record", "replay" or "off".

    Raises:
        ValueError: for an unknown mode, or a file that is no reply cache.
        FileNotFoundError: where there is nothing to replay.
    """

    def __init__(self, path: str | Path, mode: str = CacheMode.RECORD) -> None:
        if mode not in set(CacheMode):
            raise ValueError(f"mode: got {mode!r}, wants one of {', '.join(CacheMode)}")
        self.path = Path(path)
        self.mode = CacheMode(mode)
        self._lock = threading.Lock()
        if self.mode is CacheMode.OFF:
            return
        if self.mode is CacheMode.REPLAY and not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no recorded replies there to replay")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{self.path}: {error}; wants a file that may be written") from None
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            with self._database:
                self._database.execute(
                    "CREATE TABLE IF NOT EXISTS replies"
                    " (key TEXT PRIMARY KEY, request TEXT NOT NULL, reply TEXT NOT NULL)"
                )
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise ValueError(f"{self.path}: not a reply cache: {error}") from None

    def get(self, identity: Mapping[str, str], request: Request) -> Completion | None:
        """The recorded reply; None where a call should be made.

        Raises:
            ReplayMiss: in replay mode, naming the key and the first field in which the nearest
                recorded request differs.
        """
        if self.mode in (CacheMode.LIVE, CacheMode.OFF):
            return None
        text = _canonical(identity, request)
        with self._lock:
            row = self._database.execute(
                "SELECT reply FROM replies WHERE key = ?", (_key(text),)
            ).fetchone()
        if row:
            return _completion(json.loads(row[0]))
        if self.mode is CacheMode.REPLAY:
            raise ReplayMiss(f"no recorded reply with key {_key(text)}: {self._nearest(text)}")
        return None

    def put(self, identity: Mapping[str, str], request: Request, reply: Completion) -> None:
        """Records a reply, where the mode says so."""
        if self.mode not in (CacheMode.LIVE, CacheMode.RECORD):
            return
        text = _canonical(identity, request)
        content = json.dumps(
            {
                "text": reply.text,
                "prompt_tokens": reply.usage.prompt_tokens,
                "completion_tokens": reply.usage.completion_tokens,
                "finish_reason": reply.finish_reason,
                "choice_scores": None if reply.choice_scores is None else dict(reply.choice_scores),
            },
            ensure_ascii=False,
        )
        with self._lock, self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (_key(text), text, content)
            )

    def __len__(self) -> int:
        if self.mode is CacheMode.OFF:
            return 0
        with self._lock:
            return int(self._database.execute("SELECT count(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        if self.mode is not CacheMode.OFF:
            self._database.close()

    def _nearest(self, wanted: str) -> str:
        with self._lock:
            rows = self._database.execute(
                "SELECT request FROM replies ORDER BY rowid DESC LIMIT 1000"
            ).fetchall()
        if not rows:
            return "nothing is recorded"
        fields = _flat(json.loads(wanted))

        def agreement(other: dict[str, Any]) -> int:
            return sum(other.get(name) == value for name, value in fields.items())

        nearest = max((_flat(json.loads(text)) for (text,) in rows), key=agreement)
        for name in [*fields, *nearest]:
            ours, theirs = fields.get(name), nearest.get(name)
            if ours != theirs:
                return f"the nearest one differs in {name}: {_difference(ours, theirs)}"
        return "an equal one was recorded meanwhile"


def _canonical(identity: Mapping[str, str], request: Request) -> str:
    content = {"identity": dict(identity), **request.data()}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _completion(data: dict[str, Any]) -> Completion:
    return Completion(
        text=data["text"],
        usage=Usage(data["prompt_tokens"], data["completion_tokens"]),
        finish_reason=data["finish_reason"],
        choice_scores=data["choice_scores"],
    )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves of nested JSON by their path, such as ``messages[0].content``."""
    if isinstance(value, dict):
        items = [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {path: value}
    return {name: leaf for key, item in items for name, leaf in _flat(item, key).items()}


def _difference(ours: Any, theirs: Any) -> str:
    if isinstance(ours, str) and isinstance(theirs, str):
        same = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        start = max(0, same - 10)
        return f"asked {ours[start : same + 30]!r}, recorded {theirs[start : same + 30]!r}"
    return f"asked {ours!r}, recorded {theirs!r}"
