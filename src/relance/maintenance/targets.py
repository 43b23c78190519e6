"""Which tables a job is for when none is named."""

from __future__ import annotations

from lance_namespace import ListTablesRequest

from relance.catalog.context import Context
from relance.operations.tables import list_all_tables


def all_tables(context: Context) -> list[tuple[str, ...]]:
    """Return the ids of all visible tables that hold data, of all namespaces."""
    listed = list_all_tables(context, ListTablesRequest(include_declared=False))
    return [tuple(each.split("$")) for each in listed.tables]
