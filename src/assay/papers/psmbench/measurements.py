"""What the trials of the study measure."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.papers.psmbench.claims import MODELS, PROTOCOLS, THRESHOLDS
from assay.study import Context, Scale

if TYPE_CHECKING:
    from assay.papers.psmbench.bench import PsmBench, Standing
    from assay.papers.psmbench.score import PSMScorer
    from assay.toolkits.embedding import Embedder


@cache
def _embedder(folder: Path, device: str) -> Embedder:
    from assay.toolkits.embedding import CachedEmbedder, MiniLM

    # One file for both devices would mix roundings.
    return CachedEmbedder(MiniLM(device), folder / device)


def _bench(context: Context) -> PsmBench:
    from assay.papers.psmbench.bench import PsmBench

    return PsmBench(context.data())


def _scorer(context: Context, **options: Any) -> PSMScorer:
    from assay.papers.psmbench.score import PSMScorer

    return PSMScorer(_embedder(context.cache(), context.device), **options)


def _standing(bench: PsmBench, model: str, scorer: PSMScorer) -> Standing:
    from assay.papers.psmbench.bench import Standing

    return Standing.of(bench.scores(model, scorer))


def _corpus(params: dict[str, Any], context: Context) -> dict[str, float]:
    bench = _bench(context)
    machines = [bench.ground_truth(protocol) for protocol in bench.protocols]
    metrics = {
        "protocols": len(machines),
        "states": sum(len(machine.states) for machine in machines),
        "transitions": sum(len(machine.transitions) for machine in machines),
        "segments": math.nan,
        "characters": math.nan,
    }
    if (bench.root / "segments").is_dir():
        sections = [s for protocol in bench.protocols for s in bench.segments(protocol)]
        metrics["segments"] = len(sections)
        metrics["characters"] = sum(len(section.content) for section in sections)
    return metrics


def _cell(params: dict[str, Any], context: Context) -> dict[str, float]:
    bench = _bench(context)
    score = _scorer(context, metric=params["metric"]).score(
        bench.published(params["protocol"], params["model"]),
        bench.ground_truth(params["protocol"]),
    )
    return {
        f"{name}_{field}": getattr(prf, field)
        for name, prf in (("state", score.states), ("transition", score.transitions))
        for field in ("matched", "extracted", "gold", "precision", "recall", "f1")
    }


def _model(params: dict[str, Any], context: Context) -> dict[str, float]:
    bench, model, metric = _bench(context), params["model"], params["metric"]
    for threshold in THRESHOLDS:
        scorer = _scorer(context, metric=metric, threshold=threshold)
        standing = _standing(bench, model, scorer)
        context.record("state_f1", threshold, standing.states.f1)
        context.record("transition_f1", threshold, standing.transitions.f1)
    standing = _standing(bench, model, _scorer(context, metric=metric))
    metrics = {
        f"{name}_{field}": getattr(prf, field)
        for name, prf in (("state", standing.states), ("transition", standing.transitions))
        for field in ("matched", "extracted", "gold", "precision", "recall", "f1")
    }
    metrics |= {
        "macro_state_f1": standing.macro_state_f1,
        "macro_transition_f1": standing.macro_transition_f1,
        "micro_gap": standing.states.f1 - standing.transitions.f1,
    }
    if metric == "official":
        apart = _standing(bench, model, _scorer(context, one_to_one=True))
        partial = _standing(bench, model, _scorer(context, partial=True))
        metrics |= {
            "one_to_one_state_matched": apart.states.matched,
            "one_to_one_state_f1": apart.states.f1,
            "one_to_one_transition_matched": apart.transitions.matched,
            "partial_transition_f1": partial.transitions.f1,
        }
    return metrics


def _best_figures(params: dict[str, Any], context: Context) -> dict[str, float]:
    bench, scorer = _bench(context), _scorer(context)
    standings = [_standing(bench, model, scorer) for model in MODELS]
    return {
        "state_micro_f1": max(s.states.f1 for s in standings),
        "state_macro_f1": max(s.macro_state_f1 for s in standings),
        "transition_micro_f1": max(s.transitions.f1 for s in standings),
        "transition_macro_f1": max(s.macro_transition_f1 for s in standings),
        "recall_of_best_state_f1": max(standings, key=lambda s: s.states.f1).states.recall,
        "highest_state_recall": max(s.states.recall for s in standings),
    }


def _taus(bench: PsmBench, left: PSMScorer, right: PSMScorer) -> dict[str, float]:
    from scipy.stats import kendalltau

    pairs = [(_standing(bench, m, left), _standing(bench, m, right)) for m in MODELS]
    states = [(a.states.f1, b.states.f1) for a, b in pairs]
    edges = [(a.transitions.f1, b.transitions.f1) for a, b in pairs]
    return {
        "state_tau": float(kendalltau(*zip(*states, strict=True)).statistic),
        "transition_tau": float(kendalltau(*zip(*edges, strict=True)).statistic),
    }


def _ranking(params: dict[str, Any], context: Context) -> dict[str, float]:
    official = _scorer(context, threshold=params["threshold"])
    strict = _scorer(context, threshold=params["threshold"], metric="strict")
    return _taus(_bench(context), official, strict)


def _baseline(params: dict[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.psmbench.score import PSMScorer

    bench, scorer = _bench(context), PSMScorer(params["matcher"])
    standings = [_standing(bench, model, scorer) for model in MODELS]
    return {
        **_taus(bench, _scorer(context), scorer),
        "best_state_f1": max(s.states.f1 for s in standings),
        "best_transition_f1": max(s.transitions.f1 for s in standings),
    }


def _false_match(params: dict[str, Any], context: Context) -> dict[str, float]:
    import numpy as np

    from assay.papers.psmbench.similarity import official_form

    states = _bench(context).ground_truth(params["protocol"]).states
    vectors = _embedder(context.cache(), context.device).encode([official_form(s) for s in states])
    cosines = (vectors @ vectors.T)[np.triu_indices(len(states), k=1)]
    return {
        "pairs": cosines.size,
        "false_match_rate": float(np.mean(cosines >= 0.5)),
        "largest_cosine": float(cosines.max()),
    }


def _damage(params: dict[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.psmbench.score import PSMScorer
    from assay.papers.psmbench.synthetic import DAMAGE, random_machine
    from assay.toolkits.embedding import LetterPairs

    rng = context.rng
    if context.scale is Scale.SMOKE:
        machines = [random_machine(8, 20, rng) for _ in range(4)]
        official, strict = PSMScorer(LetterPairs()), PSMScorer(LetterPairs(), metric="strict")
    else:
        bench = _bench(context)
        machines = [bench.ground_truth(protocol) for protocol in PROTOCOLS]
        official, strict = _scorer(context), _scorer(context, metric="strict")
    damage = DAMAGE[params["operation"]]
    pairs = [(damage(machine, params["level"], rng), machine) for machine in machines]
    totals: dict[str, float] = {}
    for prefix, scorer in (("", official), ("strict_", strict), ("exact_", PSMScorer("exact"))):
        scores = [scorer.score(damaged, machine) for damaged, machine in pairs]
        totals[f"{prefix}state_f1"] = sum(s.states.f1 for s in scores) / len(scores)
        totals[f"{prefix}transition_f1"] = sum(s.transitions.f1 for s in scores) / len(scores)
    return totals


def _speed(params: dict[str, Any], context: Context) -> dict[str, float]:
    import time
    from statistics import median

    from assay.papers.psmbench.reference import score_states, score_transitions
    from assay.papers.psmbench.score import PSMScorer
    from assay.toolkits.embedding import MiniLM

    bench, embedder = _bench(context), MiniLM(context.device)
    pred = bench.published(params["protocol"], params["model"])
    gold = bench.ground_truth(params["protocol"])
    embedder.encode(["warm up"])
    fast: list[float] = []
    slow: list[float] = []
    for _ in range(2):
        start = time.perf_counter()
        score = PSMScorer(embedder).score(pred, gold)
        middle = time.perf_counter()
        states = score_states(pred, gold, embedder)
        transitions = score_transitions(pred, gold, embedder)
        fast.append(middle - start)
        slow.append(time.perf_counter() - middle)
    return {
        "speedup": median(slow) / median(fast),
        "fast_seconds": median(fast),
        "slow_seconds": median(slow),
        "equal": score.states == states and score.transitions == transitions,
    }


def _live(params: dict[str, Any], context: Context) -> dict[str, float]:
    from assay.papers.psmbench.extract import PSMExtractor
    from assay.toolkits.llm import Client, RemoteBackend, ReplyCache

    window = int(os.environ.get("ASSAY_LLM_CONTEXT", "32768"))
    backend = RemoteBackend(
        params["model"], os.environ["ASSAY_LLM_BASE_URL"], timeout=600, context_window=window
    )
    bench = _bench(context)
    client = Client(backend, ReplyCache(context.cache() / "replies.sqlite"))
    extractor = PSMExtractor(client, structured=True, max_tokens=min(8192, window // 4))
    extraction = extractor.extract(params["protocol"], bench.segments(params["protocol"]))
    score = _scorer(context).score(extraction.psm, bench.ground_truth(params["protocol"]))
    valid = sum(not partial.error for partial in extraction.partials)
    return {
        "valid_rate": valid / len(extraction.partials),
        "calls": len(extraction.partials),
        "state_f1": score.states.f1,
        "transition_f1": score.transitions.f1,
    }


PARTS: dict[str, Callable[[dict[str, Any], Context], dict[str, float]]] = {
    "corpus": _corpus,
    "cell": _cell,
    "model": _model,
    "best": _best_figures,
    "ranking": _ranking,
    "baseline": _baseline,
    "false-match": _false_match,
    "damage": _damage,
    "speed": _speed,
    "live": _live,
}
