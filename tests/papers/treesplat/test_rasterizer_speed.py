"""What the benchmark times."""

from __future__ import annotations

import math

import pytest

from assay.papers.treesplat import rasterizer_speed


def once(arms, repeats):
    for arm in arms.values():
        arm()
    return {f"{name}_s": float(k + 1) for k, name in enumerate(arms)}


def test_every_arm_runs(monkeypatch):
    monkeypatch.setattr(rasterizer_speed, "interleave", once)
    found = rasterizer_speed.speed(40, 24)
    assert [found[k] for k in ("ours_s", "forward_s", "torch_projection_s", "dense_s")] == [
        1.0,
        2.0,
        3.0,
        4.0,
    ]
    assert found["radius"] > 1
    assert found["threads"] >= 1


def test_what_is_too_large_for_the_dense_reference_is_not_timed(monkeypatch):
    monkeypatch.setattr(rasterizer_speed, "interleave", once)
    monkeypatch.setattr(rasterizer_speed, "MAX_DENSE", 100)
    assert math.isnan(rasterizer_speed.speed(40, 24)["dense_s"])


def test_the_table_has_a_line_for_each_size(monkeypatch, capsys):
    monkeypatch.setattr(rasterizer_speed, "interleave", once)
    monkeypatch.setattr(rasterizer_speed, "SIZES", ((30, 16), (50, 24)))
    rasterizer_speed.main()
    head, *lines = capsys.readouterr().out.splitlines()
    assert "dense/step" in head
    assert [line.split()[0] for line in lines] == ["30", "50"]


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="n: got 0"):
        rasterizer_speed.speed(0, 16)
