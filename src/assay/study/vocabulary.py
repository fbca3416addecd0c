"""The words of a study: scale, protocol, trial, claim, paper. Plain values, no I/O."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from assay.study.tests import Test

Param: TypeAlias = str | int | float | bool
"""What a trial's parameter may be: a JSON scalar."""

_SLUG = re.compile(r"[a-z][a-z0-9_]*")
_CLAIM_ID = re.compile(r"[A-Z][A-Za-z0-9.-]*")


class Scale(StrEnum):
    """How large a study is run. Every study has all four; a claim need not be measured at each."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    GPU = "gpu"
    PAPER = "paper"


class Protocol(StrEnum):
    """How close a measurement is to the paper's own: same data, model and metric (`exact`),
    the same but smaller (`reduced`), or with stand-ins (`proxy`)."""

    EXACT = "exact"
    REDUCED = "reduced"
    PROXY = "proxy"


class NeedKind(StrEnum):
    """Sorts of things a trial may need; the comments say what their names are."""

    DATA = "data"  # name: a path below DATA/<slug>
    PACKAGE = "package"  # name: an import name
    GPU = "gpu"  # name: how many accelerators
    MEMORY = "memory"  # name: GiB of main memory
    VARIABLE = "variable"  # name: an environment variable, such as an API key
    COMMAND = "command"  # name: a program on the PATH


@dataclass(frozen=True)
class Need:
    """Something a trial cannot run without.

    Args:
        kind: what sort of thing it is.
        name: which one, as `NeedKind` says.
        hint: the one command or folder that provides it; printed to the user.
    """

    kind: NeedKind
    name: str
    hint: str = ""

    @classmethod
    def data(cls, path: str, hint: str = "") -> Need:
        return cls(NeedKind.DATA, path, hint)

    @classmethod
    def package(cls, module: str, hint: str = "") -> Need:
        return cls(NeedKind.PACKAGE, module, hint)

    @classmethod
    def gpu(cls, count: int = 1, hint: str = "") -> Need:
        return cls(NeedKind.GPU, str(count), hint)


@dataclass(frozen=True)
class Trial:
    """One run of one configuration with one seed.

    Args:
        params: what is varied; JSON scalars by name. Judged claims select trials by these.
        seed: index of the random stream. Trials with equal seeds draw equal streams whatever
            their params, so that arms can be compared in pairs.
        claims: ids of the claims this trial's metrics decide.
        cost: expected seconds on an idle machine with `cpus` cores of 2024.
        cpus: cores the trial uses; its libraries get as many threads.
        gpus: accelerators the trial uses.
        memory_gb: the trial is stopped when its process holds more; None for no limit.
        timeout: seconds after which it is stopped; None for ten times its cost, at least 60 s.
        fresh_process: run in a process that ran nothing before and runs nothing after.
        exclusive: nothing else may run meanwhile (for timings).
        needs: what must be there before it can start.
    """

    params: Mapping[str, Param]
    seed: int = 0
    claims: tuple[str, ...] = ()
    cost: float = 1.0
    cpus: int = 1
    gpus: int = 0
    memory_gb: float | None = None
    timeout: float | None = None
    fresh_process: bool = False
    exclusive: bool = False
    needs: tuple[Need, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.params.items():
            if not isinstance(value, str | int | float | bool):
                raise TypeError(
                    f"params[{name!r}]: got {type(value).__name__}, wants str, int, float or bool"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"params[{name!r}]: got {value}, wants a finite number")
        if self.seed < 0:
            raise ValueError(f"seed: got {self.seed}, wants an integer >= 0")
        if not self.cost > 0:
            raise ValueError(f"cost: got {self.cost}, wants seconds > 0")
        if self.cpus < 1:
            raise ValueError(f"cpus: got {self.cpus}, wants at least 1")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout: got {self.timeout}, wants seconds > 0 or None")
        if self.memory_gb is not None and not self.memory_gb > 0:
            raise ValueError(f"memory_gb: got {self.memory_gb}, wants GiB > 0 or None")
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle, and trials travel to worker processes.
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _trial, ({**values, "params": dict(self.params)},)

    @property
    def time_limit(self) -> float:
        """Seconds after which the trial is stopped."""
        return self.timeout if self.timeout is not None else max(60.0, 10 * self.cost)

    def key(self, slug: str, version: int, scale: Scale) -> str:
        """Identity in the ledger: 64 hex digits over slug, study version, scale, params, seed."""
        content = [slug, version, str(scale), dict(self.params), self.seed]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def _trial(values: dict[str, Any]) -> Trial:
    return Trial(**values)


@dataclass(frozen=True)
class Claim:
    """One checkable statement of a paper.

    Args:
        id: such as "C1"; unique within the paper.
        statement: what is claimed, in our words.
        figure: what the paper reports, with its unit; "none printed" where it gives no number.
        setting: under which conditions the paper got it.
        source: where the paper says so ("Table 2", "abstract", "Theorem 3.2"), or "ours" for a
            question that the paper does not ask.
        test: what decides it; one test, or one for each scale.
        protocol: how close each scale comes to the paper; scales left out do not measure it.
        note: what a reader should know beside the verdict.
    """

    id: str
    statement: str
    figure: str
    setting: str
    source: str
    test: Test | Mapping[Scale, Test]
    protocol: Mapping[Scale, Protocol]
    note: str = ""

    def __post_init__(self) -> None:
        if not _CLAIM_ID.fullmatch(self.id):
            raise ValueError(f"id: got {self.id!r}, wants a capital, then letters, digits, . or -")
        for name in ("statement", "figure", "setting", "source"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name}: claim {self.id} leaves it empty")
        if not self.protocol:
            raise ValueError(f"protocol: claim {self.id} is measured at no scale")
        object.__setattr__(self, "protocol", MappingProxyType(dict(self.protocol)))
        if isinstance(self.test, Mapping):
            missing = [s for s in self.protocol if s not in self.test]
            if missing:
                raise ValueError(f"test: claim {self.id} has none for scale {', '.join(missing)}")

    @property
    def ours(self) -> bool:
        """True where the question is ours and not the paper's."""
        return self.source == "ours"

    def test_at(self, scale: Scale) -> Test:
        """The test that decides the claim at a scale. Raises KeyError where it is not measured."""
        if scale not in self.protocol:
            raise KeyError(scale)
        return self.test[scale] if isinstance(self.test, Mapping) else self.test

    def reads(self, params: Mapping[str, Param], scale: Scale) -> bool:
        """Whether its test at a scale reads trials of these parameters."""
        if scale not in self.protocol:
            return False
        return any(sample.matches(params) for sample in self.test_at(scale).samples)


@dataclass(frozen=True)
class DataSource:
    """Data a paper's study reads, as `assay data` lists it.

    Args:
        name: path below DATA/<slug>.
        summary: what it is.
        licence: under which terms it may be used.
        scales: which scales read it.
        url: where it can be had; empty where the user must ask for it.
        files: files for `assay data fetch`: path below DATA/<slug> -> (url, sha256).
    """

    name: str
    summary: str
    licence: str
    scales: tuple[Scale, ...]
    url: str = ""
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """One paper, as its `paper.toml` describes it.

    Args:
        slug: short name, also the room's folder and the extra of the installation.
        title, authors, venue, url: bibliographic data; `url` is the paper's own page.
        arxiv: arXiv identifier, empty where there is none.
        code: official code, empty where there is none.
        licence: licence of the official code or data, "none" where there is none.
        area: field of research, a few words.
        summary: what the method does for its user, one line.
        method: the public name a user imports first.
        modules: modules that the extra installs; used to tell whether it is there.
        cli: "module:attribute" of the paper's own Typer app, empty where there is none.
        data: what its study reads.
    """

    slug: str
    title: str
    authors: tuple[str, ...]
    venue: str
    url: str
    area: str
    summary: str
    method: str
    modules: tuple[str, ...]
    arxiv: str = ""
    code: str = ""
    licence: str = "none"
    cli: str = ""
    data: tuple[DataSource, ...] = ()

    def __post_init__(self) -> None:
        if not _SLUG.fullmatch(self.slug):
            raise ValueError(f"slug: got {self.slug!r}, wants lower case letters, digits, _")
        for name in ("title", "authors", "venue", "url", "area", "summary", "method"):
            if not getattr(self, name):
                raise ValueError(f"{name}: missing")
