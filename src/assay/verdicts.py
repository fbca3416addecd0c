"""What results say of every claim of a paper."""

from __future__ import annotations

from assay import registry
from assay.runner import missing_needs, package_needs
from assay.study import Results, Scale, Study, Trial, Verdict
from assay.study.judge import judge


def measuring(study: Study, scale: Scale) -> dict[str, list[Trial]]:
    """The trials that measure each claim at a scale; the claims are in the study's order."""
    trials = list(study.trials(scale))
    return {claim.id: [t for t in trials if claim.id in t.claims] for claim in study.claims}


def verdicts(slug: str, scale: Scale, results: Results, *, here: bool = True) -> list[Verdict]:
    """One verdict per claim, in the study's order.

    Args:
        slug: the paper.
        scale: whose trials and tests count.
        results: what was measured at that scale by the study's current version.
        here: whether they were measured on this machine; then what is missing here explains why
            a trial has no result. Elsewhere only what the trials declare can, where none was run.
    """
    study = registry.study(slug)
    found = []
    for claim_id, trials in measuring(study, scale).items():
        declared = tuple(dict.fromkeys(need for t in trials for need in t.needs))
        if here:
            missing = missing_needs(slug, (*package_needs(slug), *declared))
        else:
            missing = () if results.of(trials) else declared
        found.append(judge(study.claim(claim_id), scale, trials, results, missing))
    return found
