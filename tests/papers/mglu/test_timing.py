"""Times of decode kernels, and what is refused."""

from __future__ import annotations

import pytest

from assay.papers.mglu import timing
from assay.toolkits import timing as toolkit


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(toolkit, "MAX_FOREIGN", 2.0)
    monkeypatch.setattr(toolkit, "MAX_SPREAD", 1e9)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("dtype", "cache"), [("fp32", "warm"), ("bf16", "cold")])
def test_decode_reports_every_arm(dtype, cache):
    found = timing.decode(64, 32, dtype, cache=cache, repeats=4)
    for arm in ("torch", "glu", *(f"mglu{n}" for n in (1, 2, 4, 8)), "mglu4_bytes", "mglu8_bytes"):
        assert found[f"{arm}_per_s"] > 0
        assert found[f"{arm}_gb_s"] > 0
    assert found["best_glu_per_s"] == max(found["torch_per_s"], found["glu_per_s"])
    size = {"fp32": 4, "bf16": 2}[dtype]
    read = {"glu": 2 * 64 * 32 * size, "mglu4": 64 * 32 * size + 4 * 32 * 8}
    for arm, count in read.items():
        assert found[f"{arm}_gb_s"] == pytest.approx(count * found[f"{arm}_per_s"] / 1e9)


@pytest.mark.usefixtures("quiet")
def test_naive_times_the_printed_layer():
    found = timing.naive(64, 32, 2, repeats=4)
    assert min(found[f"{arm}_per_s"] for arm in ("mglu", "naive", "premasked")) > 0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="dtype: got 'int8', wants one of fp32, bf16, fp16"):
        timing.decode(8, 8, "int8")
    with pytest.raises(ValueError, match="cache: got 'hot', wants one of cold, warm"):
        timing.decode(8, 8, "fp32", cache="hot")
