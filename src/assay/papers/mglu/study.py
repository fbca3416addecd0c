"""The experiments behind the claims: bytes, decode times, and small language models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.papers.mglu.claims import CLAIMS, GELU, SHARED, SWIGLU, fixed, learned
from assay.study import Context, Figure, Need, Param, Results, Scale, Study, Table, Trial

if TYPE_CHECKING:
    from assay.papers.mglu.language_model import Recipe

_SIZES = ("2048x8192", "4096x14336")
_SMALL = "768x3072"

_RECIPES: Mapping[Scale, Mapping[str, Any]] = {
    Scale.SMOKE: {
        "hidden": 32,
        "intermediate": 64,
        "layers": 1,
        "heads": 2,
        "context": 32,
        "batch": 8,
    },
    Scale.LAPTOP: {
        "hidden": 96,
        "intermediate": 256,
        "layers": 3,
        "heads": 4,
        "context": 96,
        "batch": 16,
    },
    Scale.GPU: {
        "hidden": 384,
        "intermediate": 1024,
        "layers": 12,
        "heads": 6,
        "context": 256,
        "batch": 64,
    },
}
STEPS = {Scale.SMOKE: 20, Scale.LAPTOP: 800, Scale.GPU: 1000}

TUNING_SEED = 20250629
TUNING_RATES = (1e-3, 2e-3, 3e-3, 6e-3)
FIRST_ROUND_STEPS = 400
FIRST_ROUND: Mapping[tuple[Param, ...], tuple[float, ...]] = {
    ("gelu", 0, "none"): (1.7990, 1.6967, 1.6397, 1.7013),
    ("swiglu", 0, "none"): (1.6255, 1.5424, 1.6202, 1.7853),
    ("shared", 0, "none"): (1.5924, 1.5402, 1.6244, 1.6912),
    ("mglu", 1, "learned"): (1.6586, 1.6748, 1.6715, 1.6995),
    ("mglu", 2, "learned"): (1.6431, 1.5377, 1.6112, 1.7249),
    ("mglu", 4, "learned"): (1.6215, 1.5130, 1.5078, 1.7094),
    ("mglu", 1, "fixed"): (1.6688, 1.6483, 1.6932, 1.7151),
    ("mglu", 2, "fixed"): (1.6272, 1.6507, 1.6580, 1.7005),
    ("mglu", 4, "fixed"): (1.6150, 1.5301, 1.5880, 1.7243),
}
"""Held-out nats a byte of each kind at each of `TUNING_RATES`, after `FIRST_ROUND_STEPS` of the
laptop recipe, for a seed that no trial uses; as `assay mglu tune` finds them on Python 3.11."""

SECOND_ROUND: Mapping[tuple[Param, ...], Mapping[float, float]] = {
    ("gelu", 0, "none"): {2e-3: 1.4167, 3e-3: 1.3917},
    ("swiglu", 0, "none"): {2e-3: 1.3094, 3e-3: 1.3161},
    ("shared", 0, "none"): {1e-3: 1.3581, 2e-3: 1.3314},
    ("mglu", 1, "learned"): {1e-3: 1.3737, 2e-3: 1.3451, 3e-3: 1.3739},
    ("mglu", 2, "learned"): {2e-3: 1.3034, 3e-3: 1.3087},
    ("mglu", 4, "learned"): {2e-3: 1.3057, 3e-3: 1.3291},
    ("mglu", 1, "fixed"): {1e-3: 1.3735, 2e-3: 1.3518},
    ("mglu", 2, "fixed"): {1e-3: 1.3604, 2e-3: 1.3169},
    ("mglu", 4, "fixed"): {2e-3: 1.3188, 3e-3: 1.3273},
}
"""The same after all steps of the recipe, for the `finalists` of the first round."""

_GPU_RATE = 1e-3
_HIGH_RATE = 3e-2
_SPIKE_STEPS = 200


class MGLUStudy(Study):
    """Claims of the paper, with trials of five sorts told apart by the parameter `what`."""

    version = 1
    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        yield from _bytes_trials((_SMALL,) if scale is Scale.SMOKE else (_SMALL, *_SIZES))
        if scale is Scale.SMOKE:
            yield from _decode_trials(("256x1024",), seeds or (0,), cache="warm", cost=1.0)
            yield from _naive_trials("256x1024", seeds or (0,), cost=0.5)
            yield from _lm_trials(scale, (SWIGLU, learned(4)), seeds or (0,))
        elif scale is Scale.LAPTOP:
            yield from _decode_trials(_SIZES, seeds or range(6), cost=6.0)
            yield from _decode_trials((_SMALL,), seeds or range(3), cost=4.0, judged=False)
            yield from _decode_trials(_SIZES, seeds or range(3), isa="avx2", cost=7.0)
            yield from _naive_trials("2048x8192", seeds or range(5), cost=12.0)
            yield from _step_trials(scale, seeds or range(5))
            yield from _lm_trials(scale, every_arm(), seeds or range(5))
            yield from _spike_trials(scale, seeds or range(5))
        elif scale is Scale.GPU:
            yield from _decode_trials(_SIZES, seeds or range(5), cost=5.0, gpus=1)
            yield from _step_trials(scale, seeds or range(3))
            yield from _lm_trials(scale, every_arm(), seeds or range(3))
            yield from _spike_trials(scale, seeds or range(3))

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        runners = {
            "bytes": _bytes,
            "decode": _decode,
            "naive": _naive,
            "step": _step,
            "lm": _lm,
            "spike": _lm,
        }
        return runners[str(trial.params["what"])](trial.params, context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.mglu import figures

        return figures.figures(results)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.mglu import figures

        return figures.tables(results)


def every_arm() -> tuple[Mapping[str, Param], ...]:
    """Parameters of every kind of language model."""
    masked = [make(n) for make in (learned, fixed) for n in (1, 2, 4)]
    return (GELU, SWIGLU, SHARED, *masked)


def finalists(losses: Sequence[float]) -> list[float]:
    """The learning rates that a second round compares: the two best of the first one, and all
    within 0.02 nats of the best.

    Args:
        losses: of the first round, in the order of `TUNING_RATES`.
    """
    ranked = sorted(zip(losses, TUNING_RATES, strict=True))
    close = [rate for loss, rate in ranked if loss - ranked[0][0] < 0.02]
    return sorted({*close, ranked[0][1], ranked[1][1]})


def best_rate(arm: Mapping[str, Param]) -> float:
    """The learning rate at which a kind of language model did best in the `SECOND_ROUND`."""
    found = SECOND_ROUND[arm["kind"], arm["n_masks"], arm["masks"]]
    return min(found, key=lambda rate: found[rate])


def _bytes_trials(sizes: Sequence[str]) -> Iterator[Trial]:
    for n in (1, 4):
        for size in sizes:
            params = {"what": "bytes", "size": size, "n_masks": n}
            yield Trial(params, claims=(f"C1-n{n}",), cost=0.5)


def _decode_trials(
    sizes: Sequence[str],
    seeds: Sequence[int],
    *,
    cost: float,
    cache: str = "cold",
    isa: str = "best",
    judged: bool = True,
    gpus: int = 0,
) -> Iterator[Trial]:
    judged = judged and isa == "best"
    for size in sizes:
        for bits in (16,) if gpus else (16, 32):
            for seed in seeds:
                yield Trial(
                    {"what": "decode", "size": size, "bits": bits, "cache": cache, "isa": isa},
                    seed,
                    claims=tuple(f"C2-{bits}bit-n{n}" for n in (1, 4, 8)) if judged else (),
                    cost=cost * (1 if bits == 16 else 2) * (2.5 if size == _SIZES[-1] else 1),
                    cpus=2,
                    gpus=gpus,
                    timeout=300,
                    fresh_process=cache == "cold",
                    exclusive=True,
                    needs=(Need.gpu(),) * gpus,
                )


def _naive_trials(size: str, seeds: Sequence[int], cost: float) -> Iterator[Trial]:
    for n in (1, 8):
        for seed in seeds:
            yield Trial(
                {"what": "naive", "size": size, "n_masks": n},
                seed,
                claims=(f"C3-n{n}",),
                cost=cost * (1 if n == 8 else 0.5),
                cpus=2,
                timeout=300,
                fresh_process=size in _SIZES,
                exclusive=True,
            )


def _step_trials(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    on_gpu = scale is Scale.GPU
    for seed in seeds:
        yield Trial(
            {"what": "step"},
            seed,
            claims=("C8",),
            cost=15.0,
            cpus=1,
            gpus=int(on_gpu),
            exclusive=True,
            needs=(Need.gpu(),) * on_gpu,
        )


def _lm_trials(
    scale: Scale, arms: Sequence[Mapping[str, Param]], seeds: Sequence[int]
) -> Iterator[Trial]:
    on_gpu = scale is Scale.GPU
    for arm in arms:
        lr = _GPU_RATE if on_gpu else best_rate(arm)
        for seed in seeds:
            yield Trial(
                {**arm, "lr": lr, "steps": STEPS[scale]},
                seed,
                claims=tuple(claim.id for claim in CLAIMS if claim.reads(arm, scale)),
                cost=_lm_cost(scale, arm),
                gpus=int(on_gpu),
                needs=(Need.gpu(),) * on_gpu,
            )


def _spike_trials(scale: Scale, seeds: Sequence[int]) -> Iterator[Trial]:
    on_gpu = scale is Scale.GPU
    for arm in (SWIGLU, learned(4)):
        for seed in seeds:
            yield Trial(
                {**arm, "what": "spike", "lr": _HIGH_RATE, "steps": _SPIKE_STEPS},
                seed,
                claims=("C9",),
                cost=_lm_cost(scale, arm) * _SPIKE_STEPS / STEPS[scale],
                gpus=int(on_gpu),
                needs=(Need.gpu(),) * on_gpu,
            )


def _lm_cost(scale: Scale, arm: Mapping[str, Param]) -> float:
    if scale is Scale.SMOKE:
        return 2.0
    if scale is Scale.GPU:
        return 20.0
    # Seconds a step of the laptop recipe on one core: a body, and products of the masks.
    masks = float(arm["n_masks"])
    return 15.0 + STEPS[scale] * (0.072 if not masks else 0.065 + 0.017 * masks)


def _bytes(params: Mapping[str, Param], context: Context) -> dict[str, float]:
    from assay.papers.mglu.timing import decode_bytes

    return decode_bytes(*_shape(params), int(params["n_masks"]))


def _decode(params: Mapping[str, Param], context: Context) -> dict[str, float]:
    from assay.papers.mglu.kernels import native
    from assay.papers.mglu.timing import decode

    if params["isa"] != "best" and params["isa"] not in native.isas():
        return {}  # this CPU, or an installation without a compiler, has nothing to measure
    half = "fp16" if context.device == "cuda" else "bf16"
    return decode(
        *_shape(params),
        half if params["bits"] == 16 else "fp32",
        cache=str(params["cache"]),
        isa=str(params["isa"]),
        device=context.device,
        seed=context.seed,
    )


def _naive(params: Mapping[str, Param], context: Context) -> dict[str, float]:
    from assay.papers.mglu.timing import naive

    return naive(*_shape(params), int(params["n_masks"]), seed=context.seed)


def _step(params: Mapping[str, Param], context: Context) -> dict[str, float]:
    from assay.papers.mglu.language_model import step_times

    sizes = recipe(context.scale, {"steps": 40, "lr": 1e-3})
    return step_times(("swiglu", "mglu1", "mglu2", "mglu4"), sizes, context.seed)


def _lm(params: Mapping[str, Param], context: Context) -> dict[str, float]:
    from assay.papers.mglu.language_model import train

    sizes = recipe(context.scale, params)
    return train(kind_of(params), sizes, context.seed, context.record)


def recipe(scale: Scale, params: Mapping[str, Param]) -> Recipe:
    """Sizes and optimiser of a language model trial."""
    from assay.papers.mglu.language_model import Recipe

    return Recipe(**_RECIPES[scale], steps=int(params["steps"]), lr=float(params["lr"]))


def kind_of(params: Mapping[str, Param]) -> str:
    """The kind of a language model trial, as `language_model.build_model` names it."""
    if params["kind"] != "mglu":
        return str(params["kind"])
    return f"mglu{params['n_masks']}" + "-fixed" * (params["masks"] == "fixed")


def arm_name(arm: str) -> str:
    """An arm of `timing.decode` in words, such as "MGLU, 4 masks" for "mglu4"."""
    if arm in (named := {"torch": "torch linear", "glu": "our GLU kernel"}):
        return named[arm]
    n, _, layout = arm.removeprefix("mglu").partition("_")
    return f"MGLU, {n} mask{'s' * (n != '1')}" + (", a byte a weight" if layout else "")


def _shape(params: Mapping[str, Param]) -> tuple[int, int]:
    h, d = str(params["size"]).split("x")
    return int(h), int(d)


study = MGLUStudy()
