"""Give a table another name, within its namespace or in another; data is never copied.

One commit of the manifest renames. Of a table in the directory of its name that commit makes a row
which decides about it from then on; the marker, which decided before, is told afterwards. Whoever
moves the marker meanwhile looks at the manifest again before it reports success.
"""

from __future__ import annotations

from lance_namespace import RenameTableRequest, RenameTableResponse

from relance.errors import InvalidInputError, TableNotFoundError
from relance.identifiers import TableId, parse_table_id
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Snapshot
from relance.operations.context import Context
from relance.operations.directory.claims import busy, settled_marker
from relance.operations.directory.moving import move_away, swap_for_moved
from relance.operations.directory.registration import deregister
from relance.operations.in_step import follow_marker
from relance.operations.places import place_of, visible_table
from relance.operations.rows.drop import undrop
from relance.operations.rows.lookups import require_free, require_manifest
from relance.operations.rows.rename import begin_move, end_move, rename
from relance.resolution import not_found


def rename_table(context: Context, request: RenameTableRequest) -> RenameTableResponse:
    """Move the table to a new id; its files stay where they are.

    Raises:
        TableNotFoundError: there is no such table.
        TableAlreadyExistsError: the new name is taken.
        NamespaceNotFoundError: the new namespace does not exist.
        UnsupportedOperationError: the catalog has no manifest; there the directory is the name.
    """
    table_id = parse_table_id(request.id)
    namespace = table_id.namespace if request.new_namespace_id is None else request.new_namespace_id
    target = parse_table_id([*namespace, request.new_table_name])
    manifest = require_manifest(context, to_do="renaming a table")
    if target == table_id:
        raise InvalidInputError(f"table id '{table_id}' already has this name")
    finish_rename(context, table_id)
    finish_rename(context, target)
    found = visible_table(context, table_id)
    if found.facts is None:
        rename(context, manifest, table_id, target)
    else:
        follow_marker(context, table_id)  # it may have no row yet
        begin_move(context, manifest, table_id, target)
        finish_rename(context, table_id)
    return RenameTableResponse()


def finish_rename(context: Context, table_id: TableId) -> None:
    """Hide the old name of a table that was moved to another id, or to none, which only its row says so far.

    Raises:
        ConcurrentModificationError: another client holds the marker.
    """
    if context.manifest is None or table_id.namespace:
        return
    place = place_of(context, table_id)
    if place.entry is None or place.entry.moved_to is None:
        return
    if place.entry.moved_to:
        move_away(context, table_id.name)
    else:
        facts = look_up(context.storage, table_id.name)
        if facts.holds_table and not facts.hidden:
            deregister(context, table_id, facts)
    end_move(context.manifest, table_id)


def renamed_meanwhile(context: Context, table_id: TableId) -> TableNotFoundError:
    """Return the error for a change of the marker that came after a rename, which it has to give way to."""
    finish_rename(context, table_id)
    return TableNotFoundError(f"table id '{table_id}' was renamed meanwhile")


def undrop_elsewhere(context: Context, table_id: TableId, target: TableId) -> None:
    """Show a table dropped in the directory of its name under another id; the old name stays hidden.

    First the marker leaves the directory to the row of the dropped generation: from then on no purge
    takes the files. Stopped there, the generation is still dropped, and its row decides about it.

    Raises:
        TableNotFoundError: there is no such dropped table, or a purge has begun.
        TableAlreadyExistsError: the new name is taken.
    """
    manifest = require_manifest(context, to_do="undropping under another name")
    follow_marker(context, table_id)
    stored = settled_marker(context, table_id.name)
    if stored is None or stored.marker.state is not State.DELETED:
        raise not_found(table_id, stored.marker if stored else None)
    snapshot = manifest.latest()
    dropped = _own_dropped(snapshot, table_id)
    require_free(context, snapshot, target)
    swap_for_moved(context, table_id.name, stored, undid=stored.marker.deletion_id)
    undrop(context, manifest, dropped, target)


def _own_dropped(snapshot: Snapshot, table_id: TableId) -> Entry:
    claimed = snapshot.get([str(table_id)]).get(str(table_id))
    if claimed is not None and claimed.has_own_directory and claimed.marker is not None:
        raise busy(str(table_id), claimed.marker)
    for each in snapshot.dropped(str(table_id)):
        if each.has_own_directory and each.object_type == ObjectType.TABLE:
            return each
    raise TableNotFoundError(f"table id '{table_id}' is not dropped")
