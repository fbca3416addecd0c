"""Schedules and the friction's ramp."""

import math

import pytest

from assay.papers.multalmc.schedule import frictions, lambdas


def test_named_schedules():
    assert lambdas("linear", 4) == [0, 0.25, 0.5, 0.75]
    assert lambdas("cosine", 4) == pytest.approx(
        [0, 0.5 - math.sqrt(0.125), 0.5, 0.5 + math.sqrt(0.125)]
    )
    assert lambdas(lambda u: u**2, 2) == [0, 0.25]


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        (lambda u: 1 - abs(1 - 2 * u), "never fall"),
        (lambda u: 0.5 * u, "at u = 1"),
        (lambda u: 2 * u, "from 0 to 1"),
        (lambda u: math.nan, "from 0 to 1"),
        ("sine", "linear, cosine"),
    ],
)
def test_bad_schedules(schedule, what):
    with pytest.raises(ValueError, match=f"^schedule: got .*{what}"):
        lambdas(schedule, 10)


def test_schedule_of_the_wrong_kind():
    with pytest.raises(TypeError, match=r"^schedule: got 3"):
        lambdas(3, 10)


def test_friction_is_least_for_half_and_ends_at_the_largest():
    ramp = frictions((0.1, 0.5), 8)
    assert ramp[:4] == [0.1] * 4
    assert ramp[4:] == pytest.approx([0.2, 0.3, 0.4, 0.5])
    assert frictions(0.3, 3) == [0.3] * 3


@pytest.mark.parametrize("friction", [0.0, (0.5, 0.1), (0.1, 0.2, 0.3), math.nan, (-1.0, 1.0)])
def test_bad_friction(friction):
    with pytest.raises(ValueError, match=r"^friction: got"):
        frictions(friction, 8)


def test_a_ramp_needs_an_even_number_of_steps():
    with pytest.raises(ValueError, match=r"^n_steps: got 7, wants an even number"):
        frictions((0.1, 0.5), 7)
