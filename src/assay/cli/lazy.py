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
        return _summary_only(cmd_name, registry.paper(cmd_name).summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Listings go through get_command alone; only a call comes here.
        if args and super().get_command(ctx, args[0]) is None and args[0] in _with_commands():
            return args[0], _mounted(args[0]), args[1:]
        return super().resolve_command(ctx, args)


def _mounted(slug: str) -> Any:
    registry.require(slug)
    module, _, attribute = registry.paper(slug).cli.partition(":")
    group = typer.main.get_group(getattr(importlib.import_module(module), attribute))
    group.name = slug
    return group


class DefaultGroup(TyperGroup):
    """A group whose first command is meant where none of them is named."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = [next(iter(self.commands)), *args]
        return super().resolve_command(ctx, args)


def _with_commands() -> list[str]:
    return [slug for slug in registry.slugs() if registry.paper(slug).cli]


def _summary_only(name: str, summary: str) -> Any:
    stub = typer.Typer(help=summary)
    stub.callback()(lambda: None)
    group = typer.main.get_group(stub)
    group.name, group.help, group.short_help = name, summary, summary
    return group
