"""Create a table with data in a directory of its own, or over what its row leads to."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    OutcomeUnknownError,
    RelanceError,
)
from relance.identifiers import TableId
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.states import State
from relance.locations import VERSIONS_DIRECTORY
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.lance_tables import is_settled
from relance.operations.new_table import CreateMode, NewTable, WrittenData
from relance.operations.rows.declare import insert, settle_name
from relance.operations.rows.lookups import (
    new_directory,
    require_free,
    require_namespace,
    row_table,
    taken,
)
from relance.operations.rows.revive import revive

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Created:
    """Where the table is, and the version that was written or found."""

    directory: str
    version: int
    properties: dict[str, str]


def create(context: Context, manifest: Manifest, new: NewTable, mode: CreateMode) -> Created:
    """Create, keep, overwrite or revive the table as the mode and what is there say.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        NamespaceNotFoundError: the namespace does not exist.
        ConcurrentModificationError: another client was first.
    """
    for _ in range(_ATTEMPTS):
        settle_name(context, manifest, new.table_id)
        snapshot = manifest.latest()
        entry = snapshot.get([str(new.table_id)]).get(str(new.table_id))
        try:
            if entry is not None:
                return _over(context, manifest, new, mode, entry)
            require_free(context, snapshot, new.table_id)
            dropped = newest_dropped(snapshot, str(new.table_id))
            if dropped is not None:
                version = revive(context, manifest, new, dropped)
                return Created(dropped.location or "", version, new.properties or dropped.properties)
            return _fresh(context, manifest, new)
        except ConcurrentModificationError:
            if mode is CreateMode.CREATE:
                raise
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{new.table_id}'; retry")


def newest_dropped(snapshot: Snapshot, object_id: str) -> Entry | None:
    """Return the newest dropped generation of a table that its row decides about and nobody holds."""
    found = [
        (each.marker.deleted_at, each.object_id, each)
        for each in snapshot.dropped(object_id)
        if each.object_type == ObjectType.TABLE
        and not each.has_own_directory
        and each.marker is not None
        and each.marker.state is State.DELETED
        and each.marker.deleted_at is not None
    ]
    return max(found)[2] if found else None


def row_to_write(manifest: Manifest, table_id: TableId) -> Entry | None:
    """Return the row that a create or an overwrite would write over: visible, or dropped; None for a new one.

    Raises:
        NamespaceNotFoundError: the namespace does not exist.
        TableAlreadyExistsError: something else has the name.
    """
    snapshot = manifest.latest()
    entry = snapshot.get([str(table_id)]).get(str(table_id))
    if entry is None:
        require_namespace(snapshot, table_id.namespace)
        entry = newest_dropped(snapshot, str(table_id))
    elif entry.object_type != ObjectType.TABLE or not entry.is_visible:
        raise taken(table_id, entry)
    return entry


def _over(context: Context, manifest: Manifest, new: NewTable, mode: CreateMode, entry: Entry) -> Created:
    """Create over the row that has the name."""
    if entry.object_type != ObjectType.TABLE or not entry.is_visible or not entry.location:
        raise taken(new.table_id, entry)
    directory = entry.location
    if not context.storage.which_exist([f"{directory}/{VERSIONS_DIRECTORY}/"]):
        if new.properties:
            raise InvalidInputError(
                f"create_table cannot set properties for already declared table '{new.table_id}'"
            )
        _write_first(context, new, directory)
        _require_same(manifest, new, directory)
        return Created(directory, 1, entry.properties)
    if mode is CreateMode.CREATE:
        raise taken(new.table_id, entry)
    if mode is CreateMode.EXIST_OK:
        head = context.tables.head(directory)
        return Created(directory, head.version if head is not None else 0, entry.properties)
    version = _overwrite(context, new, directory)
    return Created(directory, version, _require_same(manifest, new, directory))


def _require_same(manifest: Manifest, new: NewTable, directory: str) -> dict[str, str]:
    """Check that the row still leads to what was written, and give it the new properties, if any.

    Raises:
        ConcurrentModificationError: it was dropped or renamed meanwhile.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, dict[str, str]]:
        try:
            entry = row_table(snapshot, new.table_id)
        except RelanceError as cause:
            raise _moved(new) from cause
        if entry.location != directory:
            raise _moved(new)
        if not new.properties or entry.properties == new.properties:
            return Change(), entry.properties
        changed = entry.with_properties(new.properties)
        return Change(removed=(entry.object_id,), added=(changed,)), new.properties

    return transact(manifest, plan)


def _moved(new: NewTable) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"table id '{new.table_id}' was dropped or moved while it was being written"
    )


def _fresh(context: Context, manifest: Manifest, new: NewTable) -> Created:
    """Write the table where nobody knows it, then add the row that shows it, which only one creator can."""
    written = new.data if isinstance(new.data, WrittenData) else None
    if written is not None and not written.is_private:
        raise _moved(new)  # the table that they were written for was purged, and these files with it
    directory = new_directory(new.table_id) if written is None else written.directory
    try:
        _write_first(context, new, directory)
        insert(context, manifest, Entry(str(new.table_id), ObjectType.TABLE, directory, new.properties))
    except OutcomeUnknownError:
        raise  # the row may be there
    except RelanceError:
        if written is None:
            remove_unknown(context, directory)
        raise
    return Created(directory, 1, new.properties)


def remove_unknown(context: Context, directory: str) -> None:
    """Remove a directory that this call made and no row leads to; what stays is an orphan for upkeep."""
    with suppress(RelanceError):
        for _ in context.storage.delete_below(directory, before_batch=lambda: None, largest_batch=1000):
            pass
        context.storage.prune(directory)


def _write_first(context: Context, new: NewTable, directory: str) -> None:
    token = new_nonce()
    staged = context.tables.stage(directory, new.data, token=token, overwrite=False, options=new.options)
    try:
        context.tables.commit(
            directory, staged, first=True, timeout=context.timing.commit_timeout, options=new.options
        )
    except RelanceError as failure:
        if context.tables.committed_version(directory, token, after=0) is not None:
            return
        if is_settled(failure):
            context.tables.discard(staged)
            if context.tables.head(directory) is not None:
                raise ConcurrentModificationError(
                    f"table id '{new.table_id}' was created by another client"
                ) from failure
        raise


def _overwrite(context: Context, new: NewTable, directory: str) -> int:
    token = new_nonce()
    staged = context.tables.stage(directory, new.data, token=token, overwrite=True, options=new.options)
    try:
        return context.tables.commit(
            directory, staged, first=False, timeout=context.timing.commit_timeout, options=new.options
        )
    except RelanceError as failure:
        committed = context.tables.committed_version(directory, token, after=0)
        if committed is not None:
            return committed
        if is_settled(failure):
            context.tables.discard(staged)
        raise
