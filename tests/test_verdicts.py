"""What results say of every claim, here and elsewhere."""

from __future__ import annotations

import pytest

from assay import registry
from assay.study import Outcome, Result, Results, Scale, Status
from assay.verdicts import verdicts


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    for name in ("ASSAY_DATA", "ASSAY_LLM_BASE_URL", "ASSAY_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def of(results, **options):
    found = verdicts("psmbench", Scale.LAPTOP, results, **options)
    return {verdict.claim: verdict for verdict in found}


@pytest.mark.parametrize("here", [True, False])
def test_a_claim_that_nobody_ran_says_what_it_needs(here):
    found = of(Results(), here=here)
    assert list(found) == [claim.id for claim in registry.study("psmbench").claims]
    assert found["C7"].outcome is Outcome.NEEDS
    assert "ASSAY_LLM_BASE_URL" in found["C7"].reason


def test_elsewhere_a_claim_that_was_run_in_part_is_incomplete_whatever_is_missing_here():
    study = registry.study("psmbench")
    trial = next(t for t in study.trials(Scale.LAPTOP) if "C8" in t.claims)
    key = trial.key("psmbench", study.version, Scale.LAPTOP)
    results = Results([Result(key, trial.params, trial.seed, Status.OK, {})])
    found = of(results, here=False)["C8"]
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "1 of 14 trials run")
    assert of(results, here=True)["C8"].outcome is Outcome.NEEDS
