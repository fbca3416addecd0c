"""The study: what its trials measure, and what is drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from assay.papers.psmbench.measurements import PARTS
from assay.papers.psmbench.study import study
from assay.study import Result, Results, Scale, Status


class Context:
    slug = "psmbench"
    threads = 1
    device = "cpu"

    def __init__(self, scale, seed=0, root=None, cache=None):
        self.scale = scale
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.series = {}
        self._root, self._cache = root, cache

    def data(self, name=""):
        return self._root / name

    def cache(self):
        return self._cache

    def record(self, series, step, value):
        self.series.setdefault(series, []).append((step, value))


def result(trial, metrics, series=None) -> Result:
    return Result("k", dict(trial.params), trial.seed, Status.OK, dict(metrics), series or {})


@pytest.fixture(scope="module")
def smoke() -> Results:
    return Results(
        [
            result(trial, study.run(trial, Context(Scale.SMOKE, trial.seed)))
            for trial in study.trials(Scale.SMOKE)
        ]
    )


def test_smoke_needs_no_data_and_is_repeatable(smoke):
    assert all(not trial.needs for trial in study.trials(Scale.SMOKE))
    for trial, before in zip(study.trials(Scale.SMOKE), smoke, strict=True):
        again = study.run(trial, Context(Scale.SMOKE, trial.seed))
        assert again == before.metrics


def test_more_damage_scores_less(smoke):
    for operation in ("delete", "shuffle"):
        found = smoke.where(operation=operation, seed=0)
        by_level = {r.params["level"]: r.metrics["transition_f1"] for r in found}
        assert by_level[0.0] == 1
        assert by_level[0.0] > by_level[0.5] > by_level[1.0]


def test_larger_scales_say_what_they_need():
    for trial in study.trials(Scale.LAPTOP):
        assert trial.needs, trial.params


@pytest.mark.parametrize("part", ["corpus", "false-match", "cell"])
def test_parts_on_the_published_data(part, bench, embedder):
    trial = next(t for t in study.trials(Scale.LAPTOP) if t.params["part"] == part)
    context = Context(Scale.LAPTOP, root=bench.root, cache=embedder.path.parent.parent)
    metrics = PARTS[part](dict(trial.params), context)
    assert metrics
    assert all(np.isfinite(value) for value in metrics.values())


def synthetic_results() -> Results:
    """Results of the laptop scale with made-up figures, for the shape of figures and tables."""
    rng = np.random.default_rng(0)
    found = []
    for trial in study.trials(Scale.LAPTOP):
        names = METRICS[str(trial.params["part"])]
        metrics = {name: float(rng.uniform(0.1, 0.9)) for name in names}
        series = {}
        if trial.params["part"] == "model":
            series = {"state_f1": [(0.3, 0.8), (0.5, metrics["state_f1"]), (0.9, 0.2)]}
        found.append(result(trial, metrics, series))
    return Results(found)


_PRF = [
    f"{kind}_{field}"
    for kind in ("state", "transition")
    for field in ("matched", "extracted", "gold", "precision", "recall", "f1")
]
METRICS = {
    "corpus": ["protocols", "states", "transitions", "segments", "characters"],
    "cell": _PRF,
    "model": [*_PRF, "macro_state_f1", "macro_transition_f1", "micro_gap", "one_to_one_state_f1",
              "partial_transition_f1"],
    "best": ["state_micro_f1"],
    "ranking": ["state_tau", "transition_tau"],
    "baseline": ["state_tau", "transition_tau", "best_state_f1", "best_transition_f1"],
    "false-match": ["pairs", "false_match_rate", "largest_cosine"],
    "damage": [f"{p}{k}_f1" for p in ("", "strict_", "exact_") for k in ("state", "transition")],
    "speed": ["speedup"],
    "live": ["valid_rate"],
}  # fmt: skip


def test_figures_are_drawn_with_numbers_in_their_alt_texts():
    figures = list(study.figures(synthetic_results()))
    assert [figure.name for figure in figures] == [
        "leaderboard",
        "heat-map",
        "thresholds",
        "damage",
    ]
    known = {claim.id for claim in study.claims}
    for figure in figures:
        assert any(sign.isdigit() for sign in figure.alt)
        assert set(figure.claims) <= known
        drawn = figure.draw()
        drawn.canvas.draw()
        plt.close(drawn)


def test_smoke_figures(smoke):
    assert [figure.name for figure in study.figures(smoke)] == ["damage"]
    assert list(study.figures(Results())) == []
    assert list(study.tables(Results())) == []


def test_tables_are_rectangular():
    tables = list(study.tables(synthetic_results()))
    assert [table.name for table in tables] == [
        "leaderboard",
        "strict",
        "protocols",
        "ranking",
        "matchers",
        "false-matches",
        "corpus",
    ]
    for table in tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_figures_and_tables_survive_missing_parts():
    found = synthetic_results()
    for part in METRICS:
        some = Results([r for r in found if r.params["part"] != part])
        for figure in study.figures(some):
            plt.close(figure.draw())
        list(study.tables(some))


def test_no_claim_of_the_paper_is_left_without_a_scale_that_decides_it():
    for claim in study.claims:
        assert Scale.LAPTOP in claim.protocol
