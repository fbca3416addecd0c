"""The benchmark's data: true machines, RFC sections, published model outputs, leaderboard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from assay.papers.psmbench.document import Section, read_sections
from assay.papers.psmbench.machine import ProtocolStateMachine
from assay.papers.psmbench.score import PRF, Metric, PSMScore, PSMScorer, micro
from assay.toolkits.data import find_data

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Standing:
    """One model over all protocols: micro averages, and means of the protocols' F1."""

    states: PRF
    transitions: PRF
    macro_state_f1: float
    macro_transition_f1: float

    @classmethod
    def of(cls, scores: list[PSMScore]) -> Standing:
        return cls(
            states=micro([score.states for score in scores]),
            transitions=micro([score.transitions for score in scores]),
            macro_state_f1=sum(score.states.f1 for score in scores) / len(scores),
            macro_transition_f1=sum(score.transitions.f1 for score in scores) / len(scores),
        )


class PsmBench:
    """The data set: 14 protocols, 9 published models.

    Args:
        root: a folder with `ground_truth`, `model_outputs` and `segments`, or a clone of the
            official repository; None for where `assay data fetch psmbench` or ASSAY_DATA put it.

    Raises:
        MissingData: where it is not there.
        ValueError: where `root` has neither layout.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = find_data("psmbench") if root is None else Path(root)
        self._official = (self.root / "fsm").is_dir()
        if not self._official and not (self.root / "ground_truth").is_dir():
            raise ValueError(
                f"root: got {self.root}, wants a folder with ground_truth/ and model_outputs/ or "
                "a clone of github.com/Zilinlin/RFC_PSM_Benchmark"
            )

    @cached_property
    def protocols(self) -> tuple[str, ...]:
        """Names of the protocols that have a true machine, sorted."""
        if self._official:
            found = [path.parent.name for path in self.root.glob("*/*_state_machine.json")]
        else:
            found = [path.stem for path in self.root.glob("ground_truth/*.json")]
        return tuple(sorted(found))

    @cached_property
    def published_models(self) -> tuple[str, ...]:
        """Models with a published output, sorted; ":" in a name is written as "-"."""
        return tuple(sorted({model for _, model in self._published}))

    @cached_property
    def _published(self) -> dict[tuple[str, str], Path]:
        # The fields are compared as a whole: names of models contain one another.
        folder, suffix = ("fsm", "_final_fsm") if self._official else ("model_outputs", "")
        found = {}
        for path in sorted((self.root / folder).glob("*.json")):
            protocol, _, model = path.stem.removesuffix(suffix).partition("_")
            found[protocol, model.replace(":", "-")] = path
        return found

    def _one(self, protocol: str, folder: str, official: str, ours: str) -> Path:
        if protocol not in self.protocols:
            raise ValueError(
                f"protocol: got {protocol!r}, wants one of {', '.join(self.protocols)}"
            )
        where = self.root / (protocol if self._official else folder)
        pattern = official if self._official else ours
        found = sorted(where.glob(pattern))
        if not found:
            raise FileNotFoundError(f"{where / pattern}: no such file")
        return found[0]

    def ground_truth(self, protocol: str) -> ProtocolStateMachine:
        """The true machine. Raises ValueError for an unknown protocol or a malformed file."""
        path = self._one(protocol, "ground_truth", "*_state_machine.json", f"{protocol}.json")
        return ProtocolStateMachine.from_file(path)

    def segments(self, protocol: str) -> list[Section]:
        """The sections of the RFC as the paper gave them to models. Raises as `ground_truth`."""
        pattern = "*_segments.json"
        return read_sections(self._one(protocol, "segments", pattern, f"{protocol}_{pattern}"))

    def published(self, protocol: str, model: str) -> ProtocolStateMachine:
        """A model's published machine, read leniently (see `ProtocolStateMachine.repairs`).

        Raises:
            ValueError: where there is none of that protocol and model, or it cannot be read.
        """
        path = self._published.get((protocol, model.replace(":", "-")))
        if path is None:
            raise ValueError(
                f"protocol, model: got {protocol!r}, {model!r}, wants one of "
                f"{', '.join(self.protocols)} and one of {', '.join(self.published_models)}"
            )
        return ProtocolStateMachine.from_file(path, lenient=True)

    def scores(self, model: str, scorer: PSMScorer) -> list[PSMScore]:
        """A published model's score on every protocol, in the order of `protocols`."""
        return [
            scorer.score(self.published(p, model), self.ground_truth(p)) for p in self.protocols
        ]

    def leaderboard(
        self, metric: Metric = "official", scorer: PSMScorer | None = None
    ) -> pd.DataFrame:
        """The published models, best micro F1 of states first; one row each.

        Args:
            metric: "official" or "strict".
            scorer: used in place of ``PSMScorer(metric=metric)`` where given.

        Returns:
            Index `model`; counts `extracted_states`, `matched_states`, `extracted_transitions`,
            `matched_transitions`; micro averages `state_precision`, `state_recall`, `state_f1`,
            `transition_precision`, `transition_recall`, `transition_f1`; `macro_state_f1` and
            `macro_transition_f1`.
        """
        import pandas as pd

        scorer = scorer or PSMScorer(metric=metric)
        rows = {}
        for model in self.published_models:
            standing = Standing.of(self.scores(model, scorer))
            row: dict[str, float] = {}
            for name, prf in (("state", standing.states), ("transition", standing.transitions)):
                row |= {
                    f"extracted_{name}s": prf.extracted,
                    f"matched_{name}s": prf.matched,
                    f"{name}_precision": prf.precision,
                    f"{name}_recall": prf.recall,
                    f"{name}_f1": prf.f1,
                }
            row |= {
                "macro_state_f1": standing.macro_state_f1,
                "macro_transition_f1": standing.macro_transition_f1,
            }
            rows[model] = row
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
        return table.sort_values("state_f1", ascending=False)
