from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.report.findings import ClaimFindings, Measurement, Origin, examine, tally
from assay.study import Outcome, Result, Results, Scale

from .toy import ToyStudy, measured

OWN, SHIPPED = Origin(True, "CPU", "2026-11-28"), Origin(False, "Other CPU", "2026-11-01")


def _measurement(
    results: Sequence[Result], scale: Scale = Scale.LAPTOP, origin: Origin = OWN, version: int = 1
) -> Measurement:
    return Measurement(scale, origin, Results(results), version)


def _claims(study: ToyStudy, *measurements: Measurement) -> dict[str, ClaimFindings]:
    return {c.claim.id: c for c in examine("toy", study, measurements)}


def test_every_claim_has_its_verdict(toy: ToyStudy) -> None:
    claims = _claims(toy, _measurement(measured(toy, Scale.LAPTOP)))
    outcomes = {id: c.outcome for id, c in claims.items()}
    assert outcomes == {
        "C1": Outcome.SUPPORTED,
        "C2": Outcome.NOT_REPRODUCED,
        "C3": Outcome.SUPPORTED,
        "C4": Outcome.SUPPORTED,
        "C5": Outcome.INCONCLUSIVE,
        "C6": Outcome.NEEDS,
    }
    assert tally(list(claims.values())) == {
        Outcome.SUPPORTED: 3,
        Outcome.NOT_REPRODUCED: 1,
        Outcome.INCONCLUSIVE: 1,
        Outcome.NEEDS: 1,
    }


def test_a_claim_never_run_says_what_it_takes(toy: ToyStudy) -> None:
    claim = _claims(toy)["C6"]
    assert claim.findings == ()
    (wanted,) = claim.wanted
    assert wanted.command == "assay run toy --scale gpu --claims C6"
    assert (wanted.trials, wanted.seconds) == (5, 450)
    assert "corpus" in [need.name for need in wanted.missing]


def test_a_claim_that_could_run_here_is_unmeasured_and_not_in_need(toy: ToyStudy) -> None:
    assert _claims(toy)["C1"].outcome is None


def test_own_stands_before_shipped_and_larger_before_smaller(toy: ToyStudy) -> None:
    laptop, smoke = measured(toy, Scale.LAPTOP), measured(toy, Scale.SMOKE)
    claim = _claims(
        toy,
        _measurement(smoke, Scale.SMOKE),
        _measurement(laptop, origin=SHIPPED),
        _measurement(laptop),
    )["C1"]
    assert [f.measurement.name for f in claim.findings] == [
        "own-laptop",
        "shipped-laptop",
        "own-smoke",
    ]
    assert [f.measurement.name for f in claim.minor] == ["own-smoke"]
    assert claim.headline is claim.findings[0]


def test_a_decided_verdict_stands_before_an_undecided_larger_one(toy: ToyStudy) -> None:
    half = measured(toy, Scale.LAPTOP)[:4]
    claim = _claims(
        toy, _measurement(half), _measurement(measured(toy, Scale.LAPTOP), origin=SHIPPED)
    )["C1"]
    assert claim.findings[0].verdict.outcome is Outcome.INCONCLUSIVE
    assert claim.headline is claim.findings[1]


def test_measurements_that_disagree_are_marked(toy: ToyStudy) -> None:
    slow = measured(toy, Scale.LAPTOP, shift=-0.3)
    claim = _claims(
        toy, _measurement(slow), _measurement(measured(toy, Scale.LAPTOP), origin=SHIPPED)
    )["C1"]
    assert claim.disagreement
    assert claim.outcome is Outcome.NOT_REPRODUCED


def test_what_others_measured_and_the_reader_did_not(toy: ToyStudy) -> None:
    shipped = _measurement(measured(toy, Scale.LAPTOP), origin=SHIPPED)
    assert [w.scale for w in _claims(toy, shipped)["C1"].unrun] == [Scale.LAPTOP]
    own = _measurement(measured(toy, Scale.LAPTOP))
    assert _claims(toy, shipped, own)["C1"].unrun == ()


def test_a_smoke_run_points_to_the_larger_scales(toy: ToyStudy) -> None:
    smoke = _measurement(measured(toy, Scale.SMOKE), Scale.SMOKE)
    claim = _claims(toy, smoke)["C1"]
    assert [w.scale for w in claim.unrun] == [Scale.LAPTOP]
    assert claim.main == claim.findings


def test_results_of_another_version_are_not_judged(toy: ToyStudy) -> None:
    old = _measurement(measured(toy, Scale.LAPTOP), version=0)
    assert _claims(toy, old)["C1"].findings == ()


def test_results_of_other_trials_are_no_measurement(toy: ToyStudy) -> None:
    other = [replace(r, params={"masks": 99}) for r in measured(toy, Scale.LAPTOP)]
    assert _claims(toy, _measurement(other))["C1"].findings == ()


def test_the_verdict_of_an_interval_has_its_drawing(toy: ToyStudy) -> None:
    finding = _claims(toy, _measurement(measured(toy, Scale.LAPTOP)))["C1"].findings[0]
    assert finding.quantity == "ratio"
    assert finding.strip is not None
    assert finding.strip.low > finding.strip.margins[0]
