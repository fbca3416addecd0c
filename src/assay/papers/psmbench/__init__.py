"""Protocol state machines out of specifications: extract them, score them, draw them.

    from assay.papers.psmbench import ProtocolStateMachine, PSMScorer
    PSMScorer().score(pred, gold).transitions.f1

"PSMBench: A Benchmark and Dataset for Evaluating LLMs Extraction of Protocol State Machines from
RFC Specifications", Shen, Luo, Karim and Bertino, NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.psmbench.bench import PsmBench
    from assay.papers.psmbench.document import RFCDocument, Section
    from assay.papers.psmbench.drawing import draw
    from assay.papers.psmbench.extract import Extraction, PSMExtractor
    from assay.papers.psmbench.machine import MachineError, ProtocolStateMachine, Transition
    from assay.papers.psmbench.merging import merge
    from assay.papers.psmbench.repair import Issue
    from assay.papers.psmbench.score import PRF, Match, PSMScore, PSMScorer

__all__ = [
    "PRF",
    "Extraction",
    "Issue",
    "MachineError",
    "Match",
    "PSMExtractor",
    "PSMScore",
    "PSMScorer",
    "ProtocolStateMachine",
    "PsmBench",
    "RFCDocument",
    "Section",
    "Transition",
    "draw",
    "merge",
]

_HOMES = {
    "bench": ["PsmBench"],
    "document": ["RFCDocument", "Section"],
    "drawing": ["draw"],
    "extract": ["Extraction", "PSMExtractor"],
    "machine": ["MachineError", "ProtocolStateMachine", "Transition"],
    "merging": ["merge"],
    "repair": ["Issue"],
    "score": ["PRF", "Match", "PSMScore", "PSMScorer"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
