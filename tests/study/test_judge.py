"""The verdict rule: examples worked by hand, and properties over random measurements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.study import (
    Claim,
    Compare,
    Holds,
    Need,
    Outcome,
    Protocol,
    Result,
    Results,
    Sample,
    Scale,
    Status,
    Threshold,
    Trend,
    Trial,
)
from assay.study.judge import judge

OURS = Sample("score", {"arm": "ours"})
BASE = Sample("score", {"arm": "base"})


def claim(test, protocol=Protocol.EXACT):
    return Claim("C1", "s", "f", "set", "Table 1", test, {Scale.LAPTOP: protocol})


def result(params, seed, metrics, status=Status.OK, error=""):
    return Result(f"{params}{seed}", params, seed, status, metrics, error=error)


def verdict(test, results, protocol=Protocol.EXACT, planned=None, missing=()):
    trials = [Trial(r.params, r.seed, ("C1",)) for r in results] if planned is None else planned
    return judge(claim(test, protocol), Scale.LAPTOP, trials, Results(results), missing)


def arms(ours, base):
    return [
        *(result({"arm": "ours"}, i, {"score": v}) for i, v in enumerate(ours)),
        *(result({"arm": "base"}, i, {"score": v}) for i, v in enumerate(base)),
    ]


def test_paired_difference_equals_scipys_paired_t_interval():
    ours, base = [3.1, 2.9, 3.4, 3.3], [2.0, 2.1, 2.2, 1.9]
    expected = stats.ttest_rel(ours, base).confidence_interval(0.95)
    v = verdict(Compare(OURS, BASE, ">", 0.5), arms(ours, base))
    assert (v.low, v.high) == pytest.approx((expected.low, expected.high))
    assert v.effect == pytest.approx(1.125)
    assert v.outcome is Outcome.SUPPORTED
    assert v.n == 4
    assert v.asked == "difference > 0.5"


def test_the_reason_reads_as_a_sentence():
    ours = [1.24, 1.31, 1.38] * 4
    v = verdict(Compare(OURS, BASE, ">", 1.1, how="ratio"), arms(ours, [1.0] * 12))
    assert v.reason == "ratio 1.309, 95 % interval 1.271 to 1.347 over 12 pairs, asked > 1.1"


def test_paired_ratio_is_the_geometric_mean():
    v = verdict(Compare(OURS, BASE, ">", 1.0, how="ratio"), arms([2, 8, 4], [1, 2, 1]))
    assert v.effect == pytest.approx(32 ** (1 / 3))


def test_unpaired_difference_equals_welchs_interval():
    ours, base = [3.1, 2.9, 3.4, 3.3, 3.0], [2.0, 2.9, 2.2, 1.9]
    expected = stats.ttest_ind(ours, base, equal_var=False).confidence_interval(0.95)
    v = verdict(Compare(OURS, BASE, ">", 0.0, pair=()), arms(ours, base))
    assert (v.low, v.high) == pytest.approx((expected.low, expected.high))


def test_replicates_within_a_pair_are_averaged():
    results = [
        result({"arm": arm, "rep": rep}, seed, {"score": base + rep})
        for arm, base in (("ours", 2.0), ("base", 1.0))
        for rep in (0, 1)
        for seed in range(3)
    ]
    v = verdict(Compare(OURS, BASE, ">", 0.5), results)
    assert (v.n, v.effect) == (3, 1.0)


def test_a_half_without_its_pair_is_inconclusive():
    v = verdict(Compare(OURS, BASE, ">", 0.0), arms([3.0, 3.1, 3.2, 3.3], [1.0, 1.1, 1.2]))
    assert v.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("protocol", "outcome"),
    [
        (Protocol.EXACT, Outcome.CONTRADICTED),
        (Protocol.REDUCED, Outcome.NOT_REPRODUCED),
        (Protocol.PROXY, Outcome.NOT_REPRODUCED),
    ],
)
def test_only_an_exact_protocol_contradicts(protocol, outcome):
    results = arms([1.0, 1.1, 0.9], [2.0, 2.1, 1.8])
    assert verdict(Compare(OURS, BASE, ">", 0.0), results, protocol).outcome is outcome


def test_a_failed_trial_spoils_the_verdict_and_names_the_reason():
    results = [
        *arms([3.0, 3.1, 3.2], [1.0, 1.1, 1.2]),
        result({"arm": "ours"}, 9, {}, Status.RAISED, "ValueError: boom\n\nTraceback"),
    ]
    v = verdict(Compare(OURS, BASE, ">", 0.0), results)
    assert v.outcome is Outcome.FAILED
    assert "ValueError: boom" in v.reason


def test_an_interrupted_run_is_inconclusive():
    results = arms([3.0, 3.1, 3.2], [1.0, 1.1, 1.2])
    planned = [Trial(r.params, r.seed) for r in results] + [Trial({"arm": "ours"}, 7)]
    v = verdict(Compare(OURS, BASE, ">", 0.0), results, planned=planned)
    assert (v.outcome, v.reason) == (Outcome.INCONCLUSIVE, "6 of 7 trials run")


def test_a_need_is_named_with_its_hint():
    need = Need.data("corpus", "assay data fetch x")
    v = verdict(Holds(Sample("ok"), 1), [], planned=[Trial({})], missing=[need])
    assert v.outcome is Outcome.NEEDS
    assert v.reason == "data corpus: assay data fetch x"
    assert v.needs == (need,)


def test_a_scale_that_does_not_measure_the_claim_says_which_do():
    v = judge(claim(Holds(Sample("ok"), 1)), Scale.SMOKE, [], Results())
    assert v.outcome is Outcome.NEEDS
    assert "laptop" in v.reason


def test_no_planned_trial_is_inconclusive():
    assert verdict(Holds(Sample("ok"), 1), []).outcome is Outcome.INCONCLUSIVE


def test_results_of_other_trials_are_ignored():
    results = arms([3.0, 3.1, 3.2], [1.0, 1.1, 1.2])
    stray = result({"arm": "ours"}, 99, {"score": -1e9})
    planned = [Trial(r.params, r.seed) for r in results]
    v = verdict(Compare(OURS, BASE, ">", 0.0), [*results, stray], planned=planned)
    assert v.outcome is Outcome.SUPPORTED


def test_integer_float_and_bool_params_are_different_trials():
    v = verdict(
        Holds(Sample("ok"), 1), [result({"n": True}, 0, {"ok": 1})], planned=[Trial({"n": 1})]
    )
    assert v.reason == "0 of 1 trials run"


def test_threshold_t_interval():
    values = [0.91, 0.93, 0.95]
    results = [result({}, i, {"acc": v}) for i, v in enumerate(values)]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    v = verdict(Threshold(Sample("acc"), ">", 0.8), results)
    assert (v.low, v.high) == pytest.approx((expected.low, expected.high))
    assert v.outcome is Outcome.SUPPORTED


def test_proportion_uses_clopper_pearson():
    results = [result({}, i, {"hit": float(i > 1)}) for i in range(20)]
    expected = stats.binomtest(18, 20).proportion_ci(0.95, "exact")
    v = verdict(Threshold(Sample("hit"), ">", 0.6, interval="proportion"), results)
    assert (v.low, v.high) == pytest.approx((expected.low, expected.high))


def test_proportion_of_a_metric_that_is_not_binary_is_inconclusive():
    results = [result({}, i, {"hit": 0.5}) for i in range(5)]
    v = verdict(Threshold(Sample("hit"), ">", 0.1, interval="proportion"), results)
    assert v.outcome is Outcome.INCONCLUSIVE


def test_exact_threshold_is_strict():
    one = [result({}, 0, {"f1": 0.38})]
    test = Threshold(Sample("f1"), "<", 0.38, interval="exact", min_trials=1)
    assert verdict(test, one).outcome is Outcome.CONTRADICTED
    test = Threshold(Sample("f1"), "<", 0.3801, interval="exact", min_trials=1)
    assert verdict(test, one).outcome is Outcome.SUPPORTED


def test_bootstrap_interval_is_the_same_each_time_and_covers_the_mean():
    results = arms(np.random.default_rng(1).normal(1, 1, 20).tolist(), [0.0] * 20)
    test = Compare(OURS, BASE, ">", 0.0, interval="bootstrap", min_trials=20)
    first, second = verdict(test, results), verdict(test, results)
    assert first == second
    assert first.low < first.effect < first.high


def test_each_group_must_pass():
    results = [
        result({"arm": arm, "size": size}, seed, {"score": value + 0.01 * seed})
        for size, gain in (("small", 1.0), ("large", -1.0))
        for arm, value in (("ours", gain), ("base", 0.0))
        for seed in range(3)
    ]
    v = verdict(Compare(OURS, BASE, ">", 0.0, each=("size",)), results)
    assert v.outcome is Outcome.CONTRADICTED
    assert v.reason.startswith("1 of 2 groups refuted; large: difference -1")


def test_of_groups_that_all_pass_the_closest_is_named():
    results = [
        result({"size": size}, seed, {"score": value + 0.01 * seed})
        for size, value in (("small", 3.0), ("large", 2.0), ("huge", 4.0))
        for seed in range(3)
    ]
    v = verdict(Threshold(Sample("score"), ">", 1.0, each=("size",)), results)
    assert v.outcome is Outcome.SUPPORTED
    assert v.reason.startswith("all 3 groups pass; the closest, large: mean 2.01")


def test_exponent_of_a_power_law():
    results = [
        result({"n": n}, seed, {"t": 3 * n**1.5 * (1 + 0.001 * seed)})
        for n in (1, 2, 4, 8)
        for seed in range(3)
    ]
    v = verdict(Trend("n", Sample("t"), 1.4, 1.6, log_x=True, log_y=True), results)
    assert v.effect == pytest.approx(1.5)
    assert v.outcome is Outcome.SUPPORTED
    assert v.asked == "exponent within 1.4 to 1.6"
    v = verdict(Trend("n", Sample("t"), 2.0, log_x=True, log_y=True), results)
    assert v.outcome is Outcome.CONTRADICTED


def test_single_group_slope_has_scipys_regression_interval():
    x, y = np.arange(6), np.array([0.1, 0.9, 2.2, 2.8, 4.1, 5.2])
    fit = stats.linregress(x, y)
    half = stats.t.ppf(0.975, 4) * fit.stderr
    results = [result({"x": int(a)}, 0, {"y": float(b)}) for a, b in zip(x, y, strict=True)]
    v = verdict(Trend("x", Sample("y"), low=0, group=(), min_groups=1), results)
    assert (v.low, v.high) == pytest.approx((fit.slope - half, fit.slope + half))


def spearman(y, **options):
    results = [result({"x": i}, 0, {"y": value}) for i, value in enumerate(y)]
    trend = Trend("x", Sample("y"), method="spearman", group=(), min_groups=1, **options)
    return verdict(trend, results)


def test_single_group_rank_correlation_has_the_interval_of_bonett_and_wright():
    y = [1, 0, 2, 4, 3, 5, 7, 6, 9, 8]
    rho = stats.spearmanr(range(10), y).statistic
    half = stats.norm.ppf(0.975) * math.sqrt((1 + rho**2 / 2) / 7)
    v = spearman(y, low=0)
    assert v.effect == pytest.approx(rho)
    assert (v.low, v.high) == pytest.approx(
        (math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_few_points_in_perfect_order_are_no_proof(sign):
    def ordered(n, least):
        margin = {"low": least} if sign > 0 else {"high": -least}
        return spearman([sign * i for i in range(n)], **margin).outcome

    # By chance 1 of 12 orders of four points is perfect one way or the other, of five 1 of 60.
    assert ordered(4, 0.0) is Outcome.INCONCLUSIVE
    assert ordered(5, 0.0) is Outcome.SUPPORTED
    assert ordered(5, 0.9) is Outcome.INCONCLUSIVE
    assert ordered(11, 0.95) is Outcome.SUPPORTED


def test_pairs_by_a_parameter_that_trials_lack_are_inconclusive():
    v = verdict(
        Compare(OURS, BASE, ">", 0.0, pair=("sede",), interval="exact", min_trials=1),
        arms([3.0, 3.1], [1.0, 1.1]),
    )
    assert (v.outcome, v.reason) == (Outcome.INCONCLUSIVE, "no sede in arm=ours, seed 0")


def test_holds_names_the_worst_trial():
    results = [result({"case": i}, 0, {"error": 10.0**-i}) for i in range(1, 5)]
    v = verdict(Holds(Sample("error"), at_most=0.05), results)
    assert v.outcome is Outcome.CONTRADICTED
    assert v.reason == "broken in 1 of 4 trials: worst 0.1 (case=1, seed 0), asked <= 0.05"
    assert verdict(Holds(Sample("error"), at_most=0.1), results).outcome is Outcome.SUPPORTED
    one = verdict(Holds(Sample("error"), at_most=0.05), results[:1])
    assert one.reason == "error 0.1 in the one trial, asked <= 0.05"


@pytest.mark.parametrize(
    "build",
    [
        lambda: Compare(OURS, BASE, ">", math.nan),
        lambda: Compare(OURS, BASE, ">", 0.0, how="ratio"),
        lambda: Compare(OURS, BASE, ">=", 0.0),
        lambda: Compare(OURS, BASE, ">", 0.0, min_trials=1),
        lambda: Compare(OURS, BASE, ">", 0.0, pair=(), interval="exact"),
        lambda: Threshold(OURS, ">", 1.0, interval="wald"),
        lambda: Compare(OURS, BASE, ">", 0.0, interval="bootstrap", min_trials=9),
        lambda: Threshold(OURS, ">", 0.0, interval="bootstrap"),
        lambda: Trend("n", OURS),
        lambda: Trend("n", OURS, low=2, high=1),
        lambda: Holds(OURS),
        lambda: Holds(OURS, at_least=2, at_most=1),
        lambda: Trial({"x": [1]}),
        lambda: Trial({"x": math.inf}),
        lambda: Trial({}, cost=0),
        lambda: Trial({}, seed=-1),
        lambda: Claim("c1", "s", "f", "s", "s", Holds(OURS, 1), {Scale.LAPTOP: Protocol.EXACT}),
        lambda: Claim("C1", "s", "", "s", "s", Holds(OURS, 1), {Scale.LAPTOP: Protocol.EXACT}),
        lambda: Claim("C1", "s", "f", "s", "s", Holds(OURS, 1), {}),
    ],
)
def test_declarations_that_could_not_fail_or_make_no_sense_are_refused(build):
    with pytest.raises((ValueError, TypeError)):
        build()


# Properties

floats = st.floats(-100, 100).map(lambda x: round(x, 3))
pairs = st.lists(st.tuples(floats, floats), min_size=3, max_size=12)
ten_pairs = st.lists(st.tuples(floats, floats), min_size=10, max_size=14)
intervals = st.sampled_from(["t", "bootstrap", "exact"])
FLIPPED = {Outcome.SUPPORTED: Outcome.CONTRADICTED, Outcome.CONTRADICTED: Outcome.SUPPORTED}


@given(pairs, st.booleans())
@settings(max_examples=100, deadline=None)
def test_swapping_the_arms_flips_the_verdict(values, paired):
    a, b = [x for x, _ in values], [y for _, y in values]
    test = Compare(OURS, BASE, ">", 0.0, pair=("seed",) if paired else ())
    before, after = verdict(test, arms(a, b)), verdict(test, arms(b, a))
    assert after.outcome is FLIPPED.get(before.outcome, before.outcome)
    assert after.effect == pytest.approx(-before.effect)


@given(ten_pairs)
@settings(max_examples=40, deadline=None)
def test_swapping_the_arms_never_leaves_a_bootstrap_verdict(values):
    a, b = [x for x, _ in values], [y for _, y in values]
    test = Compare(OURS, BASE, ">", 0.0, interval="bootstrap", min_trials=10)
    before, after = verdict(test, arms(a, b)).outcome, verdict(test, arms(b, a)).outcome
    # resampling is not mirror symmetric to the last digit, so one side may be undecided
    assert after is FLIPPED.get(before, before) or Outcome.INCONCLUSIVE in (before, after)


@given(ten_pairs, st.floats(0.001, 50), intervals)
@settings(max_examples=60, deadline=None)
def test_a_larger_effect_never_hurts(values, shift, interval):
    a, b = [x for x, _ in values], [y for _, y in values]
    test = Compare(OURS, BASE, ">", 0.0, interval=interval, min_trials=10)
    order = [Outcome.CONTRADICTED, Outcome.INCONCLUSIVE, Outcome.SUPPORTED]
    before, after = verdict(test, arms(a, b)), verdict(test, arms([x + shift for x in a], b))
    assert order.index(after.outcome) >= order.index(before.outcome)
    assert after.effect == pytest.approx(before.effect + shift, abs=1e-6)


@given(pairs)
@settings(max_examples=40, deadline=None)
def test_a_constant_effect_far_beyond_the_margin_decides(values):
    b = [y for _, y in values]
    test = Compare(OURS, BASE, ">", 1.0)
    assert verdict(test, arms([y + 2 for y in b], b)).outcome is Outcome.SUPPORTED
    assert verdict(test, arms([y - 2 for y in b], b)).outcome is Outcome.CONTRADICTED


@given(st.lists(floats, min_size=0, max_size=9), intervals)
@settings(max_examples=60, deadline=None)
def test_too_few_trials_are_never_decided(values, interval):
    tests = [
        Compare(OURS, BASE, ">", -1e6, interval=interval, min_trials=10),
        Threshold(OURS, ">", -1e6, interval=interval, min_trials=10),
        Holds(OURS, at_least=-1e6, min_trials=10),
        Trend("seed", OURS, low=-1e6, group=("arm",), min_groups=2),
    ]
    for test in tests:
        results = arms(values, [0.0] * len(values) if isinstance(test, Compare) else [])
        assert verdict(test, results).outcome is Outcome.INCONCLUSIVE


@given(
    st.lists(floats, min_size=6, max_size=10),
    st.sampled_from([math.nan, math.inf, -math.inf, None]),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_an_undefined_or_missing_metric_is_never_decided(values, bad, data):
    where = data.draw(st.integers(0, len(values) - 1))
    metrics = [{"score": v} for v in values]
    metrics[where] = {} if bad is None else {"score": bad}
    ours = [result({"arm": "ours"}, i, m) for i, m in enumerate(metrics)]
    base = [result({"arm": "base"}, i, {"score": 0.0}) for i in range(len(values))]
    tests = [
        Compare(OURS, BASE, ">", -1e6),
        Compare(OURS, BASE, "<", 1e6, interval="exact"),
        Compare(OURS, BASE, ">", -1e6, pair=()),
        Threshold(OURS, ">", -1e6),
        Threshold(Sample("score"), ">", -1e6),
        Holds(OURS, at_least=-1e6),
        Trend("seed", OURS, low=-1e6, group=(), min_groups=1),
    ]
    for test in tests:
        assert verdict(test, [*ours, *base]).outcome is Outcome.INCONCLUSIVE


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=8), st.floats(1.2, 5))
@settings(max_examples=40, deadline=None)
def test_scaling_our_arm_scales_the_ratio(values, factor):
    base = [1.0 + 0.1 * i for i in range(len(values))]
    test = Compare(OURS, BASE, ">", 1.0, how="ratio")
    before = verdict(test, arms(values, base))
    after = verdict(test, arms([v * factor for v in values], base))
    assert after.effect == pytest.approx(before.effect * factor)
    assert after.low == pytest.approx(before.low * factor)


def test_a_claim_reads_the_trials_that_its_samples_match():
    paired = claim(Compare(OURS, BASE, ">", 0.0))
    assert paired.reads({"arm": "ours", "size": 3}, Scale.LAPTOP)
    assert paired.reads({"arm": "base"}, Scale.LAPTOP)
    assert not paired.reads({"arm": "other"}, Scale.LAPTOP)
    assert not paired.reads({"arm": "ours"}, Scale.PAPER)  # it is not measured there
    trend = claim(Trend("size", Sample("score", {"part": "sweep"}), low=0.0))
    assert trend.reads({"part": "sweep"}, Scale.LAPTOP)
    assert not trend.reads({}, Scale.LAPTOP)
