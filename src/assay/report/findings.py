"""What the page says: measurements judged claim by claim. No HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.report.interval import Strip, is_range, quantity, strips
from assay.runner import missing_needs, package_needs
from assay.study import Claim, Need, Outcome, Protocol, Results, Scale, Study, Trial, Verdict
from assay.verdicts import measuring, verdicts

SIZES = tuple(Scale)
"""Scales from the smallest to the largest."""

DECIDED = (Outcome.SUPPORTED, Outcome.CONTRADICTED, Outcome.NOT_REPRODUCED)


@dataclass(frozen=True)
class Origin:
    """Where results come from: the reader's own ledger, or files shipped with assay."""

    own: bool
    machine: str
    date: str

    @property
    def place(self) -> str:
        """Machine and date, as far as they are known."""
        return ", ".join(filter(None, (self.machine, self.date))) or "unknown machine"

    @property
    def label(self) -> str:
        """As the page prints it: "shipped: <machine>, <date>"."""
        return f"{'your ledger' if self.own else 'shipped'}: {self.place}"


@dataclass(frozen=True)
class Measurement:
    """All results of one paper at one scale from one origin.

    `facts` are its provenance, in the order in which they are printed. `version` is the study's
    version then; results of another version than today's are shown but not judged.
    """

    scale: Scale
    origin: Origin
    results: Results
    version: int
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique within a paper and fit for a file name: "own-laptop"."""
        return f"{'own' if self.origin.own else 'shipped'}-{self.scale}"


@dataclass(frozen=True)
class Finding:
    """A claim judged on one measurement."""

    measurement: Measurement
    verdict: Verdict
    quantity: str
    is_range: bool
    strip: Strip | None

    @property
    def constant(self) -> bool:
        """True for exact measurements that all gave the same value."""
        return self.is_range and self.verdict.low == self.verdict.high

    @property
    def decided(self) -> bool:
        """True where the verdict speaks for or against the claim."""
        return self.verdict.outcome in DECIDED


@dataclass(frozen=True)
class Wanted:
    """What measuring a claim at a scale takes; `missing` is what this machine lacks of it."""

    scale: Scale
    protocol: Protocol
    trials: int
    seconds: float
    needs: tuple[Need, ...]
    missing: tuple[Need, ...]
    command: str


@dataclass(frozen=True)
class ClaimFindings:
    """A claim with everything that was measured of it, largest scale first, own before shipped."""

    claim: Claim
    findings: tuple[Finding, ...]
    wanted: tuple[Wanted, ...]

    @property
    def headline(self) -> Finding | None:
        """The finding that stands for the claim at a glance.

        The largest scale that decided; where none did, the largest that was run; at equal scale
        the reader's own. None where the claim was never run.
        """
        return next((f for f in self.findings if f.decided), next(iter(self.findings), None))

    @property
    def main(self) -> tuple[Finding, ...]:
        """The findings to print in full: a smoke run says little beside a larger one."""
        larger = tuple(f for f in self.findings if f.measurement.scale is not Scale.SMOKE)
        return larger or self.findings

    @property
    def minor(self) -> tuple[Finding, ...]:
        """The findings that are not among the main ones."""
        return tuple(f for f in self.findings if f not in self.main)

    @property
    def outcome(self) -> Outcome | None:
        """The headline's; of a claim never run `NEEDS` where no scale can run here, else None."""
        if self.headline:
            return self.headline.verdict.outcome
        real = [w for w in self.wanted if w.scale is not Scale.SMOKE] or self.wanted
        return Outcome.NEEDS if all(w.missing for w in real) else None

    @property
    def disagreement(self) -> bool:
        """True where one measurement supports the claim and another speaks against it."""
        return len({f.verdict.outcome is Outcome.SUPPORTED for f in self.findings if f.decided}) > 1

    @property
    def unrun(self) -> tuple[Wanted, ...]:
        """The scales that the reader has not run and would learn from: those that others have
        measured, and all larger ones where there is nothing but a smoke run."""
        own = {f.measurement.scale for f in self.findings if f.measurement.origin.own}
        seen = {f.measurement.scale for f in self.findings}
        worth = set(SIZES) if seen == {Scale.SMOKE} else seen - {Scale.SMOKE}
        return tuple(w for w in self.wanted if w.scale in worth - own)


def tally(claims: Sequence[ClaimFindings]) -> dict[Outcome | None, int]:
    """How many claims have each outcome, in the order of `Outcome`; None counts the unmeasured."""
    counts = Counter(c.outcome for c in claims)
    return {outcome: counts[outcome] for outcome in (*Outcome, None) if counts[outcome]}


def order(measurement: Measurement) -> tuple[int, bool]:
    """Sort key: largest scale first, own before shipped."""
    return -SIZES.index(measurement.scale), not measurement.origin.own


def examine(slug: str, study: Study, measurements: Sequence[Measurement]) -> list[ClaimFindings]:
    """Every claim of a study, judged on every measurement that holds trials of it."""
    planned = {scale: measuring(study, scale) for scale in SIZES}
    judged = [
        (m, verdict)
        for m in sorted(measurements, key=order)
        if m.version == study.version
        for verdict in verdicts(slug, m.scale, m.results, here=m.origin.own)
        if m.results.of(planned[m.scale][verdict.claim])
    ]
    return [
        ClaimFindings(
            claim,
            findings=tuple(_findings(claim, [j for j in judged if j[1].claim == claim.id])),
            wanted=tuple(
                _wanted(slug, claim, scale, planned[scale][claim.id])
                for scale in SIZES
                if scale in claim.protocol
            ),
        )
        for claim in study.claims
    ]


def _findings(claim: Claim, judged: Sequence[tuple[Measurement, Verdict]]) -> Iterator[Finding]:
    for scale in SIZES[::-1]:
        here = [(m, v) for m, v in judged if m.scale is scale and scale in claim.protocol]
        if not here:
            continue
        test = claim.test_at(scale)
        drawn = strips(test, [verdict for _, verdict in here])
        for (measurement, verdict), strip in zip(here, drawn, strict=True):
            yield Finding(measurement, verdict, quantity(test), is_range(test), strip)


def _wanted(slug: str, claim: Claim, scale: Scale, trials: Sequence[Trial]) -> Wanted:
    own = tuple(dict.fromkeys(need for t in trials for need in t.needs))
    return Wanted(
        scale=scale,
        protocol=claim.protocol[scale],
        trials=len(trials),
        seconds=sum(t.cost for t in trials),
        needs=own,
        missing=missing_needs(slug, (*package_needs(slug), *own)),
        command=f"assay run {slug} --scale {scale} --claims {claim.id}",
    )
