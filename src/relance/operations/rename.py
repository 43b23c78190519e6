"""Give a table another name, within its namespace or in another; data is never copied.

One commit of the manifest renames. Of a table in the directory of its name that commit makes a row
which decides about it from then on; the marker, which decided before, is told afterwards. Whoever
moves the marker meanwhile looks at the manifest again before it reports success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lance_namespace import RenameTableRequest, RenameTableResponse

from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from relance.identifiers import TableId, parse_table_id
from relance.lifecycle.states import State
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Snapshot
from relance.operations.announcing import announced_swap, finish, finishing
from relance.operations.context import Context
from relance.operations.directory.claims import busy, settled_marker
from relance.operations.directory.moving import swap_for_moved
from relance.operations.in_step import follow_marker
from relance.operations.places import place_of, visible_table
from relance.operations.rows.drop import undrop
from relance.operations.rows.lookups import require_free, require_manifest
from relance.operations.rows.rename import begin_move, rename
from relance.resolution import not_found

_T = TypeVar("_T")


@finishing
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
    finish(context, table_id)
    found = visible_table(context, table_id)
    if found.facts is None:
        making_way(context, target, lambda: rename(context, manifest, table_id, target))
    else:
        follow_marker(context, table_id)  # it may have no row yet
        making_way(context, target, lambda: begin_move(context, manifest, table_id, target))
        finish(context, table_id)
    return RenameTableResponse()


def making_way(context: Context, table_id: TableId, take: Callable[[], _T]) -> _T:
    """Take a name; if a row keeps it that a crash left out of step, bring that in step and take it then."""
    try:
        return take()
    except (TableAlreadyExistsError, NamespaceAlreadyExistsError, ConcurrentModificationError):
        if not make_way(context, table_id):
            raise
    return take()


def make_way(context: Context, table_id: TableId) -> bool:
    """Bring a root name in step, and tell whether a row that kept it is gone."""
    if context.manifest is None or table_id.namespace:
        return False
    place = place_of(context, table_id)
    if place.entry is None or not place.in_directory:
        return False
    finish(context, table_id)
    follow_marker(context, table_id)
    return place_of(context, table_id).entry is None


def renamed_meanwhile(context: Context, table_id: TableId) -> TableNotFoundError:
    """Return the error for a change of the marker that came after a rename, which it has to give way to."""
    finish(context, table_id)
    return TableNotFoundError(f"table id '{table_id}' was renamed by another client")


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
    making_way(context, target, lambda: require_free(context, manifest.latest(), target))
    swap_for_moved(context, table_id.name, stored, undid=stored.marker.deletion_id, swap=announced_swap)
    undrop(context, manifest, dropped, target)


def _own_dropped(snapshot: Snapshot, table_id: TableId) -> Entry:
    claimed = snapshot.get([str(table_id)]).get(str(table_id))
    if claimed is not None and claimed.has_own_directory and claimed.marker is not None:
        raise busy(str(table_id), claimed.marker)
    for each in snapshot.dropped(str(table_id)):
        if each.has_own_directory and each.object_type == ObjectType.TABLE:
            return each
    raise TableNotFoundError(f"table id '{table_id}' is not dropped")
