"""Times of decode kernels."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.papers.mglu.cost import decode_cost
from assay.papers.mglu.instructions import ISAS
from assay.papers.mglu.kernels import glu_hidden, mglu_hidden, native
from assay.papers.mglu.packing import mask_shape
from assay.papers.mglu.reference import mglu_terms
from assay.toolkits.checks import one_of
from assay.toolkits.timing import Arms, interleave

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_EVICT_BYTES = 256 << 20


def decode(
    h: int,
    d: int,
    dtype: str,
    n_masks: Sequence[int] = (1, 2, 4, 8),
    cache: str = "cold",
    isa: str = "best",
    repeats: int = 30,
    device: str = "cpu",
    seed: int = 0,
) -> dict[str, float]:
    """Times one token's gate and value projections with activation, at batch 1.

    Arms: torch's `linear` on the gate and value matrices as one (2 d, h) matrix; our GLU kernel;
    our MGLU kernel with n masks as planes; with 4 and 8 masks as bytes. On a GPU, Triton kernels
    stand in for the C++ ones.

    Args:
        h: hidden size.
        d: intermediate size.
        dtype: "fp32", "bf16" or "fp16".
        n_masks: numbers of masks to time as planes.
        cache: "cold" evicts caches before each call, as the other layers of a model do; "warm"
            does not.
        isa: CPU instruction set: "best", "avx512_bf16", "avx512", "avx2" or "scalar".
        repeats: timings of each arm.
        device: "cpu" or "cuda".
        seed: of the weights.

    Returns:
        For each arm "<arm>_per_s", tokens a second, and "<arm>_gb_s", weight bytes read over
        time in GB/s; "best_glu_per_s", the faster of the two baselines; "copy_gb_s", what a plain
        sum over as much memory reads; "isa", the code of the instruction set used (-1 for none of
        them, as on a GPU); and "spread", "foreign", "rounds" of `interleave`.

    Raises:
        ValueError: an unknown dtype or cache, or an instruction set this CPU lacks.
        RuntimeError: an instruction set is named and there are no C++ kernels.
    """
    one_of("dtype", dtype, tuple(DTYPES))
    one_of("cache", cache, ("cold", "warm"))
    generator = torch.Generator().manual_seed(seed)
    kind: Any = {"dtype": DTYPES[dtype], "device": device}
    x = torch.randn(1, h, generator=generator).to(**kind)
    both = (torch.randn(2 * d, h, generator=generator) / math.sqrt(h)).to(**kind)
    weight = both[:d].clone()
    arms: dict[str, Callable[[], Any]] = {
        "torch": lambda: _torch_glu(x, both),
        "glu": lambda: glu_hidden(x, both),
    }
    read = dict.fromkeys(arms, both.nbytes)
    for n, layout in [(n, "planes") for n in n_masks] + [(n, "bytes") for n in (4, 8)]:
        name = f"mglu{n}" if layout == "planes" else f"mglu{n}_bytes"
        bits = torch.randint(
            0, 256, mask_shape(n, d, h, layout), dtype=torch.uint8, generator=generator
        ).to(device)
        arms[name] = _mglu_arm(x, weight, bits, n, layout)
        read[name] = weight.nbytes + bits.nbytes
    with _isa(isa):
        times = _cuda(arms, cache) if device == "cuda" else _cpu(arms, cache, repeats)
        used = ISAS.index(native.best_isa()) if native.library() and device == "cpu" else -1
    metrics: dict[str, float] = {
        k: times[k] for k in ("spread", "foreign", "rounds", "copy_gb_s") if k in times
    }
    metrics["isa"] = float(used)
    for name, size in read.items():
        metrics[f"{name}_per_s"] = 1 / times[f"{name}_s"]
        metrics[f"{name}_gb_s"] = size / times[f"{name}_s"] / 1e9
    rates = [metrics["torch_per_s"], metrics["glu_per_s"]]
    metrics["best_glu_per_s"] = max(rates) if all(map(math.isfinite, rates)) else math.nan
    return metrics


def naive(h: int, d: int, n_masks: int, repeats: int = 3, seed: int = 0) -> dict[str, float]:
    """Times our kernel against the layer as printed, which masks the weights at each call.

    Also against the fair variant: the 2 n masked matrices made once and kept, in fp32.

    Args:
        h, d, n_masks: sizes.
        repeats: timings of each arm.
        seed: of the weights.

    Returns:
        "mglu_per_s", "naive_per_s", "premasked_per_s", tokens a second; and "spread", "foreign",
        "rounds" of `interleave`.
    """
    from assay.papers.mglu.packing import pack_masks

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, h, generator=generator)
    weight = torch.randn(d, h, generator=generator) / math.sqrt(h)
    logits = torch.randn(n_masks, d, h, generator=generator)
    bits = pack_masks(logits > 0)
    gates = torch.cat([weight * (mask > 0) for mask in logits])
    values = torch.cat([weight * (mask <= 0) for mask in logits])

    def premasked() -> Tensor:
        products = F.silu(F.linear(x, gates)) * F.linear(x, values)
        return products.unflatten(1, (n_masks, d)).sum(1)

    def literal() -> Tensor:
        with torch.no_grad():
            return mglu_terms(x, weight, logits, F.silu).sum(0)

    times = interleave(
        {
            "mglu": _mglu_arm(x, weight, bits, n_masks, "planes"),
            "naive": literal,
            "premasked": premasked,
        },
        repeats,
        _evictor(),
    )
    rates = {f"{k[:-2]}_per_s": 1 / v for k, v in times.items() if k.endswith("_s")}
    return {**rates, **{k: times[k] for k in ("spread", "foreign", "rounds")}}


def decode_bytes(h: int, d: int, n_masks: int) -> dict[str, float]:
    """Counts the bytes of a packed block against the gate and value matrices of a 16-bit GLU.

    Returns:
        "saving", 1 - packed / GLU; "saving_bytes_layout", the same for a byte a weight;
        "counted", 1 if `decode_cost` predicts the packed block exactly.
    """
    from assay.papers.mglu.packed import PackedMGLU

    cost = decode_cost(h, d, n_masks)
    packed = PackedMGLU(h, d, n_masks, dtype=torch.bfloat16).weight_bytes()
    glu = 2 * torch.empty(d, h, dtype=torch.bfloat16).nbytes
    in_bytes = PackedMGLU(h, d, n_masks, layout="bytes", dtype=torch.bfloat16).weight_bytes()
    return {
        "saving": 1 - packed / glu,
        "saving_bytes_layout": 1 - in_bytes / glu,
        "counted": float((packed, glu) == (cost.bytes_mglu_packed, cost.bytes_glu)),
    }


def _torch_glu(x: Tensor, both: Tensor) -> Tensor:
    gate, value = F.linear(x, both).chunk(2, dim=-1)
    return F.silu(gate) * value


def _mglu_arm(x: Tensor, weight: Tensor, bits: Tensor, n: int, layout: str) -> Callable[[], Tensor]:
    return lambda: mglu_hidden(x, weight, bits, n, layout)


def _cpu(arms: Arms, cache: str, repeats: int) -> dict[str, float]:
    evict = _evictor()
    times = interleave(arms, repeats, evict if cache == "cold" else lambda: None)
    start = time.perf_counter()
    for _ in range(5):
        evict()
    return {**times, "copy_gb_s": 5 * _EVICT_BYTES / (time.perf_counter() - start) / 1e9}


def _evictor() -> Callable[[], Any]:
    # A read of more memory than caches hold leaves nothing of the weights in them.
    scratch = torch.ones(_EVICT_BYTES // 4)
    return scratch.sum


def _cuda(arms: Arms, cache: str) -> dict[str, float]:
    from triton.testing import do_bench, do_bench_cudagraph

    bench = do_bench if cache == "cold" else do_bench_cudagraph  # the first flushes L2
    return {f"{name}_s": bench(arm, return_mode="median") / 1e3 for name, arm in arms.items()}


@contextmanager
def _isa(isa: str) -> Iterator[None]:
    if isa == "best":
        yield
        return
    before = os.environ.get("ASSAY_MGLU_ISA")
    os.environ["ASSAY_MGLU_ISA"] = isa
    try:
        native.best_isa()
        yield
    finally:
        if before is None:
            del os.environ["ASSAY_MGLU_ISA"]
        else:
            os.environ["ASSAY_MGLU_ISA"] = before
