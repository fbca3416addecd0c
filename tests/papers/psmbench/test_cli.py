"""`assay psmbench`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from assay.papers.psmbench import ProtocolStateMachine
from assay.papers.psmbench.cli import app


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture
def files(handshake, tmp_path):
    handshake.to_file(tmp_path / "gold.json")
    pred = handshake.model_copy(update={"transitions": handshake.transitions[:3]})
    pred.to_file(tmp_path / "pred.json")
    return tmp_path


def test_score_prints_figures_and_explains(files):
    code, output = run(
        "score", files / "pred.json", files / "gold.json",
        "--matcher", "exact", "--metric", "strict", "--explain",
    )  # fmt: skip
    assert code == 0
    assert "transitions        3      3     4   1.000   0.750   0.857" in output
    assert "- transition Open --[receive FIN / send ACK]--> Closed" in output
    assert "= state Closed  <-  Closed  (1.00)" in output


def test_score_as_json(files):
    _, output = run(
        "score", files / "pred.json", files / "gold.json", "--matcher", "exact", "--json"
    )
    found = json.loads(output)
    assert found["transitions"]["matched"] == 3
    assert found["unmatched_gold"] == [["transition", "Open --[receive FIN / send ACK]--> Closed"]]


def test_validate_reports_and_exits_1_for_errors(files, handshake):
    assert run("validate", files / "gold.json") == (
        0,
        f"{files / 'gold.json'}: 4 states, 4 transitions, nothing wrong\n",
    )
    broken = handshake.model_copy(update={"states": handshake.states[:2]})
    broken.to_file(files / "broken.json")
    code, output = run("validate", files / "broken.json", "--errors-only")
    assert code == 1
    assert "transitions[1].to: 'Received' is not in states" in output


@pytest.mark.parametrize(
    ("name", "start"), [("m.svg", "<?xml"), ("m.dot", "digraph"), ("m.scxml", "<?xml")]
)
def test_draw_writes_what_the_ending_says(files, name, start):
    assert run("draw", files / "gold.json", "-o", files / name)[0] == 0
    assert (files / name).read_text().startswith(start)


def test_bad_input_is_one_line_and_exit_2(files, tmp_path):
    (tmp_path / "bad.json").write_text('{"states": ["A"], "transitions": [{"from": "A"}]}')
    for arguments in (
        ["validate", str(tmp_path / "bad.json")],
        ["score", str(files / "pred.json"), str(tmp_path / "none.json"), "--matcher", "exact"],
        ["draw", str(files / "gold.json"), "-o", "m.gif"],
        ["extract", str(tmp_path / "bad.json"), "-o", "x.json", "--model", "m"],
    ):
        answer = subprocess.run(
            [sys.executable, "-m", "assay", "psmbench", *arguments],
            capture_output=True,
            text=True,
            env=os.environ,
            cwd=tmp_path,
            timeout=120,
        )
        assert answer.returncode == 2, answer.stderr
        assert answer.stderr.startswith("assay: ")
        assert len(answer.stderr.splitlines()) == 1, answer.stderr


class _Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        edge = {"from": "A", "event": "receive X", "action": "send Y", "to": "B"}
        text = f"<json>{json.dumps({'states': ['A', 'B'], 'transitions': [edge]})}</json>"
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        data = json.dumps({**body, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


def test_extract_from_an_rfc_over_a_server_and_again_without_it(tmp_path):
    (tmp_path / "rfc.txt").write_text("1. Start\nA goes to B on X.\n2. End\nNothing.\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    arguments = [
        "extract", tmp_path / "rfc.txt", "-o", tmp_path / "m.json", "--model", "m",
        "--base-url", f"http://127.0.0.1:{server.server_port}/v1", "--cache", tmp_path / "c.sqlite",
    ]  # fmt: skip
    try:
        code, output = run(*arguments)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert code == 0
    assert "2 states, 1 transitions from 2 calls" in output
    machine = ProtocolStateMachine.from_file(tmp_path / "m.json")
    assert machine.initial_state == "A"
    (tmp_path / "m.json").unlink()
    assert run(*arguments)[0] == 0
    assert ProtocolStateMachine.from_file(tmp_path / "m.json") == machine


def test_extract_without_any_reply_writes_nothing(tmp_path):
    (tmp_path / "rfc.txt").write_text("1. Start\nA goes to B on X.\n")
    with pytest.raises(ValueError, match="no section could be read"):
        run(
            "extract",
            tmp_path / "rfc.txt",
            "-o",
            tmp_path / "m.json",
            "--model",
            "m",
            "--base-url",
            "http://127.0.0.1:9/v1",
            "--max-calls",
            "0",
        )
    assert not (tmp_path / "m.json").exists()
