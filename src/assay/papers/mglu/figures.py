"""Figures and tables of the study, from its results alone."""

from __future__ import annotations

from collections.abc import Iterable

from assay.study import Figure, Results, Table


def figures(results: Results) -> Iterable[Figure]:
    """Plots of one scale."""
    return ()


def tables(results: Results) -> Iterable[Table]:
    """Tables of one scale."""
    return ()
