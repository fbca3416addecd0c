"""The command line: parsing, tables, progress; no logic of its own.

Exit codes: 0 the command did what was asked, 1 some trial failed, 2 the command could not be
understood or obeyed, 3 a claim was contradicted or not reproduced (only with --strict), 130
interrupted, 141 whoever read the output went away.
"""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The `assay` command."""
    from assay.cli.app import app
    from assay.registry import UnknownPaper

    # A sign that the terminal cannot show must not cost the rest of the output.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")
    try:
        app()
    except SystemExit as stop:
        # Typer and rich turn both into codes of their own, a closed pipe into that of a failed
        # trial.
        if isinstance(stop.__context__, BrokenPipeError):
            sys.exit(141)
        if stop.code == 130:
            cause = getattr(stop.__context__, "__cause__", None)
            said = [str(one) for one in cause.args] if isinstance(cause, KeyboardInterrupt) else []
            print("; ".join(["assay: interrupted", *said]), file=sys.stderr)
        raise
    except (ValueError, OSError, ImportError, UnknownPaper) as error:
        if "--debug" in sys.argv:
            raise
        print(f"assay: {' '.join(_plain(error).split())}", file=sys.stderr)
        sys.exit(2)


def _plain(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
