"""Command and group classes with the options that every command accepts, before or after its name."""

from __future__ import annotations

from typing import Any

import click

from relance.cli.state import State


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store an option in the state; the last one on the command line wins."""
    state = context.ensure_object(State)
    if value is not None and value is not False and parameter.name is not None:
        setattr(state, parameter.name, value)


def shared_options() -> list[click.Option]:
    """Return the options that every command accepts."""
    return [
        click.Option(
            ["--root"],
            metavar="PATH|URI",
            expose_value=False,
            callback=_keep,
            help="Catalog root. Default: RELANCE_ROOT, then the nearest relance.toml.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            type=click.Path(dir_okay=False),
            expose_value=False,
            callback=_keep,
            help="Settings file to use instead of the nearest relance.toml.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_keep,
            help="Print the result as one JSON document.",
        ),
        click.Option(
            ["--vertical"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_keep,
            help="Print tables as one line per value, so that every column is shown.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_keep,
            help="Print the traceback if a command fails.",
        ),
    ]


class Command(click.Command):
    """A command with the shared options; its result is an Answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.extend(shared_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ensure_object(State).command = ctx.command_path.partition(" ")[2]  # even if they are invalid
        return super().parse_args(ctx, args)


class Group(click.Group):
    """A group of commands with the shared options."""

    command_class = Command

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.extend(shared_options())


Group.group_class = Group
