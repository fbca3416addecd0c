"""The command line as its user meets it: words, exit codes, one clear line for what is wrong."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli import options

ROOMS = Path(__file__).parent / "rooms"


@pytest.fixture
def assay(tmp_path):
    def call(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if k != "ASSAY_DATA"}
        return subprocess.run(
            [sys.executable, "-m", "assay", *args],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={
                **inherited,
                "ASSAY_HOME": str(tmp_path / "home"),
                "ASSAY_CACHE": str(tmp_path / "cache"),
                "ASSAY_PAPERS": str(ROOMS),
                "COLUMNS": "200",
                **env,
            },
        )

    return call


def refused(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal."""
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr.strip()


def run_smoke(assay, *more: str):
    return assay("run", "broken", "--scale", "smoke", "--no-report", *more)


def verdicts(answer) -> dict[str, dict]:
    return {row["claim"]: row for row in json.loads(answer.stdout)}


def test_help_lists_the_commands_and_the_papers_own(assay):
    answer = assay("--help")
    assert answer.returncode == 0
    for word in ("list", "show", "run", "verdicts", "report", "data", "doctor", "export", "import"):
        assert re.search(rf"^  {word} ", answer.stdout, re.MULTILINE), word


def test_broken_trials_spoil_only_themselves(assay):
    answer = run_smoke(assay, "--budget", "1m")
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "Dear left out" in answer.stdout
    assert "wait for data corpus.txt: assay data fetch broken" in answer.stdout
    found = verdicts(assay("verdicts", "broken", "--scale", "smoke", "--json"))
    assert {name: row["verdict"] for name, row in found.items()} == {
        "Raises": "failed",
        "Aborts": "failed",
        "Hangs": "failed",
        "Good": "supported",
        "False": "contradicted",
        "Dear": "inconclusive",
        "Needy": "needs",
    }
    assert "on purpose" in found["Raises"]["reason"]
    assert "SIGABRT" in found["Aborts"]["reason"]
    assert "time limit of 1 s" in found["Hangs"]["reason"]
    assert found["Dear"]["reason"] == "0 of 3 trials run"


def test_finished_trials_are_not_run_again_and_failed_ones_are(assay):
    run_smoke(assay, "--claims", "Good,False,Raises")
    answer = run_smoke(assay, "--claims", "Good,False,Raises", "--dry-run")
    assert "1 trials to run" in answer.stdout
    assert "7 already in the ledger" in answer.stdout
    answer = run_smoke(assay, "--claims", "Good", "--fresh", "--dry-run")
    assert "1 trials to run" in answer.stdout


def test_strict_turns_a_contradicted_claim_into_exit_3(assay):
    assert run_smoke(assay, "--claims", "False").returncode == 0
    assert run_smoke(assay, "--claims", "False", "--strict").returncode == 3
    assert assay("verdicts", "broken", "--scale", "smoke", "--strict").returncode == 3
    assert run_smoke(assay, "--claims", "Good", "--strict").returncode == 3, "of all its claims"


def test_seeds_and_set_run_other_trials(assay):
    answer = run_smoke(assay, "--claims", "False", "--seeds", "5,", "--set", "size=7", "--json")
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    ran = [e for e in events if e["event"] == "trial-finished"]
    assert {(e["seed"], e["params"]["size"], e["metrics"]["size"]) for e in ran} == {(5, 7, 7.0)}
    assert len(ran) == 2


def test_json_events_end_with_the_verdicts(assay):
    answer = run_smoke(assay, "--claims", "Good", "--json")
    events = [json.loads(line)["event"] for line in answer.stdout.splitlines()]
    assert events.count("trial-started") == events.count("trial-finished") == 1
    assert events.count("verdict") == 7
    assert events.index("run-finished") < events.index("verdict")


def test_export_and_import_carry_everything_to_another_ledger(assay, tmp_path):
    run_smoke(assay, "--claims", "Good,False")
    before = verdicts(assay("verdicts", "broken", "--scale", "smoke", "--json"))
    assert assay("export", "broken", "-o", "out").returncode == 0
    other = str(tmp_path / "other.sqlite")
    answer = assay("import", "out", "--ledger", other)
    assert answer.stdout.startswith("7 trials imported, 0 were")
    assert assay("import", "out", "--ledger", other).stdout.startswith("0 trials imported, 7 were")
    after = verdicts(assay("verdicts", "broken", "--scale", "smoke", "--json", "--ledger", other))
    assert after == before


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_export_as_a_table(assay, tmp_path, form):
    pd = pytest.importorskip("pandas")
    run_smoke(assay, "--claims", "False")
    assert assay("export", "broken", "-o", "out", "--format", form).returncode == 0
    path = tmp_path / "out" / "broken" / f"smoke.{form}"
    frame = pd.read_csv(path) if form == "csv" else pd.read_parquet(path)
    assert len(frame) == 6


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "brokn"], "unknown paper 'brokn': did you mean broken?"),
        (["show", "brokn"], "did you mean broken?"),
        (["run", "broken", "--claims", "Godo"], "did you mean Good?"),
        (["run", "broken", "--scale", "huge"], "'huge' is not one of"),
        (["run", "broken", "--scale", "smoke", "--set", "sise=2"], "no trial has it; there are"),
        (["run", "broken", "--scale", "smoke", "--set", "size=big"], "wants an integer"),
        (["run", "broken", "--set", "size"], "wants name=value"),
        (["run", "broken", "--budget", "soon"], "wants a duration"),
        (["run", "broken", "--seeds", "x"], "wants a count"),
        (["run", "broken", "--data", "nowhere"], "--data: nowhere is no folder"),
        (["run", "broken", "--jobs", "0"], "greater than or equal to 1"),
        (["import", "nowhere.json"], "nowhere.json"),
        (["export", "broken"], "assay run it first"),
        (["export", "broken", "--format", "xml"], "xml"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(assay, args, words):
    assert words in " ".join(refused(assay(*args)).split())


def test_a_missing_extra_says_how_to_install_it(assay, tmp_path):
    room = tmp_path / "rooms" / "bare"
    room.mkdir(parents=True)
    for name in ("__init__.py", "study.py"):
        (room / name).write_text((ROOMS / "broken" / name).read_text())
    toml = (ROOMS / "broken" / "paper.toml").read_text()
    toml = toml.replace('"broken"', '"bare"').replace('"json"', '"no_such_module"')
    (room / "paper.toml").write_text(toml)
    answer = assay("run", "bare", "--scale", "smoke", ASSAY_PAPERS=str(tmp_path / "rooms"))
    assert "assay[bare] is not installed" in refused(answer)
    assert "pip install 'assay[bare]'" in refused(answer)
    assert assay("show", "bare", ASSAY_PAPERS=str(tmp_path / "rooms")).returncode == 0


def test_a_malformed_paper_toml_names_file_and_field(assay, tmp_path):
    room = tmp_path / "rooms" / "bad"
    room.mkdir(parents=True)
    (room / "paper.toml").write_text('slug = "bad"\n')
    line = refused(assay("show", "bad", ASSAY_PAPERS=str(tmp_path / "rooms")))
    assert "bad/paper.toml" in line
    assert "title" in line


@pytest.mark.parametrize("code", ["raise RuntimeError('no')", "def (", None])
def test_a_broken_study_module_is_named(assay, tmp_path, code):
    room = tmp_path / "rooms" / "bad"
    room.mkdir(parents=True)
    toml = (ROOMS / "broken" / "paper.toml").read_text().replace('"broken"', '"bad"')
    (room / "paper.toml").write_text(toml)
    if code is not None:
        (room / "study.py").write_text(code)
    line = refused(assay("show", "bad", ASSAY_PAPERS=str(tmp_path / "rooms")))
    assert "bad/study.py" in line


def test_a_corrupt_ledger_is_refused_and_kept(assay, tmp_path):
    ledger = tmp_path / "home" / "ledger.sqlite"
    ledger.parent.mkdir()
    ledger.write_bytes(b"this is not a database" * 100)
    assert "damaged" in refused(assay("verdicts", "broken"))
    assert ledger.read_bytes() == b"this is not a database" * 100


def test_a_newer_ledger_is_refused_and_kept(assay, tmp_path):
    assay("verdicts", "broken")
    ledger = tmp_path / "home" / "ledger.sqlite"
    with sqlite3.connect(ledger) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert "newer assay" in refused(assay("verdicts", "broken"))


def test_an_unwritable_home_is_named(assay, tmp_path):
    (tmp_path / "file").write_text("")
    line = refused(assay("verdicts", "broken", ASSAY_HOME=str(tmp_path / "file" / "home")))
    assert "ASSAY_HOME" in line


def test_debug_shows_the_traceback(assay):
    answer = assay("--debug", "show", "brokn")
    assert "Traceback" in answer.stderr


def test_list_and_show_and_data_and_doctor(assay):
    rows = json.loads(assay("list", "--json", "--scale", "smoke").stdout)
    assert "broken" in [row["paper"] for row in rows]
    shown = assay("show", "broken").stdout
    assert "A study whose trials break in every way" in shown
    assert "assay run broken" in shown
    assert "not run" in assay("list").stdout
    assert "rac" in assay("data").stdout
    assert assay("data", "broken").returncode == 0
    doctor = json.loads(assay("doctor", "--json").stdout)
    assert doctor["papers"]["broken"]["installed"]
    smoke = doctor["papers"]["broken"]["scales"]["smoke"]
    assert any("corpus.txt" in line for line in smoke)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2h", 7200)]
)
def test_durations(text, seconds):
    assert options.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "m", "-5", "5 minutes", "1.5h"])
def test_durations_that_are_none(text):
    with pytest.raises(ValueError, match="wants a duration"):
        options.parse_duration(text)


def test_seeds():
    assert options.parse_seeds("3") == [0, 1, 2]
    assert options.parse_seeds("7,") == [7]
    assert options.parse_seeds("0, 3") == [0, 3]


def test_help_is_quick(assay):
    code = "import time, subprocess, sys, statistics\nt = []\nfor _ in range(5):\n"
    code += " s = time.perf_counter()\n"
    code += " subprocess.run([sys.executable, '-m', 'assay', '--help'], capture_output=True)\n"
    code += " t.append(time.perf_counter() - s)\nprint(min(t))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert float(answer.stdout) < 0.3


@pytest.mark.parametrize(
    "option",
    [
        ("--claims", ","),
        ("--claims", ""),
        ("--seeds", ""),
        ("--seeds", "100000000"),
        ("--seeds", "9" * 30),
        ("--seeds", "0," + "9" * 30),
        ("--budget", ""),
    ],
)
def test_values_that_mean_nothing_are_refused(assay, option):
    answer = assay("run", "broken", "--scale", "smoke", "--dry-run", *option)
    assert refused(answer).startswith(f"assay: {option[0]}: got ")


def test_a_slug_is_a_name_and_no_path(assay):
    assert "unknown paper 'broken/'" in refused(assay("run", "broken/", "--dry-run"))


def test_a_file_that_cannot_be_read_is_named_without_the_number_of_the_error(assay):
    answer = assay("psmbench", "validate", "nowhere.json")
    assert refused(answer) == "assay: nowhere.json: No such file or directory"


def test_signs_that_the_terminal_cannot_show_cost_no_output(assay):
    answer = assay("show", "mglu", COLUMNS="60", PYTHONIOENCODING="ascii")
    assert answer.returncode == 0, answer.stderr
    assert "run it: assay run mglu" in answer.stdout


def test_narrow_terminals_show_every_reason(assay):
    run_smoke(assay)
    wide = verdicts(assay("verdicts", "broken", "--scale", "smoke", "--json"))
    narrow = assay("verdicts", "broken", "--scale", "smoke", COLUMNS="40").stdout
    words = " ".join(narrow.split())
    for id, verdict in wide.items():
        assert id in words
        assert verdict["reason"] in words


def test_a_reader_that_goes_away_is_no_failed_trial(assay, tmp_path):
    call = [sys.executable, "-m", "assay", "list"]
    reader, writer = os.pipe()
    os.close(reader)
    env = {**os.environ, "ASSAY_HOME": str(tmp_path), "ASSAY_PAPERS": str(ROOMS)}
    answer = subprocess.run(call, stdout=writer, stderr=subprocess.PIPE, text=True, env=env)
    os.close(writer)
    assert answer.returncode == 141
    assert "Traceback" not in answer.stderr
