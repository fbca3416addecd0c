"""Trials that break, and others beside them that must not be harmed."""

from __future__ import annotations

import os
import time

from assay.study import (
    Claim,
    Compare,
    Holds,
    Need,
    Protocol,
    Sample,
    Scale,
    Study,
    Threshold,
    Trial,
)

SMOKE = {Scale.SMOKE: Protocol.EXACT}


class BrokenStudy(Study):
    claims = (
        Claim("Raises", "A", "1", "s", "Table 1", Holds(Sample("ok"), 1), SMOKE),
        Claim("Aborts", "B", "1", "s", "Table 1", Holds(Sample("ok"), 1), SMOKE),
        Claim("Hangs", "C", "1", "s", "Table 1", Holds(Sample("ok"), 1), SMOKE),
        Claim("Good", "D", "1", "s", "Table 1", Holds(Sample("ok"), 1), SMOKE),
        Claim(
            "False",
            "E",
            "1",
            "s",
            "Table 1",
            Compare(Sample("x", {"kind": "low"}), Sample("x", {"kind": "high"}), ">", 0.0),
            SMOKE,
        ),
        Claim("Dear", "F", "1", "s", "Table 1", Threshold(Sample("x"), ">", -1.0), SMOKE),
        Claim("Needy", "G", "1", "s", "Table 1", Holds(Sample("ok"), 1), SMOKE),
    )

    def trials(self, scale, seeds=None):
        if scale is not Scale.SMOKE:
            return
        for kind, claim in (("raise", "Raises"), ("abort", "Aborts"), ("good", "Good")):
            yield Trial({"kind": kind, "size": 1}, claims=(claim,), cost=0.1)
        yield Trial({"kind": "hang", "size": 1}, claims=("Hangs",), cost=0.2, timeout=1)
        for seed in seeds or range(3):
            for kind in ("low", "high"):
                yield Trial({"kind": kind, "size": 1}, seed, ("False",), cost=0.3)
            yield Trial({"kind": "dear", "size": 1}, seed, ("Dear",), cost=1000)
        need = Need.data("corpus.txt", "assay data fetch broken")
        yield Trial({"kind": "needy", "size": 1}, claims=("Needy",), needs=(need,))

    def run(self, trial, context):
        kind = trial.params["kind"]
        if kind == "raise":
            raise RuntimeError("on purpose")
        if kind == "abort":
            os.abort()
        if kind == "hang":
            time.sleep(60)
        x = float(context.rng.normal()) + (10 if kind == "high" else 0)
        return {"ok": 1, "x": x, "size": trial.params["size"]}


study = BrokenStudy()
