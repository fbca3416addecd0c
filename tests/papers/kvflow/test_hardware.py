"""Costs by the roofline, against sums written out."""

import math

import pytest

from assay.papers.kvflow.hardware import Hardware, ModelShape


def test_bytes_of_the_papers_models():
    assert ModelShape.qwen2_5_32b().kv_bytes_per_token == 256 * 1024
    assert ModelShape.llama3_1_8b().kv_bytes_per_token == 128 * 1024
    assert ModelShape.smollm2_135m().kv_bytes_per_token == 46_080
    assert ModelShape.smollm2_135m(dtype_bytes=2).kv_bytes_per_token == 23_040


def test_a_prefill_is_bound_by_compute_and_a_decode_step_by_memory():
    model = ModelShape(10**9, 4, 8, 2, 16)
    gpu = Hardware("x", 1e14, 1000, 10e9, 10, 0.5, 0.5, 0.5)
    # Token i of the prompt attends to the cached ones, those before it and itself.
    pairs = sum(100 + i for i in range(1, 5001))
    flops = 2 * 1e9 * 5000 + 4 * 4 * 8 * 16 * pairs
    assert gpu.prefill_s(model, 5000, 100) == pytest.approx(flops / 0.5e14)
    kv = 2 * 4 * 2 * 16 * 2 * (100 + 200)
    assert gpu.decode_s(model, [100, 200]) == pytest.approx((2e9 + kv) / 0.5e12)
    assert gpu.copy_s(5e9) == pytest.approx(1.0)


def test_short_prefills_are_bound_by_reading_the_weights():
    model = ModelShape(10**9, 4, 8, 2, 16)
    gpu = Hardware("x", 1e14, 1000, 10e9, 10, 0.5, 0.5, 0.5, step_s=0.001)
    assert gpu.prefill_s(model, 1) == pytest.approx(2e9 / 0.5e12 + 0.001)


def test_room_beside_the_weights():
    model = ModelShape.llama3_1_8b()
    assert Hardware.a10g().kv_bytes(model) == int(24e9 * 0.9) - model.weight_bytes
    with pytest.raises(ValueError, match="weights of 65"):
        Hardware.a10g().kv_bytes(ModelShape.qwen2_5_32b())


def test_measured_costs():
    cpu = Hardware.measured(100.0, 0.05, link_gbps=2.0, prefill_s=0.01, decode_request_s=0.02)
    model = ModelShape.smollm2_135m()
    assert cpu.prefill_s(model, 50, 1000) == pytest.approx(0.51)
    assert cpu.decode_s(model, [7, 8, 9]) == pytest.approx(0.09)
    assert cpu.copy_s(1e9) == pytest.approx(0.5)
    assert Hardware.measured(1.0, 0.0).copy_s(1e9) == 0


@pytest.mark.parametrize("make", [Hardware.h100, Hardware.h200, Hardware.a100, Hardware.a10g])
def test_presets_take_a_link_and_efficiencies(make):
    gpu = make(link_gbps=10.0, link_efficiency=0.25)
    assert gpu.copy_s(1e9) == pytest.approx(0.4)
    assert make().link_gbps > 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hardware.h100(link_gbps=0), "link_gbps: got 0"),
        (lambda: Hardware.h100(link_efficiency=1.5), "link_efficiency: got 1.5"),
        (lambda: Hardware.h100(step_s=-1), "step_s: got -1"),
        (lambda: Hardware.measured(0, 1), "prefill_tokens_per_s: got 0"),
        (lambda: Hardware.measured(1, math.nan), "decode_step_s: got nan"),
        (lambda: Hardware.measured(1, 1, link_gbps=-1), "link_gbps: got -1"),
        (lambda: ModelShape(0, 1, 1, 1, 1), "n_params: got 0"),
        (lambda: Hardware.h100().kv_bytes(ModelShape.llama3_1_8b(), 0), "share: got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
