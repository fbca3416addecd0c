"""What the paper claims, and what would decide it."""

from __future__ import annotations

from collections.abc import Mapping

from assay.study import Claim, Compare, Holds, Param, Protocol, Sample, Scale, Trend

_ALL_PROXY = dict.fromkeys((Scale.SMOKE, Scale.LAPTOP, Scale.GPU), Protocol.PROXY)
_CPU_PROXY = {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.PROXY}
_LM_PROXY = {Scale.LAPTOP: Protocol.PROXY, Scale.GPU: Protocol.PROXY}
_EXACT = dict.fromkeys(Scale, Protocol.EXACT)

_GPU_SPEED = "batch 1, fp16; RTX 5090, at 2048 x 8192 and at 4096 x 14336"
_LM_SETTING = "FineWeb-Edu 10B, 12 layers, h 768, d 3072; one seed"
_ONE_SEED = (
    "The paper trains one model a row. Its perplexities are turned into nats a token; ours are "
    "nats a byte, of which a token has several. At laptop scale each kind has the learning rate "
    "that was best for it; at gpu scale one rate, not searched, serves all."
)


def _arm(kind: str, n_masks: int = 0, masks: str = "none", **more: Param) -> Mapping[str, Param]:
    return {"what": "lm", "kind": kind, "n_masks": n_masks, "masks": masks, **more}


def _lower(
    ours: Mapping[str, Param], baseline: Mapping[str, Param], margin: float = 0.0
) -> Compare:
    return Compare(Sample("held_out_nll", ours), Sample("held_out_nll", baseline), "<", margin)


GELU = _arm("gelu")
SWIGLU = _arm("swiglu")
SHARED = _arm("shared")


def learned(n_masks: int) -> Mapping[str, Param]:
    """Parameters of the language model trials with n trained masks."""
    return _arm("mglu", n_masks, "learned")


def fixed(n_masks: int) -> Mapping[str, Param]:
    """Parameters of the language model trials with n masks left as drawn."""
    return _arm("mglu", n_masks, "fixed")


def _bytes_claim(n_masks: int, printed: str) -> Claim:
    predicted = 1 - (16 + n_masks) / 32
    return Claim(
        f"C1-n{n_masks}",
        f"An MGLU block with {n_masks} mask{'s' * (n_masks > 1)} reads "
        f"{predicted:.1%} fewer weight bits a token than a GLU block.",
        printed,
        "16-bit weights, arithmetic",
        "Table 2",
        Holds(
            Sample("saving", {"what": "bytes", "n_masks": n_masks}),
            at_least=predicted - 0.001,
            at_most=predicted + 0.001,
        ),
        _EXACT,
        "Counted on the packed state. The paper's kernel reads one byte of masks a weight, which "
        "saves 25 % whatever the number of masks; bit planes save what is claimed.",
    )


def _speed_claim(bits: int, n_masks: int, printed: str) -> Claim:
    name = "bf16 (fp16 on a GPU)" if bits == 16 else "fp32"
    return Claim(
        f"C2-{bits}bit-n{n_masks}",
        f"Batch-1 decoding through {n_masks} mask{'s' * (n_masks > 1)} on {bits}-bit weights is "
        "faster than through a GLU.",
        printed,
        _GPU_SPEED,
        "abstract, latency tables",
        Compare(
            Sample(f"mglu{n_masks}_per_s", {"what": "decode", "bits": bits}),
            Sample("best_glu_per_s", {"what": "decode", "bits": bits}),
            ">",
            1.0,
            how="ratio",
            min_trials=5,
            each=("size",),
        ),
        _ALL_PROXY if bits == 16 else _CPU_PROXY,
        f"{name}; tokens a second over the faster of two baselines, torch's linear on gate and "
        "value as one matrix and our own GLU kernel with the same loops; caches are cold. The "
        "outcome on a CPU depends on its instruction set: see the table.",
    )


def _naive_claim(n_masks: int, printed: str, least: float) -> Claim:
    return Claim(
        f"C3-n{n_masks}",
        f"The kernel is at least {least:g} times as fast as the printed PyTorch layer with "
        f"{n_masks} mask{'s' * (n_masks > 1)}.",
        printed,
        "batch 1, fp16, 2048 x 8192, RTX 5090",
        "abstract, latency tables",
        Compare(
            Sample("mglu_per_s", {"what": "naive", "n_masks": n_masks}),
            Sample("naive_per_s", {"what": "naive", "n_masks": n_masks}),
            ">",
            least,
            how="ratio",
        ),
        {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.PROXY},
        "A weak baseline, as it draws the masks from their logits and masks the weights at every "
        "call; the table has the fair variant, masked matrices made once and kept. In fp32.",
    )


CLAIMS = (
    _bytes_claim(1, "47 % fewer"),
    _bytes_claim(4, "37.5 % fewer"),
    _speed_claim(16, 1, "1.51x and 1.31x"),
    _speed_claim(16, 4, "1.41x and 1.29x"),
    _speed_claim(16, 8, "1.15x and 1.24x"),
    _speed_claim(32, 1, "1.51x and 1.31x (in fp16)"),
    _speed_claim(32, 4, "1.41x and 1.29x (in fp16)"),
    _speed_claim(32, 8, "1.15x and 1.24x (in fp16)"),
    _naive_claim(1, "3.5x", 3.5),
    _naive_claim(8, "19.66x", 10.0),
    Claim(
        "C4",
        "Four masks lose less than 0.02 nats a byte to SwiGLU, with a third fewer feed-forward "
        "weights.",
        "perplexity 23.9 against 23.7, that is +0.008 nats a token; zero-shot mean 46.48 against "
        "46.20",
        _LM_SETTING,
        "Tables 1 and 3",
        {
            scale: _lower(learned(4), SWIGLU, 0.02)
            for scale in (Scale.SMOKE, Scale.LAPTOP, Scale.GPU)
        },
        {Scale.SMOKE: Protocol.PROXY, **_LM_PROXY},
        f"{_ONE_SEED} Its accuracies differ by less than the standard error of such tasks.",
    ),
    Claim(
        "C5",
        "More masks lower the loss, from one to four.",
        "perplexity 25.0, 24.5, 23.9 for 1, 2, 4 masks: -0.022 nats a doubling",
        _LM_SETTING,
        "Table 3",
        Trend(
            "n_masks",
            Sample("held_out_nll", {"what": "lm", "kind": "mglu", "masks": "learned"}),
            high=0.0,
            log_x=True,
        ),
        _LM_PROXY,
        "The coefficient is nats for each factor e in the number of masks. " + _ONE_SEED,
    ),
    Claim(
        "C6-gated",
        "Gating helps: SwiGLU has a lower loss than GELU with equal hidden sizes.",
        "perplexity 23.7 against 25.8: -0.085 nats",
        _LM_SETTING,
        "Table 3",
        _lower(SWIGLU, GELU),
        _LM_PROXY,
        "SwiGLU has one matrix more. " + _ONE_SEED,
    ),
    Claim(
        "C6-masked",
        "Four masks have a lower loss than GELU with equally many 16-bit weights.",
        "perplexity 23.9 against 25.8: -0.077 nats",
        _LM_SETTING,
        "Table 3",
        _lower(learned(4), GELU),
        _LM_PROXY,
        _ONE_SEED,
    ),
    Claim(
        "C6-shared",
        "SwiGLU with one matrix for gate and value is worse than SwiGLU.",
        "perplexity 27.0 against 23.7: +0.130 nats",
        _LM_SETTING,
        "Table 3",
        _lower(SWIGLU, SHARED),
        _LM_PROXY,
        _ONE_SEED,
    ),
    Claim(
        "C6-shared-gelu",
        "SwiGLU with one matrix for gate and value is even worse than GELU.",
        "perplexity 27.0 against 25.8: +0.045 nats",
        _LM_SETTING,
        "Table 3",
        _lower(GELU, SHARED),
        _LM_PROXY,
        _ONE_SEED,
    ),
    *(
        Claim(
            f"C7-n{n}",
            f"{word} a lower loss than masks left as they were drawn.",
            printed,
            _LM_SETTING,
            "ablations, Table 3",
            _lower(learned(n), fixed(n)),
            _LM_PROXY,
            f"{note}{_ONE_SEED}",
        )
        for n, word, printed, note in (
            (
                1,
                "One learned mask has",
                "perplexity 25.0 against 25.1: -0.004 nats",
                "The paper itself sees next to no difference. ",
            ),
            (2, "Two learned masks have", "perplexity 24.5 against 25.1: -0.024 nats", ""),
            (4, "Four learned masks have", "none printed", "The paper prints one and two masks. "),
        )
    ),
    Claim(
        "C8",
        "A training step with four masks takes longer than one with SwiGLU.",
        "2x in the text; 33 against 22 GPU hours (1.5x) and 1376 against 768 (1.8x) in the table",
        "H100, FineWeb-Edu",
        "Section 5 and the table of training cost",
        Compare(
            Sample("mglu4_s", {"what": "step"}),
            Sample("swiglu_s", {"what": "step"}),
            ">",
            1.0,
            how="ratio",
        ),
        {Scale.LAPTOP: Protocol.PROXY, Scale.GPU: Protocol.PROXY},
        "A cost that the paper states; the ratio is of whole steps of the same small model.",
    ),
    Claim(
        "C9",
        "Four masks ride out high learning rates better than SwiGLU.",
        "none printed; loss curves with fewer spikes",
        "FineWeb-Edu, at several learning rates",
        "Appendix B",
        Compare(
            Sample("rise", {**learned(4), "what": "spike"}),
            Sample("rise", {**SWIGLU, "what": "spike"}),
            "<",
            0.0,
        ),
        _LM_PROXY,
        "How far the running loss climbs above its own minimum, in nats. Both have a learning rate "
        "of 0.03, at least ten times what is best for them.",
    ),
)
