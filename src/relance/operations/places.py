"""Where the tables of an opened catalog are: what every operation asks first."""

from __future__ import annotations

from collections.abc import Sequence

from relance.identifiers import TableId, parse_table_id
from relance.manifest.store import rereading
from relance.operations.context import Context
from relance.resolution import Found, Place, find_table, locate, root_table_id


def table_id_of(context: Context, parts: Sequence[str] | None) -> TableId:
    """Return the validated id of a table of this catalog.

    Raises:
        InvalidInputError: not a usable id.
        UnsupportedOperationError: it lies in a child namespace, which a catalog without manifest has not.
    """
    return root_table_id(parts) if context.manifest is None else parse_table_id(parts)


@rereading
def place_of(context: Context, table_id: TableId) -> Place:
    """Return where the table is or would be, and who decides about it."""
    snapshot = None if context.manifest is None else context.manifest.latest()
    return locate(snapshot, table_id, dir_listing=context.settings.dir_listing)


@rereading
def visible_table(context: Context, table_id: TableId) -> Found:
    """Return the visible table.

    Raises:
        TableNotFoundError: there is none, or it is hidden.
    """
    snapshot = None if context.manifest is None else context.manifest.latest()
    place = locate(snapshot, table_id, dir_listing=context.settings.dir_listing)
    return find_table(context.storage, snapshot, place)
