from __future__ import annotations

import pytest

from assay.papers.psmbench import ProtocolStateMachine, PsmBench
from assay.toolkits.data import MissingData, cache_dir
from assay.toolkits.embedding import CachedEmbedder, LetterPairs, MiniLM


@pytest.fixture(scope="session")
def bench() -> PsmBench:
    try:
        return PsmBench()
    except MissingData as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def minilm() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="session")
def embedder(minilm):
    """The paper's embedder, with the vectors that earlier runs of the study left behind."""
    return CachedEmbedder(minilm, cache_dir("psmbench") / "cpu")


@pytest.fixture
def letters() -> LetterPairs:
    return LetterPairs()


def machine(*edges: tuple[str, str, str, str], states: list[str] | None = None):
    """A machine from (from, event, action, to)."""
    names = states or list(dict.fromkeys(end for edge in edges for end in (edge[0], edge[3])))
    return ProtocolStateMachine.from_data(
        {
            "states": names,
            "initial_state": names[0] if names else "",
            "final_states": [],
            "transitions": [
                dict(zip(("from", "event", "action", "to"), edge, strict=True)) for edge in edges
            ],
        }
    )


@pytest.fixture
def make_machine():
    return machine


@pytest.fixture
def handshake():
    return machine(
        ("Closed", "passive open", "", "Listening"),
        ("Listening", "receive SYN", "send SYN ACK", "Received"),
        ("Received", "receive ACK", "", "Open"),
        ("Open", "receive FIN", "send ACK", "Closed"),
    )
