"""Budgets, constants and measurements that the study's trials rest on."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import assay.papers.multalmc
from assay.papers.multalmc import targets
from assay.papers.multalmc.arms import draw, seeded, steps_within
from assay.papers.multalmc.film import film
from assay.papers.multalmc.measurements import _ladder, _reached, _shares, _target
from assay.papers.multalmc.tuning import candidates

EIGHT = targets.eight_gaussians()


@pytest.mark.parametrize("sampler", ["multalmc", "overdamped", "multcdiff", "pt", "rdmc", "ula"])
def test_no_sampler_evaluates_more_than_its_budget_and_none_much_less(sampler):
    target = "plane" if sampler == "overdamped" else "eight"
    constants = candidates(target, sampler)[-1]
    params = {"sampler": sampler, "chains": 4, "evaluations": 4000, **constants}
    result = draw(EIGHT, params, 0)
    assert 0.9 * 4000 < result.n_grad + result.n_logp <= 4000


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_steps_are_as_many_as_a_budget_buys(schedule, delta):
    steps = steps_within(1000, schedule, 5, 2, delta)
    assert steps % 2 == 0
    constants = {"step": 0.01, "eps": 0.3, "delta": delta, "schedule": schedule}
    for more, fits in ((0, True), (2, False)):
        params = {"chains": 2, "evaluations": 1, "steps": steps + more, **constants}
        result = draw(EIGHT, params, 0)
        assert (result.n_grad <= 1000) is fits


def test_equal_seeds_draw_equally_and_others_do_not():
    params = {"sampler": "ula", "chains": 5, "evaluations": 20, "step": 0.1}
    first, again, other = (draw(EIGHT, params, seed).samples for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_sampler_that_is_none_is_refused():
    with pytest.raises(ValueError, match="sampler: got 'magic'"):
        draw(EIGHT, {"sampler": "magic", "chains": 2, "evaluations": 9}, 0)


def test_a_level_is_reached_between_the_points_around_it():
    curve = [(100, 0.8), (200, 0.4), (400, 0.1)]
    assert _reached(curve, 0.4) == pytest.approx(200)
    assert _reached(curve, 0.2) == pytest.approx(200 * math.sqrt(2))
    assert _reached(curve, 0.9) == 100
    assert math.isnan(_reached(curve, 0.05))


def test_budgets_rise_by_four_and_one_arm_may_have_one_more():
    assert _ladder(6400, 1) == [100, 400, 1600, 6400]
    assert _ladder(6400, 4) == [100, 400, 1600, 6400, 25600]


def test_shares_of_exact_samples_are_the_weights():
    shares = _shares(EIGHT.sample(4000, seeded(0)), EIGHT)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares - 1 / 8).abs().max() < 0.02


def test_a_film_rests_on_its_last_frame():
    frames = np.random.default_rng(0).normal(size=(9, 20, 2))
    content = film(frames, np.linspace(0, 1, 9).tolist(), EIGHT.modes.numpy())
    picture = Image.open(io.BytesIO(content))
    assert picture.n_frames == 5
    picture.seek(4)
    assert picture.info["duration"] == 2500


def test_the_cards_target_is_the_one_that_nuts_is_measured_on():
    card = Path(assay.papers.multalmc.__file__).with_name("README.md").read_text()
    example = re.findall(r"^```python\n(.*?)^```", card, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(example[: example.index("sampler =")], names)
    x = 10 + 8 * torch.randn(50, 2, generator=seeded(0))
    measured = _target({"target": "three", "dim": 2})
    gap = names["log_density"](x) - measured.log_prob(x)  # type: ignore[operator]
    assert torch.allclose(gap, gap[:1].expand(50), atol=1e-4)
