"""Remove a table and its data."""

from __future__ import annotations

from lance_namespace import DropTableRequest, DropTableResponse

from relance.errors import InternalError, KeyNotFoundError, TableNotFoundError
from relance.identifiers import TableId
from relance.lifecycle.marker import cleared
from relance.lifecycle.marker_store import put_marker
from relance.lifecycle.states import State
from relance.listing.lookup import TableFacts, look_up
from relance.locations import CREATING_SUFFIX, DECLARED_SUFFIX, table_directory
from relance.operations.context import Context
from relance.resolution import root_table_id
from relance.storage.protocol import ObjectStorage


def drop_table(context: Context, request: DropTableRequest) -> DropTableResponse:
    """Delete every file of the table; a deregistered one too. Repeat it when it failed half-way.

    Raises:
        TableNotFoundError: there is no such table.
    """
    table_id = root_table_id(request.id)
    facts = look_up(context.storage, table_id.name)
    if not facts.holds_table:
        raise TableNotFoundError(f"table id '{table_id}'")
    _remove(context, table_id, facts)
    return DropTableResponse(id=table_id.parts, location=context.location(table_id.name))


def _remove(context: Context, table_id: TableId, facts: TableFacts) -> None:
    storage, directory = context.storage, table_directory(table_id.name)
    storage.delete_many(info.key for info in storage.list_recursive(directory))
    left = next((info for info in storage.list_recursive(directory) if _is_there(storage, info.key)), None)
    if left is not None:
        raise InternalError(f"table id '{table_id}' is not gone: {left.key!r} is still there; drop it again")
    storage.delete_many([table_id.name + DECLARED_SUFFIX, table_id.name + CREATING_SUFFIX])
    if facts.marker is not None and facts.marker.marker.state is State.DEREGISTERED:
        put_marker(storage, table_id.name, cleared(), over=facts.marker)


def _is_there(storage: ObjectStorage, key: str) -> bool:
    """Tell an object from a folder object, which is listed without its last slash and has no such key."""
    try:
        storage.head(key)
    except KeyNotFoundError:
        return False
    return True
