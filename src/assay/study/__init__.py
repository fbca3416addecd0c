"""The vocabulary: papers, claims, trials, studies, tests, verdicts. Pure values, no I/O."""

from assay.study.results import Result, Results, Status, grouped
from assay.study.study import Context, Figure, Study, Table
from assay.study.tests import Compare, Holds, Sample, Test, Threshold, Trend
from assay.study.verdict import Outcome, Verdict
from assay.study.vocabulary import (
    Claim,
    DataSource,
    Need,
    NeedKind,
    Paper,
    Param,
    Protocol,
    Scale,
    Trial,
)

__all__ = [
    "Claim",
    "Compare",
    "Context",
    "DataSource",
    "Figure",
    "Holds",
    "Need",
    "NeedKind",
    "Outcome",
    "Paper",
    "Param",
    "Protocol",
    "Result",
    "Results",
    "Sample",
    "Scale",
    "Status",
    "Study",
    "Table",
    "Test",
    "Threshold",
    "Trend",
    "Trial",
    "Verdict",
    "grouped",
]
