"""Machines with a known truth: a random generator, a renderer to prose, and damage by degrees."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from assay.papers.psmbench.machine import ProtocolStateMachine, Transition
from assay.papers.psmbench.similarity import strict_form

_STATES = (
    "Idle",
    "Listening",
    "Connecting",
    "Established",
    "Authenticated",
    "Transferring",
    "Suspended",
    "Draining",
    "Closing",
    "Closed",
    "Probing",
    "Negotiating",
    "Rebinding",
    "Waiting",
    "Recovering",
    "Aborted",
)
_COMMANDS = (
    "HELLO",
    "OPEN",
    "AUTH",
    "DATA",
    "ACK",
    "PING",
    "RESET",
    "QUIT",
    "RESUME",
    "OFFER",
    "SELECT",
    "RENEW",
    "ABORT",
    "STATUS",
    "TOKEN",
    "BYE",
)
_REPLIES = (
    "log failure",
    "reply 220",
    "reply 250",
    "reply 421",
    "send ACK",
    "set timer",
    "stop timer",
)
_DISTRACTORS = (
    "Implementations should limit the memory they set aside for peers.",
    "All numbers are sent in network byte order.",
    "The key words in this document are to be read as usual.",
    "Earlier versions of this protocol used another encoding.",
)


def random_machine(
    n_states: int, n_transitions: int, rng: np.random.Generator
) -> ProtocolStateMachine:
    """A machine whose states can all be reached from the first one.

    Args:
        n_states: 2 to 16.
        n_transitions: at least ``n_states - 1``; no two have the same source and event, so at most
            ``16 * n_states``.
        rng: draws it.

    Raises:
        ValueError: for a number out of range.
    """
    if not 2 <= n_states <= len(_STATES):
        raise ValueError(f"n_states: got {n_states}, wants 2 to {len(_STATES)}")
    most = n_states * len(_COMMANDS)
    if not n_states - 1 <= n_transitions <= most:
        raise ValueError(f"n_transitions: got {n_transitions}, wants {n_states - 1} to {most}")
    states = [_STATES[i] for i in rng.permutation(len(_STATES))[:n_states]]
    # A random tree first: each state is entered from one that is already reachable. It takes each
    # (source, event) once, as do the edges that follow.
    pairs = [(i, j) for i in range(n_states) for j in range(len(_COMMANDS))]
    order = [pairs[i] for i in rng.permutation(len(pairs))]
    chosen: list[tuple[int, int, int]] = []
    for target in range(1, n_states):
        source, event = next(pair for pair in order if pair[0] < target)
        order.remove((source, event))
        chosen.append((source, event, target))
    for source, event in order[: n_transitions - len(chosen)]:
        chosen.append((source, event, int(rng.integers(n_states))))
    transitions = [
        _edge(
            states[source],
            f"receive {_COMMANDS[event]}",
            _REPLIES[int(rng.integers(len(_REPLIES)))],
            states[target],
        )
        for source, event, target in chosen
    ]
    left = {t.source for t in transitions}
    return ProtocolStateMachine(
        states=states,
        initial_state=states[0],
        final_states=[state for state in states if state not in left],
        transitions=transitions,
    )


def render(machine: ProtocolStateMachine, distractors: int, rng: np.random.Generator) -> str:
    """The machine as prose: a sentence for each transition, in random order, among `distractors`
    sentences that say nothing about it."""
    sentences = [
        f"In state {t.source}, on {t.event}, {t.action} and go to state {t.target}."
        for t in machine.transitions
    ]
    sentences += [_DISTRACTORS[i % len(_DISTRACTORS)] for i in range(distractors)]
    return "\n".join(sentences[i] for i in rng.permutation(len(sentences)))


def delete_transitions(
    machine: ProtocolStateMachine, share: float, rng: np.random.Generator
) -> ProtocolStateMachine:
    """Without a random share (in [0, 1]) of the transitions; the states stay."""
    chosen = _chosen(len(machine.transitions), share, rng)
    kept = [t for i, t in enumerate(machine.transitions) if i not in chosen]
    return machine.model_copy(update={"transitions": kept})


def shuffle_targets(
    machine: ProtocolStateMachine, share: float, rng: np.random.Generator
) -> ProtocolStateMachine:
    """With the targets of a random share (in [0, 1]) of the transitions passed on in a circle."""
    chosen = list(_chosen(len(machine.transitions), share, rng))
    edges = list(machine.transitions)
    for i, j in zip(chosen, chosen[1:] + chosen[:1], strict=True):
        t = machine.transitions[i]
        edges[i] = _edge(t.source, t.event, t.action, machine.transitions[j].target)
    return machine.model_copy(update={"transitions": edges})


def rename_states(
    machine: ProtocolStateMachine, share: float, rng: np.random.Generator
) -> ProtocolStateMachine:
    """With a random share (in [0, 1]) of the states called by synonyms, word by word.

    A state of which no word has a synonym here keeps its name.
    """
    new = {
        machine.states[i]: synonym(machine.states[i])
        for i in _chosen(len(machine.states), share, rng)
    }

    def name(state: str) -> str:
        return new.get(state, state)

    return ProtocolStateMachine(
        states=[name(state) for state in machine.states],
        initial_state=name(machine.initial_state),
        final_states=[name(state) for state in machine.final_states],
        transitions=[
            _edge(name(t.source), t.event, t.action, name(t.target)) for t in machine.transitions
        ],
    )


DAMAGE: dict[
    str, Callable[[ProtocolStateMachine, float, np.random.Generator], ProtocolStateMachine]
] = {"delete": delete_transitions, "rename": rename_states, "shuffle": shuffle_targets}
"""Ways to damage a machine by a share in [0, 1]."""


def synonym(state: str) -> str:
    """The state's name with its words replaced by synonyms; itself where none is known."""
    words = strict_form(state).split()
    replaced = [_synonyms().get(word, word) for word in words]
    return state if replaced == words else "_".join(replaced)


def _chosen(count: int, share: float, rng: np.random.Generator) -> dict[int, None]:
    if not 0 <= share <= 1:
        raise ValueError(f"share: got {share}, wants 0 to 1")
    # The same stream gives the same order, so a larger share chooses a superset.
    return dict.fromkeys(int(i) for i in rng.permutation(count)[: round(share * count)])


def _edge(source: str, event: str, action: str, target: str) -> Transition:
    return Transition.model_validate(
        {"from": source, "event": event, "action": action, "to": target}
    )


@cache
def _synonyms() -> dict[str, str]:
    table: dict[str, str] = json.loads(Path(__file__).with_name("synonyms.json").read_text("utf-8"))
    return table
