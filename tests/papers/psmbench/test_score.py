"""The two metrics: their laws, and the oracles of small cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.papers.psmbench import PRF, ProtocolStateMachine, PSMScorer, Transition
from assay.papers.psmbench.reference import score_states, score_transitions
from assay.papers.psmbench.score import micro
from assay.papers.psmbench.similarity import SIMILARITIES, official_form, strict_form
from assay.toolkits.embedding import LetterPairs

NAMES = st.sampled_from(
    [
        "Closed",
        "CLOSED",
        "closing",
        "SynSent",
        "SYN_SENT",
        "syn-sent",
        "Open",
        "",
        "é!",
        "Half Open",
    ]
)
LABELS = st.sampled_from(["receive SYN", "rcv SYN", "send ACK", "timeout", "", "close"])
EDGES = st.builds(
    lambda *fields: Transition(
        **dict(zip(("source", "event", "action", "target"), fields, strict=True))
    ),
    NAMES,
    LABELS,
    LABELS,
    NAMES,
)
MACHINES = st.builds(
    ProtocolStateMachine,
    states=st.lists(NAMES, max_size=7),
    transitions=st.lists(EDGES, max_size=8),
)
WELL_FORMED = st.builds(
    lambda edges: ProtocolStateMachine(
        states=list(dict.fromkeys(end for t in edges for end in (t.source, t.target))),
        transitions=edges,
    ),
    st.lists(EDGES, min_size=1, max_size=8, unique=True),
)
SCORERS = [
    pytest.param(PSMScorer(similarity, metric=metric), id=f"{metric}-{name}")
    for metric in ("official", "strict")
    for name, similarity in (
        ("letters", LetterPairs()),
        *((name, name) for name in SIMILARITIES if name != "all-MiniLM-L6-v2"),
    )
]


def test_normal_forms():
    assert official_form("SynSent") == "synsent"
    assert official_form("SYN_SENT") == "syn sent"
    assert strict_form("SynSent") == strict_form("SYN_SENT") == "syn sent"
    assert strict_form("FIN_WAIT-1") == "fin wait 1"
    assert strict_form("HTTPServerReady") == "http server ready"


@pytest.mark.parametrize("scorer", SCORERS)
@given(gold=WELL_FORMED)
@settings(max_examples=30, deadline=None)
def test_a_machine_equals_itself(scorer, gold):
    score = scorer.score(gold, gold)
    assert score.states.f1 == 1
    assert score.transitions.matched == len(gold.transitions)
    assert not score.unmatched_gold
    # Under the official metric two names of one normal form share one of them.
    assert not score.spurious or scorer.metric == "official"


@pytest.mark.parametrize("scorer", SCORERS)
@given(gold=MACHINES)
@settings(max_examples=15, deadline=None)
def test_an_empty_prediction_scores_nothing(scorer, gold):
    empty = ProtocolStateMachine(states=[], transitions=[])
    for score in (scorer.score(empty, gold), scorer.score(gold, empty)):
        for prf in (score.states, score.transitions):
            assert (prf.matched, prf.precision, prf.recall, prf.f1) == (0, 0, 0, 0)


@given(pred=MACHINES, gold=MACHINES, threshold=st.sampled_from([0.3, 0.5, 0.8, 1.0]))
@settings(max_examples=150, deadline=None)
def test_strict_figures_lie_between_0_and_1_and_counts_add_up(pred, gold, threshold):
    score = PSMScorer(LetterPairs(), threshold, "strict").score(pred, gold)
    for kind, prf in (("state", score.states), ("transition", score.transitions)):
        assert 0 <= prf.precision <= 1
        assert 0 <= prf.recall <= 1
        assert 0 <= prf.f1 <= 1
        count = sum(match.kind == kind for match in score.matches)
        assert count == prf.matched
        assert prf.gold == count + sum(k == kind for k, _ in score.unmatched_gold)
        assert prf.extracted == count + sum(k == kind for k, _ in score.spurious)


@given(pred=MACHINES, gold=MACHINES, data=st.data())
@settings(max_examples=150, deadline=None)
def test_strict_does_not_depend_on_the_order_of_the_files(pred, gold, data):
    scorer = PSMScorer(LetterPairs(), metric="strict")
    shuffled = [
        ProtocolStateMachine(
            states=data.draw(st.permutations(m.states)),
            transitions=data.draw(st.permutations(m.transitions)),
        )
        for m in (pred, gold)
    ]
    before, after = scorer.score(pred, gold), scorer.score(*shuffled)
    assert before.states == after.states
    assert before.transitions == after.transitions


@given(pred=MACHINES, gold=MACHINES, partial=st.booleans(), threshold=st.sampled_from([0.3, 0.5]))
@settings(max_examples=100, deadline=None)
def test_official_equals_the_published_procedure(pred, gold, partial, threshold):
    letters = LetterPairs()
    score = PSMScorer(letters, threshold, partial=partial).score(pred, gold)
    assert score.states == score_states(pred, gold, letters, threshold)
    assert score.transitions == score_transitions(pred, gold, letters, threshold, partial)


def test_official_depends_on_the_order_of_transitions(make_machine):
    # "a" passes both true transitions, "b" only the first, which "a" takes away if it comes first.
    gold = make_machine(("S", "", "abab", "S"), ("S", "", "abcd", "S"))
    a, b = ("S", "", "abcdabab", "S"), ("S", "", "babab", "S")
    scorer = PSMScorer(LetterPairs(), 0.6)
    assert scorer.score(make_machine(a, b), gold).transitions.matched == 1
    assert scorer.score(make_machine(b, a), gold).transitions.matched == 2
    optimal = PSMScorer(LetterPairs(), 0.6, one_to_one=True)
    assert optimal.score(make_machine(a, b), gold).transitions.matched == 2


def test_official_precision_of_states_can_exceed_1(make_machine):
    gold = make_machine(("Open", "e", "", "Opened"))
    pred = make_machine(("Open", "e", "", "Open"))
    official = PSMScorer(LetterPairs()).score(pred, gold).states
    assert (official.matched, official.extracted, official.precision) == (2, 1, 2.0)
    assert PSMScorer(LetterPairs(), metric="strict").score(pred, gold).states.precision == 1


def test_strict_wants_the_assigned_end_points(make_machine):
    gold = make_machine(("Open", "close", "", "Closed"), ("Closed", "open", "", "Opening"))
    pred = make_machine(("Closed", "close", "", "Closed"), states=["Open", "Closed", "Opening"])
    score = PSMScorer(LetterPairs(), metric="strict").score(pred, gold)
    assert score.states.matched == 3
    assert score.transitions.matched == 0


def test_strict_counts_undeclared_and_repeated_states_as_spurious(make_machine):
    gold = make_machine(("A", "go", "", "B"))
    pred = make_machine(("A", "go", "", "B"), states=["A", "A"])
    score = PSMScorer("exact", metric="strict").score(pred, gold)
    assert (score.states.matched, score.states.extracted) == (1, 3)
    assert ("state", "A") in score.spurious
    assert ("state", "B") in score.spurious
    assert score.transitions.matched == 0
    assert PSMScorer("exact").score(pred, gold).states.extracted == 2


def test_each_string_is_embedded_once_and_in_one_batch(handshake):
    class Counting(LetterPairs):
        calls: list[list[str]] = []  # noqa: RUF012

        def encode(self, texts):
            self.calls.append(list(texts))
            return super().encode(texts)

    PSMScorer(Counting()).score(handshake, handshake)
    (texts,) = Counting.calls
    assert len(texts) == len(set(texts))


def test_micro_adds_counts():
    total = micro([PRF.of(1, 2, 4), PRF.of(3, 4, 4)])
    assert (total.matched, total.extracted, total.gold) == (4, 6, 8)
    assert total.f1 == pytest.approx(4 / 7)
    with pytest.raises(ValueError, match="scores: got none"):
        micro([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "loose"}, "metric: got 'loose'"),
        ({"threshold": 0}, "threshold: got 0"),
        ({"threshold": float("nan")}, "threshold: got nan"),
        ({"embedder": "bert"}, "embedder: got 'bert', wants one of all-MiniLM-L6-v2"),
        ({"metric": "strict", "partial": True}, "partial"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PSMScorer(**options)


def test_wrong_types_are_refused(handshake):
    with pytest.raises(TypeError, match="embedder: got int"):
        PSMScorer(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pred: got dict"):
        PSMScorer(LetterPairs()).score({}, handshake)  # type: ignore[arg-type]

    class Flat:
        def encode(self, texts):
            return np.zeros(3)

    with pytest.raises(ValueError, match="embedder: got vectors of shape"):
        PSMScorer(Flat()).score(handshake, handshake)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1j, "a", None])
def test_vectors_that_are_no_finite_numbers_are_refused(value):
    class Odd:
        def encode(self, texts):
            return np.array([[value]] * len(texts))

    one = ProtocolStateMachine(states=["A"], transitions=[])
    with pytest.raises(ValueError, match=r"embedder: got .* wants real and finite numbers"):
        PSMScorer(Odd()).score(one, one)


@pytest.mark.parametrize("threshold", ["0.5", None, True])
def test_thresholds_are_numbers(threshold):
    with pytest.raises(TypeError, match="threshold: got"):
        PSMScorer("exact", threshold)
