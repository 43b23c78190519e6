"""Give a table another name, within its namespace or in another; data is never copied."""

from __future__ import annotations

from contextlib import suppress

from lance_namespace import RenameTableRequest, RenameTableResponse

from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableNotFoundError,
)
from relance.identifiers import TableId, parse_table_id
from relance.lifecycle import moves
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.locations import table_directory
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.claims import settled_marker, swap
from relance.operations.directory.registration import deregister, register
from relance.operations.in_step import follow_marker
from relance.operations.places import place_of, visible_table
from relance.operations.rows.lookups import move, require_free, require_manifest
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
    manifest = require_manifest(context, to_do="renaming a table")
    table_id = parse_table_id(request.id)
    namespace = table_id.namespace if request.new_namespace_id is None else request.new_namespace_id
    target = parse_table_id([*namespace, request.new_table_name])
    if target == table_id:
        raise InvalidInputError(f"table id '{table_id}' already has this name")
    finish_rename(context, table_id)
    found = visible_table(context, table_id)
    if found.facts is None:
        rename(context, manifest, table_id, target)
        _show_at_home(context, target, found.directory)
    else:
        follow_marker(context, table_id)  # it may have no row yet
        begin_move(context, manifest, table_id, target)
        finish_rename(context, table_id)
    return RenameTableResponse()


def _show_at_home(context: Context, target: TableId, directory: str) -> None:
    """Clear the marker of a table that got back the name its directory has."""
    if not target.namespace and directory == table_directory(target.name):
        register(context, target, known_ok=True)
        follow_marker(context, target)


def finish_rename(context: Context, table_id: TableId) -> None:
    """Hide the old name of a table that was moved to another id, which only the row says so far.

    Raises:
        ConcurrentModificationError: the marker changes under our hands.
    """
    if context.manifest is None or table_id.namespace:
        return
    place = place_of(context, table_id)
    if place.entry is None or place.entry.moved_to is None:
        return
    facts = look_up(context.storage, table_id.name)
    if facts.holds_table and not facts.hidden:
        deregister(context, table_id, facts)
    end_move(context.manifest, table_id)


def undrop_elsewhere(context: Context, table_id: TableId, target: TableId) -> None:
    """Show a table dropped in the directory of its name under another id; the old name stays hidden.

    Raises:
        TableNotFoundError: there is no such dropped table, or a purge has begun.
        TableAlreadyExistsError: the new name is taken.
    """
    manifest = require_manifest(context, to_do="undropping under another name")
    follow_marker(context, table_id)
    require_free(context, manifest.latest(), target)
    stored = settled_marker(context, table_id.name)
    if stored is None or stored.marker.state not in {State.DELETED, State.DEREGISTERED}:
        raise not_found(table_id, stored.marker if stored else None)
    dropped = _own_dropped(manifest.latest(), table_id)
    if stored.marker.state is State.DELETED:
        # From here on no purge takes the files: the marker only keeps the old name hidden.
        kept = moves.deregister(None, new_nonce(), at=context.clock.now())
        swap(context, table_id.name, kept, over=stored)
    _show(context, manifest, dropped, target)


def _own_dropped(snapshot: Snapshot, table_id: TableId) -> Entry:
    for each in snapshot.dropped(str(table_id)):
        if each.has_own_directory and each.object_type == ObjectType.TABLE:
            return each
    raise TableNotFoundError(f"table id '{table_id}' is not dropped")


def _show(context: Context, manifest: Manifest, dropped: Entry, target: TableId) -> None:
    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        found = snapshot.get([dropped.object_id]).get(dropped.object_id)
        require_free(context, snapshot, target)
        if found is None:
            shown = dropped.restored(str(target))
            return Change(added=(shown,)), None
        return move(snapshot, found, found.restored(str(target))), None

    with suppress(ConcurrentModificationError):
        transact(manifest, plan)
        return
    raise ConcurrentModificationError(f"table id '{target}' keeps changing: try again")
