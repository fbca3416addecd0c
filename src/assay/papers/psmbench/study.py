"""The study of PSMBench: which trials are run at which scale."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from assay.papers.psmbench.claims import (
    BASELINES,
    CLAIMS,
    LEVELS,
    LIVE_PROTOCOLS,
    METRICS,
    MODELS,
    PROTOCOLS,
    RANKED_THRESHOLDS,
)
from assay.study import Context, Figure, Need, NeedKind, Results, Scale, Study, Table, Trial

_FETCH = "assay data fetch psmbench, or --data DIR with DIR/psmbench"
_TRUTH = Need.data("ground_truth", _FETCH)
_PUBLISHED = (_TRUTH, Need.data("model_outputs", _FETCH))


class PsmbenchStudy(Study):
    """Re-scores the published outputs, and damages true machines by degrees."""

    version = 1

    claims = CLAIMS

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        chosen = range(2 if scale is Scale.SMOKE else 3) if seeds is None else seeds
        operations = (
            ("delete", "shuffle") if scale is Scale.SMOKE else ("delete", "shuffle", "rename")
        )
        for operation in operations:
            for level in LEVELS:
                for seed in chosen:
                    yield Trial(
                        {"part": "damage", "operation": operation, "level": level},
                        seed,
                        (f"C5-{operation}",),
                        cost=0.1 if scale is Scale.SMOKE else 0.4,
                        timeout=120,
                        needs=() if scale is Scale.SMOKE else (_TRUTH,),
                    )
        if scale is not Scale.SMOKE:
            yield from self._published()
            for seed in chosen:
                yield Trial(
                    {"part": "speed", "protocol": "TCP", "model": "deepseek-chat"},
                    seed,
                    ("C10",),
                    cost=25.0,
                    timeout=600,
                    exclusive=True,
                    needs=_PUBLISHED,
                )
            yield from self._live(scale)

    def _published(self) -> Iterable[Trial]:
        # Any of these may be the first to embed a string: costs share that out, time limits
        # leave room for one trial that finds nothing in the cache.
        def trial(claims: tuple[str, ...], cost: float, **params: str | float) -> Trial:
            return Trial(params, claims=claims, cost=cost, timeout=600, needs=_PUBLISHED)

        yield trial(("C1-protocols", "C1-states", "C1-transitions"), 0.1, part="corpus")
        for metric in METRICS:
            gap = "C4-macro" if metric == "official" else "C4-strict"
            for model in MODELS:
                for protocol in PROTOCOLS:
                    yield trial(
                        (gap,), 0.3, part="cell", metric=metric, model=model, protocol=protocol
                    )
        for metric in METRICS:
            claims = ("C4-micro" if metric == "official" else "C4-strict-micro",)
            for model in MODELS:
                yield trial(claims, 2.0, part="model", metric=metric, model=model)
        yield trial(("C2-micro", "C2-macro", "C3-micro", "C3-macro"), 5.0, part="best")
        for threshold in RANKED_THRESHOLDS:
            yield trial(("C6-states", "C6-transitions"), 3.0, part="ranking", threshold=threshold)
        for protocol in PROTOCOLS:
            yield trial(("C8",), 0.1, part="false-match", protocol=protocol)
        for matcher in BASELINES:
            yield trial(("C9",), 3.0, part="baseline", matcher=matcher)

    def _live(self, scale: Scale) -> Iterable[Trial]:
        model = os.environ.get("ASSAY_LLM_MODEL", "unnamed")
        hint = "the address of a server with the OpenAI chat interface"
        needs = (
            Need(NeedKind.VARIABLE, "ASSAY_LLM_BASE_URL", hint),
            Need(NeedKind.VARIABLE, "ASSAY_LLM_MODEL", "the server's name of the model"),
            Need.data("segments", _FETCH),
            _TRUTH,
        )
        for protocol in LIVE_PROTOCOLS if scale is Scale.LAPTOP else PROTOCOLS:
            yield Trial(
                {"part": "live", "protocol": protocol, "model": model},
                claims=("C7",),
                cost=120.0,
                timeout=3600,
                needs=needs,
            )

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        part = str(trial.params["part"])
        from assay.papers.psmbench.measurements import PARTS

        return PARTS[part](dict(trial.params), context)

    def figures(self, results: Results) -> Iterable[Figure]:
        from assay.papers.psmbench.figures import figures

        return figures(results.ok)

    def tables(self, results: Results) -> Iterable[Table]:
        from assay.papers.psmbench.tables import tables

        return tables(results.ok)


study = PsmbenchStudy()
