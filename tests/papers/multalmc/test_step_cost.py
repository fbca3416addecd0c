"""The measurement of a step's cost measures what it says."""

import math

import pytest
import torch

from assay.papers.multalmc import step_cost as module
from assay.papers.multalmc.step_cost import KINDS, step_cost
from assay.papers.multalmc.targets.mixtures import forty_gaussians


def test_steps_and_bare_loops_call_the_score_equally_often(monkeypatch):
    seen = {}

    def count(arms, repeats):
        for name, arm in arms.items():
            calls.clear()
            arm()
            seen[name] = len(calls)
        return {f"{name}_s": float(seen[name] or 1) for name in arms}

    calls = []

    class Counting(type(forty_gaussians(2))):
        def score(self, x):
            calls.append(len(x))
            return super().score(x)

    counting = Counting(forty_gaussians(3).means)
    monkeypatch.setattr(module, "forty_gaussians", lambda dim: counting)
    monkeypatch.setattr(module, "interleave", count)
    monkeypatch.setattr(module, "KINDS", ("written",))
    found = step_cost(8, 3, 1)
    assert seen["written_early"] == seen["written_early_scores"] == 40
    assert seen["written_late"] == seen["written_late_scores"] == 56
    assert found["written_ratio"] == 1
    assert seen["noise"] == 0
    assert found["noise_ratio"] == pytest.approx(1 / (0.6 * 40 + 0.4 * 56))


def test_malas_density_is_the_targets():
    pytest.importorskip("blackjax")
    jax = pytest.importorskip("jax")
    target = forty_gaussians(3)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    state = module._mala(target, x)()
    moved = torch.tensor(jax.device_get(state.position))
    torch.testing.assert_close(
        torch.tensor(jax.device_get(state.logdensity_grad)),
        target.score(moved),
        atol=1e-3,
        rtol=1e-3,
    )


def test_it_runs():
    found = step_cost(16, 4, 2)
    for kind in KINDS:
        assert {f"{kind}_early_s", f"{kind}_late_s", f"{kind}_ratio"} <= set(found)
        assert math.isnan(found[f"{kind}_ratio"]) or found[f"{kind}_ratio"] > 0
    assert "noise_ratio" in found


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"^n_chains: got 0"):
        step_cost(0)
