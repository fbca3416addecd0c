"""Merging partial state machines without a language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import networkx as nx
import numpy as np

from assay.papers.psmbench.machine import ProtocolStateMachine, Transition
from assay.papers.psmbench.similarity import strict_form
from assay.toolkits.embedding import Embedder


def merge(
    partials: Sequence[ProtocolStateMachine],
    embedder: Embedder | None = None,
    threshold: float = 0.85,
) -> ProtocolStateMachine:
    """One machine out of several.

    States are the same where their normal forms are equal or, given an embedder, where the forms'
    cosine similarity reaches the threshold; that relation is closed transitively. Each group keeps
    its most frequent name (of equally frequent ones the first). Transitions that agree in the
    normal form of all four fields are kept once. The initial state is the first one that no
    transition enters from elsewhere, else the first state; final states are those that no
    transition leaves.

    Args:
        partials: machines of parts of a specification; undeclared states count as declared.
        embedder: None for normal forms only.
        threshold: in (0, 1].

    Raises:
        ValueError: for a threshold out of range.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: got {threshold}, wants 0 < threshold <= 1")
    uses = Counter(
        name
        for partial in partials
        for name in [
            *partial.states,
            *(end for t in partial.transitions for end in (t.source, t.target)),
        ]
        if name.strip()
    )
    names = _unified(list(uses), uses, embedder, threshold)

    transitions: dict[tuple[str, ...], Transition] = {}
    for partial in partials:
        for t in partial.transitions:
            if t.source in names and t.target in names:
                source, target = names[t.source], names[t.target]
                key = (source, target, strict_form(t.event), strict_form(t.action))
                edge = {"from": source, "event": t.event, "action": t.action, "to": target}
                transitions.setdefault(key, Transition.model_validate(edge))
    states = list(dict.fromkeys(names.values()))
    edges = list(transitions.values())
    entered = {t.target for t in edges if t.source != t.target}
    left = {t.source for t in edges}
    sources = [state for state in states if state not in entered and state in left]
    return ProtocolStateMachine(
        states=states,
        initial_state=next(iter([*sources, *states]), ""),
        final_states=[state for state in states if state not in left],
        transitions=edges,
    )


def _unified(
    names: list[str], uses: Counter[str], embedder: Embedder | None, threshold: float
) -> dict[str, str]:
    """Each name -> the name of its group."""
    forms = [strict_form(name) for name in names]
    groups = nx.utils.UnionFind(range(len(names)))
    first: dict[str, int] = {}
    for index, form in enumerate(forms):
        # Without letters or digits there is nothing that could make two names the same.
        groups.union(first.setdefault(form or names[index], index), index)
    if embedder is not None and names:
        vectors = embedder.encode(forms)
        for i, j in np.argwhere(np.triu(vectors @ vectors.T >= threshold, k=1)):
            groups.union(int(i), int(j))
    best: dict[int, str] = {}
    for index, name in enumerate(names):
        root = groups[index]
        if root not in best or uses[name] > uses[best[root]]:
            best[root] = name
    return {name: best[groups[index]] for index, name in enumerate(names)}
