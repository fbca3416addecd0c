"""The tables of the study."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from assay.study import Results, Table


def tables(results: Results) -> Iterable[Table]:
    """Those for which there are results."""
    for make in (
        _leaderboard,
        _metrics,
        _protocols,
        _thresholds,
        _matchers,
        _false_matches,
        _corpus,
    ):
        if table := make(results):
            yield table


def _sorted_models(results: Results, metric: str) -> list[Any]:
    found = results.where(part="model", metric=metric)
    return sorted(found, key=lambda result: -result.metrics["state_f1"])


def _leaderboard(results: Results) -> Table | None:
    rows = []
    for result in _sorted_models(results, "official"):
        m = result.metrics
        rows.append(
            (
                result.params["model"],
                int(m["state_extracted"]),
                int(m["state_matched"]),
                round(m["state_precision"], 3),
                round(m["state_recall"], 3),
                round(m["state_f1"], 3),
                round(m["macro_state_f1"], 3),
                round(m["one_to_one_state_f1"], 3),
                int(m["transition_extracted"]),
                int(m["transition_matched"]),
                round(m["transition_f1"], 3),
                round(m["macro_transition_f1"], 3),
                round(m["partial_transition_f1"], 3),
            )
        )
    columns = (
        "model",
        "extracted states",
        "matched",
        "P",
        "R",
        "state F1",
        "macro state F1",
        "one-to-one state F1",
        "extracted transitions",
        "matched transitions",
        "transition F1",
        "macro transition F1",
        "transition F1 (partial)",
    )
    title = "Published outputs, official metric, threshold 0.5 (108 states, 297 transitions)"
    return Table("leaderboard", title, columns, tuple(rows)) if rows else None


def _metrics(results: Results) -> Table | None:
    official, strict = (_sorted_models(results, metric) for metric in ("official", "strict"))
    if not official or not strict:
        return None
    ranks = {r.params["model"]: rank for rank, r in enumerate(official, 1)}
    rows = tuple(
        (
            r.params["model"],
            rank,
            ranks.get(r.params["model"], "-"),
            round(r.metrics["state_precision"], 3),
            round(r.metrics["state_recall"], 3),
            round(r.metrics["state_f1"], 3),
            round(r.metrics["transition_f1"], 3),
        )
        for rank, r in enumerate(strict, 1)
    )
    columns = (
        "model",
        "rank",
        "official rank",
        "P",
        "R",
        "state F1",
        "transition F1",
    )
    return Table("strict", "Published outputs, strict metric, threshold 0.5", columns, rows)


def _protocols(results: Results) -> Table | None:
    rows = []
    for protocol in results.where(part="cell").distinct("protocol"):
        row: list[Any] = [protocol]
        for metric in ("official", "strict"):
            found = results.where(part="cell", metric=metric, protocol=protocol)
            for name in ("state_f1", "transition_f1"):
                values = found.metric(name)
                row.append(round(fmean(values), 3) if values else "-")
        rows.append(tuple(row))
    rows.sort(key=lambda row: -float(row[1]) if row[1] != "-" else 0.0)
    columns = (
        "protocol",
        "state F1",
        "transition F1",
        "strict state F1",
        "strict transition F1",
    )
    return Table("protocols", "Mean F1 over the models", columns, tuple(rows)) if rows else None


def _thresholds(results: Results) -> Table | None:
    rows = tuple(
        (
            r.params["threshold"],
            round(r.metrics["state_tau"], 3),
            round(r.metrics["transition_tau"], 3),
        )
        for r in results.where(part="ranking")
    )
    columns = ("threshold", "tau, states", "tau, transitions")
    title = "Kendall's tau between the rankings by official and strict metric"
    return Table("ranking", title, columns, rows) if rows else None


def _matchers(results: Results) -> Table | None:
    rows = tuple(
        (
            r.params["matcher"],
            round(r.metrics["state_tau"], 3),
            round(r.metrics["transition_tau"], 3),
            round(r.metrics["best_state_f1"], 3),
            round(r.metrics["best_transition_f1"], 3),
        )
        for r in results.where(part="baseline")
    )
    columns = (
        "matcher",
        "tau, states",
        "tau, transitions",
        "best state F1",
        "best transition F1",
    )
    title = "Lexical matchers in place of the embedder, official metric: agreement of the rankings"
    return Table("matchers", title, columns, rows) if rows else None


def _false_matches(results: Results) -> Table | None:
    rows = tuple(
        (
            r.params["protocol"],
            int(r.metrics["pairs"]),
            round(r.metrics["false_match_rate"], 3),
            round(r.metrics["largest_cosine"], 3),
        )
        for r in results.where(part="false-match")
    )
    columns = ("protocol", "pairs of states", "share with cosine >= 0.5", "largest cosine")
    title = "Different true states of one protocol that the metric takes for alike"
    return Table("false-matches", title, columns, rows) if rows else None


def _corpus(results: Results) -> Table | None:
    names = ("protocols", "states", "transitions", "segments", "characters")
    rows = tuple(
        (name, int(r.metrics[name]) if r.metrics[name] == r.metrics[name] else "not there")
        for r in results.where(part="corpus")
        for name in names
    )
    return Table("corpus", "The data set", ("what", "count"), rows) if rows else None
