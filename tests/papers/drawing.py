"""What every study's figures and tables must be."""

from __future__ import annotations

from collections.abc import Sequence

from assay.study import Results, Study


def check_drawn(
    study: Study, results: Results, figures: Sequence[str], tables: Sequence[str]
) -> None:
    """Draws the figures and tables of the results; these must be those named, and whole."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    drawn = list(study.figures(results))
    assert [f.name for f in drawn] == list(figures)
    ids = {claim.id for claim in study.claims}
    for figure in drawn:
        assert set(figure.claims) <= ids, figure.name
        assert figure.alt.endswith("."), figure.name
        figure.draw().canvas.draw()
    pyplot.close("all")
    made = list(study.tables(results))
    assert [t.name for t in made] == list(tables)
    for table in made:
        assert table.rows, table.name
        assert all(len(row) == len(table.columns) for row in table.rows), table.name
