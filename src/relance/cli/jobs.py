"""Commands of jobs, from the classes of their kinds: settings are options, docstrings are help.

A kind and what it imports are loaded when a command is used, not to list the commands.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from relance.cli.asking import confirm
from relance.cli.base import Command
from relance.cli.engines import run_job
from relance.cli.maintaining import planned_line, report_answer, run_confirmed
from relance.cli.output import Answer
from relance.cli.params import DROPPED, TABLE, dry_run_option, engine_options, yes_option
from relance.cli.state import State, pass_state
from relance.units import plural

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from relance.jobs import Result
    from relance.jobs.base import Job
    from relance.jobs.settings import Value

Id = tuple[str, ...]


class JobCommand(Command):
    """The command of a kind of job, whose options are the settings of a direct run."""

    def __init__(self, name: str, summary: str) -> None:
        self._is_loaded = True  # only the shared options are added here
        super().__init__(name, callback=_run, help=summary, short_help=summary)
        self._is_loaded = False

    @property
    def kind(self) -> type[Job]:
        """The kind of this command."""
        from relance.jobs.base import kinds

        return next(kind for kind in kinds() if kind.command == self.name)

    @property
    def params(self) -> list[click.Parameter]:
        """The parameters, with those of the kind once they are asked for."""
        if not self._is_loaded:
            self._is_loaded = True
            self._params[:0] = _parameters(self.kind)
            self.help = inspect.cleandoc(self.kind.__doc__ or "")
        return self._params

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        self._params = params

    def invoke(self, ctx: click.Context) -> Any:
        ctx.params["kind"] = self.kind
        return super().invoke(ctx)


def find_command(name: str) -> JobCommand | None:
    """Return the command of a kind that is not in the list of commands: one of an extension.

    An extension has imported the kinds; without one, nobody has to wait for them to see a mistyped command.
    """
    if "relance.jobs.base" not in sys.modules:
        return None
    from relance.jobs.base import kinds

    found = next((kind for kind in kinds() if kind.command == name), None)
    return None if found is None else JobCommand(name, inspect.cleandoc(found.__doc__ or "").split("\n")[0])


def _parameters(kind: type[Job]) -> list[click.Parameter]:
    from relance.jobs.base import Scope, settings_for
    from relance.jobs.settings import value_of

    @dry_run_option
    @engine_options
    def shared() -> None:
        """Has the options of every job."""

    params: list[click.Parameter] = []
    if kind.scope is not Scope.ROOT:
        of = DROPPED if kind.scope is Scope.DROPPED else TABLE
        params.append(click.Argument(["tables"], type=of, nargs=-1, required=kind.needs_names))
    for name, field in settings_for(kind, "direct").items():
        value = value_of(field)
        if value is not None:
            params.append(_option(name, field, value))
    command = click.command()(yes_option(shared) if kind.irreversible else shared)
    return [*params, *command.params]


def _option(name: str, field: FieldInfo, value: Value) -> click.Option:
    from relance.jobs.settings import ASSIGNMENTS, FLAG

    option, help_text = f"--{name.replace('_', '-')}", field.description
    if value is FLAG:
        return click.Option([option, name], is_flag=True, default=None, help=help_text)
    return click.Option(
        [option, name],
        type=_Setting(value),
        metavar=value.metavar,
        multiple=value is ASSIGNMENTS,
        required=field.is_required(),
        help=help_text,
    )


class _Setting(click.ParamType[Any]):
    """A setting of a job, read as its class reads it."""

    def __init__(self, value: Value) -> None:
        self.name = value.metavar.lower()
        self._value = value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from relance.jobs.settings import ASSIGNMENTS, SettingError

        if not isinstance(value, str):
            return value
        if self._value is ASSIGNMENTS:
            column, equals, expression = value.partition("=")
            if not equals or not column.strip():
                self.fail(f'invalid assignment {value!r}; write it like price="price * 1.1"', param, ctx)
            return column.strip(), expression
        try:
            return self._value.parse(value)
        except SettingError as error:
            self.fail(error.message, param, ctx)


@pass_state
def _run(
    state: State,
    /,
    *,
    kind: type[Job],
    dry_run: bool,
    tables: Sequence[Id] = (),
    engine: str | None = None,
    master: str | None = None,
    yes: bool = True,
    **given: Any,
) -> Answer:
    """Run a job of the kind on the named tables, or on all it applies to."""
    settings = {
        name: dict(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value != ()
    }
    job = kind(**settings)
    job.check_tables(tables)

    def ask(due: Sequence[Result]) -> None:
        what = kind.title if not tables else f"{kind.title}: {plural(len(due), 'table')}"
        confirm(what, [planned_line(each) for each in due])

    run = partial(run_job, state, job, engine=engine, master=master)
    report = run_confirmed(
        run, tables, lambda planned: not job.is_nothing(planned), ask, dry_run=dry_run, yes=yes
    )
    return report_answer(state, report, nothing=f"{kind.title}: nothing to do")


refresh_indexes = JobCommand("refresh-indexes", "Extend indexes to rows written since they were built.")
update_rows = JobCommand(
    "update-rows", "Set columns to SQL expressions, in all rows or in those that match a predicate."
)
remove_orphans = JobCommand("remove-orphans", "Remove old directories that nothing in the catalog refers to.")
maintain_manifest = JobCommand(
    "maintain-manifest", "Keep the catalog's manifest compact, indexed and free of old versions."
)
