"""Give a table another name; its files stay where they are."""

from __future__ import annotations

from relance.errors import ConcurrentModificationError, TableNotFoundError
from relance.identifiers import TableId
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import State
from relance.listing.lookup import TableFacts, look_up
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.claims import busy
from relance.operations.pending import refuse_pending
from relance.operations.rows.lookups import move, require_free, row_table, taken
from relance.resolution import not_found


def rename(context: Context, manifest: Manifest, table_id: TableId, target: TableId) -> None:
    """Move the row to another id in one commit.

    Raises:
        TableNotFoundError: there is no such table.
        TableAlreadyExistsError: the new name is taken.
        NamespaceNotFoundError: the new namespace does not exist.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = row_table(snapshot, table_id)
        require_free(context, snapshot, target)
        return move(snapshot, entry, entry.renamed(str(target)).by_row()), None

    transact(manifest, plan)


def begin_move(context: Context, manifest: Manifest, table_id: TableId, target: TableId) -> None:
    """Give a table in the directory of its name a row under another id, which now decides about it.

    The row of the old id says so until the marker beside the directory does, and whoever meets it goes
    on from there. Between the look at that marker and the commit only a client without a manifest can
    have moved it, which this overrules.

    Raises:
        As rename.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = snapshot.get([str(table_id)]).get(str(table_id))
        if entry is None or entry.object_type != ObjectType.TABLE:
            raise TableNotFoundError(f"table id '{table_id}'")
        refuse_pending(snapshot, table_id.name)
        _require_at_home(context, table_id, entry, look_up(context.storage, table_id.name))
        require_free(context, snapshot, target)
        entry = entry.settled()
        change = move(snapshot, entry, entry.renamed(str(target)))
        return Change(change.removed, (*change.added, entry.moved(str(target)))), None

    transact(manifest, plan)


def _require_at_home(context: Context, table_id: TableId, entry: Entry, facts: TableFacts) -> None:
    """Check that the table is visible in the directory of its name, and nobody holds it."""
    if entry.marker is not None:
        raise taken(table_id, entry)
    if not entry.has_own_directory:
        raise ConcurrentModificationError(f"table id '{table_id}' was moved to another directory; retry")
    marker = facts.marker.marker if facts.marker is not None else None
    if facts.hidden or not facts.holds_table:
        raise not_found(table_id, marker)
    held = marker is not None and marker.state in {State.SWEEPING, State.WRITING}
    if marker and held and not holder_is_gone(marker, now=context.clock.now(), timing=context.timing):
        raise busy(str(table_id), marker)


def end_move(manifest: Manifest, table_id: TableId) -> None:
    """Remove the row that says where a table was moved to, once the marker hides its old name."""

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = snapshot.get([str(table_id)]).get(str(table_id))
        if entry is None or entry.moved_to is None:
            return Change(), None
        return Change(removed=(str(table_id),)), None

    transact(manifest, plan)
