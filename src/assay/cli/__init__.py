"""The command line: parsing, tables, progress; no logic of its own.

Exit codes: 0 the command did what was asked, 1 some trial failed, 2 the command could not be
understood or obeyed, 3 a claim was contradicted or not reproduced (only with --strict), 130
interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The `assay` command."""
    from assay.cli.app import app
    from assay.registry import UnknownPaper

    try:
        app()
    except KeyboardInterrupt:
        print("assay: interrupted; finished trials are kept", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, ImportError, UnknownPaper) as error:
        if "--debug" in sys.argv:
            raise
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        print(f"assay: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
