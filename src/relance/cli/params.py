"""Arguments that commands share: ids with completion, durations, times, engines, confirmation."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from relance.cli.state import State

if TYPE_CHECKING:
    from relance.catalog import Catalog

_F = TypeVar("_F", bound=Callable[..., Any])

_FIRST = 5_000
"""Tables among which a name is looked for that is like a misspelled one."""


class IdType(click.ParamType[Any]):
    """An id such as prod.analytics.users; names with a dot in backticks. Completed from the catalog."""

    def __init__(self, name: str, known: Callable[[Catalog], Iterable[tuple[str, ...]]]) -> None:
        self.name = name
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or (ctx is not None and ctx.resilient_parsing):
            return value
        from relance.identifiers import parse_id

        parts = parse_id(value)
        if ctx is not None:
            ctx.ensure_object(State).ids.append(parts)
        return parts

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return matching names; nothing on an error, which a completion cannot report."""
        from relance.identifiers import format_id

        state = ctx.ensure_object(State)
        state.quiet = True
        try:
            names = [format_id(each) for each in self._known(state.view)]
        except Exception:  # noqa: BLE001  # the shell expects words, not errors
            return []
        # Without names in backticks: a shell would run them as commands.
        safe = {each for each in names if shlex.quote(each) == each}
        return [CompletionItem(each) for each in sorted(safe) if each.startswith(incomplete)]


def all_table_ids(catalog: Catalog) -> list[tuple[str, ...]]:
    """Return the ids of all visible tables."""
    return catalog.all_tables()


def first_table_ids(catalog: Catalog) -> list[tuple[str, ...]]:
    """Return the ids of visible tables, but not of an endless number of them."""
    return catalog.all_tables()[:_FIRST]


def all_namespace_ids(catalog: Catalog) -> list[tuple[str, ...]]:
    """Return the ids of all namespaces except the root, parents before children."""
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parent = waiting.pop()
        children = [(*parent, each) for each in catalog.namespaces(parent)]
        found += children
        waiting += children
    return sorted(found)


def _dropped_ids(catalog: Catalog) -> list[tuple[str, ...]]:
    return [each.id for each in catalog.dropped()]


TABLE = IdType("table", all_table_ids)
NAMESPACE = IdType("namespace", all_namespace_ids)
ANY = IdType("name", lambda catalog: [*all_namespace_ids(catalog), *all_table_ids(catalog)])
DROPPED = IdType("table", _dropped_ids)


class _Duration(click.ParamType[Any]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, timedelta):
            return value
        from relance.units import parse_duration

        what = f"--{param.name}".replace("_", "-") if param and param.name else "duration"
        return parse_duration(value, what=what)


class _Moment(click.ParamType[Any]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime):
            return value
        from relance.errors import InvalidInputError
        from relance.units import parse_instant

        try:
            return parse_instant(value, what="it")
        except InvalidInputError as error:
            self.fail(error.detail, param, ctx)


DURATION = _Duration()
MOMENT = _Moment()


def yes_option(command: _F) -> _F:
    """Add --yes."""
    return click.option("--yes", "-y", is_flag=True, help="Skip the confirmation of irreversible actions.")(
        command
    )


def dry_run_option(command: _F) -> _F:
    """Add --dry-run."""
    return click.option("--dry-run", is_flag=True, help="Show what would be done without doing it.")(command)


def engine_options(command: _F) -> _F:
    """Add --engine and --master."""
    command = click.option(
        "--master", metavar="URL", help="Spark master, such as local[4] or spark://host:7077."
    )(command)
    return click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        help="Run in local threads or on Spark. Default: local, or spark if --master is given.",
    )(command)
