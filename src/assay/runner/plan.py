"""Which trials a run has to do, which it has, which it cannot, and which it leaves out."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from assay import registry
from assay.runner.hardware import cores
from assay.runner.needs import missing_needs, package_needs
from assay.study import Need, Param, Scale, Study, Trial

if TYPE_CHECKING:
    from assay.ledger import Ledger


class PlanError(ValueError):
    """What was asked for cannot be planned; the message says what can."""


class UnknownClaim(PlanError):
    """No study has this claim; the message names the nearest ones."""


@dataclass(frozen=True)
class Planned:
    """A trial with all that a worker needs to know of it.

    Args:
        slug, version, scale: where its result belongs.
        trial: what to run.
        key: its identity in the ledger.
        study: "module:attribute" of the study, which a worker imports.
        missing: its needs that this machine does not meet.
    """

    slug: str
    version: int
    scale: Scale
    trial: Trial
    key: str
    study: str
    missing: tuple[Need, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """A claim that did not fit the budget, with the seconds it would have taken besides."""

    slug: str
    claim: str
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What a run would do for one paper at one scale.

    Args:
        slug, study, scale: which.
        todo: trials to run, in this order.
        done: trials that the ledger holds.
        blocked: trials whose needs are not met here; each names what is missing.
        left_out: claims that did not fit the budget.
        seconds: how long `todo` should take here, from the costs that its trials declare.
    """

    slug: str
    study: Study
    scale: Scale
    todo: tuple[Planned, ...]
    done: tuple[Planned, ...] = ()
    blocked: tuple[Planned, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    seconds: float = 0.0

    @property
    def trials(self) -> tuple[Planned, ...]:
        """All of them but those left out."""
        return self.todo + self.done + self.blocked


def make_plan(
    slug: str,
    scale: Scale,
    *,
    ledger: Ledger | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Mapping[str, str] | None = None,
    claims: Sequence[str] | None = None,
    budget: float | None = None,
    fresh: bool = False,
    jobs: int | None = None,
    study: str | None = None,
) -> Plan:
    """Plans one paper.

    Args:
        slug: the paper.
        scale: how large it is run.
        ledger: trials that it holds are not run again.
        seeds: replace the study's own seeds.
        overrides: parameters to set, name -> value as text, read as the type they have.
        claims: ids of claims, "C1" or "slug:C1"; only their trials are planned.
        budget: seconds; whole claims are taken, the cheapest first, while they fit.
        fresh: run again what the ledger holds.
        jobs: how many trials may run at a time; None for as many as there are cores.
        study: "module:attribute" of a study outside the papers' rooms.

    Raises PlanError for wrong seeds, overrides, budgets and jobs, UnknownClaim, and
    `assay.registry.UnknownPaper`.
    """
    return make_plans(
        [slug],
        scale,
        ledger=ledger,
        seeds=seeds,
        overrides=overrides,
        claims=claims,
        budget=budget,
        fresh=fresh,
        jobs=jobs,
        studies=None if study is None else {slug: study},
    )[0]


def make_plans(
    slugs: Sequence[str],
    scale: Scale,
    *,
    ledger: Ledger | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Mapping[str, str] | None = None,
    claims: Sequence[str] | None = None,
    budget: float | None = None,
    fresh: bool = False,
    jobs: int | None = None,
    studies: Mapping[str, str] | None = None,
) -> list[Plan]:
    """Plans several papers under one budget; the arguments are those of `make_plan`.

    A claim "C1" is that of every paper that has one; an override must fit one paper at least.
    `studies` names those outside the papers' rooms, slug -> "module:attribute".
    """
    if budget is not None and not budget > 0:
        raise PlanError(f"budget: got {budget}, wants seconds > 0")
    if jobs is not None and jobs < 1:
        raise PlanError(f"jobs: got {jobs}, wants at least 1")
    rooms = [_load(slug, (studies or {}).get(slug)) for slug in dict.fromkeys(slugs)]
    trials = {room.slug: _trials(room.study, scale, seeds) for room in rooms}
    if claims is not None:
        for slug, chosen in _choose(rooms, claims).items():
            trials[slug] = [t for t in trials[slug] if chosen & set(t.claims)]
    if overrides:
        trials = _override(trials, overrides)
    plans = [_plan(room, scale, trials[room.slug]) for room in rooms]
    if ledger is not None and not fresh:
        done = ledger.done(p.key for plan in plans for p in plan.todo)
        plans = [_without(plan, done) for plan in plans]
    if budget is not None:
        plans = _fit(plans, budget, jobs)
    return [replace(plan, seconds=_seconds(plan.todo, jobs)) for plan in plans]


@dataclass(frozen=True)
class _Room:
    slug: str
    reference: str
    study: Study
    needs: tuple[Need, ...]  # of every trial


def _load(slug: str, reference: str | None = None) -> _Room:
    if reference is None:
        study = registry.study(slug)
        return _Room(slug, f"assay.papers.{slug}.study:study", study, package_needs(slug))
    return _Room(slug, reference, load_study(reference), ())


def load_study(reference: str) -> Study:
    """The study at "module:attribute". Raises ImportError, or PlanError where it is no study."""
    module, _, attribute = reference.partition(":")
    found = getattr(importlib.import_module(module), attribute or "study", None)
    if not isinstance(found, Study):
        raise PlanError(f"study {reference!r}: got {found!r}, wants a Study")
    return found


def _trials(study: Study, scale: Scale, seeds: Sequence[int] | None) -> list[Trial]:
    for seed in seeds or ():
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise PlanError(f"seeds: got {seed!r}, wants integers >= 0")
    return list(study.trials(scale, seeds))


def _choose(rooms: Sequence[_Room], claims: Sequence[str]) -> dict[str, set[str]]:
    """The ids that were asked for, by slug."""
    known = {room.slug: [claim.id for claim in room.study.claims] for room in rooms}
    chosen: dict[str, set[str]] = {room.slug: set() for room in rooms}
    for name in claims:
        slug, _, id = name.rpartition(":")
        owners = [s for s, ids in known.items() if slug in ("", s) and id in ids]
        if not owners:
            raise UnknownClaim(_unknown_claim(name, known))
        for owner in owners:
            chosen[owner].add(id)
    return chosen


def _unknown_claim(name: str, known: Mapping[str, Sequence[str]]) -> str:
    ids = list(dict.fromkeys(id for some in known.values() for id in some))
    names = ids + [f"{slug}:{id}" for slug, some in known.items() for id in some]
    folded = {n.casefold(): n for n in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)
    hint = " or ".join(folded[n] for n in near)
    there = f"{', '.join(known)}: there are {', '.join(ids)}"
    return f"unknown claim {name!r}: " + (f"did you mean {hint}?" if near else there)


def _override(
    trials: Mapping[str, list[Trial]], overrides: Mapping[str, str]
) -> dict[str, list[Trial]]:
    known = sorted({name for some in trials.values() for t in some for name in t.params})
    for name in overrides:
        if name not in known:
            there = ", ".join(known) or "none"
            raise PlanError(f"parameter {name!r}: no trial has it; there are {there}")
    return {
        slug: [replace(t, params=_overridden(t.params, overrides)) for t in some]
        for slug, some in trials.items()
    }


def _overridden(params: Mapping[str, Param], overrides: Mapping[str, str]) -> dict[str, Param]:
    return {
        name: _parse(name, overrides[name], value) if name in overrides else value
        for name, value in params.items()
    }


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parse(name: str, text: str, old: Param) -> Param:
    """The text as a value of the type that the parameter has."""
    try:
        if isinstance(old, bool):
            return _TRUTHS[text.casefold()]
        if isinstance(old, float) and not math.isfinite(float(text)):
            raise ValueError
        return type(old)(text)
    except (KeyError, ValueError):
        wants = {bool: "true or false", int: "an integer", float: "a finite number"}[type(old)]
        raise PlanError(f"parameter {name!r}: got {text!r}, wants {wants}") from None


def _plan(room: _Room, scale: Scale, trials: Iterable[Trial]) -> Plan:
    version = room.study.version
    planned: dict[str, Planned] = {}
    missing = cache(lambda needs: missing_needs(room.slug, needs))  # equal ones for most trials
    for trial in trials:
        key = trial.key(room.slug, version, scale)
        if key in planned:  # listed for one claim and again for another, or made equal by --set
            claims = dict.fromkeys(planned[key].trial.claims + trial.claims)
            trial = replace(planned[key].trial, claims=tuple(claims))
        needs = room.needs + trial.needs + ((Need.gpu(trial.gpus),) if trial.gpus else ())
        planned[key] = Planned(
            room.slug, version, scale, trial, key, room.reference, missing(needs)
        )
    return Plan(
        room.slug,
        room.study,
        scale,
        todo=tuple(p for p in planned.values() if not p.missing),
        blocked=tuple(p for p in planned.values() if p.missing),
    )


def _without(plan: Plan, done: set[str]) -> Plan:
    """The plan with those trials done that the ledger holds, whether or not they could run now."""
    return replace(
        plan,
        todo=tuple(p for p in plan.todo if p.key not in done),
        done=tuple(p for p in plan.trials if p.key in done),
        blocked=tuple(p for p in plan.blocked if p.key not in done),
    )


def _seconds(trials: Iterable[Planned], jobs: int | None) -> float:
    """Seconds for which the machine is busy with trials that share it as well as they can."""
    return sum(_share(p.trial, jobs) * p.trial.cost for p in trials)


def _share(trial: Trial, jobs: int | None) -> float:
    """The part of the machine that a trial keeps from others."""
    if trial.exclusive:
        return 1.0
    return min(1.0, max(trial.cpus / cores(), 1 / (jobs or cores())))


def _fit(plans: Sequence[Plan], budget: float, jobs: int | None) -> list[Plan]:
    """The plans with those claims whose trials fit the budget, the cheapest first.

    A trial that several claims share is paid once. Trials of no claim come last.
    """
    open_: dict[tuple[str, str], list[Planned]] = {}
    for plan in plans:
        for p in plan.trials:
            for claim in p.trial.claims or ("",):
                open_.setdefault((plan.slug, claim), []).append(p)
    todo = {p.key for plan in plans for p in plan.todo}
    taken: set[str] = set()
    left: list[LeftOut] = []
    spent = 0.0
    while open_:
        cost = {
            name: _seconds((p for p in trials if p.key in todo - taken), jobs)
            for name, trials in open_.items()
        }
        name = min(open_, key=lambda n: (n[1] == "", cost[n]))
        trials = open_.pop(name)
        if spent + cost[name] <= budget:
            spent += cost[name]
            taken.update(p.key for p in trials)
        elif name[1]:
            left.append(LeftOut(*name, cost[name]))
    return [
        replace(
            plan,
            todo=tuple(p for p in plan.todo if p.key in taken),
            done=tuple(p for p in plan.done if p.key in taken),
            blocked=tuple(p for p in plan.blocked if p.key in taken),
            left_out=tuple(item for item in left if item.slug == plan.slug),
        )
        for plan in plans
    ]
