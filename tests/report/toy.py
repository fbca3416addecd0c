"""A small paper with every sort of verdict, measured by nobody: the numbers are made up here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from assay.study import (
    Claim,
    Compare,
    Context,
    DataSource,
    Figure,
    Holds,
    Need,
    Paper,
    Protocol,
    Result,
    Results,
    Sample,
    Scale,
    Status,
    Study,
    Table,
    Threshold,
    Trend,
    Trial,
)

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'

PAPER = Paper(
    slug="toy",
    title="Gated Widgets Decode Faster and Forget Less",
    authors=("Ada Example", "Ben Sample", "Chi Trial"),
    venue="NeurIPS 2025",
    url="https://example.org/toy",
    area="efficient inference",
    summary="Halves the weights that one decoding step reads, by sharing one matrix.",
    method="Widget",
    modules=(),
    arxiv="2500.00000",
    code="https://example.org/code",
    licence="MIT",
    data=(DataSource("corpus", "A corpus of text", "CC-BY-4.0", (Scale.GPU, Scale.PAPER)),),
)

_LAPTOP = {Scale.SMOKE: Protocol.PROXY, Scale.LAPTOP: Protocol.REDUCED}


class ToyStudy(Study):
    """Five claims at laptop scale, one that only a GPU can measure."""

    claims = (
        Claim(
            id="C1",
            statement="One decoding step is faster than that of an equally tuned dense layer.",
            figure="1.51 times faster",
            setting="2048 x 8192, fp16, batch 1, RTX 5090",
            source="Table 4",
            test=Compare(
                Sample("dense_ms"), Sample("gated_ms"), ">", 1.1, how="ratio", min_trials=3
            ),
            protocol=_LAPTOP,
            note="The paper's size fits the cache of its GPU.",
        ),
        Claim(
            id="C2",
            statement="Quality stays within 0.02 nat of the dense layer.",
            figure="12.4 against 12.3 perplexity",
            setting="1B parameters, 100B tokens of web text",
            source="Table 1",
            test=Threshold(Sample("nll_gap"), "<", 0.02),
            protocol=_LAPTOP,
        ),
        Claim(
            id="C3",
            statement="The packed state takes 37.5 % fewer bits.",
            figure="37.5 % fewer bits",
            setting="four masks, 16-bit weights",
            source="abstract",
            test=Holds(Sample("bits"), at_least=0.62, at_most=0.63),
            protocol={Scale.SMOKE: Protocol.EXACT, Scale.LAPTOP: Protocol.EXACT},
        ),
        Claim(
            id="C4",
            statement="Perplexity falls with the number of masks.",
            figure="25.0 to 23.3 from 1 to 16 masks",
            setting="small model",
            source="Table 3",
            test=Trend("masks", Sample("loss"), high=0, min_groups=3),
            protocol=_LAPTOP,
        ),
        Claim(
            id="C5",
            statement="Does the order of methods survive another metric?",
            figure="none printed",
            setting="as C2",
            source="ours",
            test=Threshold(Sample("tau"), ">", 0.8),
            protocol=_LAPTOP,
        ),
        Claim(
            id="C6",
            statement="The GPU kernel reaches nine tenths of the bandwidth.",
            figure="92 % of peak",
            setting="H100",
            source="Section 5.2",
            test=Threshold(Sample("bandwidth"), ">", 0.9),
            protocol={Scale.GPU: Protocol.EXACT},
        ),
    )

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        seeds = seeds or range(5)
        if scale is Scale.GPU:
            needs = (Need.gpu(), Need.data("corpus", "assay data fetch toy"))
            return [Trial({"size": "large"}, s, ("C6",), cost=90, needs=needs) for s in seeds]
        if scale is Scale.PAPER:
            return []
        return [
            Trial({"masks": m}, s, ("C1", "C2", "C3", "C4", "C5"), cost=30)
            for s in seeds
            for m in (1, 2, 4)
        ]

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        raise NotImplementedError

    def figures(self, results: Results) -> Iterable[Figure]:
        if not results:
            return
        yield Figure(
            "loss",
            "Loss falls with the number of masks",
            "Loss against masks, five seeds: 3.2 at one mask, 3.0 at four.",
            lambda: _draw(results, "loss", "validation loss (nat)"),
            ("C4",),
        )
        yield Figure(
            "speed",
            "Time of one step",
            "Milliseconds a step: gated below dense at every number of masks.",
            lambda: _draw(results, "gated_ms", "time of a step (ms)", "dense_ms"),
            ("C1",),
        )

    def tables(self, results: Results) -> Iterable[Table]:
        if not results:
            return
        rows = tuple(
            (f"{m} masks", len(some), sum(some.metric("loss")) / len(some), math.nan)
            for m in results.distinct("masks")
            if (some := results.where(masks=m))
        )
        yield Table("loss", "Loss by number of masks", ("kind", "trials", "loss", "other"), rows)


def _draw(results: Results, *words: str) -> Any:
    from matplotlib.figure import Figure as Canvas

    metric, ylabel, *others = words
    canvas = Canvas()
    axes = canvas.subplots()
    for name in (metric, *others):
        masks = results.distinct("masks")
        means = [sum(v) / len(v) for m in masks if (v := results.where(masks=m).metric(name))]
        axes.plot(masks, means, marker="o", label=name)
    axes.set(xlabel="number of masks", ylabel=ylabel, xticks=masks)
    if others:
        axes.legend()
    return canvas


def measured(study: Study, scale: Scale, shift: float = 0.0, **changes: Any) -> list[Result]:
    """Results of all trials of a scale: C1, C3 hold, C2 does not, C4 holds, C5 is undecided."""
    found = []
    for trial in study.trials(scale):
        noise = ((trial.seed * 7 + 3) % 5 - 2) / 2
        masks = float(trial.params.get("masks", 1))
        found.append(
            Result(
                key=trial.key("toy", study.version, scale),
                params=trial.params,
                seed=trial.seed,
                status=Status.OK,
                metrics={
                    "dense_ms": 1.3 + 0.04 * noise + shift,
                    "gated_ms": 1.0 + 0.01 * masks,
                    "nll_gap": 0.05 + 0.005 * noise,
                    "bits": 0.625,
                    "loss": 3.25 - 0.06 * masks + 0.01 * noise,
                    "tau": 0.8 + 0.2 * noise,
                },
                seconds=2.5,
                **changes,
            )
        )
    return found


ENVIRONMENT = {
    "assay": "0.1.0",
    "commit": "0123456789abcdef",
    "dirty": False,
    "python": "3.11.9",
    "os": "Linux-6.1-x86_64",
    "cpu": {"model": "Example CPU 9000", "cores": 2, "flags": ["avx2"]},
    "memory_gb": 7.8,
    "gpus": [],
    "libraries": {"numpy": "2.3.0", "torch": "2.9.0"},
}


@dataclass
class FakeEntry:
    slug: str
    version: int
    scale: Scale
    result: Result
    environment: Mapping[str, Any] = field(default_factory=lambda: ENVIRONMENT)
    started: datetime = datetime(2026, 11, 28, 9, tzinfo=UTC)
    finished: datetime = datetime(2026, 11, 28, 10, tzinfo=UTC)


class FakeLedger:
    """The two questions that a report asks a ledger."""

    def __init__(self, found: Mapping[Scale, Sequence[Result]], version: int = 1) -> None:
        self.found, self.version = found, version

    def entries(self, slug: str) -> Iterator[FakeEntry]:
        if slug == "toy":
            for scale, results in self.found.items():
                for result in results:
                    yield FakeEntry("toy", self.version, scale, result)

    def results(self, slug: str, scale: Scale, version: int) -> Results:
        return Results(self.found[scale] if version == self.version else ())


@dataclass(frozen=True)
class FakeExport:
    results: Results
    scale: Scale = Scale.LAPTOP
    slug: str = "toy"
    version: int = 1
    entries: Sequence[FakeEntry] = ()
    machine: str = "Shipped CPU, 8 cores"
    date: str = "2026-11-01"


CARD = """# Gated Widgets

A widget shares one matrix between gate and value.

## Use

```python
from assay.papers.toy import Widget  # the layer

layer = Widget(64, n_masks=4)
print(layer(1.0), "done")
```

## Measured
<!-- measured:laptop -->
hidden
<!-- /measured -->

## Limits

- Trained from scratch only. <b>No</b> conversion.

## Differences from the paper

| what | paper | here |
| --- | --- | --- |
| data | web text | a small book |
"""
