"""The remote backend against a local server that behaves and misbehaves."""

from __future__ import annotations

import json
import time

import pytest

from assay.toolkits.llm import (
    Client,
    LLMError,
    RemoteBackend,
    ReplyCache,
    Request,
    RequestRefused,
    complete_all,
)

ASK = [{"role": "user", "content": "hello"}]
ERROR = {"error": {"message": "no"}}


def backend(url: str, **options) -> RemoteBackend:
    return RemoteBackend("gpt-4o-mini", url, "secret-key", **{"timeout": 5, **options})


def test_a_reply_with_its_usage_and_cost(fake_server, answer):
    server = fake_server(answer("hi"))
    with server.running() as url:
        reply = Client(backend(url)).complete(
            ASK, max_tokens=50, temperature=0.5, seed=3, stop=["."]
        )
    assert (reply.text, reply.finish_reason, reply.cached) == ("hi", "stop", False)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 3)
    assert reply.cost == pytest.approx((7 * 0.15 + 3 * 0.6) / 1e6)
    assert reply.latency > 0
    (request,) = server.requests
    assert request["model"] == "gpt-4o-mini"
    assert request["messages"] == ASK
    assert (request["max_tokens"], request["temperature"], request["seed"]) == (50, 0.5, 3)
    assert request["stop"] == ["."]


def test_429_is_tried_again(fake_server, answer):
    server = fake_server((429, ERROR), answer("hi"))
    with server.running() as url:
        assert backend(url).send(Request(tuple(ASK))).text == "hi"
    assert len(server.requests) == 2


def test_500s_end_in_an_error_that_says_so(fake_server):
    server = fake_server((500, ERROR))
    with server.running() as url, pytest.raises(LLMError, match="answered 500"):
        backend(url, max_retries=2).send(Request(tuple(ASK)))
    assert len(server.requests) == 3


@pytest.mark.parametrize("body", [b"{not json", b"", b"[]", b'{"choices": []}', b'"text"', b"null"])
def test_a_malformed_body_is_an_error(fake_server, body):
    server = fake_server(body)
    with server.running() as url, pytest.raises(LLMError, match="malformed"):
        backend(url, max_retries=0).send(Request(tuple(ASK)))


def test_a_hanging_server_is_given_up(fake_server):
    server = fake_server("hang")
    start = time.perf_counter()
    with server.running() as url, pytest.raises(LLMError, match="no reply in time"):
        backend(url, timeout=0.3, max_retries=0).send(Request(tuple(ASK)))
    assert time.perf_counter() - start < 4


def test_a_lost_connection_is_tried_again_then_an_error(fake_server, answer):
    server = fake_server("drop", answer("hi"))
    with server.running() as url:
        assert backend(url).send(Request(tuple(ASK))).text == "hi"
    server = fake_server("drop")
    with server.running() as url, pytest.raises(LLMError, match="no connection"):
        backend(url, max_retries=1).send(Request(tuple(ASK)))
    assert len(server.requests) == 2


def test_no_server_at_all_is_an_error():
    with pytest.raises(LLMError, match="no connection"):
        backend("http://127.0.0.1:9/v1", max_retries=0).send(Request(tuple(ASK)))


def test_a_refused_request_is_not_tried_again(fake_server):
    server = fake_server((400, {"error": {"message": "prompt too long"}}))
    with server.running() as url, pytest.raises(RequestRefused, match="prompt too long"):
        backend(url).send(Request(tuple(ASK)))
    assert len(server.requests) == 1


def test_a_server_without_usage_has_unknown_cost(fake_server, answer):
    with fake_server(answer("hi", usage=False)).running() as url:
        reply = Client(backend(url)).complete(ASK)
    assert reply.usage.prompt_tokens is None
    assert reply.cost is None


def test_a_schema_is_sent_where_the_server_takes_it(fake_server, answer):
    server = fake_server(answer('{"a": [1]}'))
    with server.running() as url:
        reply = Client(backend(url)).complete(ASK, schema=dict[str, list[int]])
    assert reply.parsed == {"a": [1]}
    sent = server.requests[0]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["type"] == "object"


def test_a_schema_is_put_in_words_where_the_server_does_not(fake_server, answer):
    def act(body):
        return (400, ERROR) if "response_format" in body else answer('{"a": [1]}')

    server = fake_server(act)
    with server.running() as url:
        client = Client(backend(url))
        for _ in range(2):
            assert client.complete(ASK, schema=dict[str, list[int]]).parsed == {"a": [1]}
    assert ["response_format" in request for request in server.requests] == [True, False, False]
    assert "must fit this schema" in server.requests[1]["messages"][0]["content"]


def test_keys_and_headers_are_not_recorded(fake_server, answer, tmp_path):
    server = fake_server(answer("hi"))
    cache = ReplyCache(tmp_path / "c.sqlite")
    with server.running() as url:
        Client(backend(url), cache).complete(ASK)
        assert server.headers[0]["authorization"] == "Bearer secret-key"
        address = url
    cache.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hello" in content
    assert b"secret-key" not in content
    assert address.encode() not in content


def test_many_calls_keep_their_order_and_failures_stay_alone(fake_server, answer):
    def act(body):
        text = body["messages"][0]["content"]
        time.sleep(0.05 if text in "024" else 0.01)
        return (500, ERROR) if text == "3" else answer(f"<{text}>")

    server = fake_server(act)
    calls = [{"messages": [{"role": "user", "content": str(i)}]} for i in range(8)]
    seen = []
    with server.running() as url:
        client = Client(backend(url, max_retries=0))
        replies = complete_all(client, calls, concurrency=3, on_reply=lambda i, _: seen.append(i))
    assert isinstance(replies.pop(3), LLMError)
    assert [reply.text for reply in replies] == [f"<{i}>" for i in range(8) if i != 3]
    assert 1 < server.most_at_once <= 3
    assert sorted(seen) == list(range(8))
    with pytest.raises(ValueError, match="concurrency: got 0"):
        complete_all(client, calls, concurrency=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout: got 0"),
        ({"max_retries": -1}, "max_retries: got -1"),
        ({"concurrency": 0}, "concurrency: got 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        backend("http://127.0.0.1:9/v1", **options)


def test_the_request_is_json_all_through():
    request = Request(tuple(ASK), schema={"type": "object"}, choices=("a", "b"))
    assert json.loads(json.dumps(request.data())) == request.data()
