"""Scoring an extracted state machine against the true one: the published metric and a strict one.

Source: the paper's evaluation script (github.com/Zilinlin/RFC_PSM_Benchmark, eval_fsm_sim.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from assay.papers.psmbench.machine import ProtocolStateMachine, Transition
from assay.papers.psmbench.similarity import (
    Pairwise,
    Similarity,
    official_form,
    similarity,
    strict_form,
)
from assay.toolkits.embedding import Embedder, MiniLM

Metric: TypeAlias = Literal["official", "strict"]
Kind: TypeAlias = Literal["state", "transition"]
Pair: TypeAlias = tuple[int, int]
Pairing: TypeAlias = tuple[int, int, float]


@dataclass(frozen=True)
class PRF:
    """Precision, recall and their harmonic mean, with the counts they come from.

    In the official metric the precision of states can exceed 1 (see `PSMScorer`).

    Args:
        matched, extracted, gold: how many were found right, found, and true.
        precision, recall, f1: ``matched / extracted``, ``matched / gold``, harmonic mean; >= 0.
    """

    matched: int
    extracted: int
    gold: int
    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, matched: int, extracted: int, gold: int, digits: int | None = None) -> PRF:
        """From counts; what would divide by zero is 0.

        Args:
            matched, extracted, gold: counts >= 0.
            digits: round precision and recall to so many places before F1 is computed from them,
                and F1 as well; None for no rounding.
        """
        precision = matched / extracted if extracted else 0.0
        recall = matched / gold if gold else 0.0
        if digits is not None:
            precision, recall = round(precision, digits), round(recall, digits)
        total = precision + recall
        f1 = 2 * precision * recall / total if total else 0.0
        f1 = f1 if digits is None else round(f1, digits)
        return cls(matched, extracted, gold, precision, recall, f1)

    def __add__(self, other: PRF) -> PRF:
        """The micro average: counts are added."""
        return PRF.of(
            self.matched + other.matched, self.extracted + other.extracted, self.gold + other.gold
        )


@dataclass(frozen=True)
class Match:
    """A true state or transition and the extracted one that was found to be the same.

    Args:
        kind: "state" or "transition".
        gold, predicted: the true one and the extracted one, as text.
        similarity: in [-1, 1]; of the names for states, of the labels for transitions.
    """

    kind: Kind
    gold: str
    predicted: str
    similarity: float


@dataclass(frozen=True)
class PSMScore:
    """The outcome for one machine.

    Args:
        states, transitions: the figures.
        matches: pairs found to be the same, states first.
        unmatched_gold: true ones that were missed, as (kind, text).
        spurious: extracted ones that match nothing, as (kind, text).
    """

    states: PRF
    transitions: PRF
    matches: tuple[Match, ...]
    unmatched_gold: tuple[tuple[Kind, str], ...]
    spurious: tuple[tuple[Kind, str], ...]


class PSMScorer:
    """Compares state machines by the similarity of their names and labels.

    ``metric="official"`` is the published procedure. Each true state takes the extracted state
    most similar to it, if that reaches the threshold; several may take the same one, so precision
    can exceed 1. Extracted transitions are taken in the order of the file; each takes the first
    remaining true one whose end points and label (event and action joined without a blank) all
    reach the threshold.

    ``metric="strict"`` repairs what makes these figures hard to compare: state names have camel
    case split, states and transitions are assigned one to one with the largest sum of
    similarities, end points must be the assigned states, undeclared and repeated states count as
    spurious. Precision and recall cannot exceed 1 and the order of the files does not matter.

    Args:
        embedder: "all-MiniLM-L6-v2" (the paper's), "exact", "token-sort", "tfidf", or an object
            with ``encode(texts) -> (n, d)`` unit vectors.
        threshold: least similarity of a match, in (0, 1]; the paper uses 0.5.
        metric: "official" or "strict".
        partial: a label passes if the events or the actions alone do (official metric only; a
            setting of the published script).
        one_to_one: the official comparisons with optimal assignments in place of the official
            ones, to see what these contribute (official metric only).

    Raises:
        ValueError, TypeError: for an argument out of its range.
    """

    def __init__(
        self,
        embedder: str | Embedder | Similarity = MiniLM.name,
        threshold: float = 0.5,
        metric: Metric = "official",
        *,
        partial: bool = False,
        one_to_one: bool = False,
    ) -> None:
        if metric not in ("official", "strict"):
            raise ValueError(f"metric: got {metric!r}, wants 'official' or 'strict'")
        if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.floating):
            raise TypeError(f"threshold: got {threshold!r}, wants a number")
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold: got {threshold}, wants 0 < threshold <= 1")
        if metric == "strict" and (partial or one_to_one):
            raise ValueError(
                "partial, one_to_one: got one of them with the strict metric, "
                "wants metric='official'"
            )
        self.similarity = similarity(embedder)
        self.threshold = threshold
        self.metric = metric
        self.partial = partial
        self.one_to_one = one_to_one

    def score(self, pred: ProtocolStateMachine, gold: ProtocolStateMachine) -> PSMScore:
        """Scores the extracted machine `pred` against the true machine `gold`."""
        for name, machine in (("pred", pred), ("gold", gold)):
            if not isinstance(machine, ProtocolStateMachine):
                raise TypeError(
                    f"{name}: got {type(machine).__name__}, wants a ProtocolStateMachine"
                )
        return self._official(pred, gold) if self.metric == "official" else self._strict(pred, gold)

    def _official(self, pred: ProtocolStateMachine, gold: ProtocolStateMachine) -> PSMScore:
        strings = _Strings(self.similarity)
        states = strings.block(map(official_form, gold.states), map(official_form, pred.states))
        fields: list[Callable[[Transition], str]] = [
            lambda t: t.source,
            lambda t: t.target,
            *(
                [lambda t: t.event, lambda t: t.action]
                if self.partial
                else [lambda t: t.event + t.action]
            ),
        ]
        blocks = [
            strings.block(map(field, pred.transitions), map(field, gold.transitions))
            for field in fields
        ]
        compare = strings.compare()
        alike = states(compare)
        source, target, *labels = (block(compare) for block in blocks)
        label = np.maximum.reduce(labels)
        passes = np.minimum(np.minimum(source, target), label) >= self.threshold

        if self.one_to_one:
            state_pairs = _assign(alike, alike >= self.threshold)
            edge_pairs = _assign(np.ones_like(label), passes)
        else:
            state_pairs = _best(alike, self.threshold)
            edge_pairs = _first_come(passes)
        return _report(
            pred.states,
            gold.states,
            pred.transitions,
            gold.transitions,
            [(j, i, float(alike[i, j])) for i, j in state_pairs],
            [(i, j, float(label[i, j])) for i, j in edge_pairs],
            # The published script computes F1 of states from rounded figures; of transitions it
            # rounds for printing only.
            state_digits=3,
        )

    def _strict(self, pred: ProtocolStateMachine, gold: ProtocolStateMachine) -> PSMScore:
        # Sorting makes ties fall the same way whatever the order of the files.
        pred_states, gold_states = sorted(set(pred.states)), sorted(set(gold.states))
        repeated = list(pred.states)
        for state in pred_states:
            repeated.remove(state)
        pred_edges, gold_edges = (
            sorted(pred.transitions, key=_fields),
            sorted(gold.transitions, key=_fields),
        )
        strings = _Strings(self.similarity)
        states = strings.block(map(strict_form, pred_states), map(strict_form, gold_states))
        labels = strings.block(map(_label, pred_edges), map(_label, gold_edges))
        compare = strings.compare()

        alike = states(compare).astype(np.float64)
        same = np.array([[p == g for g in gold_states] for p in pred_states]).reshape(alike.shape)
        pairs = _assign(alike + _TIE * same, alike >= self.threshold)
        stands_for = {pred_states[i]: gold_states[j] for i, j in pairs}

        label = labels(compare).astype(np.float64)
        ends = np.array(
            [
                [
                    stands_for.get(p.source) == g.source and stands_for.get(p.target) == g.target
                    for g in gold_edges
                ]
                for p in pred_edges
            ],
            bool,
        ).reshape(label.shape)
        edge_pairs = _assign(label, ends & (label >= self.threshold))
        return _report(
            [*pred_states, *repeated, *pred.undeclared()],
            gold_states,
            pred_edges,
            gold_edges,
            [(i, j, float(alike[i, j])) for i, j in pairs],
            [(i, j, float(label[i, j])) for i, j in edge_pairs],
        )


_TIE = 1e-6
"""Added for equal spelling, so that of two names with one normal form each keeps its own."""


class _Strings:
    """Collects the strings of all comparisons, so that they are embedded once and together."""

    def __init__(self, similarity: Similarity) -> None:
        self._similarity = similarity
        self._index: dict[str, int] = {}

    def block(
        self, rows: Sequence[str] | map[str], columns: Sequence[str] | map[str]
    ) -> Callable[[Pairwise], np.ndarray]:
        """Registers strings; the result gives their similarities once `compare` is known."""
        i, j = self._register(rows), self._register(columns)
        # Names repeat in every transition: compare distinct ones only, then spread them.
        (left, spread_left), (right, spread_right) = (
            np.unique(np.array(index, np.intp), return_inverse=True) for index in (i, j)
        )

        def similarities(compare: Pairwise) -> np.ndarray:
            if not i or not j:
                return np.zeros((len(i), len(j)), np.float32)
            return compare(left, right)[spread_left][:, spread_right]

        return similarities

    def _register(self, texts: Sequence[str] | map[str]) -> list[int]:
        return [self._index.setdefault(text, len(self._index)) for text in texts]

    def compare(self) -> Pairwise:
        return self._similarity.over(list(self._index))


def _best(alike: np.ndarray, threshold: float) -> list[Pair]:
    """Each row takes its largest column, if that reaches the threshold."""
    if not alike.size:
        return []
    best = alike.argmax(axis=1)
    return [(i, int(j)) for i, j in enumerate(best) if alike[i, j] >= threshold]


def _first_come(passes: np.ndarray) -> list[Pair]:
    """Rows in order; each takes the first column that passes and is not yet taken."""
    free = np.ones(passes.shape[1], bool)
    pairs = []
    for i, row in enumerate(passes):
        candidates = row & free
        if candidates.any():
            j = int(candidates.argmax())
            free[j] = False
            pairs.append((i, j))
    return pairs


def _assign(weight: np.ndarray, allowed: np.ndarray) -> list[Pair]:
    """The one-to-one assignment of allowed pairs with the largest sum of weights (>= 0)."""
    rows, columns = linear_sum_assignment(np.where(allowed, weight, 0.0), maximize=True)
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if allowed[i, j]]


def _fields(t: Transition) -> tuple[str, str, str, str]:
    return t.source, t.event, t.action, t.target


def _label(t: Transition) -> str:
    return f"{t.event} {t.action}".strip()


def _report(
    pred_states: Sequence[str],
    gold_states: Sequence[str],
    pred_edges: Sequence[Transition],
    gold_edges: Sequence[Transition],
    states: list[Pairing],
    edges: list[Pairing],
    state_digits: int | None = None,
) -> PSMScore:
    matches: list[Match] = []
    unmatched: list[tuple[Kind, str]] = []
    spurious: list[tuple[Kind, str]] = []
    figures = []
    kinds: tuple[tuple[Kind, Sequence[object], Sequence[object], list[Pairing]], ...] = (
        ("state", pred_states, gold_states, states),
        ("transition", pred_edges, gold_edges, edges),
    )
    for kind, pred, gold, pairs in kinds:
        matches += [Match(kind, str(gold[j]), str(pred[i]), value) for i, j, value in pairs]
        used, found = {i for i, _, _ in pairs}, {j for _, j, _ in pairs}
        unmatched += [(kind, str(item)) for j, item in enumerate(gold) if j not in found]
        spurious += [(kind, str(item)) for i, item in enumerate(pred) if i not in used]
        figures.append((len(pairs), len(pred), len(gold)))
    return PSMScore(
        PRF.of(*figures[0], digits=state_digits),
        PRF.of(*figures[1]),
        tuple(matches),
        tuple(unmatched),
        tuple(spurious),
    )


def micro(scores: Sequence[PRF]) -> PRF:
    """The micro average: counts are added over machines, then turned into figures.

    Raises:
        ValueError: where there are no scores.
    """
    if not scores:
        raise ValueError("scores: got none, wants at least one")
    return list(itertools.accumulate(scores))[-1]
