"""A room has the same shape as every other, and says what it must."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from enum import Enum
from pathlib import Path

import pytest

from assay import registry
from assay.study import Results, Scale

ROOT = Path(__file__).parents[2]
SECTIONS = ["Use", "Measured", "Reproduce", "Limits", "Differences from the paper"]


def python(code: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, **options
    )


def test_paper_toml_is_valid_and_complete(slug, room):
    paper = registry.paper(slug)
    assert paper.slug == slug == room.name
    assert paper.modules, "modules: names what the extra installs"
    assert len(paper.summary) <= 120, "summary: one line"
    assert paper.url.startswith("https://")
    for source in paper.data:
        assert source.licence, f"{source.name}: licence"
        for path, (url, sha256) in source.files.items():
            assert url.startswith("https://")
            assert re.fullmatch(r"[0-9a-f]{64}", sha256), path


def test_the_extra_is_declared(slug):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert slug in extras
    assert re.search(rf"\b{slug}\b", extras["all"][0]), "`all` holds every paper's extra"


def test_the_room_has_its_files(room):
    for name in ("__init__.py", "study.py", "paper.toml", "README.md"):
        assert (room / name).is_file(), name


def test_the_method_is_where_the_registry_says(slug):
    module = importlib.import_module(f"assay.papers.{slug}")
    assert registry.paper(slug).method in module.__all__
    for name in module.__all__:
        assert hasattr(module, name), name


def test_importing_the_method_costs_only_its_own_dependencies(slug):
    code = f"""
import sys, assay.papers.{slug}
banned = ("typer", "sqlalchemy", "alembic", "jinja2", "ray", "assay.study", "assay.runner",
          "assay.ledger", "assay.report", "assay.cli", "assay.registry")
print(*(m for m in banned if m in sys.modules))
"""
    answer = python(code)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == ""


def test_the_study_is_readable_without_the_extra(slug):
    modules = registry.paper(slug).modules
    code = f"""
import sys
for name in {modules!r}:
    sys.modules[name] = None  # as if it were not installed
from assay import registry
from assay.study import Results, Scale
study = registry.study({slug!r})
for scale in Scale:
    list(study.trials(scale))
heavy = [m for m in ("torch", "pandas", "sklearn", "matplotlib", "scipy") if sys.modules.get(m)]
assert not heavy, heavy
"""
    answer = python(code)
    assert answer.returncode == 0, answer.stderr


def test_public_names_are_documented(slug):
    module = importlib.import_module(f"assay.papers.{slug}")
    for name in module.__all__:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or callable(thing)):
            continue
        text = _documentation(thing)
        assert len(text) > 20, f"{name}: no docstring"
        for parameter in _parameters(thing):
            assert re.search(rf"\b{re.escape(parameter)}\b", text), f"{name}: {parameter}"
        if _raises(thing):
            assert re.search(r"\b[Rr]aises?\b|\bRefuses?\b|Error\b", text), f"{name}: raises what?"


def _documentation(thing) -> str:
    own = thing.__doc__ or ""
    if not inspect.isclass(thing):
        return own
    parts = [own, thing.__init__.__doc__ or ""]
    bases = [b for b in thing.__mro__[1:] if b.__module__.startswith("assay.")]
    parts += [base.__doc__ or "" for base in bases]
    return "\n".join(parts)


def _parameters(thing) -> list[str]:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return []
    if inspect.isclass(thing) and issubclass(thing, BaseException | Enum):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind not in kinds]


def _raises(thing) -> bool:
    """Whether its own code (a function's, or a class's __init__) raises something."""
    target = thing.__init__ if inspect.isclass(thing) else thing
    own = getattr(target, "__module__", "").startswith("assay.")
    if not own:  # a protocol's `__init__` is one of typing's
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(target)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def test_the_card_has_its_sections_in_order(room):
    card = (room / "README.md").read_text()
    assert card.startswith("# ")
    assert re.findall(r"^## (.+)$", card, re.MULTILINE) == SECTIONS


def test_the_cards_example_runs(slug, room, tmp_path):
    card = (room / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", card.split("\n## Use\n")[1], re.M | re.S)
    assert blocks, "## Use has an example"
    lines = [line for line in blocks[0].splitlines() if line.strip()]
    assert len(lines) <= 15, "about ten lines"
    assert f"assay.papers.{slug}" in blocks[0]
    answer = python(blocks[0], cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr


def test_commands_are_mounted(slug):
    if not registry.paper(slug).cli:
        pytest.skip("this paper has no commands of its own")
    answer = subprocess.run(
        [sys.executable, "-m", "assay", slug, "--help"], capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    assert "Commands" in answer.stdout


def test_claims_cite_what_they_check(study):
    ids = [claim.id for claim in study.claims]
    assert len(ids) == len(set(ids)) > 0
    for claim in study.claims:
        assert claim.statement.endswith("."), f"{claim.id}: statements are sentences"
        assert claim.ours or re.search(
            r"(abstract|Table|Fig|Section|section|Theorem|Appendix|appendix|Algorithm|App|Eq)",
            claim.source,
        ), f"{claim.id}: source {claim.source!r} names no place in the paper"


def test_every_claim_is_measured_where_it_says(study):
    for scale in Scale:
        trials = list(study.trials(scale))
        named = {id for trial in trials for id in trial.claims}
        declared = {claim.id for claim in study.claims if scale in claim.protocol}
        assert named == declared, f"{scale}: trials measure {named ^ declared} otherwise"


def test_trials_are_distinct_and_seeds_can_be_replaced(slug, study):
    for scale in Scale:
        trials = list(study.trials(scale))
        keys = [trial.key(slug, study.version, scale) for trial in trials]
        assert len(keys) == len(set(keys)), scale
    seeds = {trial.seed for trial in study.trials(Scale.SMOKE, [3])}
    assert seeds <= {0, 3}, "seeds given replace the study's own; unseeded trials keep 0"


def test_nothing_is_drawn_of_nothing(study):
    assert list(study.figures(Results())) == []
    assert list(study.tables(Results())) == []
