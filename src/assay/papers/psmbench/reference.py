"""The published scoring procedure, string by string: short, slow, and what `score` must equal.

Source: eval_fsm_sim.py of the paper's repository, re-expressed.
"""

from __future__ import annotations

import numpy as np

from assay.papers.psmbench.machine import ProtocolStateMachine
from assay.papers.psmbench.score import PRF
from assay.papers.psmbench.similarity import official_form
from assay.toolkits.embedding import Embedder


def score_states(
    pred: ProtocolStateMachine,
    gold: ProtocolStateMachine,
    embedder: Embedder,
    threshold: float = 0.5,
) -> PRF:
    """States: each true one looks for its most similar extracted one."""
    matched = 0
    if pred.states and gold.states:
        true = embedder.encode([official_form(state) for state in gold.states])
        extracted = embedder.encode([official_form(state) for state in pred.states])
        matched = sum(bool(np.max(row) >= threshold) for row in true @ extracted.T)
    return PRF.of(matched, len(pred.states), len(gold.states), digits=3)


def score_transitions(
    pred: ProtocolStateMachine,
    gold: ProtocolStateMachine,
    embedder: Embedder,
    threshold: float = 0.5,
    partial: bool = False,
) -> PRF:
    """Transitions: greedy in file order, two encoder calls for every comparison of strings."""

    def cosine(left: str, right: str) -> float:
        return float(embedder.encode([left])[0] @ embedder.encode([right])[0])

    remaining = list(gold.transitions)
    for p in pred.transitions:
        for g in remaining:
            source, target = cosine(p.source, g.source), cosine(p.target, g.target)
            if partial:
                label = max(cosine(p.event, g.event), cosine(p.action, g.action))
            else:
                label = cosine(p.event + p.action, g.event + g.action)
            if min(source, target, label) >= threshold:
                remaining.remove(g)
                break
    matched = len(gold.transitions) - len(remaining)
    return PRF.of(matched, len(pred.transitions), len(gold.transitions))
