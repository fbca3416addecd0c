from __future__ import annotations

import math
from dataclasses import fields

import pytest

from assay.papers.treesplat.config import TrainConfig


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"motion": "hexplane"}, "motion: got 'hexplane', wants one of none, flat, tree, mlp"),
        ({"backend": "cuda"}, "backend: got 'cuda', wants one of auto, gsplat, cpu, reference"),
        ({"steps": 0}, "steps: got 0, wants an integer >= 1"),
        ({"static_steps": -1}, "static_steps: got -1"),
        ({"cap_max": 2.5}, "cap_max: got 2.5, wants an integer"),
        ({"field_lr": math.nan}, "field_lr: got nan, wants a finite number"),
        ({"means_lr_final": 1.0}, "means_lr_final: got 1, wants > 0, <= means_lr"),
        ({"random_background": "yes"}, "random_background: got 'yes', wants True or False"),
        ({"sh_degree": 4}, "sh_degree: got 4, wants 0 to 3"),
        ({"seed": 2**70}, r"seed: got 1180591620717411303424, wants one below 2\*\*63"),
        ({"motion_options": 3}, "motion_options: got 3, wants a dictionary"),
        ({"l2_weight": 0.0, "ssim_weight": 0.0}, "l2_weight, l1_weight, ssim_weight: got 0"),
    ],
)
def test_bad_fields_are_named(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        TrainConfig(**change)


def test_every_field_is_documented():
    for one in fields(TrainConfig):
        assert f"        {one.name}: " in TrainConfig.__doc__, one.name


@pytest.mark.parametrize("steps", [1, 7, 120, 1200, 2500, 20_000])
def test_short_schedules_keep_their_order(steps):
    config = TrainConfig.short(steps)
    assert config.steps == steps
    assert config.static_steps <= config.grow_from <= config.grow_until <= steps


def test_short_is_the_laptop_schedule():
    config = TrainConfig.short(motion="flat")
    assert (config.steps, config.static_steps) == (2500, 300)
    assert (config.grow_from, config.grow_until, config.grow_every) == (400, 1750, 100)
    assert config.promote_every == 3
    assert config.cap_max == 2500
    assert config.motion == "flat"
