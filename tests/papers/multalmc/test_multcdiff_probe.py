from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.papers.multalmc.multcdiff_probe import SETTINGS, Setting, probe, target_of

EXACT = Setting(average="draw", target="rising", n_steps=400)


def test_with_the_exact_law_of_y_the_weights_come_out_right():
    found = probe(EXACT, n=1000)
    # Four standard errors of the whole, and the error of 400 steps.
    assert found["tv"] < 0.1
    assert found["in_mode"] > 0.97
    assert found["variance"] == pytest.approx(0.7, abs=0.1)
    assert found["weights"][7] > 4 * found["weights"][0]


def test_a_short_horizon_ends_in_the_mode_nearest_the_origin_even_then():
    found = probe(replace(EXACT, T=2.0))
    assert found["tv"] > 0.5
    assert max(found["weights"]) == found["weights"][5]


def test_the_papers_grid_needs_more_steps_even_with_the_exact_score():
    few = probe(Setting(average="exact", grid="ou", n_steps=400))
    ours = probe(Setting(average="exact", n_steps=400))
    assert few["tv"] > ours["tv"] + 0.2


def test_behind_a_high_barrier_chains_end_where_their_fast_variable_began():
    anywhere = probe(Setting(n_steps=200, eps=0.3))
    assert anywhere["kept"] > 0.9
    narrow = probe(Setting(n_steps=200, eps=0.3, start_scale=1.0))
    assert narrow["weights"][5] > 0.9
    right = probe(Setting(n_steps=200, eps=0.3, start="target"))
    assert right["tv"] < 0.1


def test_every_setting_names_a_target():
    for setting in SETTINGS.values():
        assert target_of(setting).mode_weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("field", ["average", "target", "start", "grid", "dynamics"])
def test_a_word_that_is_none_is_refused(field):
    with pytest.raises(ValueError, match=field):
        probe(replace(Setting(n_steps=50), **{field: "other"}), n=4)


def test_a_run_that_is_refused_has_no_weights():
    found = probe(Setting(n_steps=200, eps=0.0025), n=100)
    assert found["weights"] == []
    assert torch.tensor(found["tv"]).isnan()
