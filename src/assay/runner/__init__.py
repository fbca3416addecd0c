"""From a study to a filled ledger: plan, executor, worker processes."""

from assay.runner.driver import execute
from assay.runner.environment import capture_environment
from assay.runner.events import Event, RunFinished, RunStarted, Summary, TrialFinished, TrialStarted
from assay.runner.executor import Answer, Executor
from assay.runner.local import LocalExecutor
from assay.runner.needs import missing_needs, package_needs
from assay.runner.plan import (
    LeftOut,
    Plan,
    PlanError,
    Planned,
    UnknownClaim,
    make_plan,
    make_plans,
)

__all__ = [
    "Answer",
    "Event",
    "Executor",
    "LeftOut",
    "LocalExecutor",
    "Plan",
    "PlanError",
    "Planned",
    "RunFinished",
    "RunStarted",
    "Summary",
    "TrialFinished",
    "TrialStarted",
    "UnknownClaim",
    "capture_environment",
    "execute",
    "make_plan",
    "make_plans",
    "missing_needs",
    "package_needs",
]
