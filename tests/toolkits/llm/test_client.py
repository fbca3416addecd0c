"""The client over a scripted backend: cache, budget, prices, structured output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import threading

import pytest
from pydantic import BaseModel

from assay.toolkits.llm import (
    LLM,
    Budget,
    BudgetExceeded,
    CacheMode,
    Client,
    Completion,
    LLMError,
    PriceTable,
    ReplayMiss,
    ReplyCache,
    Request,
    StructuredOutputError,
    Usage,
    complete_all,
)

USAGE = Usage(100, 10)
PRICES = PriceTable({"scripted": (1.0, 2.0)})


class Scripted:
    """A backend that says what it is told, one entry a call, the last one again and again."""

    context_window = None
    concurrency = 2

    def __init__(self, *script, model="scripted", usage=USAGE):
        self.script = list(script)
        self.identity = {"backend": "test", "model": model, "weights": "0" * 64}
        self.usage = usage
        self.requests: list[Request] = []

    def send(self, request):
        self.requests.append(request)
        step = self.script[min(len(self.requests), len(self.script)) - 1]
        if isinstance(step, Exception):
            raise step
        return Completion(step, self.usage)


class Answer(BaseModel):
    value: int


def ask(text: str = "hello"):
    return [{"role": "user", "content": text}]


def test_a_client_is_an_llm():
    client: LLM = Client(Scripted("hi"))
    assert client.complete(ask()).text == "hi"
    assert asyncio.run(client.acomplete(ask(), max_tokens=5)).text == "hi"


class TestCache:
    def test_record_calls_once(self, tmp_path):
        backend = Scripted("one", "two")
        client = Client(backend, ReplyCache(tmp_path / "c"), prices=PRICES)
        first, again = client.complete(ask()), client.complete(ask())
        assert (first.text, again.text) == ("one", "one")
        assert (first.cached, again.cached) == (False, True)
        assert first.cost == pytest.approx(120e-6)
        assert again.cost == 0
        assert again.usage == Usage(100, 10)
        assert len(backend.requests) == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"seed": 1},
            {"temperature": 0.1},
            {"max_tokens": 7},
            {"stop": ["x"]},
            {"repeat": 1},
            {"choices": ["one", "two"]},
        ],
    )
    def test_whatever_changes_the_request_is_another_entry(self, tmp_path, options):
        backend = Scripted("one", "two")
        client = Client(backend, ReplyCache(tmp_path / "c"))
        client.complete(ask())
        assert client.complete(ask(), **options).text == "two"
        assert client.complete(ask(), **options).cached
        assert len(client.cache) == 2

    def test_another_model_is_another_entry(self, tmp_path):
        cache = ReplyCache(tmp_path / "c")
        Client(Scripted("one"), cache).complete(ask())
        assert Client(Scripted("two", model="other"), cache).complete(ask()).text == "two"

    def test_live_calls_and_records_the_newest(self, tmp_path):
        live = Client(Scripted("one", "two"), ReplyCache(tmp_path / "c", "live"))
        assert [live.complete(ask()).text for _ in range(2)] == ["one", "two"]
        assert (
            Client(Scripted("x"), ReplyCache(tmp_path / "c", "replay")).complete(ask()).text
            == "two"
        )

    def test_off_leaves_nothing(self, tmp_path):
        client = Client(Scripted("one"), ReplyCache(tmp_path / "c", CacheMode.OFF))
        client.complete(ask())
        assert list(tmp_path.iterdir()) == []

    def test_replay_never_calls(self, tmp_path):
        Client(Scripted("one"), ReplyCache(tmp_path / "c")).complete(ask())
        backend = Scripted(AssertionError("called"))
        client = Client(backend, ReplyCache(tmp_path / "c", "replay"))
        assert client.complete(ask()).text == "one"
        with pytest.raises(ReplayMiss) as caught:
            client.complete(ask("hello world"), seed=4)
        message = str(caught.value)
        assert "key " in message
        assert len(message.split("key ")[1].split(":")[0]) == 64
        assert "messages[0].content: asked 'hello world', recorded 'hello'" in message
        with pytest.raises(ReplayMiss, match="differs in seed: asked 4, recorded 0"):
            client.complete(ask(), seed=4)
        assert backend.requests == []

    def test_replay_of_nothing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no recorded replies"):
            ReplyCache(tmp_path / "none", "replay")
        ReplyCache(tmp_path / "c").close()
        with pytest.raises(ReplayMiss, match="nothing is recorded"):
            Client(Scripted("x"), ReplyCache(tmp_path / "c", "replay")).complete(ask())

    def test_failed_calls_are_not_recorded(self, tmp_path):
        client = Client(Scripted(LLMError("down"), "up"), ReplyCache(tmp_path / "c"))
        with pytest.raises(LLMError, match="down"):
            client.complete(ask())
        assert len(client.cache) == 0
        assert client.complete(ask()).text == "up"

    def test_a_file_that_is_no_cache_is_refused_and_kept(self, tmp_path):
        path = tmp_path / "c"
        path.write_bytes(b"something else, long enough to be no database" * 30)
        before = path.read_bytes()
        with pytest.raises(ValueError, match="not a reply cache"):
            ReplyCache(path)
        assert path.read_bytes() == before
        with pytest.raises(ValueError, match="mode: got 'sometimes'"):
            ReplyCache(tmp_path / "d", "sometimes")

    def test_threads_share_it(self, tmp_path):
        client = Client(Scripted("one"), ReplyCache(tmp_path / "c"))
        calls = [{"messages": ask(str(i % 5))} for i in range(40)]
        assert {reply.text for reply in complete_all(client, calls, concurrency=8)} == {"one"}
        assert len(client.cache) == 5

    def test_processes_share_it(self, tmp_path):
        context = multiprocessing.get_context("spawn")
        workers = [
            context.Process(target=_record, args=(str(tmp_path / "c"), start)) for start in (0, 10)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert len(ReplyCache(tmp_path / "c")) == 30


def _record(path: str, start: int) -> None:
    cache = ReplyCache(path)
    for i in range(start, start + 20):
        request = Request(({"role": "user", "content": str(i)},))
        cache.put({"backend": "b", "model": "m"}, request, Completion("x"))


class TestBudget:
    def test_calls_stop_before_the_limit_is_passed(self):
        backend = Scripted("hi")
        client = Client(backend, budget=Budget(max_calls=2))
        client.complete(ask())
        client.complete(ask())
        with pytest.raises(BudgetExceeded, match="2 of 2 calls made"):
            client.complete(ask())
        assert len(backend.requests) == 2

    def test_cost_stops_before_the_limit_may_be_passed(self):
        backend = Scripted("hi")
        # A call may cost (21 + 2 * 10) / 1e6 dollars and does cost 120e-6.
        client = Client(backend, budget=Budget(max_cost=200e-6), prices=PRICES)
        for _ in range(2):
            client.complete(ask(), max_tokens=10)
        with pytest.raises(BudgetExceeded, match="max_cost"):
            client.complete(ask(), max_tokens=10)
        assert len(backend.requests) == 2
        assert client.budget.cost == pytest.approx(240e-6)

    def test_a_limit_on_cost_wants_a_price(self):
        client = Client(Scripted("hi", model="unheard-of"), budget=Budget(max_cost=1))
        with pytest.raises(BudgetExceeded, match="no price is known"):
            client.complete(ask())

    def test_recorded_replies_are_free(self, tmp_path):
        client = Client(Scripted("hi"), ReplyCache(tmp_path / "c"), Budget(max_calls=1))
        for _ in range(3):
            client.complete(ask())
        assert client.budget.calls == 1

    def test_failed_calls_count_and_cost_nothing(self):
        client = Client(Scripted(LLMError("down")), budget=Budget(max_cost=1), prices=PRICES)
        with pytest.raises(LLMError):
            client.complete(ask())
        assert (client.budget.calls, client.budget.cost) == (1, 0)

    def test_a_reply_without_usage_is_charged_what_was_reserved(self):
        client = Client(Scripted("hi", usage=Usage()), budget=Budget(max_cost=1), prices=PRICES)
        assert client.complete(ask(), max_tokens=10).cost is None
        assert client.budget.cost > 0

    def test_threads_do_not_slip_past_it(self):
        backend = Scripted("hi")
        client = Client(backend, budget=Budget(max_calls=5))
        barrier = threading.Barrier(8)

        def call():
            barrier.wait()
            with contextlib.suppress(BudgetExceeded):
                client.complete(ask())

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(backend.requests) == 5

    def test_negative_limits_are_refused(self):
        with pytest.raises(ValueError, match="max_cost: got -1"):
            Budget(max_cost=-1)
        with pytest.raises(ValueError, match="max_calls: got -2"):
            Budget(max_calls=-2)


class TestStructuredOutput:
    def test_a_value_that_fits(self):
        assert Client(Scripted('{"value": 3}')).complete(ask(), schema=Answer).parsed == Answer(
            value=3
        )

    def test_fences_are_forgiven(self):
        reply = Client(Scripted('```json\n{"value": 3}\n```')).complete(ask(), schema=Answer)
        assert reply.parsed.value == 3

    def test_a_misfit_is_sent_back_with_the_reason(self):
        backend = Scripted("three", '{"value": "x"}', '{"value": 3}')
        reply = Client(backend, prices=PRICES).complete(ask(), schema=Answer)
        assert reply.parsed == Answer(value=3)
        assert [len(request.messages) for request in backend.requests] == [1, 3, 5]
        assert "valid integer" in backend.requests[2].messages[-1]["content"]
        assert reply.usage == Usage(300, 30)
        assert reply.cost == pytest.approx(360e-6)

    def test_after_two_reasks_it_gives_up(self):
        backend = Scripted("never")
        with pytest.raises(StructuredOutputError, match="after 3 attempts"):
            Client(backend).complete(ask(), schema=Answer)
        assert len(backend.requests) == 3

    def test_choices(self):
        assert Client(Scripted("yes")).complete(ask(), choices=["yes", "no"]).parsed == "yes"
        backend = Scripted('{"choice": "no"}')
        assert Client(backend).complete(ask(), choices=["yes", "no"]).parsed == "no"
        assert backend.requests[0].schema["properties"]["choice"]["enum"] == ["yes", "no"]
        with pytest.raises(StructuredOutputError):
            Client(Scripted("maybe")).complete(ask(), choices=["yes", "no"])

    def test_reasks_are_recorded_too(self, tmp_path):
        cache = ReplyCache(tmp_path / "c")
        Client(Scripted("three", '{"value": 3}'), cache).complete(ask(), schema=Answer)
        replay = Client(Scripted(AssertionError()), ReplyCache(tmp_path / "c", "replay"))
        reply = replay.complete(ask(), schema=Answer)
        assert reply.parsed.value == 3
        assert reply.cached


class TestPrices:
    def test_an_unknown_price_is_not_zero(self):
        table = PriceTable.default()
        assert table.cost("gpt-4o-mini", Usage(1_000_000, 0)) == pytest.approx(0.15)
        assert table.cost("unheard-of", Usage(1, 1)) is None
        assert table.cost("gpt-4o-mini", Usage()) is None

    @pytest.mark.parametrize("content", ["{", "[]", '{"models": {"m": [1]}}', '{"models": 3}'])
    def test_a_malformed_table_is_refused(self, content, tmp_path):
        (tmp_path / "p.json").write_text(content)
        with pytest.raises(ValueError, match=r"p\.json: wants models"):
            PriceTable.from_file(tmp_path / "p.json")

    def test_a_negative_price_is_refused(self, tmp_path):
        (tmp_path / "p.json").write_text(json.dumps({"models": {"m": [1, -1]}}))
        with pytest.raises(ValueError, match="below 0"):
            PriceTable.from_file(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        ([], {}, "messages: got none"),
        ([{"role": "user"}], {}, r"messages\[0\]: got"),
        ([{"role": "robot", "content": "x"}], {}, r"messages\[0\].role: got 'robot'"),
        (ask(), {"max_tokens": 0}, "max_tokens: got 0"),
        (ask(), {"temperature": -1}, "temperature: got -1"),
        (ask(), {"choices": ["one"]}, "choices: got"),
        (ask(), {"choices": ["a", "b"], "schema": Answer}, "got both"),
    ],
)
def test_wrong_arguments_are_refused(messages, options, message):
    with pytest.raises(ValueError, match=message):
        Client(Scripted("hi")).complete(messages, **options)


def test_content_must_be_text():
    with pytest.raises(TypeError, match=r"messages\[0\].content: got int"):
        Client(Scripted("hi")).complete([{"role": "user", "content": 3}])
