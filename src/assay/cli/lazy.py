"""Groups of commands that import a paper's own commands only when one of them is called."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

from assay import registry


class PapersGroup(TyperGroup):
    """The top of the command line: its own commands, then one group per paper that has any."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_with_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in _with_commands():
            return own
        paper = registry.paper(cmd_name)
        if "--help" in ctx.args or _only_listing(ctx):
            return _summary_only(cmd_name, paper.summary)
        registry.require(cmd_name)
        module, _, attribute = paper.cli.partition(":")
        group = typer.main.get_group(getattr(importlib.import_module(module), attribute))
        group.name = cmd_name
        return group


class DefaultGroup(TyperGroup):
    """A group whose first command is meant where none of them is named."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = [next(iter(self.commands)), *args]
        return super().resolve_command(ctx, args)


def _with_commands() -> list[str]:
    return [slug for slug in registry.slugs() if registry.paper(slug).cli]


def _only_listing(ctx: Any) -> bool:
    # While help is printed nothing is left to parse and no command has been chosen.
    return not ctx.args and not getattr(ctx, "_protected_args", ())


def _summary_only(name: str, summary: str) -> Any:
    stub = typer.Typer(help=summary)
    stub.callback()(lambda: None)
    group = typer.main.get_group(stub)
    group.name, group.help, group.short_help = name, summary, summary
    return group
