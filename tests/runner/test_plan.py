"""What a run would do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.registry import UnknownPaper
from assay.runner import LeftOut, Plan, PlanError, UnknownClaim, execute, make_plan, make_plans
from assay.runner import plan as plan_module
from assay.study import NeedKind, Scale, Trial

STUDY = "fake_room:study"


def plan_of(**arguments) -> Plan:
    return make_plan("fake", Scale.SMOKE, study=STUDY, **arguments)


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    monkeypatch.setattr(plan_module, "cores", lambda: 1)


def rates(plan: Plan) -> list[object]:
    return [p.trial.params["lr"] for p in plan.todo]


def test_all_trials_in_the_order_of_the_study(study):
    plan = plan_of()
    assert rates(plan) == [0.1, 0.2, 0.1, 0.2, 0.3]
    assert plan.seconds == 55
    assert [p.missing[0].kind for p in plan.blocked] == [NeedKind.DATA]
    assert [p.key for p in plan.trials] == [
        t.key("fake", 3, Scale.SMOKE) for t in study.trials(Scale.SMOKE)
    ]


def test_blocked_trials_run_once_their_data_are_there(tmp_path, monkeypatch):
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "absent.csv").touch()
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    assert plan_of().blocked == ()


def test_what_the_ledger_holds_is_done(ledger):
    plan = plan_of(ledger=ledger)
    execute([replace(plan, todo=plan.todo[:2])], ledger)
    again = plan_of(ledger=ledger)
    assert again.done == plan.todo[:2]
    assert again.todo == plan.todo[2:]
    assert plan_of(ledger=ledger, fresh=True).todo == plan.todo


def test_seeds_replace_those_of_the_study():
    assert {p.trial.seed for p in plan_of(seeds=[5]).todo if p.trial.params["lr"] != 0.3} == {5}


@pytest.mark.parametrize("seeds", [[-1], ["1"], [True]])
def test_wrong_seeds(seeds):
    with pytest.raises(PlanError, match=r"seeds: got .* wants integers >= 0"):
        plan_of(seeds=seeds)


def test_claims_choose_their_trials():
    assert rates(plan_of(claims=["C2"])) == [0.2, 0.2]
    assert rates(plan_of(claims=["fake:C3"])) == [0.2, 0.2, 0.3]
    assert len(plan_of(claims=["C4"]).blocked) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("c1", "unknown claim 'c1': did you mean C1"),
        ("zzz", "unknown claim 'zzz': fake: there are C1, C2, C3, C4"),
        ("other:C1", "unknown claim 'other:C1'"),
    ],
)
def test_unknown_claims(name, message):
    with pytest.raises(UnknownClaim, match=message):
        plan_of(claims=[name])


def test_unknown_papers():
    with pytest.raises(UnknownPaper):
        make_plan("no_such_paper", Scale.SMOKE)


def test_overrides_are_read_as_the_type_that_the_parameter_has():
    plan = plan_of(overrides={"n": "4", "big": "yes"})
    assert [p.trial.params.get("n") for p in plan.trials] == [4, 4, 4, 4, 4, None]
    assert plan.todo[-1].trial.params["big"] is True
    assert plan.todo[0].key != plan_of().todo[0].key


def test_trials_made_equal_by_an_override_are_one_trial_of_all_their_claims():
    plan = plan_of(overrides={"lr": "1"})
    assert [p.trial.params["lr"] for p in plan.todo] == [1.0] * 3
    assert plan.todo[0].trial.claims == ("C1", "C2", "C3")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rate": "1"}, "parameter 'rate': no trial has it; there are big, do, lr, n"),
        ({"n": "1.5"}, "parameter 'n': got '1.5', wants an integer"),
        ({"lr": "fast"}, "parameter 'lr': got 'fast', wants a finite number"),
        ({"lr": "nan"}, "parameter 'lr': got 'nan', wants a finite number"),
        ({"big": "maybe"}, "parameter 'big': got 'maybe', wants true or false"),
    ],
)
def test_wrong_overrides(overrides, message):
    with pytest.raises(PlanError, match=message):
        plan_of(overrides=overrides)


def test_the_cheapest_claims_fill_the_budget():
    plan = plan_of(budget=16)
    assert rates(plan) == [0.2, 0.2, 0.3], "C3 costs 5 s more than C2, with which it shares"
    assert plan.seconds == 15
    assert plan.left_out == (LeftOut("fake", "C1", 40.0),)
    assert len(plan.blocked) == 1, "what cannot run costs nothing"


def test_a_claim_is_taken_whole_or_not_at_all():
    plan = plan_of(budget=9)
    assert plan.todo == ()
    assert [(out.claim, out.seconds) for out in plan.left_out] == [
        ("C2", 10),
        ("C3", 15),
        ("C1", 40),
    ]


def test_done_trials_cost_nothing(ledger):
    plan = plan_of()
    execute([replace(plan, todo=plan.todo[:1])], ledger)
    assert plan_of(ledger=ledger, budget=35).left_out == ()


def test_one_budget_for_several_papers():
    plans = make_plans(
        ["one", "other"], Scale.SMOKE, budget=25, studies={"one": STUDY, "other": STUDY}
    )
    assert [plan.seconds for plan in plans] == [15, 10]
    assert [[out.claim for out in plan.left_out] for plan in plans] == [["C1"], ["C3", "C1"]]


def test_time_on_a_machine_with_more_cores(monkeypatch, run):
    monkeypatch.setattr(plan_module, "cores", lambda: 4)
    assert plan_of().seconds == 55 / 4
    assert plan_of(jobs=2).seconds == 55 / 2
    alone = plan_module.Planned("f", 1, Scale.SMOKE, Trial({}, cost=8, exclusive=True), "", "")
    assert plan_module._seconds([alone], None) == 8


@pytest.mark.parametrize(("name", "value"), [("budget", 0), ("budget", float("nan")), ("jobs", 0)])
def test_wrong_bounds(name, value):
    with pytest.raises(PlanError, match=f"{name}: got"):
        plan_of(**{name: value})


def test_a_reference_to_no_study():
    with pytest.raises(PlanError, match=r"got <class .*, wants a Study"):
        make_plan("fake", Scale.SMOKE, study="fake_room:FakeStudy")
