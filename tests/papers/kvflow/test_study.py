"""Claims, trials, figures and tables of the study, with made-up measurements."""

from __future__ import annotations

import math

import pytest
from tests.papers.drawing import check_drawn

from assay.papers.kvflow.claims import CLAIMS, JUDGED_LINK, TIERED, UNTIERED
from assay.papers.kvflow.study import POLICIES, claims_of, study
from assay.study import Outcome, Result, Results, Scale, Status
from assay.study.judge import judge

LAPTOP = list(study.trials(Scale.LAPTOP))

SPEED = {"lru": 1.0, "hicache": 1.2, "eviction": 1.4, "prefetch": 1.35, "kvflow": 1.7}
"""Requests a second in these made-up results: every part of KVFlow helps."""

HITS = {"lru": 0.0, "belady": 0.6, "steps": 0.6, "mru": 0.6, "kvflow": 0.6}
"""The MRU of fixed prompts has 0.3, so that the graph is worth something."""


def made_up(trial):
    """What the paper would expect."""
    p, noise = trial.params, 1 + 0.01 * math.sin(trial.seed)
    rest = {
        f"{arm}_{name}": 0.5
        for arm in (*UNTIERED, *TIERED)
        for name in ("ttft_p50_s", "ttft_p95_s", "latency_s", "stall_s", "link_busy")
    }
    rates = {f"{arm}_hit_rate": HITS.get(arm, 0.3) * noise for arm in (*UNTIERED, *TIERED)}
    match p["part"]:
        case "sequential" | "pressure" | "concurrent":
            speed = {arm: SPEED.get(arm, 1.1) * noise for arm in (*UNTIERED, *TIERED)}
            if p["part"] == "sequential":
                gain = 0.1 * math.log(p["fixed"]) - 0.1 * math.log(p["output"])
                speed["kvflow"] += gain + 1 / p["link_gbps"]
            if p["part"] == "concurrent":
                speed["hicache"] = 0.6 * noise
            return {
                **rest,
                **rates,
                **{f"{arm}_per_s": value for arm, value in speed.items()},
                "speedup_hicache": speed["kvflow"] / speed["hicache"],
                "kvflow_wasted_share": 0.02 * noise,
                "prefetch_wasted_share": 0.02 * noise,
            }
        case "hits":
            arms = UNTIERED
            return {
                **{f"{arm}_hit_rate": rates[f"{arm}_hit_rate"] for arm in arms},
                **{f"{arm}_recomputed_tokens": 100.0 for arm in arms},
                "mru_fixed_minus_steps": 0.0,
                "belady_minus_steps": 0.0,
            }
        case "times":
            arms = TIERED if p["case"].endswith("paced") else ("lru", "steps")
            speed = {**SPEED, "steps": 1.5}
            return {
                **rest,
                **rates,
                **{f"{arm}_per_s": speed[arm] * noise for arm in arms},
                "predicted_speedup": 1.4,
                "predicted_over_measured": 1.02,
            }
        case "exactness":
            return {"equal_rate": 1.0}
        case "overhead":
            return {"update_s": 1e-5, "evict_s": 2e-5, "step_s": 0.05, "share_of_step": 0.0006}
    raise AssertionError(p["part"])


def series(trial):
    p = trial.params
    if p["part"] == "hits" and p["case"] == "cycle" and trial.seed == 0:
        n = p["agents"]
        found = {}
        for arm in ("lru", "steps"):
            found[f"turn/{arm}"] = [(t, t % n) for t in range(2 * n)]
            found[f"hit/{arm}"] = [(t, float(t % 2)) for t in range(2 * n)]
            found[f"resident/{arm}"] = [(t, a) for t in range(2 * n) for a in range(n) if a != t]
        return found
    if p.get("case") == "paced" or p["part"] == "sequential":
        return {
            f"span/{arm}/{track}": [(0.0, 1.0), (1.5, 2.0)]
            for arm in ("hicache", "kvflow")
            for track in ("compute", "load")
        }
    return {}


def finished(trials, change=lambda trial, metrics: metrics):
    return Results(
        [Result("k", t.params, t.seed, Status.OK, change(t, made_up(t)), series(t)) for t in trials]
    )


def verdict(id, results, trials=LAPTOP):
    mine = [t for t in trials if id in t.claims]
    return judge(study.claim(id), Scale.LAPTOP, mine, results).outcome


@pytest.fixture(scope="module")
def results():
    return finished(LAPTOP)


def test_every_claim_is_supported_where_the_paper_is_right(results):
    for claim in CLAIMS:
        if Scale.LAPTOP in claim.protocol:
            assert verdict(claim.id, results) is Outcome.SUPPORTED, claim.id


def test_every_claim_fails_where_the_paper_is_wrong():
    def turned(trial, m):
        p, noise = trial.params, 1 + 0.01 * math.sin(trial.seed)
        slower = {"lru": 1.3, "hicache": 1.2, "eviction": 1.1, "kvflow": 0.9, "steps": 0.9}
        speed = {
            f"{arm}_per_s": value * noise for arm, value in slower.items() if f"{arm}_per_s" in m
        }
        if p["part"] == "concurrent":
            speed["lru_per_s"], speed["hicache_per_s"] = 1.0 * noise, 1.2 * noise
        other = {
            "speedup_hicache": 1 / m["speedup_hicache"] if "speedup_hicache" in m else 0.0,
            "kvflow_wasted_share": 0.5 * noise,
            "steps_hit_rate": 0.1 * noise,
            "lru_hit_rate": 0.2,
            "mru_fixed_minus_steps": 0.2,
            "belady_minus_steps": 0.2,
            "predicted_over_measured": 1.3,
            "equal_rate": 0.98,
            "share_of_step": 0.02,
        }
        return {**m, **speed, **other}

    wrong = finished(LAPTOP, turned)
    for claim in CLAIMS:
        if Scale.LAPTOP in claim.protocol:
            failed = Outcome.CONTRADICTED if claim.ours else Outcome.NOT_REPRODUCED
            assert verdict(claim.id, wrong) is failed, claim.id


def test_a_gain_of_four_per_cent_does_not_support():
    def small(trial, m):
        return {**m, "steps_per_s": 1.04 * m.get("lru_per_s", 1.0)}

    assert verdict("C1-loop", finished(LAPTOP, small)) is not Outcome.SUPPORTED


def test_times_of_a_busy_machine_decide_nothing(results):
    def busy(trial, m):
        if trial.params["part"] != "times":
            return m
        return dict.fromkeys(m, math.nan)

    found = finished(LAPTOP, busy)
    for id in ("C1-loop", "C1-paced", "C2-loop", "C5-lru", "X1"):
        assert verdict(id, found) is Outcome.INCONCLUSIVE, id
    assert verdict("C4-hits", found) is Outcome.SUPPORTED


def test_only_timings_need_the_machine_for_themselves():
    for trial in LAPTOP:
        assert trial.exclusive == (trial.params["part"] in ("times", "overhead")), trial.params


def test_what_is_simulated_or_emulated_says_so():
    for claim in CLAIMS:
        parts = {t.params["part"] for t in LAPTOP if claim.id in t.claims}
        if parts & {"sequential", "concurrent", "pressure"}:
            assert "simulation" in f"{claim.statement} {claim.note}".lower(), claim.id
        cases = {t.params.get("case") for t in LAPTOP if claim.id in t.claims}
        if cases & {"paced", "peer-paced"} and not claim.ours:
            assert "EMULATED" in claim.note, claim.id


def test_all_arms_of_a_trial_see_the_same_link_and_seed():
    judged = [t for t in LAPTOP if "C1-hicache" in t.claims]
    assert [t.params["link_gbps"] for t in judged] == [JUDGED_LINK["h100"]]
    for id in ("C3-eviction", "C4-hicache", "C1-loop", "C1-paced", "C5-lru"):
        seeds = [t.seed for t in LAPTOP if id in t.claims]
        assert len(seeds) == len(set(seeds)) >= 5, id


def test_outputs_are_compared_for_every_policy():
    found = {t.params["policy"] for t in LAPTOP if "C6" in t.claims}
    assert found == set(POLICIES)


def test_trials_decide_the_claims_whose_samples_they_match():
    params = {"part": "times", "case": "cycle", "predicted": True}
    assert claims_of(params, Scale.LAPTOP) == ("C1-loop", "X1")
    assert claims_of({**params, "case": "crowd", "predicted": False}, Scale.LAPTOP) == ("C2-loop",)


def test_figures_and_tables_are_drawn(results):
    check_drawn(
        study,
        results,
        figures=[
            "timeline",
            "timeline-simulated",
            "contents",
            "pressure",
            "hit-rates",
            "links",
            "concurrency",
            "measured",
            "overhead",
        ],
        tables=["printed", "hits", "times", "simulated", "overhead"],
    )
