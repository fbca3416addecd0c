"""The benchmark of a step: what it reports, and memory, which does not depend on the machine."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from assay.papers.adasig.step_cost import step_cost  # noqa: E402
from assay.toolkits import timing  # noqa: E402


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_every_arm_is_timed_and_weighed(mode, monkeypatch):
    monkeypatch.setattr(timing, "MAX_FOREIGN", 2.0)
    monkeypatch.setattr(timing, "MAX_SPREAD", 1e9)
    found = step_cost(["mlp_20k"], batch=128, repeats=3, grad_sample_mode=mode)
    assert found["mlp_20k_parameters"] == 784 * 24 + 24 + 24 * 10 + 10
    gradients = 128 * found["mlp_20k_parameters"] * 4 / 2**20
    for arm in ("flat", "sigmoid", "adasig"):
        assert 0 < found[f"mlp_20k_{arm}_s"] < 60
        assert (found[f"mlp_20k_{arm}_peak_mb"] > gradients) == (mode == "hooks")
    for arm in ("sigmoid", "adasig"):
        ratio = found[f"mlp_20k_{arm}_s"] / found["mlp_20k_flat_s"]
        assert found[f"mlp_20k_{arm}_time_ratio"] == pytest.approx(ratio)
        if mode == "hooks":
            assert 0.95 < found[f"mlp_20k_{arm}_memory_ratio"] <= 1.05


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"sizes: got 'vit', wants one of mlp_20k, cnn_26k"):
        step_cost(["vit"])
    with pytest.raises(ValueError, match=r"grad_sample_mode: got 'ew', wants one of hooks, ghost"):
        step_cost(grad_sample_mode="ew")
