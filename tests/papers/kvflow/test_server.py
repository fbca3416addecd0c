"""The endpoint, as the openai package sees it."""

from __future__ import annotations

import json
import math
import threading

import httpx
import openai
import pytest
import uvicorn
from tests.papers.kvflow.serving import MODEL, TOKENIZER, generated, until

from assay.papers.kvflow import Engine, PrefixCache, fingerprint
from assay.papers.kvflow.server import Message, create_app

CHAT = [
    {"role": "system", "content": "You plan. " * 20},
    {"role": "user", "content": "Rome"},
]


@pytest.fixture(scope="module")
def engine():
    cache = PrefixCache.kvflow(10**6, 10**7, fingerprint=fingerprint(MODEL))
    with cache, Engine(MODEL, TOKENIZER, cache, max_batch=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def address(engine):
    config = uvicorn.Config(create_app(engine, "tiny"), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def expected(prompt: str, n: int) -> str:
    ids = generated(TOKENIZER(prompt).input_ids, n)
    return TOKENIZER.decode(ids, skip_special_tokens=True)


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_a_completion_is_the_models_own(client):
    answer = client.completions.create(
        model="tiny", prompt=["Hello", "Good day"], max_tokens=12, temperature=0
    )
    assert [c.text for c in answer.choices] == [expected("Hello", 12), expected("Good day", 12)]
    assert [c.index for c in answer.choices] == [0, 1]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == len("HelloGood day")
    assert answer.usage.completion_tokens == 24
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    again = client.completions.create(
        model="tiny", prompt=["Hello", "Good day"], max_tokens=12, temperature=0
    )
    assert [c.text for c in again.choices] == [c.text for c in answer.choices]
    assert again.usage.prompt_tokens_details.cached_tokens == len("HellGood da")
    assert again.choices[1].x_agent["cached_tokens"] == {"device": 7, "host": 0}


def test_token_ids_are_taken_as_they_are(client):
    ids = list(TOKENIZER("Hello").input_ids)
    answer = client.completions.create(model="tiny", prompt=ids, temperature=0)
    assert answer.choices[0].text == expected("Hello", 16)


def test_a_stream_holds_the_same_text(client):
    options = {"model": "tiny", "prompt": "Hello", "max_tokens": 30, "temperature": 0}
    chunks = list(
        client.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == client.completions.create(**options).choices[0].text
    assert len(chunks) > 5
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == 30
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_chat_goes_through_the_template(client, engine):
    options = {"model": "tiny", "messages": CHAT, "max_tokens": 20, "temperature": 0}
    hints = {
        "client": "app",
        "agent": "planner",
        "fixed_messages": 1,
        "steps": {"planner": 0, "writer": 1, "critic": None},
    }
    answer = client.chat.completions.create(**options, extra_body={"x_agent": hints})
    prompt = TOKENIZER.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert answer.choices[0].message.content == expected(prompt, 20)
    assert answer.choices[0].message.role == "assistant"
    said = TOKENIZER.apply_chat_template(CHAT[:1], tokenize=False)
    assert engine.stats()["cache"]["agents"]["app/planner"]["fixed_len"] == len(
        TOKENIZER(said).input_ids
    )
    assert engine.cache.tree.steps("app") == {"planner": 0, "writer": 1, "critic": math.inf}
    stream = client.chat.completions.create(**options, stream=True)
    said = "".join(chunk.choices[0].delta.content for chunk in stream)
    assert said == answer.choices[0].message.content


def test_sampling_can_be_repeated(client):
    options = {"model": "tiny", "prompt": "Hello", "max_tokens": 20, "extra_body": {"top_k": 40}}
    texts = [client.completions.create(**options, seed=s).choices[0].text for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_stop_string_ends_the_text(client):
    whole = expected("Hello", 30)
    answer = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=30, temperature=0, stop=whole[8:10]
    )
    assert answer.choices[0].text == whole[: whole.index(whole[8:10])]
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"prompt": ""}, "prompt", "got no token"),
        ({"prompt": "x" * 3000}, "prompt", "wants fewer than the context of 2048"),
        ({"max_tokens": 0}, "max_tokens", "got 0, wants an integer >= 1"),
        ({"max_tokens": 5000}, "max_tokens", "got 5000, wants at most 2043"),
        ({"temperature": -1}, "temperature", "got -1"),
        ({"n": 2}, "n", "1"),
        ({"presence_penalty": 0.5}, "presence_penalty", "less than or equal to 0"),
        ({"extra_body": {"best": 1}}, "best", "not permitted"),
        ({"extra_body": {"x_agent": {"fixed_tokens": 6}}}, "x_agent.fixed_tokens", "got 6, wants"),
        ({"extra_body": {"x_agent": {"agnt": "a"}}}, "x_agent.agnt", "not permitted"),
        (
            {"extra_body": {"x_agent": {"agent": "a", "steps": {"b": 1}}}},
            "x_agent.agent",
            "got 'a', wants one of steps: b",
        ),
        (
            {"extra_body": {"x_agent": {"agent": "a", "steps": {"a": 1.5}}}},
            "x_agent.steps.a",
            "integer",
        ),
    ],
)
def test_bad_requests_are_refused_as_openai_does(client, options, param, message):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**({"model": "tiny", "prompt": "Hello"} | options))
    assert refused.value.param == param
    assert message in refused.value.message
    assert refused.value.type == "invalid_request_error"


def test_an_unknown_model_and_path_are_not_found(client, address):
    with pytest.raises(openai.NotFoundError, match="got 'gpt', wants 'tiny'") as refused:
        client.completions.create(model="gpt", prompt="Hello")
    assert refused.value.code == "model_not_found"
    assert httpx.get(f"{address}/v1/nothing").json()["error"]["message"] == "Not Found"


def test_a_client_that_leaves_ends_its_request(engine, client, address):
    cancelled = engine.stats()["cancelled"]
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 2000, "ignore_eos": True}
    with client.completions.create(
        model="tiny", prompt="Hello", max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        for _, chunk in zip(range(3), stream, strict=False):
            assert chunk.choices[0].finish_reason is None
    until(lambda: engine.stats()["cancelled"] == cancelled + 1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{address}/v1/completions", json=body, timeout=0.3)
    until(lambda: engine.stats()["cancelled"] == cancelled + 2)
    stats = engine.stats()
    assert stats["running"] == stats["waiting"] == stats["cache"]["leases"] == 0


def test_an_error_in_a_stream_reaches_the_client(engine, client, monkeypatch):
    monkeypatch.setattr(engine, "_decode", lambda: 1 / 0)
    stream = client.completions.create(model="tiny", prompt="Hello", stream=True)
    with pytest.raises(openai.APIError, match="ZeroDivisionError"):
        list(stream)
    with pytest.raises(openai.InternalServerError, match="ZeroDivisionError"):
        client.completions.create(model="tiny", prompt="Hello")


def test_steps_may_be_told_without_a_request(address, engine):
    told = {"client": "other", "steps": {"a": 2, "b": None}}
    assert httpx.post(f"{address}/v1/steps", json=told).status_code == 200
    assert engine.cache.tree.steps("other") == {"a": 2, "b": math.inf}
    answer = httpx.post(f"{address}/v1/steps", json={"steps": {"a": -1}})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "steps.a"


def test_stats_are_json(address):
    stats = json.loads(httpx.get(f"{address}/stats").text)
    assert stats["completed"] > 0
    assert stats["cache"]["tiers"]["device"]["capacity_bytes"] == 10**6


def test_a_part_of_a_message_without_its_text_is_refused():
    with pytest.raises(ValueError, match=r"messages: got .*, wants a text in it"):
        Message(role="user", content=[{"type": "text"}]).plain()


def test_what_clients_send_by_themselves_is_taken(address):
    turns = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": None}]
    body = {"model": "tiny", "messages": turns, "max_tokens": 2}
    body |= {"store": False, "parallel_tool_calls": True}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
