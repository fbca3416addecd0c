"""What is recorded comes back; what is no ledger stays as it is."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

import assay
from assay.ledger import Ledger, LedgerError, home
from assay.ledger import ledger as ledger_module
from assay.study import Scale, Status


def results(ledger, version=1):
    return ledger.results("fake", Scale.LAPTOP, version)


def test_a_trial_comes_back_as_it_was_recorded(ledger, record, tmp_path):
    file = tmp_path / "picture.svg"
    file.write_text("<svg/>")
    entry = record(
        {"lr": 0.1, "n": 3, "fast": True, "name": "ä"},
        seed=2**40,
        metrics={"z": 0.1, "a": 1 / 3},
        series={"loss": [(0.0, 1.5), (1.0, 1 / 3)]},
        files={"picture.svg": file},
        seconds=1.25,
    )
    (back,) = ledger.entries("fake")
    assert back.result.files["picture.svg"].read_text() == "<svg/>"
    assert back.result.params == dict(entry.result.params)
    assert [type(v) for v in back.result.params.values()] == [float, int, bool, str]
    assert list(back.result.metrics.items()) == [("z", 0.1), ("a", 1 / 3)]
    assert back.result.series == {"loss": [(0.0, 1.5), (1.0, 1 / 3)]}
    assert (back.started, back.finished) == (entry.started, entry.finished)
    assert (back.result.key, back.result.seed) == (entry.result.key, 2**40)
    assert (back.slug, back.version, back.scale) == ("fake", 1, Scale.LAPTOP)
    assert back.environment["cpu"] == {"model": "Some CPU", "cores": 2}


def test_numbers_that_are_not_finite_stay_what_they_are(ledger, record):
    record(
        metrics={"nan": math.nan, "inf": math.inf, "minus": -math.inf},
        series={"curve": [(0.0, math.nan), (math.inf, -math.inf)]},
    )
    (back,) = results(ledger)
    assert math.isnan(back.metrics["nan"])
    assert (back.metrics["inf"], back.metrics["minus"]) == (math.inf, -math.inf)
    (_, nan), last = back.series["curve"]
    assert math.isnan(nan)
    assert last == (math.inf, -math.inf)


def test_the_newest_good_trial_of_a_key_counts(ledger, record):
    record(metrics={"v": 1.0}, minute=0)
    record(metrics={"v": 2.0}, minute=1)
    record(status=Status.CRASHED, error="later", minute=2)
    assert [r.metrics["v"] for r in results(ledger)] == [2.0]


def test_without_a_good_one_the_newest_failure_counts(ledger, record):
    record(status=Status.RAISED, error="first", minute=0)
    record(status=Status.TIMEOUT, error="second", minute=1)
    assert [r.error for r in results(ledger)] == ["second"]


def test_done_are_keys_with_a_good_trial(ledger, record):
    good = record({"i": 0}).result.key
    bad = record({"i": 1}, status=Status.RAISED).result.key
    others = [f"{i:064x}" for i in range(1500)]
    assert ledger.done([bad, *others, good, good]) == {good}
    assert ledger.done([]) == set()


def test_results_are_of_one_version_and_scale_and_sorted_by_params(ledger, record):
    for n in (10, 9, 1):
        for seed in (1, 0):
            record({"name": "x", "n": n}, seed)
    record({"name": "x", "n": 5}, version=2)
    record({"name": "x", "n": 5}, scale=Scale.SMOKE)
    record({"name": "x", "n": 5}, slug="other")
    assert [(r.params["n"], r.seed) for r in results(ledger)] == [
        (n, seed) for n in (1, 9, 10) for seed in (0, 1)
    ]
    assert len(list(ledger.entries())) == 9
    assert len(list(ledger.entries("fake", Scale.SMOKE))) == 1


def test_equal_files_are_kept_once(ledger, record, tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"content")
    record({"i": 0}, files={"one": file})
    record({"i": 1}, files={"other": file})
    one, other = (r.files for r in results(ledger))
    assert one["one"] == other["other"]
    kept = [p for p in (ledger.folder / "artifacts").rglob("*") if p.is_file()]
    assert kept == [one["one"]]


def test_home_follows_the_environment_and_git_ignores_it(tmp_path, monkeypatch):
    assert home() == tmp_path / "home"
    assert (home() / ".gitignore").read_text() == "*\n"
    monkeypatch.delenv("ASSAY_HOME")
    monkeypatch.chdir(tmp_path)
    assert home() == tmp_path / ".assay"


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_ledger_elsewhere_keeps_its_files_beside_it(tmp_path, form, monkeypatch):
    path = tmp_path / "there" / "my.sqlite"
    with Ledger.open(form.format(path)) as ledger:
        assert ledger.folder == tmp_path / "there"
    assert path.is_file()
    assert not (tmp_path / "home").exists()


def test_a_newer_ledger_is_refused_and_left_alone(home):
    Ledger.open().close()
    path = home / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    refused(path, r"written by a newer assay \(revision 9999.*pip install -U assay")


def test_a_file_that_is_no_database_is_refused_and_left_alone(home):
    home.mkdir()
    (home / "ledger.sqlite").write_text("something else " * 100)
    refused(home / "ledger.sqlite", "file is not a database.*move it away")


def test_a_damaged_ledger_is_refused_and_left_alone(home):
    Ledger.open().close()
    path = home / "ledger.sqlite"
    content = bytearray(path.read_bytes())
    content[100:4000] = bytes(3900)
    path.write_bytes(content)
    refused(path, "malformed.*move it away")


def test_a_database_of_something_else_is_refused_and_left_alone(home):
    home.mkdir()
    with closing(sqlite3.connect(home / "ledger.sqlite")) as database, database:
        database.execute("CREATE TABLE recipes (id INTEGER)")
    refused(home / "ledger.sqlite", "a database of something else")


def refused(path: Path, message: str) -> None:
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=message) as error:
        Ledger.open()
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before


def test_a_home_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(LedgerError, match=r"cannot be written .*set ASSAY_HOME"):
        Ledger.open()


@pytest.mark.parametrize("url", ["nonsense://x", "://"])
def test_an_address_that_makes_no_sense(url):
    with pytest.raises(LedgerError, match="ledger: "):
        Ledger.open(url)


def test_a_full_disk_loses_nothing_that_was_recorded(ledger, record):
    record({"i": 0})

    @sa.event.listens_for(ledger._engine, "begin")
    def fill(connection):
        connection.exec_driver_sql("PRAGMA max_page_count = 1")

    def fill_it() -> None:
        for i in range(1, 200):
            record({"i": i}, error="x" * 4000)

    with pytest.raises(LedgerError, match="full; make room on the disk and run again"):
        fill_it()
    sa.event.remove(ledger._engine, "begin", fill)
    held = results(ledger)
    assert held[0].params == {"i": 0}
    assert len(held) < 100


def test_a_full_disk_for_files(ledger, record, tmp_path, monkeypatch):
    from assay.ledger import artifacts

    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "x").touch()
    monkeypatch.setattr(artifacts.shutil, "copyfileobj", full)
    with pytest.raises(LedgerError, match=r"No space left on device.*make room"):
        record(files={"x": tmp_path / "x"})
    assert len(results(ledger)) == 0
    assert not [p for p in (ledger.folder / "artifacts").rglob("*") if p.is_file()]


def test_a_lost_series_is_named(ledger, record):
    record(series={"loss": [(0.0, 1.0)]})
    (kept,) = [p for p in (ledger.folder / "artifacts").rglob("*") if p.is_file()]
    kept.unlink()
    with pytest.raises(LedgerError, match="a series of the ledger cannot be read"):
        results(ledger)


def test_migrations_make_the_tables_that_the_models_describe(ledger, capfd):
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from assay.ledger.models import Base

    with ledger._engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == ledger_module.HEAD
    config = Config()
    config.set_main_option("script_location", ledger_module._MIGRATIONS)
    assert ScriptDirectory.from_config(config).get_current_head() == ledger_module.HEAD
    assert capfd.readouterr() == ("", ""), "migrations are quiet"


def test_importing_is_light_and_an_up_to_date_ledger_needs_no_alembic(home):
    Ledger.open().close()
    program = (
        "import sys; import assay.ledger; assert 'sqlalchemy' not in sys.modules\n"
        "assay.ledger.Ledger.open().close()\n"
        "assert not {'alembic', 'pydantic'} & set(sys.modules)"
    )
    environment = {
        "PYTHONPATH": str(Path(assay.__file__).parents[1]),
        "ASSAY_HOME": str(home),
    }
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_an_interrupted_transaction_leaves_nothing(ledger, record, monkeypatch):
    record({"i": 0})

    @sa.event.listens_for(ledger._engine, "commit")
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record({"i": 1})
    sa.event.remove(ledger._engine, "commit", interrupt)
    record({"i": 2})
    assert [r.params["i"] for r in results(ledger)] == [0, 2]


def test_a_folder_and_a_broken_address_are_refused(tmp_path):
    with pytest.raises(LedgerError, match="is a folder, wants a file"):
        Ledger.open(str(tmp_path))
    with pytest.raises(LedgerError, match="wants a path or a URL"):
        Ledger.open("postgresql://host:port/x")
