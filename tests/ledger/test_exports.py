"""Results that leave a ledger come back into another one unchanged."""

from __future__ import annotations

import csv
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.ledger import ExportError, Ledger, export, import_export, read_export
from assay.ledger.exports import _pretty
from assay.study import Outcome, Scale, Status, Verdict


@pytest.fixture
def other(tmp_path):
    with Ledger.open(str(tmp_path / "other" / "ledger.sqlite")) as ledger:
        yield ledger


@pytest.fixture
def filled(record, tmp_path):
    """Two trials with everything, a failed one, and one from another machine."""
    small = tmp_path / "small"
    small.write_bytes(b"small")
    large = tmp_path / "large"
    large.write_bytes(bytes(200_001))
    record(
        {"lr": 0.1, "arm": "ours"},
        metrics={"loss": 1 / 3, "nan": math.nan, "inf": -math.inf},
        series={"curve": [(float(i), i / 7) for i in range(100)]},
        files={"small.svg": small, "large.bin": large},
        seconds=0.1,
    )
    record({"lr": 0.1, "arm": "baseline"}, metrics={"loss": 0.5}, minute=1)
    record(
        {"lr": 0.2, "arm": "ours"},
        status=Status.RAISED,
        error="ValueError: bad\n\nTraceback of /home/me/x.py",
        minute=2,
    )
    record(
        {"lr": 0.3, "arm": "ours"},
        metrics={"loss": 0.25},
        minute=3,
        environment={"assay": "1.3", "cpu": {"model": "Other CPU", "cores": 1}},
    )


def tree(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_export_fills_another_ledger(ledger, other, filled, tmp_path):
    paths = export(ledger, tmp_path / "out", ["fake", "fake", "absent"])
    assert paths == [tmp_path / "out" / "fake" / "laptop.json"]
    done = import_export(other, tmp_path / "out")
    assert (done.added, done.skipped) == (4, 0)
    ours, theirs = (each.results("fake", Scale.LAPTOP, 1) for each in (ledger, other))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.key, dict(a.params), a.seed) == (b.key, dict(b.params), b.seed)
        assert repr(dict(a.metrics)) == repr(dict(b.metrics)), "every digit"
        assert a.series == b.series
        assert (a.status, a.seconds) == (b.status, b.seconds)
    assert theirs.where(lr=0.1, arm="ours")[0].files["small.svg"].read_bytes() == b"small"
    assert theirs.where(lr=0.2)[0].error == "ValueError: bad", "paths of the machine stay there"
    assert [e.environment["assay"] for e in other.entries()] == ["1.2.3"] * 3 + ["1.3"]


def test_exports_depend_on_the_results_alone(ledger, other, filled, tmp_path):
    export(ledger, tmp_path / "out", ["fake"])
    first = tree(tmp_path / "out")
    export(ledger, tmp_path / "out", ["fake"])
    assert tree(tmp_path / "out") == first
    import_export(other, tmp_path / "out")
    export(other, tmp_path / "again", ["fake"])
    again = tree(tmp_path / "again")
    large = b'"large.bin"'
    strip = {k: v for k, v in first.items() if large not in v}
    assert {k: v for k, v in again.items() if k in strip} == strip


def test_import_adds_what_is_new_and_nothing_else(ledger, other, filled, record, tmp_path):
    (path,) = export(ledger, tmp_path / "out", ["fake"])
    import_export(other, path)
    assert import_export(other, path).added == 0
    record({"lr": 0.1, "arm": "baseline"}, metrics={"loss": 0.75}, minute=9)
    record({"lr": 0.9, "arm": "baseline"}, metrics={"loss": 0.1}, minute=9)
    export(ledger, tmp_path / "out", ["fake"])
    again = import_export(other, path)
    assert (again.added, again.skipped) == (2, 3)
    held = other.results("fake", Scale.LAPTOP, 1)
    assert held.where(lr=0.1, arm="baseline").metric("loss") == [0.75]


def test_an_export_is_read_without_a_ledger(ledger, filled, tmp_path):
    verdict = Verdict("C1", Scale.LAPTOP, Outcome.SUPPORTED, "because", effect=1.5)
    (path,) = export(ledger, tmp_path, ["fake"], verdicts=lambda slug, scale: [verdict])
    read = read_export(path)
    assert (read.slug, read.version, read.scale) == ("fake", 1, Scale.LAPTOP)
    assert (read.date, read.assay, read.machine) == ("2025-03-04", "1.3", "Other CPU, 1 core")
    assert len(read.results) == 4
    assert read.verdicts[0]["outcome"] == "supported"
    assert read.verdicts[0]["low"] == "nan"


def test_only_the_newest_version_is_exported(ledger, record, tmp_path):
    record({"v": 1}, version=1)
    record({"v": 2}, version=2)
    (path,) = export(ledger, tmp_path, ["fake"])
    assert [r.params for r in read_export(path).results] == [{"v": 2}]


def test_files_of_an_earlier_export_are_removed(ledger, record, tmp_path):
    for minute, content in enumerate((b"old", b"new")):
        (tmp_path / "x").write_bytes(content)
        record(files={"x": tmp_path / "x"}, minute=minute)
        export(ledger, tmp_path / "out", ["fake"])
        (copy,) = (tmp_path / "out" / "fake" / "laptop-files").iterdir()
        assert copy.read_bytes() == content


def test_a_file_that_was_changed_is_refused(ledger, record, tmp_path):
    (tmp_path / "x").write_bytes(b"content")
    record(files={"x": tmp_path / "x"})
    (path,) = export(ledger, tmp_path / "out", ["fake"])
    (copy,) = (path.parent / "laptop-files").iterdir()
    copy.write_bytes(b"changed")
    with pytest.raises(ExportError, match=r"trials\[0\].files.x: .* is not the file"):
        read_export(path)


def change(*place, value):
    def apply(content):
        for part in place[:-1]:
            content = content[part]
        content[place[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change("schema", value=2), "schema: got 2, this assay reads 1"),
        (change("schema", value=None), "schema: missing; this is no export"),
        (change("schema", value=True), "schema: missing; this is no export"),
        (
            change("trials", 0, "seconds", value="inf"),
            r"trials\[0\].seconds: Input should be a fin",
        ),
        (
            change("trials", 0, "started", value="0001-01-01T00:00:00+14:00"),
            r"trials\[0\].started: got 0001-.* wants a moment within the years",
        ),
        (change("trials", 0, "error", value="\ud800"), r"trials\[0\].error: got '\\ud800', wants"),
        (
            change("trials", 0, "metrics", "loss", value=10**400),
            r"trials\[0\].metrics.loss: got an integer too large",
        ),
        (
            change("environments", 0, value={"cpu": 3}),
            r"environments\[0\]: its machine cannot be read",
        ),
        (change("scale", value="huge"), "scale: Input should be 'smoke'"),
        (change("paper", value="../x"), "paper: String should match"),
        (change("trials", value=[]), "trials: List should have at least 1 item"),
        (
            change("trials", 0, "metrics", "loss", value="low"),
            r"trials\[0\].metrics.loss: got 'low'",
        ),
        (change("trials", 0, "metrics", "loss", value=None), r"trials\[0\].metrics.loss: got None"),
        (change("trials", 0, "params", "lr", value=[1]), r"trials\[0\].params.lr: got \[1\]"),
        (change("trials", 0, "params", "lr", value=9.0), r"trials\[0\].key: does not belong"),
        (change("trials", 0, "status", value="fine"), r"trials\[0\].status: Input should be 'ok'"),
        (change("trials", 0, "seed", value="0"), r"trials\[0\].seed: Input should be a valid int"),
        (change("trials", 0, "seconds", value=-1), r"trials\[0\].seconds: Input should be great"),
        (change("trials", 0, "finished", value="2025-01-01"), r"trials\[0\].finished: "),
        (change("trials", 0, "environment", value=7), r"trials\[0\].environment: got 7, there are"),
        (
            change("trials", 0, "files", value={"../x": {"sha256": "0" * 64, "bytes": 1}}),
            r"trials\[0\].files.*: got '../x', wants a file name",
        ),
        (
            change("trials", 0, "series", value={"c": [[0, 1, 2]]}),
            r"trials\[0\].series.c\[0\]: ",
        ),
    ],
)
def test_a_wrong_field_is_named(ledger, other, filled, tmp_path, spoil, message):
    (path,) = export(ledger, tmp_path / "out", ["fake"])
    content = json.loads(path.read_text())
    spoil(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ExportError, match=message) as error:
        import_export(other, tmp_path / "out")
    assert str(error.value).startswith(f"{path}: ")
    assert list(other.entries()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "no export of assay")],
)
def test_a_file_that_is_no_export(other, tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ExportError, match=message):
        import_export(other, path)


def test_nothing_to_import(other, tmp_path):
    with pytest.raises(ExportError, match="nothing to import there"):
        import_export(other, tmp_path)
    with pytest.raises(ExportError, match=r"cannot be read|nothing to import"):
        import_export(other, tmp_path / "absent.json")


def test_csv_has_a_row_for_each_trial(ledger, filled, tmp_path):
    (path,) = export(ledger, tmp_path, ["fake"], Scale.LAPTOP, format="csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0])
    assert columns[:4] == ["paper", "study_version", "scale", "key"]
    assert columns[8:] == [
        "params.lr",
        "params.arm",
        "metrics.loss",
        "metrics.nan",
        "metrics.inf",
    ]
    by_loss = {row["metrics.loss"]: row for row in rows}
    assert float(by_loss[repr(1 / 3)]["metrics.inf"]) == -math.inf
    assert by_loss["0.5"]["metrics.nan"] == ""
    assert by_loss[""]["error"] == "ValueError: bad"


def test_parquet_holds_what_csv_holds(ledger, filled, record, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    record({"lr": "auto", "arm": "ours"}, metrics={"loss": 1.0})
    (path,) = export(ledger, tmp_path, ["fake"], format="parquet")
    table = parquet.read_table(path).to_pydict()
    assert len(table["key"]) == 5
    assert set(table["params.lr"]) == {"0.1", "0.2", "0.3", "auto"}
    assert 1 / 3 in table["metrics.loss"]


def test_parquet_without_pyarrow(ledger, filled, tmp_path, monkeypatch):
    from assay.ledger import exports

    monkeypatch.setattr(exports.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match="pip install pyarrow"):
        export(ledger, tmp_path, ["fake"], format="parquet")


def test_an_unknown_format(ledger, tmp_path):
    with pytest.raises(ValueError, match="format: got 'xml', wants 'json'"):
        export(ledger, tmp_path, ["fake"], format="xml")  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written(ledger, filled, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match="cannot be written"):
        export(ledger, tmp_path / "file", ["fake"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(VALUES)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pretty_json_is_json(value):
    assert json.loads(_pretty(value)) == value
