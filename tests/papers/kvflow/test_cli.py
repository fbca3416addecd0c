"""`assay kvflow`: what it serves, writes and prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request

import httpx
import openai
import pytest
import uvicorn
from tests.papers.kvflow.serving import until
from typer.testing import CliRunner

from assay.papers.kvflow.cli import app, serve
from assay.papers.kvflow.trace import read_trace


def run(*arguments) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


SMALL = ("--model", "tiny", "--fixed", 40, "--dynamic", 4, "--output", 3)


def test_a_trace_holds_what_was_asked_for(tmp_path):
    path = tmp_path / "a.jsonl"
    printed = run("trace", path, *SMALL, "--agents", 3, "--rounds", 2, "--workflows", 2)
    requests = read_trace(path)
    assert len(requests) == 3 * 2 * 2
    assert f"{len(requests)} calls, {len(requests) * 44} tokens" in printed
    assert {request.client for request in requests} == {"w0", "w1"}
    assert {(r.fixed_len, len(r.prompt_ids), r.output_len) for r in requests} == {(40, 44, 3)}
    assert max(max(request.prompt_ids) for request in requests) < 260


def test_workflows_differ(tmp_path):
    run("trace", tmp_path / "a", *SMALL, "--workflow", "parallel", "--agents", 2, "--rounds", 1)
    assert {r.agent for r in read_trace(tmp_path / "a")} == {"plan", "work0", "work1", "write"}
    run("trace", tmp_path / "b", *SMALL, "--agents", 3, "--branches", 2, "--seed", 1)
    assert {r.agent.split(".")[0] for r in read_trace(tmp_path / "b")} == {"a0", "a1", "a2"}


def test_it_serves_until_it_is_told_to_stop(monkeypatch, tmp_path):
    servers = []

    class Watched(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            servers.append(self)

    monkeypatch.setattr(uvicorn, "Server", Watched)
    arguments = {"device_gb": 1e-4, "host_gb": 1e-3, "disk_gb": 1e-2, "disk": tmp_path}
    serving = threading.Thread(target=serve, kwargs={"model": "tiny", "port": 0} | arguments)
    serving.start()
    until(lambda: servers and servers[0].started)
    port = servers[0].servers[0].sockets[0].getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        serve(model="tiny", port=port)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
    answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=3, temperature=0)
    assert answer.usage.completion_tokens == 3
    stats = httpx.get(f"http://127.0.0.1:{port}/stats").json()
    capacities = {n: tier["capacity_bytes"] for n, tier in stats["cache"]["tiers"].items()}
    assert capacities == {"device": 10**5, "host": 10**6, "disk": 10**7}
    client.close()
    servers[0].should_exit = True
    serving.join(20)
    assert not serving.is_alive()
    assert not list(tmp_path.iterdir()), "the disk tier left files behind"


def test_systems_are_compared_on_a_trace(tmp_path):
    run("trace", tmp_path / "a", *SMALL, "--fixed", 512, "--agents", 4, "--rounds", 4)
    printed = run(
        "simulate", "--trace", tmp_path / "a", "--hardware", "a10g", "--model", "llama3.1-8b",
        "--device-gb", 0.21, "--host-gb", 2, "--skip", 4, "--json", tmp_path / "b",
    )  # fmt: skip
    rows = {row["system"]: row for row in json.loads((tmp_path / "b").read_text())}
    assert [line.split()[0] for line in printed.splitlines()] == ["system", *rows]
    assert set(rows) == {"gpu-only", "hicache", "eviction", "prefetch", "kvflow"}
    # Room for 3 of 4 prefixes: recency finds none of them on the device.
    assert rows["hicache"]["on device"] < 0.1 < rows["eviction"]["on device"]
    assert rows["gpu-only"]["hits"] < 0.1
    assert rows["gpu-only"]["speed-up"] == 1.0 < rows["hicache"]["speed-up"]
    alone = run(
        "simulate", "--trace", tmp_path / "a", "--hardware", "a10g", "--model", "llama3.1-8b",
        "--device-gb", 0.21, "--host-gb", 0,
    )  # fmt: skip
    names = [line.split()[0] for line in alone.splitlines()[1:]]
    assert names == ["gpu-only", "hicache", "eviction"], "prefetching needs room on the host"


def test_traces_may_hold_text(tmp_path):
    call = {"client": "c", "agent": "a", "prompt_text": ["You plan.", "Rome"], "output_len": 2}
    (tmp_path / "a").write_text(json.dumps(call))
    printed = run(
        "simulate", "--trace", tmp_path / "a", "--system", "hicache", "--tokenizer", "tiny"
    )
    assert len(printed.splitlines()) == 2


def test_bad_values_are_refused(tmp_path):
    with pytest.raises(ValueError, match="n_agents: got 1"):
        run("trace", tmp_path / "a", *SMALL, "--agents", 1)


def test_skipping_every_call_is_refused_by_the_options_name(tmp_path):
    call = {"client": "c", "agent": "a", "prompt_ids": [1, 2], "output_len": 2}
    (tmp_path / "a").write_text(json.dumps(call))
    with pytest.raises(ValueError, match=r"skip: got 1, wants less than the 1 calls"):
        run("simulate", "--trace", tmp_path / "a", "--skip", 1)


def test_a_server_that_is_told_to_end_takes_its_files_along(tmp_path):
    command = [sys.executable, "-m", "assay", "kvflow", "serve", "--model", "tiny", "--port", "0"]
    options = ["--disk-gb", "0.001", "--disk", str(tmp_path)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = line.split(" on ")[1].strip()
        while True:
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).read()
                break
            except OSError:
                assert server.poll() is None, line
        assert list(tmp_path.iterdir()), "the disk tier's folder"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert not list(tmp_path.iterdir())
