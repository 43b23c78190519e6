"""Commands and groups as all of ours are: with the options that hold everywhere, before or after the name."""

from __future__ import annotations

from typing import Any

import click

from relance.cli.state import State


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Let the state know an option that was given; the one nearest to the end of the line counts."""
    state = context.ensure_object(State)
    if value is not None and value is not False and parameter.name is not None:
        setattr(state, parameter.name, value)


def shared_options() -> list[click.Option]:
    """Return the options that every command has."""
    return [
        click.Option(
            ["--root"],
            metavar="PATH|URI",
            expose_value=False,
            callback=_keep,
            help="The catalog; else RELANCE_ROOT, else the nearest relance.toml.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            type=click.Path(dir_okay=False),
            expose_value=False,
            callback=_keep,
            help="A file like relance.toml, in place of the nearest one.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_keep,
            help="Print one JSON document.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_keep,
            help="Print the traceback of an error.",
        ),
    ]


class Command(click.Command):
    """A command with the shared options; its result is an Answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.extend(shared_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ensure_object(State).command = ctx.command_path.partition(" ")[2]  # also when they are wrong
        return super().parse_args(ctx, args)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.extend(shared_options())


Group.group_class = Group
