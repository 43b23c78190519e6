"""The table that a plan is for: opened by tasks as it was planned, and by the commit as it is now."""

from __future__ import annotations

from dataclasses import dataclass

import lance
from lance_namespace import ListTablesRequest

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, TableVersionNotFoundError
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


def all_tables(context: Context) -> list[tuple[str, ...]]:
    """Return the ids of all visible tables that hold data, of all namespaces."""
    listed = list_all_tables(context, ListTablesRequest(include_declared=False))
    return [tuple(each.split("$")) for each in listed.tables]
