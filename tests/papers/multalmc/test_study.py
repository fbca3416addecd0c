"""Claims, trials, figures and tables of the study, with made-up measurements."""

from __future__ import annotations

import math

import pytest
from tests.papers.drawing import check_drawn

from assay.papers.multalmc.claims import CLAIMS
from assay.papers.multalmc.settings import METRICS, ORACLES, SEEDS
from assay.papers.multalmc.step_cost import KINDS
from assay.papers.multalmc.study import study
from assay.papers.multalmc.tuning import CHOSEN, TUNING_SEED, candidates, chosen
from assay.report import shipped_exports
from assay.study import Compare, Outcome, Result, Results, Scale, Status
from assay.study.judge import judge

LAPTOP = list(study.trials(Scale.LAPTOP))
AT_LAPTOP = [claim for claim in CLAIMS if Scale.LAPTOP in claim.protocol]
STEP_RATIOS = [f"{kind}_ratio" for kind in KINDS]
COSTS = {"n_grad": 50_000.0, "n_logp": 10_000.0, "seconds": 5.0, "dead": 0.0}


def made_up(trial):
    """What the paper, and our own questions, would expect."""
    p, noise = trial.params, 1 + 0.02 * math.sin(trial.seed)
    sampler = p.get("sampler")
    good = sampler in ("multalmc", "multcdiff")
    match p["part"]:
        case "compare" | "tune":
            tv = {"multalmc": 0.15, "multcdiff": 0.15, "exact": 0.05}.get(sampler, 0.6) * noise
            distance = {"multalmc": 1.0, "multcdiff": 1.1, "exact": 0.9}.get(sampler, 3.0) * noise
            if p["target"] == "three" and sampler in ("multalmc", "averaged", "pt"):
                tv = 0.04 * noise
            modes = 8.0 if good or sampler == "exact" else 1.0
            found = {"w2": distance, "sliced_w2": distance, "sliced_ks": distance / 20}
            if p["target"] == "three" and sampler == "nuts":
                tv = 0.79 * noise
            weights = {"weight_tv": tv, "modes": modes, "largest": 0.2 if good else 0.97}
            return {**found, **weights, **COSTS, "score": distance, "spread": 1 + 0.01 * noise}
        case "reach":
            return {"reached": (1e4 if sampler == "multalmc" else 9e4) * noise, "floor": 0.05}
        case "stages":
            return {"w2": 20 / p["stages"] * noise, **COSTS}
        case "apart":
            slope = 0.015 / p["times"] ** 2 if sampler == "multalmc" else 0.001
            return {"weight_tv": slope * p["distance"] * noise, "modes": 3.0, **COSTS}
        case "far":
            return {"nearest": p["nearest"] * noise, "modes": 3.0, **COSTS}
        case "logistic":
            loss = 30.0 if sampler != "ulmc" else 40.0
            errors = {"mean_error": 0.1 * noise, "sd_error": 0.1, "behind_nuts": 0.1}
            return {"log_loss": loss * noise, **errors, **COSTS}
        case "field":
            exact = 0.5 - 40 * p["h"]
            upper = {"upper": exact + 0.01 * noise, "upper_exact": exact}
            return {**upper, "weight_error": 0.01 * noise, **COSTS}
        case "tails":
            error = {"normal": 2.0, "student": 1.0, "ito": 0.3, "exact": 0.1}[p["base"]] * noise
            return {"radius_log_ratio": -error, "radius_error": error, "energy": error, **COSTS}
        case "averaging":
            return {"square_error": p["eps"] * noise}
        case "inflation":
            return {"variance_excess": p["eps"] * noise, "mean_error": 0.01, **COSTS}
        case "gate":
            return {"mean_error": 0.02, "variance_error": 0.1, "weight_error": 0.03, **COSTS}
        case "oracle":
            return {"error": 1e-12, "over_limit": 0.01}
        case "path":
            return COSTS
        case "runtime":
            return {"multalmc_s": 1.0 * noise, "pt_s": 2.0, "rdmc_s": 1.0}
        case "step":
            return {**dict.fromkeys(STEP_RATIOS, 1.1 * noise), "mala_ratio": 0.9}
    raise AssertionError(p["part"])


def series(trial):
    line = [(0.0, 0.5), (1.0, 0.5)]
    match trial.params["part"]:
        case "compare" | "field":
            weights = [(k, 0.125) for k in range(8)]
            return {"weights": weights, "sampled": line, "exact": line}
        case "reach":
            return {"weight_tv": [(1000, 0.8), (100_000, 0.1)]}
        case "path":
            return {"modes": line, "at/0": line, "at/0.5": line, "at/1": line}
    return {}


def finished(trials, change=lambda trial, metrics: metrics):
    return Results(
        [Result("k", t.params, t.seed, Status.OK, change(t, made_up(t)), series(t)) for t in trials]
    )


def verdict(claim, results):
    planned = [t for t in LAPTOP if claim.id in t.claims]
    return judge(claim, Scale.LAPTOP, planned, results).outcome


@pytest.fixture(scope="module")
def results():
    return finished(LAPTOP)


@pytest.mark.parametrize("claim", AT_LAPTOP, ids=lambda claim: claim.id)
def test_a_claim_is_supported_where_it_is_right(claim, results):
    assert verdict(claim, results) is Outcome.SUPPORTED


@pytest.mark.parametrize("claim", AT_LAPTOP, ids=lambda claim: claim.id)
def test_a_claim_fails_where_it_is_wrong(claim):
    def turned(trial, m):
        p, noise = trial.params, 1 + 0.02 * math.sin(trial.seed)
        ours = p.get("sampler") == "multalmc" or p.get("base") == "ito"
        worse = (9.0 if ours else 0.1) * noise
        match p["part"]:
            case "compare":
                if p["sampler"] == "multcdiff":
                    return {**m, "w2": 99.0 * noise}
                weights = {"weight_tv": worse, "modes": 2.0, "largest": 0.3 * noise}
                if claim.id in ("X1-bias", "X8-averaged", "X8-pt"):
                    weights["weight_tv"] = (0.1 if claim.id == "X1-bias" else 0.4) * noise
                return {**m, "w2": worse, "sliced_ks": worse, **weights, "spread": worse}
            case "reach":
                return {"reached": 1e4 * noise, "floor": 0.05}
            case "stages":
                return {"w2": p["stages"] * noise}
            case "apart":
                return {**m, "weight_tv": noise / p["distance"]}
            case "far":
                return {"nearest": 0.4 + 0.01 * noise, "modes": 1 + 0.1 * noise}
            case "logistic":
                return {**m, "log_loss": worse, "mean_error": noise}
            case "field":
                return {**m, "weight_error": 0.4 * noise}
            case "tails":
                return {**m, "radius_error": worse}
            case "averaging":
                return {"square_error": noise}
            case "inflation":
                return {"variance_excess": -p["eps"] * noise}
            case "gate":
                return dict.fromkeys(("mean_error", "variance_error", "weight_error"), 0.5)
            case "oracle":
                return {"error": 1.0, "over_limit": 2.0}
            case "runtime":
                return {"multalmc_s": 4.0 * noise, "pt_s": 2.0, "rdmc_s": 1.0}
            case "step":
                return dict.fromkeys(STEP_RATIOS, 2.0 * noise)
        return m

    exact = claim.protocol[Scale.LAPTOP] == "exact"
    failed = Outcome.CONTRADICTED if exact else Outcome.NOT_REPRODUCED
    assert verdict(claim, finished(LAPTOP, turned)) is failed


@pytest.mark.parametrize(
    "claim", [c for c in AT_LAPTOP if isinstance(c.test, Compare)], ids=lambda claim: claim.id
)
def test_differences_below_the_noise_are_inconclusive(claim):
    """The arms differ by what the test asks for, now more, now less."""
    test = claim.test

    def noisy(trial, m):
        asked = test.margin if test.how == "ratio" else 1.0
        sign = 1 if trial.seed % 2 else -1
        ours = asked * (1 + 0.3 * sign)
        found = dict.fromkeys(m, 1.0)
        return {**found, test.ours.metric: ours} if test.ours.matches(trial.params) else found

    assert verdict(claim, finished(LAPTOP, noisy)) is Outcome.INCONCLUSIVE


def test_arms_that_are_compared_share_seeds():
    for claim in AT_LAPTOP:
        arms: dict[object, set[int]] = {}
        for trial in LAPTOP:
            if claim.id in trial.claims and isinstance(claim.test, Compare):
                key = tuple(sample.matches(trial.params) for sample in claim.test.samples)
                arms.setdefault(key, set()).add(trial.seed)
        assert len({frozenset(seeds) for seeds in arms.values()}) <= 1, claim.id


ANY_CHAINS = None
"""Of NUTS only where its chains end is asked, and with how many steps."""


def test_samplers_that_are_compared_have_the_same_chains_and_evaluations():
    for part in ("compare", "tune", "logistic", "field", "tails"):
        places: dict[object, set[tuple[object, object]]] = {}
        for trial in LAPTOP:
            p = trial.params
            if p["part"] == part:
                where = p.get("target", p.get("data", p.get("h", p.get("dim"))))
                chains = ANY_CHAINS if p.get("sampler") == "nuts" else p["chains"]
                places.setdefault(where, set()).add((chains, p["evaluations"]))
        assert places, part
        for found in places.values():
            assert len({evaluations for _, evaluations in found}) == 1, part
            assert len({chains for chains, _ in found} - {ANY_CHAINS}) == 1, part


def test_everything_is_searched_with_the_budget_that_it_is_judged_with():
    judged = {
        (p["target"], p["sampler"]): (p["chains"], p["evaluations"])
        for p in (t.params for t in LAPTOP)
        if p["part"] == "compare"
    }
    for trial in LAPTOP:
        p = trial.params
        if p["part"] == "tune" and (place := (p["target"], p["sampler"])) in judged:
            assert (p["chains"], p["evaluations"]) == judged[place]


def test_every_sampler_that_is_compared_has_been_searched_for():
    for trial in LAPTOP:
        p = trial.params
        searched = p["part"] == "compare" and p["target"] != "three"
        if searched and p["sampler"] not in ("averaged", "exact", "nuts"):
            constants = chosen(str(p["target"]), str(p["sampler"]))
            assert constants in candidates(str(p["target"]), str(p["sampler"]))
            assert constants.items() <= p.items()


def test_the_search_has_a_seed_of_its_own_and_decides_nothing():
    search = [t for t in LAPTOP if t.params["part"] == "tune"]
    assert search
    assert all(t.seed == TUNING_SEED and not t.claims for t in search)
    assert all(t.seed < TUNING_SEED for t in LAPTOP if t.params["part"] != "tune")


def test_constants_are_those_that_the_shipped_search_found():
    shipped = [e for e in shipped_exports("multalmc") if e.scale is Scale.LAPTOP]
    assert shipped
    found = shipped[0].results.where(part="tune")
    for target, samplers in CHOSEN.items():
        for sampler, constants in samplers.items():
            searched = found.where(target=target, sampler=sampler)
            assert len(searched) == len(candidates(target, sampler)), (target, sampler)
            best = min(searched, key=lambda r: r.metrics["score"])
            assert constants.items() <= best.params.items(), (target, sampler)


def test_every_oracle_is_checked():
    from assay.papers.multalmc.oracles import CHECKS

    assert set(CHECKS) == set(ORACLES)
    assert {t.params["name"] for t in LAPTOP if t.params["part"] == "oracle"} == set(ORACLES)


def test_only_timings_need_the_machine_for_themselves():
    for trial in LAPTOP:
        assert trial.cpus == 1
        assert trial.exclusive == (trial.params["part"] in ("runtime", "step"))


def test_no_test_asks_for_more_seeds_than_there_are():
    for target in METRICS:
        seeds = {t.seed for t in LAPTOP if t.params.get("target") == target and t.claims}
        assert len(seeds) in (0, SEEDS), target


def test_figures_and_tables_are_drawn(results):
    check_drawn(
        study,
        results,
        figures=[
            "particles",
            "distances",
            "mode-weights",
            "marginals",
            "evaluations",
            "field",
            "epsilon",
            "stages",
            "apart",
            "tails",
        ],
        tables=[
            "distances",
            "logistic",
            "field",
            "apart",
            "tails",
            "reach",
            "gate",
            "oracles",
            "times",
            "tuning",
        ],
    )
