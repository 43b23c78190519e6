"""Where the tables of an opened catalog are: what every operation asks first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relance.identifiers import TableId, parse_table_id
from relance.manifest.entry import Entry
from relance.manifest.store import Snapshot, rereading
from relance.operations.context import Context
from relance.operations.pending import dropped_at_home
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
    found = find_table(context.storage, snapshot, place)
    if snapshot is not None and found.facts is not None and place.entry is None:
        row = left_behind(snapshot, table_id)
        return found if row is None else replace(found, properties=row.properties)
    return found


def left_behind(snapshot: Snapshot | None, table_id: TableId) -> Entry | None:
    """Return the row of a drop of a root table, whose marker tells whether that was undone since.

    A client without manifest undoes a drop by the marker alone: then this is still the table's row.
    """
    if snapshot is None:
        return None
    gone = dropped_at_home(snapshot, str(table_id))
    return gone[-1] if gone else None
