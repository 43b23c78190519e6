"""Give a table another name; its files stay where they are."""

from __future__ import annotations

from relance.errors import TableNotFoundError
from relance.identifiers import TableId
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.rows.lookups import live_table, move, require_free


def rename(context: Context, manifest: Manifest, table_id: TableId, target: TableId) -> None:
    """Move the row to another id in one commit.

    Raises:
        TableNotFoundError: there is no such table.
        TableAlreadyExistsError: the new name is taken.
        NamespaceNotFoundError: the new namespace does not exist.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = live_table(snapshot, table_id)
        require_free(context, snapshot, target)
        return move(snapshot, entry, entry.renamed(str(target))), None

    transact(manifest, plan)


def begin_move(context: Context, manifest: Manifest, table_id: TableId, target: TableId) -> None:
    """Give a table in the directory of its name a row under another id, which now decides about it.

    The row of the old id says so until the marker beside the directory does.

    Raises:
        As rename.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = snapshot.get([str(table_id)]).get(str(table_id))
        if entry is None or entry.object_type != ObjectType.TABLE:
            raise TableNotFoundError(f"table id '{table_id}'")
        if entry.moved_to == str(target):
            return Change(), None  # by an earlier try that stopped half-way
        if not entry.is_visible:
            raise TableNotFoundError(f"table id '{table_id}' was renamed to '{entry.moved_to}'")
        require_free(context, snapshot, target)
        change = move(snapshot, entry, entry.renamed(str(target)))
        return Change(change.removed, (*change.added, _moved(entry, target))), None

    transact(manifest, plan)


def _moved(entry: Entry, target: TableId) -> Entry:
    return entry.moved(str(target))


def end_move(manifest: Manifest, table_id: TableId) -> None:
    """Remove the row that says where a table was moved to, once the marker hides its old name."""

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = snapshot.get([str(table_id)]).get(str(table_id))
        if entry is None or entry.moved_to is None:
            return Change(), None
        return Change(removed=(str(table_id),)), None

    transact(manifest, plan)
