"""The ledger: every trial ever run, in SQLite by default."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session, joinedload, selectinload

from assay.ledger.artifacts import ArtifactStore
from assay.ledger.entry import Entry
from assay.ledger.floats import decode_float, encode_float
from assay.ledger.home import LedgerError, home, make_folder
from assay.ledger.models import FileRow, MetricRow, Run, TrialRow
from assay.study import Param, Result, Results, Scale, Status

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"
"""The newest migration: a ledger that says so needs none."""

_MIGRATIONS = str(Path(__file__).parent / "migrations")
_LOCK_SECONDS = 30  # how long one driver waits for another's transaction
_MOST_KEYS = 500  # bound variables in one query; SQLite takes at least 999


class Ledger:
    """Every trial ever run: its params, seed, metrics, files, environment and how it ended.

    Several processes may use one ledger at a time. `folder` is where the files lie that are not
    in the database: `artifacts/`, `logs/`, `scratch/`.
    """

    def __init__(self, engine: sa.Engine, folder: Path) -> None:
        self._engine = engine
        # Reading first and writing later in one transaction cannot wait for another writer.
        self._writer = engine.execution_options(begin="BEGIN IMMEDIATE")
        self.folder = folder
        self.artifacts = ArtifactStore(folder / "artifacts")

    @classmethod
    def open(cls, url: str | None = None) -> Self:
        """Opens a ledger, makes it where there is none, and brings an older one up to date.

        Args:
            url: an SQLAlchemy URL or the path of an SQLite file; None for
                `home() / "ledger.sqlite"`. Files of trials are kept in the folder of an SQLite
                file, else in `home()`.

        Raises LedgerError for a file that is no ledger, is damaged, or was written by a newer
        assay, and where nothing can be written. Such a file is left as it is.
        """
        address = _address(url)
        path = Path(address.database).absolute() if _is_file(address) else None  # type: ignore[arg-type]
        if path is not None:
            if path.is_dir():
                raise LedgerError(f"{path}: is a folder, wants a file such as {path}/ledger.sqlite")
            make_folder(path.parent)
        ledger = cls(_engine(address), path.parent if path else home())
        try:
            with ledger._plain_errors():
                ledger._migrate()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Lets go of the database."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start_run(self, command: Sequence[str], environment: Mapping[str, Any]) -> int:
        """Notes that a run begins, and returns its number."""
        run = Run(
            command=list(command),
            environment=dict(environment),
            status="running",
            started=datetime.now(UTC),
        )
        with self._write() as session:
            session.add(run)
            session.flush()
            return run.id

    def finish_run(self, run: int, status: str) -> None:
        """Notes how a run ended: "finished", "interrupted" or "broken"."""
        with self._write() as session:
            row = session.get_one(Run, run)
            row.status, row.finished = status, datetime.now(UTC)

    def record(self, run: int, entry: Entry) -> Result:
        """Writes one trial in one transaction; the files of its result are copied first.

        Returns the result as the ledger holds it, with the paths of the copies. Raises LedgerError
        where it cannot be written, and then nothing of it is.
        """
        result = entry.result
        files = {name: self.artifacts.put(path) for name, path in result.files.items()}
        row = TrialRow(
            run_id=run,
            key=result.key,
            slug=entry.slug,
            version=entry.version,
            scale=str(entry.scale),
            params=dict(result.params),
            seed=result.seed,
            status=str(result.status),
            error=result.error,
            seconds=result.seconds,
            started=entry.started,
            finished=entry.finished,
            series=self._put_series(result.series),
            metrics=[
                MetricRow(name=name, position=i, value=None if math.isnan(value) else value)
                for i, (name, value) in enumerate(result.metrics.items())
            ],
            files=[FileRow(name=name, sha256=sha256) for name, sha256 in files.items()],
        )
        with self._write() as session:
            session.add(row)
        kept = {name: self.artifacts.path(sha256) for name, sha256 in files.items()}
        return replace(result, files=kept)

    def done(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that hold a trial that ended well."""
        wanted = list(dict.fromkeys(keys))
        found: set[str] = set()
        with self._read() as session:
            for start in range(0, len(wanted), _MOST_KEYS):
                query = sa.select(TrialRow.key).where(
                    TrialRow.key.in_(wanted[start : start + _MOST_KEYS]),
                    TrialRow.status == str(Status.OK),
                )
                found.update(session.scalars(query))
        return found

    def results(self, slug: str, scale: Scale, version: int) -> Results:
        """Of every key the newest trial that ended well, else the newest one.

        They are sorted by their params and seed, whatever the order in which they ended.
        """
        query = sa.select(TrialRow).where(
            TrialRow.slug == slug, TrialRow.scale == str(scale), TrialRow.version == version
        )
        return Results([entry.result for entry in newest(self._entries(query))])

    def entries(self, slug: str | None = None, scale: Scale | None = None) -> Iterator[Entry]:
        """Every trial of a paper and scale, or of all, in the order in which they ended."""
        query = sa.select(TrialRow)
        if slug is not None:
            query = query.where(TrialRow.slug == slug)
        if scale is not None:
            query = query.where(TrialRow.scale == str(scale))
        yield from self._entries(query)

    def _entries(self, query: sa.Select[Any]) -> list[Entry]:
        load = (
            joinedload(TrialRow.run),
            selectinload(TrialRow.metrics),
            selectinload(TrialRow.files),
        )
        with self._read() as session:
            rows = session.scalars(query.options(*load).order_by(TrialRow.finished, TrialRow.id))
            return [self._entry(row) for row in rows]

    def _entry(self, row: TrialRow) -> Entry:
        result = Result(
            key=row.key,
            params=row.params,
            seed=row.seed,
            status=Status(row.status),
            metrics={m.name: math.nan if m.value is None else m.value for m in row.metrics},
            series=self._get_series(row.series),
            files={file.name: self.artifacts.path(file.sha256) for file in row.files},
            error=row.error,
            seconds=row.seconds,
        )
        return Entry(
            slug=row.slug,
            version=row.version,
            scale=Scale(row.scale),
            result=result,
            started=row.started,
            finished=row.finished,
            environment=row.run.environment,
        )

    def _put_series(self, series: Mapping[str, Sequence[tuple[float, float]]]) -> str | None:
        if not series:
            return None
        curves = {
            name: [(encode_float(x), encode_float(y)) for x, y in points]
            for name, points in series.items()
        }
        return self.artifacts.put(json.dumps(curves, separators=(",", ":")).encode())

    def _get_series(self, sha256: str | None) -> dict[str, list[tuple[float, float]]]:
        if sha256 is None:
            return {}
        path = self.artifacts.path(sha256)
        try:
            curves = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise LedgerError(f"{path}: a series of the ledger cannot be read ({error})") from error
        return {
            name: [(decode_float(x), decode_float(y)) for x, y in points]
            for name, points in curves.items()
        }

    def _migrate(self) -> None:
        with self._engine.connect() as connection:
            revision = _revision(connection)
            if revision == HEAD:
                return
            if revision is None and sa.inspect(connection).get_table_names():
                raise LedgerError(
                    f"{self._name}: a database of something else, no ledger of assay; it was left "
                    "as it is: choose another with --ledger or ASSAY_HOME"
                )
            if revision is not None and revision not in _known_revisions():
                raise LedgerError(
                    f"{self._name}: written by a newer assay (revision {revision}, this one knows "
                    f"{HEAD}); it was left as it is: upgrade with pip install -U assay, or choose "
                    "another with --ledger"
                )
        self._use_write_ahead_log()
        with self._writer.begin() as connection:
            if _revision(connection) != HEAD:  # another process may have been faster
                _upgrade(connection)

    def _use_write_ahead_log(self) -> None:
        if self._engine.dialect.name != "sqlite":
            return
        # This switch ignores the busy timeout while another process opens the same new file.
        for attempt in range(50):
            try:
                with self._engine.connect() as connection:
                    driver = connection.connection.dbapi_connection
                    assert driver is not None
                    driver.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 49:
                    raise LedgerError(self._explain(error)) from error
                time.sleep(0.1)

    @property
    def _name(self) -> str:
        url = self._engine.url
        return str(url.database) if _is_file(url) else url.render_as_string(hide_password=True)

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with self._plain_errors(), Session(self._engine) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with self._plain_errors(), Session(self._writer) as session, session.begin():
            yield session

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise LedgerError(self._explain(error.orig or error)) from error
        except sqlite3.DatabaseError as error:
            raise LedgerError(self._explain(error)) from error

    def _explain(self, error: BaseException) -> str:
        text = str(error)
        if "disk is full" in text:
            hint = "make room on the disk and run again: finished trials are kept"
        elif "not a database" in text or "malformed" in text:
            hint = (
                "the file is damaged or no ledger; it was left as it is: move it away to begin a "
                "new one, or choose another with --ledger"
            )
        elif "readonly" in text or "unable to open" in text:
            hint = "set ASSAY_HOME or --ledger to a place that you may write"
        elif "locked" in text:
            hint = f"another process held it for more than {_LOCK_SECONDS} s; run again"
        else:
            hint = "nothing was written"
        return f"{self._name}: {text}; {hint}"


def newest(entries: Iterable[Entry]) -> list[Entry]:
    """Of every key the newest entry that ended well, else the newest; sorted by params and seed.

    Args:
        entries: in the order in which they ended.
    """
    chosen: dict[str, Entry] = {}
    for entry in entries:
        key = entry.result.key
        if entry.result.ok or key not in chosen or not chosen[key].result.ok:
            chosen[key] = entry
    return sorted(chosen.values(), key=_order)


def _order(entry: Entry) -> tuple[Any, ...]:
    return (*map(_param_order, entry.result.params.items()), entry.result.seed)


def _param_order(param: tuple[str, Param]) -> tuple[str, bool, float, str]:
    name, value = param
    return (name, True, 0.0, value) if isinstance(value, str) else (name, False, value, "")


def _address(url: str | None) -> sa.URL:
    if url is None:
        return sa.URL.create("sqlite", database=str(home() / "ledger.sqlite"))
    if "://" not in url:
        return sa.URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    try:
        return sa.make_url(url)
    except (ArgumentError, ValueError) as error:  # the latter for a port that is no number
        raise LedgerError(
            f"ledger: got {url!r}, wants a path or a URL such as sqlite:///ledger.sqlite"
        ) from error


def _is_file(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")


def _engine(address: sa.URL) -> sa.Engine:
    try:
        engine = sa.create_engine(address)
    except (NoSuchModuleError, ImportError) as error:
        raise LedgerError(
            f"ledger: {address.drivername} needs a driver that is not installed ({error})"
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _prepare)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _prepare(driver: sqlite3.Connection, _: object) -> None:
    driver.isolation_level = None  # the module's own BEGIN comes too late and spares tables
    driver.execute(f"PRAGMA busy_timeout={_LOCK_SECONDS * 1000}")
    driver.execute("PRAGMA foreign_keys=ON")
    driver.execute("PRAGMA synchronous=NORMAL")  # with the log: safe against all but power loss


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config())
    return {script.revision for script in scripts.walk_revisions()}


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    # Alembic takes longer to import than a ledger to open, and is needed once.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _MIGRATIONS.replace("%", "%%"))
    return config
