"""The table that a plan is for: opened by tasks as it was planned, and by the commit as it is now."""

from __future__ import annotations

from dataclasses import dataclass

import lance
from lance_namespace import ListTablesRequest

from relance.catalog.context import Context, table_id_of
from relance.catalog.resolve import Found, find_table
from relance.errors import ConcurrentModificationError, TableNotFoundError, TableVersionNotFoundError
from relance.jobs.base import Expected, MovedError, Name
from relance.lance_io import checkout, open_at
from relance.operations.tables import list_all_tables
from relance.operations.targets import Target, open_for_writing


@dataclass(frozen=True, slots=True)
class Place:
    """A table as it was planned."""

    table: tuple[str, ...]
    directory: str
    uri: str
    version: int

    @property
    def what(self) -> str:
        """What messages call it."""
        return f"table id '{'$'.join(self.table)}'"


def place_of(context: Context, target: Target) -> Place:
    """Return the place of an opened table."""
    directory = target.found.directory
    parts = tuple(target.found.table_id.parts)
    return Place(parts, directory, context.location_of(directory), int(target.dataset.version))


def open_planned(context: Context, place: Place) -> Target:
    """Return the latest version of the table that was planned.

    Raises:
        TableNotFoundError: it was dropped or renamed.
        ConcurrentModificationError: another table has its name now.
    """
    target = open_for_writing(context, place.table)
    if target.found.directory != place.directory:
        raise ConcurrentModificationError(f"{place.what} was replaced after the plan was made; re-plan")
    return target


def open_version(context: Context, place: Place) -> lance.LanceDataset:
    """Return the planned version, a dataset of the caller's own: building an index borrows it.

    Raises:
        ConcurrentModificationError: the version was cleaned up.
    """
    dataset = open_at(place.uri, context.lance_options(), "$".join(place.table))
    try:
        return checkout(dataset, place.version, f"version {place.version} of {place.what}")
    except TableVersionNotFoundError as cause:
        raise ConcurrentModificationError(
            f"{cause.detail} was cleaned up after the plan was made; re-plan"
        ) from cause


def open_expected(
    context: Context, table: Name, expect: Expected | None = None, *, session: lance.Session | None = None
) -> Target:
    """Return the latest version of a table, if it is still the one that was expected.

    Raises:
        TableNotFoundError: there is no such table.
        MovedError: it is another one than was expected.
    """
    try:
        target = open_for_writing(context, table, session=session)
    except TableNotFoundError as cause:
        raise _gone(cause) if expect is not None else cause from None
    if expect is not None:
        _check_directory(table, target.found, expect)
        version = int(target.dataset.version)
        if expect.version is not None and version < expect.version:
            raise MovedError(
                f"{_named(table)} was re-created after the plan was made: it is at version {version} "
                f"and was at {expect.version}; re-plan"
            )
    return target


def find_expected(
    context: Context, table: Name, expect: Expected | None = None, *, properties: bool = True
) -> Found:
    """Return where a table is, which may have no data, if it is still the one that was expected.

    Raises:
        TableNotFoundError: there is no such table.
        MovedError: it is another one than was expected.
    """
    try:
        found = find_table(context, table_id_of(context, table), properties=properties)
    except TableNotFoundError as cause:
        raise _gone(cause) if expect is not None else cause from None
    if expect is not None:
        _check_directory(table, found, expect)
    return found


def _gone(cause: TableNotFoundError) -> MovedError:
    return MovedError(f"{cause.detail}; it existed when the plan was made: re-plan")


def _check_directory(table: Name, found: Found, expect: Expected) -> None:
    if found.directory != expect.directory:
        raise MovedError(f"{_named(table)} was replaced after the plan was made; re-plan")


def _named(table: Name) -> str:
    return f"table id '{'$'.join(table)}'"


def all_tables(context: Context) -> list[tuple[str, ...]]:
    """Return the ids of all visible tables that hold data, of all namespaces."""
    listed = list_all_tables(context, ListTablesRequest(include_declared=False))
    return [tuple(each.split("$")) for each in listed.tables]
