"""Questions of ours: weights of modes, exact answers, what a step costs."""

from __future__ import annotations

from assay.papers.multalmc.settings import (
    LONGER,
    METRICS,
    NAMES,
    OVERHEAD,
    PLACES,
    SEEDS,
    arm,
)
from assay.study import Claim, Compare, Holds, Protocol, Sample, Scale, Threshold, Trend

_OURS = {Scale.LAPTOP: Protocol.EXACT}
_OURS_SMOKE = {**_OURS, Scale.SMOKE: Protocol.EXACT}

_BUMPS = "three bumps of weights 0.2, 0.5 and 0.3, 4 to 12 standard deviations apart"
_THREE = "three bumps of weights 0.2, 0.5 and 0.3, twelve standard deviations apart"


def _weights(baseline: str) -> Claim:
    return Claim(
        f"X1-{baseline}",
        f"The mode weights of MultALMC on eight Gaussians err less than half as much as those of "
        f"{NAMES[baseline]}.",
        "none printed",
        "eight Gaussians in the plane, equal evaluations",
        "ours",
        Compare(
            Sample("weight_tv", arm("eight", "multalmc")),
            Sample("weight_tv", arm("eight", baseline)),
            "<",
            0.5,
            how="ratio",
            min_trials=SEEDS,
        ),
        _OURS if baseline == "smc" else _OURS_SMOKE,
        "Total variation between the shares of samples in each mode and 1/8.",
    )


def _floor(target: str) -> Claim:
    """Two sets of exact samples are apart too: no sampler can be expected to come closer."""
    where, _, _ = PLACES[target]
    metric = "sliced KS" if METRICS[target] == "sliced_ks" else "entropic W2"
    return Claim(
        f"X9-{target}",
        f"Draws of MultALMC lie, by {metric}, at most a quarter farther from {where} than exact "
        "samples do.",
        "none printed",
        f"{where}, as compared above",
        "ours",
        Compare(
            Sample(METRICS[target], arm(target, "multalmc")),
            Sample(METRICS[target], arm(target, "exact")),
            "<",
            1.25,
            how="ratio",
            min_trials=SEEDS,
        ),
        _OURS,
        "Both from the same third set.",
    )


def _weights_of_three(sampler: str, name: str, id: str, note: str) -> Claim:
    return Claim(
        f"X8-{id}",
        f"On the target of the card's example {name} finds the weights of the modes.",
        "none printed",
        _THREE,
        "ours",
        Threshold(Sample("weight_tv", arm("three", sampler)), "<", 0.1, min_trials=SEEDS),
        _OURS,
        f"Total variation of the weights below 0.1. {note}",
    )


def _gate(
    id: str,
    statement: str,
    metric: str,
    limit: float,
    note: str,
) -> Claim:
    return Claim(
        id,
        statement,
        "none printed",
        "N(3, 1/4) and two Gaussians of weights 0.3 and 0.7",
        "ours",
        Threshold(
            Sample(metric, {"part": "gate", "sampler": "multcdiff"}),
            "<",
            limit,
            min_trials=SEEDS,
        ),
        _OURS_SMOKE,
        note,
    )


def _overhead(kind: str, calls: str, note: str) -> Claim:
    return Claim(
        f"X7-{kind}",
        f"A run takes less than {OVERHEAD:g} times as long as a bare loop of the same calls "
        f"{calls}.",
        "none printed",
        "forty Gaussians, 4,096 chains in 50 dimensions",
        "ours",
        Threshold(Sample(f"{kind}_ratio", {"part": "step"}), "<", OVERHEAD),
        _OURS,
        note,
    )


QUESTIONS: tuple[Claim, ...] = (
    _weights("ula"),
    _weights("smc"),
    Claim(
        "X1-bias",
        "The mode weights of MultALMC on eight Gaussians err more than twice as much as those of "
        "exact samples.",
        "none printed",
        "eight Gaussians in the plane, equal evaluations",
        "ours",
        Compare(
            Sample("weight_tv", arm("eight", "multalmc")),
            Sample("weight_tv", arm("eight", "exact")),
            ">",
            2.0,
            how="ratio",
            min_trials=SEEDS,
        ),
        _OURS_SMOKE,
        "Supported means biased: the error is more than that of as many exact samples.",
    ),
    Claim(
        "X2-modes",
        "MultALMC finds all modes of eight Gaussians.",
        "none printed",
        "eight Gaussians in the plane",
        "ours",
        Holds(Sample("modes", arm("eight", "multalmc")), at_least=8, min_trials=SEEDS),
        _OURS_SMOKE,
        "A mode is found where at least a quarter of its share of the chains end in it.",
    ),
    Claim(
        "X2-nuts",
        "NUTS, from the same start, stays in one mode of eight Gaussians.",
        "none printed",
        "eight Gaussians in the plane",
        "ours",
        Threshold(Sample("largest", arm("eight", "nuts")), ">", 0.9, min_trials=SEEDS),
        _OURS,
        "More than 90 % of the chains end in the same mode.",
    ),
    Claim(
        "X8-nuts",
        "On the target of the card's example NUTS stays in the mode nearest to its start.",
        "none printed",
        _THREE,
        "ours",
        Threshold(Sample("weight_tv", arm("three", "nuts")), ">", 0.7, min_trials=SEEDS),
        _OURS,
        "Total variation of the weights above 0.7, which only 90 % in the mode of weight 0.2 give.",
    ),
    Claim(
        "X8-modes",
        "On the target of the card's example MultALMC finds all modes.",
        "none printed",
        _THREE,
        "ours",
        Holds(Sample("modes", arm("three", "multalmc")), at_least=3, min_trials=SEEDS),
        _OURS,
        "At least a quarter of its share of the chains in each.",
    ),
    _weights_of_three("multalmc", "MultALMC", "weights", "With constants not searched on it."),
    _weights_of_three(
        "averaged",
        "MultALMC with the path's exact score",
        "averaged",
        "What the fast variable costs: all else is as in X8-weights.",
    ),
    _weights_of_three(
        "pt", "parallel tempering", "pt", "With constants not searched on it, equal evaluations."
    ),
    Claim(
        "X8-near",
        "Of three modes six standard deviations apart MultALMC finds the weights.",
        "none printed",
        _BUMPS,
        "ours",
        Threshold(
            Sample(
                "weight_tv", {"part": "apart", "sampler": "multalmc", "distance": 6.0, "times": 1}
            ),
            "<",
            0.1,
            min_trials=SEEDS,
        ),
        _OURS,
        "Total variation of the weights below 0.1; equal weights would have 0.17.",
    ),
    Claim(
        "X8-blind",
        "MultALMC's draws tell a far mode that weighs 0.8 from one that weighs 0.2.",
        "none printed",
        _BUMPS,
        "ours",
        Compare(
            Sample("nearest", {"part": "far", "nearest": 0.8, "fast_scale": "path"}),
            Sample("nearest", {"part": "far", "nearest": 0.2, "fast_scale": "path"}),
            ">",
            0.3,
            min_trials=SEEDS,
        ),
        _OURS,
        "Its share of the draws differs by more than half of 0.6. Twelve deviations apart.",
    ),
    Claim(
        "X8-target",
        "On the target's own scale of the fast variable, too, MultALMC finds all three far modes.",
        "none printed",
        _BUMPS,
        "ours",
        Threshold(
            Sample("modes", {"part": "far", "fast_scale": "target"}), ">", 2.5, min_trials=SEEDS
        ),
        _OURS,
        "At least a quarter of its share of the chains in each. Twelve standard deviations apart.",
    ),
    Claim(
        "X8-apart",
        "The weights of MultALMC err the more the farther modes are apart.",
        "none printed",
        _BUMPS,
        "ours",
        Trend(
            "distance",
            Sample("weight_tv", {"part": "apart", "sampler": "multalmc", "times": 1}),
            low=0.0,
            method="spearman",
            min_groups=SEEDS,
        ),
        _OURS,
        "Mean over seeds of the rank correlation. The table has the run with the exact score, too, "
        "as modes farther apart are farther from the start.",
    ),
    Claim(
        "X8-longer",
        f"The weights of MultALMC err less than half as much in a run {LONGER} times as long.",
        "none printed",
        _THREE,
        "ours",
        Compare(
            Sample(
                "weight_tv",
                {"part": "apart", "sampler": "multalmc", "distance": 12.0, "times": LONGER},
            ),
            Sample(
                "weight_tv",
                {"part": "apart", "sampler": "multalmc", "distance": 12.0, "times": 1},
            ),
            "<",
            0.5,
            how="ratio",
            min_trials=SEEDS,
        ),
        _OURS,
        f"Slower by a factor of {LONGER}, all else equal.",
    ),
    *map(_floor, ("eight", "rings", "funnel", "wells")),
    Claim(
        "X9-width",
        "The modes of MultALMC on eight Gaussians are less than a tenth too wide.",
        "none printed",
        f"{PLACES['eight'][0]}, as compared above",
        "ours",
        Threshold(Sample("spread", arm("eight", "multalmc")), "<", 1.1, min_trials=SEEDS),
        _OURS,
        "Mean squared distance to the nearest mode, over that of exact samples: W2 hardly sees it.",
    ),
    _gate(
        "X3-mean",
        "MultCDiff finds the mean of a Gaussian to a tenth of its standard deviation.",
        "mean_error",
        0.1,
        "Of N(3, 1/4).",
    ),
    _gate(
        "X3-variance",
        "MultCDiff finds the variance of a Gaussian to a fifth.",
        "variance_error",
        0.2,
        "Of N(3, 1/4), relative.",
    ),
    _gate(
        "X3-weights",
        "MultCDiff finds the weights of two modes to 0.1.",
        "weight_error",
        0.1,
        "Six standard deviations of a mode from each other.",
    ),
    Claim(
        "X4",
        "MultALMC inflates the variance of a Gaussian the more the larger epsilon is.",
        "none printed",
        "N(3, 1/4)",
        "ours",
        Trend("eps", Sample("variance_excess", {"part": "inflation"}), low=0.0, min_groups=SEEDS),
        _OURS_SMOKE,
        "Slope of the relative excess over epsilon; zero would be no inflation.",
    ),
    Claim(
        "X5",
        "With equal evaluations, more stages of the stabilised integrator give better samples.",
        "none printed; the paper holds the number of steps fixed",
        "forty Gaussians",
        "ours",
        Trend(
            "stages",
            Sample("w2", {"part": "stages", "fixed": "evaluations"}),
            high=0.0,
            method="spearman",
            min_groups=SEEDS,
        ),
        _OURS_SMOKE,
        "More stages then mean fewer steps.",
    ),
    Claim(
        "X6",
        "Every equation that was derived, and every exact answer, passes an independent check.",
        "none printed",
        "Gaussians, mixtures, lattices: whatever has a closed form",
        "ours",
        Holds(Sample("over_limit", {"part": "oracle"}), at_most=1.0, min_trials=10),
        _OURS_SMOKE,
        "Error over its limit; the table of oracles has both.",
    ),
    _overhead(
        "written",
        "of a mixture's score, written out",
        "On one thread. The table of times has what its normal numbers alone take.",
    ),
    _overhead("autograd", "of a mixture's score by automatic differentiation", "On one thread."),
    _overhead(
        "compiled",
        "of a mixture's score, written out, both through torch.compile",
        "On one thread. Normal numbers are drawn outside of compiled code.",
    ),
)
