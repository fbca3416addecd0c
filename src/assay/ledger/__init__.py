"""The database of every trial ever run, the files they left, and exports of both.

Importing this package loads no database library: `Ledger` and the exports are loaded when asked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.ledger.entry import Entry
from assay.ledger.home import LedgerError, home

if TYPE_CHECKING:
    from assay.ledger.artifacts import ArtifactStore
    from assay.ledger.exports import Export, Imported, export, import_export, read_export
    from assay.ledger.exports_schema import ExportError
    from assay.ledger.ledger import Ledger

__all__ = [
    "ArtifactStore",
    "Entry",
    "Export",
    "ExportError",
    "Imported",
    "Ledger",
    "LedgerError",
    "export",
    "home",
    "import_export",
    "read_export",
]

_WHERE = {
    "ArtifactStore": "artifacts",
    "Export": "exports",
    "ExportError": "exports_schema",
    "Imported": "exports",
    "Ledger": "ledger",
    "export": "exports",
    "import_export": "exports",
    "read_export": "exports",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
