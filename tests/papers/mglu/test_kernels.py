"""Every kernel against a dense computation in fp64."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from assay.papers.mglu import kernels
from assay.papers.mglu.kernels import dense, glu_hidden, mglu_hidden, native, numba_cpu
from assay.papers.mglu.packing import pack_masks

ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}
compiled = pytest.mark.skipif(native.library() is None, reason=native.reason() or "compiled")


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_where_there_is_a_compiler_the_extra_holds_all_that_the_kernels_need():
    assert native.reason() == ""


def problem(n, h, d, batch=1, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, h, generator=g).to(dtype)
    weight = torch.randn(d, h, generator=g).to(dtype)
    masks = torch.rand(n, d, h, generator=g) > 0.5
    return x, weight, masks


def expected(x, weight, masks, activation="silu", scale=None):
    x, weight = x.double(), weight.double()
    scale = torch.ones(len(masks), len(x)) if scale is None else scale
    return sum(
        s[:, None].double()
        * ACTIVATIONS[activation](F.linear(x, weight * m))
        * F.linear(x, weight * ~m)
        for s, m in zip(scale, masks, strict=True)
    )


def error(got, wanted):
    # One column gives zero whatever the mask, as gate or value is empty.
    return ((got - wanted).abs().max() / wanted.abs().max().clamp(min=0.1)).item()


def isas():
    return native.isas() or ("scalar",)


@compiled
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("layout", ["planes", "bytes"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("h", [1, 31, 64, 130, 257])
def test_native_kernel_on_every_instruction_set(monkeypatch, isa, layout, dtype, h):
    monkeypatch.setenv("ASSAY_MGLU_ISA", isa)
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 16):
        if layout == "bytes" and n > 8:
            continue
        x, weight, masks = problem(n, h, 67, batch=2, dtype=dtype)
        wanted = expected(x, weight, masks)
        bits = pack_masks(masks, layout)
        # the kernel's own fp32 sums, before they are rounded to the dtype of x
        out = native.mglu_hidden(x, weight, bits, None, n, layout, "silu")
        assert out.dtype == dtype
        assert error(out, wanted) < (3e-6 if dtype == torch.float32 else 4e-3), n


@compiled
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_native_activations_scales_and_the_plain_glu(monkeypatch, isa, activation):
    monkeypatch.setenv("ASSAY_MGLU_ISA", isa)
    x, weight, masks = problem(4, 100, 70, batch=3)
    scale = torch.rand(4, 3)
    out = native.mglu_hidden(x, weight, pack_masks(masks), scale, 4, "planes", activation)
    assert error(out, expected(x, weight, masks, activation, scale)) < 3e-6
    gate, value = F.linear(x.double(), weight.double()).chunk(2, dim=-1)
    plain = native.glu_hidden(x, weight, activation)
    assert error(plain, ACTIVATIONS[activation](gate) * value) < 3e-6


@compiled
def test_activations_hold_at_the_ends():
    x = torch.tensor([[1.0]])
    for value in (0.0, 1e-8, 30.0, 200.0, -30.0, -200.0):
        weight = torch.tensor([[value], [1.0]])
        for name, g in ACTIVATIONS.items():
            got = native.glu_hidden(x, weight, name)
            torch.testing.assert_close(got, g(weight[:1]).T, rtol=1e-5, atol=1e-6)


@compiled
def test_native_kernel_at_a_size_of_models():
    x, weight, masks = problem(4, 4096, 256)
    out = native.mglu_hidden(x, weight, pack_masks(masks), None, 4, "planes", "relu")
    assert error(out, expected(x, weight, masks, "relu")) < 1e-5


@compiled
def test_an_instruction_set_the_cpu_lacks_is_refused(monkeypatch):
    monkeypatch.setenv("ASSAY_MGLU_ISA", "sve")
    with pytest.raises(ValueError, match="ASSAY_MGLU_ISA: got 'sve', wants one of scalar"):
        native.best_isa()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["planes", "bytes"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 77, 33), (8, 64, 5)])
def test_numba_kernel(dtype, layout, shape):
    n, h, d = shape
    tolerance = 3e-6 if dtype == torch.float32 else 4e-3
    x, weight, masks = problem(n, h, d, batch=2, dtype=dtype)
    scale = torch.rand(n, 2)
    out = numba_cpu.mglu_hidden(x, weight, pack_masks(masks, layout), scale, n, layout, "gelu")
    assert out.dtype == dtype
    assert error(out, expected(x, weight, masks, "gelu", scale)) < tolerance
    both = torch.cat([weight, weight.flip(0)])
    gate, value = F.linear(x.double(), both.double()).chunk(2, dim=-1)
    assert error(numba_cpu.glu_hidden(x, both, "relu"), F.relu(gate) * value) < tolerance


@pytest.mark.parametrize("layout", ["planes", "bytes"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dense_path(layout, dtype):
    x, weight, masks = problem(3, 30, 20, batch=40, dtype=dtype)
    scale = torch.rand(3, 40)
    out = dense.mglu_hidden(x, weight, pack_masks(masks, layout), scale, 3, layout, "silu")
    assert out.dtype == dtype
    tolerance = {8: 1e-12, 4: 3e-6, 2: 3e-2}[dtype.itemsize]
    assert error(out, expected(x, weight, masks, "silu", scale)) < tolerance


INTERPRETED = """
import torch
from assay.papers.mglu.kernels import dense, glu_hidden, mglu_hidden
from assay.papers.mglu.packing import pack_masks

torch.manual_seed(0)
for n, h, d, batch, dtype in [
    (4, 100, 70, 1, torch.float32), (3, 33, 9, 2, torch.float32), (1, 8, 1, 1, torch.float32),
    (4, 100, 70, 1, torch.float16), (16, 40, 6, 1, torch.float32),
]:
    x, weight = torch.randn(batch, h).to(dtype), torch.randn(d, h).to(dtype)
    masks = torch.rand(n, d, h) > 0.5
    for layout in ("planes", "bytes")[: 2 if n <= 8 else 1]:
        bits = pack_masks(masks, layout)
        for activation in ("silu", "gelu", "relu"):
            for scale in (None, torch.rand(n, batch)):
                out = mglu_hidden(x, weight, bits, n, layout, activation, scale, "triton")
                want = dense.mglu_hidden(
                    x.double(), weight.double(), bits, scale, n, layout, activation
                )
                error = ((out - want).abs().max() / want.abs().max().clamp(min=0.1)).item()
                assert out.dtype == dtype
                assert error < (3e-6 if dtype == torch.float32 else 1e-3), (n, layout, error)
    both = torch.cat([weight, weight.flip(0)])
    got = glu_hidden(x, both, "gelu", "triton")
    want = dense.glu_hidden(x.double(), both.double(), "gelu")
    assert ((got - want).abs().max() / want.abs().max()).item() < 1e-3
print("agrees")
"""


def test_triton_kernel_in_the_interpreter(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # read when the kernel's module is imported
    answer = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, timeout=300
    )
    assert answer.stdout == "agrees\n", answer.stderr


def test_operators_are_well_formed():
    x, weight, masks = problem(2, 24, 10)
    bits = pack_masks(masks)
    torch.library.opcheck(
        torch.ops.assay_mglu.mglu_hidden, (x, weight, bits, None, 2, "planes", "silu", "torch")
    )
    torch.library.opcheck(torch.ops.assay_mglu.glu_hidden, (x, weight, "silu", "torch"))


@pytest.mark.parametrize("backend", ["auto", "cpu", "torch"])
@pytest.mark.parametrize("batch", [1, 16, 17])
def test_backends_agree_through_the_operator(backend, batch):
    x, weight, masks = problem(2, 50, 12, batch)
    out = mglu_hidden(x, weight, pack_masks(masks), 2, backend=backend)
    assert error(out, expected(x, weight, masks)) < 3e-6
    both = torch.cat([weight, -weight])
    gate, value = F.linear(x.double(), both.double()).chunk(2, dim=-1)
    assert error(glu_hidden(x, both, backend=backend), F.silu(gate) * value) < 3e-6


def test_what_cannot_run_here_is_said():
    with pytest.raises(ValueError, match="backend: 'triton' wants the package triton and weights"):
        kernels.choose_backend("triton", "cpu", torch.float32)
    with pytest.raises(ValueError, match="backend: 'cpu' wants weights on the CPU, got 'cuda'"):
        kernels.choose_backend("cpu", "cuda", torch.float32)
    with pytest.raises(ValueError, match="backend: got 'gpu', wants one of auto, triton, cpu"):
        kernels.choose_backend("gpu", "cpu", torch.float32)


NO_COMPILER = """
import logging, sys
logging.basicConfig(format="%(message)s")
import torch
from assay.papers.mglu.kernels import choose_backend, native
print([choose_backend("auto", "cpu", t) for t in (torch.float32, torch.bfloat16, torch.float16)])
"""


def test_without_a_compiler_it_falls_back_and_says_so_once(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    answer = subprocess.run(
        [sys.executable, "-c", NO_COMPILER], capture_output=True, text=True, timeout=120
    )
    assert answer.stdout == "['numba', 'numba', 'torch']\n", answer.stderr
    lines = [line for line in answer.stderr.splitlines() if line.startswith("mglu decodes")]
    assert [line.split(":")[0] for line in lines] == [
        "mglu decodes with numba",
        "mglu decodes with torch",
    ]
    assert list((tmp_path / "mglu").iterdir()) == [], "nothing half-built is left"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(1, 7)}, r"x: got \(1, 7\) torch.float32, wants \(batch, 8\)"),
        ({"x": torch.zeros(1, 8).double()}, r"x: got \(1, 8\) torch.float64, wants"),
        ({"x": torch.zeros(8)}, r"x: got \(8,\)"),
        ({"n_masks": 3}, r"mask_bits: got \(2, 4, 1\) torch.uint8, wants \(3, 4, 1\)"),
        ({"layout": "bytes"}, r"mask_bits: got \(2, 4, 1\) torch.uint8, wants \(4, 8\)"),
        ({"scale": torch.ones(1, 2)}, r"scale: got \(1, 2\), wants \(2, 1\)"),
        ({"activation": "tanh"}, "activation: got 'tanh', wants one of silu, gelu, relu"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {
        "x": torch.zeros(1, 8),
        "weight": torch.zeros(4, 8),
        "mask_bits": torch.zeros(2, 4, 1, dtype=torch.uint8),
        "n_masks": 2,
    }
    with pytest.raises(ValueError, match=message):
        mglu_hidden(**{**arguments, **change})
