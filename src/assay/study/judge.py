"""From trials of the ledger to a verdict: intervals, margins, and the reason in one line."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from assay.study.results import Result, Results, identity
from assay.study.tests import Compare, Holds, Op, Sample, Test, Threshold, Trend
from assay.study.verdict import Outcome, Verdict
from assay.study.vocabulary import Claim, Need, Param, Protocol, Scale, Trial

CONFIDENCE = 0.95
_BOOTSTRAP_DRAWS = 10_000
_BOOTSTRAP_SEED = 20251202  # any fixed number: a verdict must not change when it is printed again

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Evidence:
    """What one test found: `passed` is True, False, or None where it cannot tell.

    `slack` is how far the interval lies on the asked side of the margin, to rank groups by.
    """

    passed: bool | None
    reason: str
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    slack: float = -math.inf


class _Undecidable(Exception):
    """The measurements do not allow the test; the message says why."""


def judge(
    claim: Claim,
    scale: Scale,
    planned: Sequence[Trial],
    results: Results,
    missing: Sequence[Need] = (),
) -> Verdict:
    """The verdict on a claim at a scale.

    Args:
        claim: what is judged.
        scale: the scale whose test and protocol apply.
        planned: the trials of that scale that measure the claim.
        results: what the ledger holds of that scale; those of other trials are ignored.
        missing: what the planned trials need and this machine lacks; only looked at where
            trials have no result.

    An unmeasured or incomplete claim is never decided: a failed trial gives `failed`, one without
    result gives `needs` or `inconclusive`.
    """
    if scale not in claim.protocol:
        where = ", ".join(claim.protocol)
        return Verdict(claim.id, scale, Outcome.NEEDS, f"not measured at {scale}; at {where} it is")
    test = claim.test_at(scale)
    protocol = claim.protocol[scale]
    verdict = Verdict(
        claim.id, scale, Outcome.INCONCLUSIVE, "", protocol=protocol, asked=asked(test)
    )

    found = {identity(r.params, r.seed): r for r in results}
    mine = [found.get(identity(t.params, t.seed)) for t in planned]
    broken = [r for r in mine if r is not None and not r.ok]
    if broken:
        return replace(verdict, outcome=Outcome.FAILED, n=len(broken), reason=_broken(broken))
    ran = [r for r in mine if r is not None]
    if len(ran) < len(planned) and missing:
        names = "; ".join(dict.fromkeys(describe(need) for need in missing))
        return replace(verdict, outcome=Outcome.NEEDS, reason=names, needs=tuple(missing))
    if len(ran) < len(planned) or not planned:
        return replace(verdict, reason=f"{len(ran)} of {len(planned)} trials run", n=len(ran))

    evidence = _evaluate(test, ran)
    return replace(
        verdict,
        outcome=_outcome(evidence.passed, protocol),
        reason=evidence.reason,
        effect=evidence.effect,
        low=evidence.low,
        high=evidence.high,
        n=evidence.n,
    )


def describe(need: Need) -> str:
    """One line that names a need and what provides it."""
    line = f"{need.kind} {need.name}"
    return f"{line}: {need.hint}" if need.hint else line


def asked(test: Test) -> str:
    """What a test asks for, such as "ratio > 1.10"."""
    match test:
        case Compare():
            return f"{test.how} {test.op} {_number(test.margin)}"
        case Threshold():
            return f"{test.op} {_number(test.value)}"
        case Trend():
            return f"{_trend_name(test)} {_range(test.low, test.high, strict=True)}"
        case Holds():
            return _range(test.at_least, test.at_most)
        case _:
            assert_never(test)


def _evaluate(test: Test, results: Sequence[Result]) -> _Evidence:
    """Applies a test to finished trials, of which there is at least one."""
    if isinstance(test, Holds):
        return _guarded(_holds, test, results)
    decide = _decider(test)
    if not test.each:
        return _guarded(decide, test, results)
    try:
        groups = _group(results, test.each)
    except _Undecidable as reason:
        return _Evidence(None, str(reason))
    return _weakest({g: _guarded(decide, test, members) for g, members in groups.items()})


def _decider(test: Compare | Threshold | Trend) -> Callable[..., _Evidence]:
    match test:
        case Compare():
            return _compare
        case Threshold():
            return _threshold
        case Trend():
            return _trend
        case _:
            assert_never(test)


def _guarded(
    decide: Callable[[_T, Sequence[Result]], _Evidence], test: _T, results: Sequence[Result]
) -> _Evidence:
    try:
        return decide(test, results)
    except _Undecidable as reason:
        return _Evidence(None, str(reason))


def _weakest(groups: Mapping[tuple[Param, ...], _Evidence]) -> _Evidence:
    """All groups must pass: one refuted group decides, then an undecided one."""
    rank = {False: 0, None: 1, True: 2}
    worst = min(groups, key=lambda g: (rank[groups[g].passed], groups[g].slack))
    evidence = groups[worst]
    name = ", ".join(str(v) for v in worst)
    if evidence.passed is True:
        reason = f"all {len(groups)} groups pass; the closest, {name}: {evidence.reason}"
        return replace(evidence, reason=reason)
    count = sum(e.passed is evidence.passed for e in groups.values())
    word = "refuted" if evidence.passed is False else "undecided"
    reason = f"{count} of {len(groups)} groups {word}; {name}: {evidence.reason}"
    return replace(evidence, reason=reason)


# The four tests


def _compare(test: Compare, results: Sequence[Result]) -> _Evidence:
    ours, baseline = _values(test.ours, results), _values(test.baseline, results)
    ratio = test.how == "ratio"
    if ratio and any(v <= 0 for _, v in ours + baseline):
        raise _Undecidable("a ratio needs positive values and some are not")
    scaled: Callable[[float], float] = math.log if ratio else float
    unscaled: Callable[[float], float] = math.exp if ratio else float

    if test.pair:
        effects = _paired(test, ours, baseline, scaled)
        _enough(len(effects), test.min_trials, "pairs")
        if test.interval == "exact":
            shown = [unscaled(e) for e in effects]
            return _exact(shown, test.op, test.margin, test.how, _count(len(shown), "pair"))
        effect, low, high = _mean_interval(effects, test.interval)
        n, counted = len(effects), _count(len(effects), "pair")
    else:
        a, b = [scaled(v) for _, v in ours], [scaled(v) for _, v in baseline]
        _enough(min(len(a), len(b)), test.min_trials, "trials in each arm")
        effect, low, high = _two_sample_interval(a, b, test.interval)
        n, counted = len(a) + len(b), f"{len(a)} against {len(b)} trials"
    return _decided(
        test.how, test.op, test.margin, unscaled(effect), unscaled(low), unscaled(high), n, counted
    )


def _paired(
    test: Compare,
    ours: list[tuple[Result, float]],
    baseline: list[tuple[Result, float]],
    scaled: Callable[[float], float],
) -> list[float]:
    def halves(side: list[tuple[Result, float]]) -> dict[tuple[Param, ...], float]:
        values = {id(result): scaled(value) for result, value in side}
        pairs = _group([result for result, _ in side], test.pair)
        return {
            pair: statistics.fmean(values[id(result)] for result in members)
            for pair, members in pairs.items()
        }

    left, right = halves(ours), halves(baseline)
    if lonely := left.keys() ^ right.keys():
        raise _Undecidable(f"{len(lonely)} halves of pairs are missing (paired by {test.pair})")
    return [left[pair] - right[pair] for pair in left]


def _threshold(test: Threshold, results: Sequence[Result]) -> _Evidence:
    values = [v for _, v in _values(test.sample, results)]
    _enough(len(values), test.min_trials, "trials")
    counted = _count(len(values), "trial")
    if test.interval == "exact":
        return _exact(values, test.op, test.value, "value", counted)
    if test.interval == "proportion":
        effect, low, high = _proportion_interval(values)
        name = "proportion"
    else:
        effect, low, high = _mean_interval(values, test.interval)
        name = "mean"
    return _decided(name, test.op, test.value, effect, low, high, len(values), counted)


def _holds(test: Holds, results: Sequence[Result]) -> _Evidence:
    pairs = _values(test.sample, results)
    _enough(len(pairs), test.min_trials, "trials")

    def excess(item: tuple[Result, float]) -> float:
        return max(test.at_least - item[1], item[1] - test.at_most)

    worst, value = max(pairs, key=excess)
    broken = sum(excess(item) > 0 for item in pairs)
    wanted = _range(test.at_least, test.at_most)
    if len(pairs) == 1:
        reason = f"{test.sample.metric} {_number(value)} in the one trial, asked {wanted}"
    else:
        held = f"broken in {broken} of {len(pairs)}" if broken else f"holds in all {len(pairs)}"
        reason = f"{held} trials: worst {_number(value)} ({_label(worst)}), asked {wanted}"
    low, high = min(v for _, v in pairs), max(v for _, v in pairs)
    return _Evidence(not broken, reason, value, low, high, len(pairs))


def _trend(test: Trend, results: Sequence[Result]) -> _Evidence:
    coefficients: list[float] = []
    single = (math.nan, math.nan)
    points = _values(test.y, results)
    for group, members in _group([r for r, _ in points], test.group).items():
        of = {id(r) for r in members}
        xy = [(_coordinate(r, test), _logged(v, test.log_y, "y")) for r, v in points if id(r) in of]
        if len({x for x, _ in xy}) < test.min_points:
            raise _Undecidable(
                f"group {', '.join(map(str, group)) or 'of all'} has fewer than "
                f"{test.min_points} distinct {test.x}"
            )
        coefficient, *single_interval = _coefficient(test.method, xy)
        coefficients.append(coefficient)
        single = (single_interval[0], single_interval[1])
    _enough(len(coefficients), test.min_groups, "groups")
    if len(coefficients) == 1:
        effect, (low, high) = coefficients[0], single
        counted = _count(len(points), "point")
    else:
        effect, low, high = _mean_interval(coefficients, "t")
        counted = _count(len(coefficients), "group")
    passed = None
    if math.isfinite(low) and math.isfinite(high):
        if test.low < low and high < test.high:
            passed = True
        elif high < test.low or low > test.high:
            passed = False
    name, wanted = _trend_name(test), _range(test.low, test.high, strict=True)
    reason = f"{name} {_interval(effect, low, high)} over {counted}, asked {wanted}"
    slack = min(low - test.low, test.high - high)
    return _Evidence(passed, reason, effect, low, high, len(coefficients), slack)


# Statistics


def _mean_interval(values: Sequence[float], kind: str) -> tuple[float, float, float]:
    """Mean with its 95 % interval; a zero width where all values agree."""
    import numpy as np
    from scipy import stats

    mean = statistics.fmean(values)
    if max(values) == min(values):
        return mean, mean, mean
    if kind == "bootstrap":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # BCa warns on degenerate samples; handled below
            found = stats.bootstrap(
                (np.asarray(values),),
                np.mean,
                confidence_level=CONFIDENCE,
                n_resamples=_BOOTSTRAP_DRAWS,
                method="BCa",
                rng=np.random.default_rng(_BOOTSTRAP_SEED),
            ).confidence_interval
        return mean, float(found.low), float(found.high)
    error = statistics.stdev(values) / math.sqrt(len(values))
    low, high = stats.t.interval(CONFIDENCE, len(values) - 1, mean, error)
    return mean, float(low), float(high)


def _two_sample_interval(
    a: Sequence[float], b: Sequence[float], kind: str
) -> tuple[float, float, float]:
    """Difference of means with its 95 % interval (Welch, or bootstrap of both samples)."""
    import numpy as np
    from scipy import stats

    difference = statistics.fmean(a) - statistics.fmean(b)
    if max(a) == min(a) and max(b) == min(b):
        return difference, difference, difference
    if kind == "bootstrap":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                (np.asarray(a), np.asarray(b)),
                lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
                confidence_level=CONFIDENCE,
                n_resamples=_BOOTSTRAP_DRAWS,
                method="BCa",
                rng=np.random.default_rng(_BOOTSTRAP_SEED),
            ).confidence_interval
        return difference, float(found.low), float(found.high)
    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(CONFIDENCE)
    return difference, float(interval.low), float(interval.high)


def _proportion_interval(values: Sequence[float]) -> tuple[float, float, float]:
    from scipy import stats

    if any(v not in (0, 1) for v in values):
        raise _Undecidable("a proportion needs a metric that is 0 or 1 in every trial")
    found = stats.binomtest(int(sum(values)), len(values)).proportion_ci(CONFIDENCE, "exact")
    return statistics.fmean(values), float(found.low), float(found.high)


def _coefficient(method: str, xy: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Slope or rank correlation of points, with the interval it has on its own."""
    from scipy import stats

    x, y = [p[0] for p in xy], [p[1] for p in xy]
    if method == "slope":
        fit = stats.linregress(x, y)
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(xy) - 2) * fit.stderr)
        return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half
    if max(y) == min(y):
        raise _Undecidable("a rank correlation of equal values is undefined")
    rho = float(stats.spearmanr(x, y).statistic)
    if len(xy) < 4:
        return rho, math.nan, math.nan
    # Bonett and Wright (2000): Fisher's z with variance (1 + rho^2 / 2) / (n - 3). It has no width
    # at +-1, where few points lie by chance: half the step to the next order of n points is left.
    most = 1 - 6 / (len(xy) ** 3 - len(xy))
    rho_in = min(max(rho, -most), most)
    half = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(
        (1 + rho_in**2 / 2) / (len(xy) - 3)
    )
    low, high = math.tanh(math.atanh(rho_in) - half), math.tanh(math.atanh(rho_in) + half)
    return rho, min(low, rho), max(high, rho)


# Reading the measurements


def _values(sample: Sample, results: Sequence[Result]) -> list[tuple[Result, float]]:
    """The sample's finite values; a missing or undefined one makes the test undecidable."""
    chosen = [r for r in results if all(r.value(k) == v for k, v in sample.where.items())]
    if not chosen:
        raise _Undecidable(f"no trial measured {_sample(sample)}")
    pairs: list[tuple[Result, float]] = []
    for result in chosen:
        value = result.metrics.get(sample.metric, math.nan)
        if not math.isfinite(value):
            raise _Undecidable(f"{sample.metric} is undefined in {_label(result)}")
        pairs.append((result, float(value)))
    return pairs


def _group(
    results: Sequence[Result], params: Sequence[str]
) -> dict[tuple[Param, ...], list[Result]]:
    groups: dict[tuple[Param, ...], list[Result]] = {}
    for result in results:
        values: list[Param] = []
        for name in params:
            value = result.value(name)
            if value is None:
                raise _Undecidable(f"no {name} in {_label(result)}")
            values.append(value)
        groups.setdefault(tuple(values), []).append(result)
    return groups


def _coordinate(result: Result, test: Trend) -> float:
    x = result.value(test.x)
    if x is None or isinstance(x, str):
        raise _Undecidable(f"{test.x} is {x!r} in {_label(result)}, a trend wants a number")
    return _logged(float(x), test.log_x, test.x)


def _logged(value: float, log: bool, name: str) -> float:
    if not log:
        return value
    if value <= 0:
        raise _Undecidable(f"logarithm of {name} = {_number(value)}")
    return math.log(value)


def _enough(n: int, least: int, what: str) -> None:
    if n < least:
        raise _Undecidable(f"{n} {what}, the test asks for {least}")


# Decisions and words


def _decided(
    name: str, op: Op, margin: float, effect: float, low: float, high: float, n: int, counted: str
) -> _Evidence:
    passed: bool | None = None
    if op == ">":
        passed = True if low > margin else False if high < margin else None
    else:
        passed = True if high < margin else False if low > margin else None
    reason = f"{name} {_interval(effect, low, high)} over {counted}, asked {op} {_number(margin)}"
    slack = low - margin if op == ">" else margin - high
    return _Evidence(passed, reason, effect, low, high, n, slack)


def _exact(values: Sequence[float], op: Op, margin: float, name: str, counted: str) -> _Evidence:
    """Measurements without a random part: each must lie strictly on the asked side."""
    worst = min(values) if op == ">" else max(values)
    passed = worst > margin if op == ">" else worst < margin
    which = "" if len(values) == 1 else "worst "
    reason = f"{which}{name} {_number(worst)} over {counted}, asked {op} {_number(margin)}"
    slack = worst - margin if op == ">" else margin - worst
    return _Evidence(passed, reason, worst, min(values), max(values), len(values), slack)


def _outcome(passed: bool | None, protocol: Protocol) -> Outcome:
    if passed is None:
        return Outcome.INCONCLUSIVE
    if passed:
        return Outcome.SUPPORTED
    return Outcome.CONTRADICTED if protocol is Protocol.EXACT else Outcome.NOT_REPRODUCED


def _broken(results: Sequence[Result]) -> str:
    first = results[0]
    return f"{_count(len(results), 'trial')} failed; {_label(first)}: {first.what_happened}"


def _number(value: float) -> str:
    """Three significant digits after the first that differs from a round number; never 1e-05."""
    if value == round(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    if 0.01 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) >= 100 else f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{value:.3g}"


def _interval(effect: float, low: float, high: float) -> str:
    return f"{_number(effect)}, 95 % interval {_number(low)} to {_number(high)}"


def _range(low: float, high: float, *, strict: bool = False) -> str:
    above, below = (">", "<") if strict else (">=", "<=")
    if math.isinf(low):
        return f"{below} {_number(high)}"
    if math.isinf(high):
        return f"{above} {_number(low)}"
    if low == high:
        return f"= {_number(low)}"
    return f"within {_number(low)} to {_number(high)}"


def _trend_name(test: Trend) -> str:
    if test.method == "spearman":
        return "rank correlation"
    return "exponent" if test.log_x and test.log_y else "slope"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _label(result: Result) -> str:
    params = ", ".join(f"{k}={v}" for k, v in result.params.items())
    return f"{params}, seed {result.seed}" if params else f"seed {result.seed}"


def _sample(sample: Sample) -> str:
    where = ", ".join(f"{k}={v}" for k, v in sample.where.items())
    return f"{sample.metric} where {where}" if where else sample.metric
