"""Reserve a table's name and a directory of its own, without writing data."""

from __future__ import annotations

from contextlib import suppress

from relance.errors import OutcomeUnknownError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle.marker_store import new_nonce
from relance.locations import RESERVED_FILE
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.rows.claims import settle_revival
from relance.operations.rows.lookups import new_directory, require_free


def declare(context: Context, manifest: Manifest, table_id: TableId, properties: dict[str, str]) -> str:
    """Reserve the name with a fresh directory, and return that; dropped generations stay as they are.

    Raises:
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
    """
    settle_name(context, manifest, table_id)
    require_free(context, manifest.latest(), table_id)  # before anything is written
    directory = new_directory(table_id)
    reserved = f"{directory}/{RESERVED_FILE}"
    # First the file, then the row that decides: after a crash in between there is a directory nobody knows.
    context.storage.create(reserved, f"reserved {new_nonce()}".encode())
    try:
        insert(context, manifest, Entry(str(table_id), ObjectType.TABLE, directory, properties))
    except OutcomeUnknownError:
        raise  # the row may be there
    except RelanceError:
        with suppress(RelanceError):
            context.storage.delete(reserved)
            context.storage.prune(directory)
        raise
    return directory


def insert(context: Context, manifest: Manifest, entry: Entry) -> None:
    """Add the row of a new table.

    Raises:
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
    """
    table_id = TableId(entry.parts[:-1], entry.parts[-1])

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        require_free(context, snapshot, table_id)
        return Change(added=(entry,)), None

    transact(manifest, plan)


def settle_name(context: Context, manifest: Manifest, table_id: TableId) -> None:
    """Finish or give back a revival of this name whose holder is gone.

    Raises:
        ConcurrentModificationError: one is under way.
    """
    entry = manifest.latest().get([str(table_id)]).get(str(table_id))
    if entry is not None:
        settle_revival(context, manifest, entry)
