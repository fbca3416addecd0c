"""A small server with the OpenAI chat interface that misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


def chat_answer(text: str, finish_reason: str = "stop", usage: bool = True) -> dict:
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        if usage
        else None,
    }


class FakeServer:
    """`script` holds what to do with each request in turn; its last entry is repeated.

    An entry is a dict (sent as JSON with status 200), a pair (status, dict), bytes (sent as they
    are), "hang" or "drop".
    """

    def __init__(self, *script) -> None:
        self.script = list(script)
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def running(self):
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _handler(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with fake._lock:
                    fake.requests.append(body)
                    fake.headers.append({k.lower(): v for k, v in self.headers.items()})
                    step = fake.script[min(len(fake.requests), len(fake.script)) - 1]
                    fake._now += 1
                    fake.most_at_once = max(fake.most_at_once, fake._now)
                try:
                    self.act(step(body) if callable(step) else step)
                finally:
                    with fake._lock:
                        fake._now -= 1

            def act(self, step):
                if step == "hang":
                    time.sleep(1.5)
                    return
                if step == "drop":
                    self.connection.close()
                    return
                status, content = step if isinstance(step, tuple) else (200, step)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        return Handler


@pytest.fixture
def fake_server():
    return FakeServer


@pytest.fixture
def answer():
    return chat_answer
