"""What a paper's room provides so that its claims can be run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from assay.study.results import Results
from assay.study.vocabulary import Claim, Scale, Trial

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure as MatplotlibFigure


class Context(Protocol):
    """What a running trial is given besides its parameters. The runner provides it."""

    slug: str
    scale: Scale
    seed: int
    """A 32-bit seed drawn from the trial's SeedSequence; python, numpy and torch already use it."""
    threads: int
    device: str
    """"cpu" or "cuda"."""

    @property
    def rng(self) -> np.random.Generator:
        """A numpy generator on the trial's own stream."""
        ...

    def data(self, name: str = "") -> Path:
        """The path DATA/<slug>/name. Raises assay.toolkits.data.MissingData where it is absent."""
        ...

    def cache(self) -> Path:
        """A folder of the user's cache for this paper; what lies there may vanish at any time."""
        ...

    def record(self, series: str, step: float, value: float) -> None:
        """Adds a point to a curve."""
        ...

    def save(self, name: str, content: bytes | str | Path) -> None:
        """Keeps a file with the trial: bytes, text, or a file to copy."""
        ...


@dataclass(frozen=True)
class Figure:
    """A plot of a study.

    Args:
        name: file name without ending, unique within the study.
        title: what it shows, one line.
        alt: what a reader who cannot see it should know; one or two sentences with the numbers.
        draw: makes the matplotlib figure. It is called once for a light and once for a dark page
            under matching rcParams, so it must not set text, axis or background colours itself;
            the property cycle holds colours fit for both.
        claims: ids of the claims it belongs to.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[], MatplotlibFigure]
    claims: tuple[str, ...] = ()


class Study(ABC):
    """A paper's experiment: its claims, its trials at each scale, and how one trial is run.

    A room's `study.py` has one subclass and one instance of it, named `study`. The module must
    import quickly: heavy libraries are imported inside `run` and `figures`.
    """

    version: ClassVar[int] = 1
    """Raised whenever a trial of equal parameters would measure something else than before."""

    claims: ClassVar[tuple[Claim, ...]]

    @abstractmethod
    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        """All trials of a scale. `seeds` replaces the study's own list of seeds where given."""

    @abstractmethod
    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        """Runs one trial and returns its metrics: finite numbers, booleans as 0 or 1, NaN for
        what is undefined. Called in a worker process."""

    def figures(self, results: Results) -> Iterable[Figure]:
        """Plots of the results of one scale; those whose data are missing are left out."""
        return ()

    def tables(self, results: Results) -> Iterable[Table]:
        """Tables of the results of one scale, beside those of the claims."""
        return ()

    def claim(self, id: str) -> Claim:
        """The claim with this id. Raises KeyError."""
        for claim in self.claims:
            if claim.id == id:
                return claim
        raise KeyError(id)


@dataclass(frozen=True)
class Table:
    """A table of a study: a title, the names of the columns, rows of text or numbers."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
