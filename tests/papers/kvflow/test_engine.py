"""The serving loop: answers are the model's own, whatever runs beside them."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
import torch
from tests.papers.kvflow.serving import MODEL, TOKENIZER, generated, ids, until

from assay.papers.kvflow import Engine, PrefixCache, Sampling, StepGraph
from assay.papers.kvflow.models import check_model, fingerprint, kv_bytes_per_token
from assay.papers.kvflow.tiers import DeviceTier, HostTier


@pytest.fixture
def engine():
    with Engine(MODEL, TOKENIZER, max_batch=4) as engine:
        yield engine


def test_greedy_answers_are_those_of_generate(engine):
    prompts = [ids(3 + 17 * i % 90, i) for i in range(12)]
    lengths = [5 + 13 * i % 80 for i in range(12)]
    answers = [
        engine.submit(prompt, max_new_tokens=n) for prompt, n in zip(prompts, lengths, strict=True)
    ]
    for prompt, n, answer in zip(prompts, lengths, answers, strict=True):
        assert answer.result().ids == generated(prompt, n)
        assert answer.result().prompt_tokens == len(prompt)


def test_requests_run_side_by_side(engine):
    order = []
    for name, n in (("long", 200), ("short", 5)):
        answer = engine.submit(ids(9, 1), agent=name, max_new_tokens=n, ignore_eos=True)
        answer.add_done_callback(lambda _, name=name: order.append(name))
    answer.result()
    until(lambda: len(order) == 2)
    assert order == ["short", "long"]


def test_a_failed_step_spares_those_that_wait(monkeypatch):
    decode = Engine._decode
    failures = iter([MemoryError("none left")])

    def fails_once(self):
        for error in failures:
            raise error
        decode(self)

    monkeypatch.setattr(Engine, "_decode", fails_once)
    with Engine(MODEL, TOKENIZER, max_batch=1) as engine:
        first, second = (engine.submit(ids(9, i), max_new_tokens=5) for i in range(2))
        with pytest.raises(MemoryError, match="none left"):
            first.result(20)
        assert second.result(20).ids == generated(ids(9, 1), 5)


def test_no_more_than_max_batch_run_at_once(monkeypatch):
    widths = []
    forward = MODEL.forward

    def watched(*args, **kwargs):
        widths.append(len(kwargs["input_ids"]))
        return forward(*args, **kwargs)

    with Engine(MODEL, TOKENIZER, max_batch=3) as engine:
        monkeypatch.setattr(MODEL, "forward", watched)
        answers = [engine.submit(ids(9, i), max_new_tokens=20, ignore_eos=True) for i in range(7)]
        assert [len(answer.result().ids) for answer in answers] == [20] * 7
    assert max(widths) == 3


def test_it_stops_where_generate_stops(engine):
    ends = 0
    for n, seed in ((3, 8), (2, 24), (3, 33), (5, 1)):
        answer = engine.submit(ids(n, seed), max_new_tokens=40).result()
        assert answer.ids == generated(ids(n, seed), 40)
        assert answer.finish_reason == ("stop" if answer.ids[-1] == 0 else "length")
        ends += answer.finish_reason == "stop"
    assert ends == 3, "this test shows nothing where no answer ends early"


def test_sampling_follows_the_seed_whatever_runs_beside(engine):
    sampling = Sampling(temperature=1.5, top_k=50, top_p=0.9, seed=7)
    torch.manual_seed(7)
    own = generated(
        ids(9, 1), 30, do_sample=True, temperature=1.5, top_k=50, top_p=0.9, eos_token_id=None
    )
    beside = [engine.submit(ids(30, i), max_new_tokens=40) for i in range(3)]
    answer = engine.submit(ids(9, 1), max_new_tokens=30, sampling=sampling, ignore_eos=True)
    assert answer.result().ids == own
    for other in beside:
        other.result()
    other = Sampling(temperature=1.5, seed=8)
    answer = engine.submit(ids(9, 1), max_new_tokens=30, sampling=other, ignore_eos=True)
    assert answer.result().ids != own


def test_a_sliding_window_is_the_models_affair():
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=8, initializer_range=0.5,
        max_position_embeddings=256, bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MistralForCausalLM(config).eval()
    with Engine(model, TOKENIZER) as engine:
        answers = [engine.submit(ids(5 + 9 * i, i), max_new_tokens=30) for i in range(4)]
        for i, answer in enumerate(answers):
            assert answer.result().ids == generated(ids(5 + 9 * i, i), 30, model)


def test_models_whose_prefixes_are_not_reusable_are_refused():
    from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

    size = {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 20}
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    config = LlamaConfig(**size, intermediate_size=16, num_attention_heads=1, rope_parameters=rope)
    with pytest.raises(ValueError, match="'dynamic' makes a prefix's keys depend"):
        check_model(LlamaForCausalLM(config))
    with pytest.raises(ValueError, match="wants keys and values alone"):
        check_model(MambaForCausalLM(MambaConfig(**size)))


def test_text_is_given_out_as_it_comes(engine):
    pieces = []
    answer = engine.submit("Hello", max_new_tokens=40, ignore_eos=True, on_text=pieces.append)
    assert answer.result().text == "".join(pieces)
    assert answer.result().text == TOKENIZER.decode(answer.result().ids, skip_special_tokens=True)
    assert len(pieces) > 5


def test_a_stop_string_ends_the_answer(engine):
    whole = engine.submit("Hello", max_new_tokens=40, ignore_eos=True).result().text
    stop = whole[10:13]
    pieces = []
    answer = engine.submit("Hello", max_new_tokens=40, stop=[stop], on_text=pieces.append).result()
    assert answer.text == "".join(pieces) == whole[: whole.index(stop)]
    assert answer.finish_reason == "stop"


def test_parts_are_tokenised_apart(engine):
    answer = engine.submit(("Plan: ", "Rome"), max_new_tokens=3).result()
    assert answer.prompt_tokens == len("Plan: Rome")


def test_a_cancelled_request_makes_room(engine):
    running = [engine.submit(ids(9, i), max_new_tokens=1900, ignore_eos=True) for i in range(4)]
    waiting = engine.submit(ids(9, 9), max_new_tokens=1900, ignore_eos=True)
    last = engine.submit(ids(9, 5), max_new_tokens=5)
    until(lambda: engine.stats()["running"] == 4)
    assert waiting.cancel()
    assert running[2].cancel()
    assert last.result(20).ids == generated(ids(9, 5), 5)
    for answer in running:
        answer.cancel()
    until(lambda: engine.stats()["cancelled"] == 5)
    assert engine.stats()["running"] == engine.stats()["waiting"] == 0


def test_closing_cancels_what_has_no_answer():
    engine = Engine(MODEL, TOKENIZER, max_batch=1)
    answers = [engine.submit(ids(9, i), max_new_tokens=1900, ignore_eos=True) for i in range(3)]
    engine.close()
    for answer in answers:
        with pytest.raises(CancelledError):
            answer.result(20)
    with pytest.raises(RuntimeError, match="it is closed"):
        engine.submit("Hello")
    assert not any(thread.name == "engine" for thread in threading.enumerate())


def test_a_request_that_fails_spoils_no_other(engine, monkeypatch):
    def fails(text):
        raise OSError("gone")

    other = engine.submit(ids(9, 1), max_new_tokens=60)
    broken = engine.submit("Hello", max_new_tokens=50, ignore_eos=True, on_text=fails)
    with pytest.raises(OSError, match="gone"):
        broken.result(20)
    assert other.result(20).ids == generated(ids(9, 1), 60)
    monkeypatch.setattr(engine._scheduler, "pick", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.submit("Hello").result(20)
    monkeypatch.undo()
    assert engine.submit(ids(9, 1), max_new_tokens=60).result(20).ids == generated(ids(9, 1), 60)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prompt": ""}, ValueError, "prompt: got no token"),
        ({"prompt": ids(2048, 0)}, ValueError, "wants fewer than the context of 2048"),
        ({"prompt": [1, 999]}, ValueError, "prompt: got id 999, wants one from 0 to 259"),
        ({"prompt": [1, "a"]}, TypeError, "prompt: got 'a' among the ids"),
        ({"prompt": 3}, TypeError, "prompt: got int"),
        ({"fixed_len": 6}, ValueError, "fixed_len: got 6, wants at most the prompt's 5"),
        ({"fixed_len": -1}, ValueError, "fixed_len: got -1"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens: got 0, wants an integer >= 1"),
        ({"max_new_tokens": -3}, ValueError, "max_new_tokens: got -3"),
        ({"max_new_tokens": 2044}, ValueError, "max_new_tokens: got 2044, wants at most 2043"),
        ({"stop": "x"}, ValueError, "stop: got 'x', wants a list"),
        ({"agent": "a", "steps": {"b": 1}}, ValueError, "agent: got 'a', wants one of steps: b"),
    ],
)
def test_bad_requests_are_refused(engine, arguments, error, message):
    with pytest.raises(error, match=message):
        engine.submit(**({"prompt": "Hello"} | arguments))


def test_bad_engines_are_refused():
    with pytest.raises(ValueError, match="scheduler: got 'x', wants one of status-aware, fcfs"):
        Engine(MODEL, TOKENIZER, scheduler="x")
    with pytest.raises(ValueError, match="max_batch: got 0"):
        Engine(MODEL, TOKENIZER, max_batch=0)


def test_a_workflow_runs_from_its_graph(engine):
    graph = StepGraph().add("plan").add("left", ["plan"]).add("right", ["plan"])
    graph.add("judge", ["left", "right"]).loop("judge", "plan")
    rounds = []

    def again(agent, ways, answers):
        rounds.append((agent, tuple(ways)))
        return ways if len(rounds) < 3 else ()

    def judged(answers):
        assert len(answers["left"]) == len(answers["right"]) == len(rounds) + 1
        return ("You judge.", answers["left"][-1].text + answers["right"][-1].text)

    answers = engine.run_workflow(
        graph,
        {"plan": "You plan.", "left": ("Left.", "Go"), "right": ids(20, 1), "judge": judged},
        choose=again,
        max_new_tokens=6,
        ignore_eos=True,
    )
    assert {agent: len(of) for agent, of in answers.items()} == dict.fromkeys(graph.agents, 3)
    assert rounds == [("judge", ("plan",))] * 3
    prompt = "You judge." + answers["left"][-1].text + answers["right"][-1].text
    assert answers["judge"][-1].ids == generated(TOKENIZER(prompt).input_ids, 6, eos_token_id=None)


def test_a_workflow_with_the_wrong_prompts_is_refused(engine):
    graph = StepGraph().add("plan").add("write", ["plan"])
    with pytest.raises(ValueError, match=r"wants the graph's agents \['plan', 'write'\].*typo"):
        engine.run_workflow(graph, {"plan": "P", "typo": "W"})
    with pytest.raises(ValueError, match="choose: got None, wants a function: write branches"):
        engine.run_workflow(graph.loop("write", "plan"), {"plan": "P", "write": "W"})


def test_what_runs_ends_with_a_workflow_that_fails(engine):
    graph = StepGraph().add("slow").add("bad")
    with pytest.raises(ZeroDivisionError):
        engine.run_workflow(
            graph, {"slow": ids(9, 1), "bad": lambda answers: 1 / 0}, ignore_eos=True
        )
    until(lambda: engine.stats()["cancelled"] == 1)


def test_who_waits_for_room_is_not_computed_in_full():
    """Room for two prefixes, four that are asked for at once: each is loaded in its turn."""
    fixed = [ids(40, seed) for seed in range(4)]
    per_token = kv_bytes_per_token(MODEL)
    tiers = [DeviceTier(110 * per_token), HostTier(2**30)]
    link = 40 * per_token / 0.02 / 1e9
    with PrefixCache(tiers, fingerprint=fingerprint(MODEL), link_gbps=link) as cache:
        with Engine(MODEL, TOKENIZER, cache) as engine:
            for turn in range(3):
                prompts = [(*f, *ids(4, 100 + 10 * turn + k)) for k, f in enumerate(fixed)]
                told = {"fixed_len": 40, "max_new_tokens": 3, "ignore_eos": True}
                if turn:
                    futures = [engine.submit(p, f"c{k}", **told) for k, p in enumerate(prompts)]
                    answers = [future.result(60) for future in futures]
                    assert [sum(a.cached_tokens.values()) for a in answers] == [40] * 4
                else:
                    answers = []
                    for k, p in enumerate(prompts):
                        answers.append(engine.submit(p, f"c{k}", **told).result(60))
                        cache.settle(10)
                for prompt, answer in zip(prompts, answers, strict=True):
                    assert answer.ids == generated(prompt, 3, eos_token_id=None)
                cache.settle(10)
        assert "lost_tokens" not in cache.stats()
