"""The four kinds of test that can decide a claim. Declarations only; `judge` evaluates them.

Each asks for an effect past a margin. `op` names the side: with ">" the claim is supported when the
whole 95 % interval of the effect lies above the margin, and refuted when it lies wholly below.

`each` names parameters: the test is then applied to every combination of their values apart, and
all of them must pass (the claim is supported if every group is, refuted if one group is). Support
needs no correction for the number of groups, as requiring all of them is the stricter test. A
refutation gets none either: among many groups it may rest on a single one, which the reason names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from assay.study.vocabulary import Param

Op: TypeAlias = Literal[">", "<"]
Interval: TypeAlias = Literal["t", "bootstrap", "proportion", "exact"]

_LEAST_TRIALS = {"exact": 1, "bootstrap": 10}
"""A bootstrap never leaves the range of its sample, so on few trials it is too narrow: without any
effect it lies wholly above zero in 11 % of samples of three normal values, in 7 % of six, in 4 % of
ten, where 2.5 % are meant."""

_NO_PARAMS: Mapping[str, Param] = MappingProxyType({})


@dataclass(frozen=True)
class Sample:
    """Which numbers of the ledger: a metric of the trials whose params equal `where`."""

    metric: str
    where: Mapping[str, Param] = field(default_factory=lambda: _NO_PARAMS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", MappingProxyType(dict(self.where)))

    def matches(self, params: Mapping[str, Param]) -> bool:
        """Whether trials of these parameters are among those that it reads."""
        return all(params.get(name) == value for name, value in self.where.items())


def _check(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: got {value!r}, wants one of {', '.join(allowed)}")


def _finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name}: got {value}, wants a finite number")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name}: got {value}, wants at least {least}")


@dataclass(frozen=True)
class Compare:
    """Ours against a baseline.

    The effect is `ours - baseline` (`how="difference"`) or `ours / baseline` (`how="ratio"`, the
    geometric mean over pairs; all values must be positive). With `pair` (names of params, or
    "seed") each pair has equal values of them; replicates within a pair are averaged first. An
    empty `pair` compares two independent samples (Welch).

    Args:
        ours, baseline: the two arms; they may be two metrics of the same trials.
        op, margin: ">" 1.1 asks for an effect above 1.1.
        how: "difference" or "ratio".
        pair: what the two halves of a pair share.
        interval: "t", "bootstrap" (BCa over pairs, 10,000 draws), or "exact" for measurements
            without any random part: then the effect of every pair must lie past the margin.
        min_trials: least number of pairs (or of trials in each arm) for a decision; at least 2,
            with a bootstrap 10, with "exact" 1.
        each: parameters within whose values the test is applied apart.
    """

    ours: Sample
    baseline: Sample
    op: Op
    margin: float
    how: Literal["difference", "ratio"] = "difference"
    pair: tuple[str, ...] = ("seed",)
    interval: Interval = "t"
    min_trials: int = 3
    each: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check("op", self.op, (">", "<"))
        _check("how", self.how, ("difference", "ratio"))
        _check("interval", self.interval, ("t", "bootstrap", "exact"))
        _finite("margin", self.margin)
        if self.how == "ratio" and self.margin <= 0:
            raise ValueError(f"margin: got {self.margin}, wants a ratio > 0")
        if self.interval == "exact" and not self.pair:
            raise ValueError("interval: 'exact' compares pairs, and pair is empty")
        _at_least("min_trials", self.min_trials, _LEAST_TRIALS.get(self.interval, 2))

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that it reads."""
        return self.ours, self.baseline


@dataclass(frozen=True)
class Threshold:
    """The mean of a metric against a fixed value.

    Args:
        sample: the measurements.
        op, value: ">" 0.9 asks for a mean above 0.9.
        interval: "t" or "bootstrap" over trials, "proportion" (Clopper-Pearson, for a metric
            that is 0 or 1), or "exact" for measurements without any random part: then every
            one of them must lie on the asked side (a value equal to the threshold does not).
        min_trials: least number of trials for a decision; at least 2, with a bootstrap 10, with
            "exact" 1.
        each: parameters within whose values the test is applied apart.
    """

    sample: Sample
    op: Op
    value: float
    interval: Interval = "t"
    min_trials: int = 3
    each: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check("op", self.op, (">", "<"))
        _check("interval", self.interval, ("t", "bootstrap", "proportion", "exact"))
        _finite("value", self.value)
        _at_least("min_trials", self.min_trials, _LEAST_TRIALS.get(self.interval, 2))

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that it reads."""
        return (self.sample,)


@dataclass(frozen=True)
class Trend:
    """How a metric moves with a parameter.

    Within each group of equal `group` values one coefficient is computed from the group's
    (x, y) points: the least-squares slope, or Spearman's rank correlation. Over the groups it is
    averaged with a t interval; with a single group a slope gets its regression interval and a
    rank correlation the Fisher interval (Bonett-Wright). The latter takes a perfect order for half
    a step less than 1, so that four points alone never decide.

    Args:
        x: the parameter (or "seed").
        y: the measurements.
        low, high: the range the coefficient must lie in; either may be infinite. `low=0` asks
            for a positive slope.
        method: "slope" or "spearman".
        log_x, log_y: take logarithms first; with both the slope is an exponent.
        group: parameters (or "seed") within which one coefficient is computed.
        min_points: least number of distinct x in each group.
        min_groups: least number of groups for a decision.
        each: parameters within whose values the test is applied apart.
    """

    x: str
    y: Sample
    low: float = -math.inf
    high: float = math.inf
    method: Literal["slope", "spearman"] = "slope"
    log_x: bool = False
    log_y: bool = False
    group: tuple[str, ...] = ("seed",)
    min_points: int = 3
    min_groups: int = 3
    each: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check("method", self.method, ("slope", "spearman"))
        if math.isnan(self.low) or math.isnan(self.high) or not self.low < self.high:
            raise ValueError(f"low, high: got {self.low}, {self.high}, wants low < high")
        if math.isinf(self.low) and math.isinf(self.high):
            raise ValueError("low, high: both infinite, so every trend would pass")
        _at_least("min_points", self.min_points, 3)
        _at_least("min_groups", self.min_groups, 1)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that it reads."""
        return (self.y,)


@dataclass(frozen=True)
class Holds:
    """A property that is true in every trial: the metric lies within [at_least, at_most].

    One exception refutes it. The reason names the worst trial.

    Args:
        sample: the measurements.
        at_least, at_most: the closed range; `at_least=1` for a metric that is 0 or 1, equal
            bounds for an equality.
        min_trials: least number of trials for a decision.
    """

    sample: Sample
    at_least: float = -math.inf
    at_most: float = math.inf
    min_trials: int = 1

    def __post_init__(self) -> None:
        if math.isnan(self.at_least) or math.isnan(self.at_most) or self.at_least > self.at_most:
            raise ValueError(
                f"at_least, at_most: got {self.at_least}, {self.at_most}, wants at_least <= at_most"
            )
        if math.isinf(self.at_least) and math.isinf(self.at_most):
            raise ValueError("at_least, at_most: both infinite, so every value would pass")
        _at_least("min_trials", self.min_trials, 1)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that it reads."""
        return (self.sample,)


Test: TypeAlias = Compare | Threshold | Trend | Holds
