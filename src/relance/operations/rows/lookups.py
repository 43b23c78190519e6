"""What operations on rows ask of the manifest first: is the parent there, is the name free."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    NamespaceNotFoundError,
    RelanceError,
    TableAlreadyExistsError,
    UnsupportedOperationError,
)
from relance.identifiers import DELIMITER, TableId
from relance.listing.lookup import look_up
from relance.manifest.entry import DROPPED_PREFIX, Entry, ObjectType
from relance.manifest.schema import check_flags, manages_versions
from relance.manifest.store import Change, Manifest, Snapshot
from relance.operations.context import Context
from relance.operations.directory.claims import busy
from relance.operations.pending import PendingChangeError
from relance.resolution import not_found_row
from relance.version_store.rows import is_version_of

_MAX_DIRECTORY_BYTES = 240


def require_manifest(context: Context, *, to_do: str) -> Manifest:
    """Return the manifest.

    Raises:
        UnsupportedOperationError: the catalog is opened without one.
    """
    if context.manifest is None:
        raise UnsupportedOperationError(
            f"{to_do} requires the manifest: open the catalog with manifest_enabled=true"
        )
    return context.manifest


def require_writable(manifest: Manifest) -> Snapshot:
    """Return the manifest as it is now, if this release may change it.

    Whoever moves a marker asks first: the row that follows it could not be written.

    Raises:
        UnsupportedOperationError: a newer client's features are in use.
    """
    snapshot = manifest.latest()
    check_flags(snapshot.metadata, writing=True)
    return snapshot


def require_namespace(snapshot: Snapshot, namespace: Sequence[str]) -> Entry | None:
    """Return the row of a namespace, None for the root.

    Raises:
        NamespaceNotFoundError: there is none.
    """
    if not namespace:
        return None
    object_id = DELIMITER.join(namespace)
    entry = snapshot.get([object_id]).get(object_id)
    if entry is None or entry.object_type != ObjectType.NAMESPACE or not entry.is_visible:
        raise NamespaceNotFoundError(f"namespace '{object_id}'")
    return entry


def live_table(snapshot: Snapshot, table_id: TableId) -> Entry:
    """Return the row of a visible table.

    Raises:
        TableNotFoundError: there is none.
    """
    entry = snapshot.get([str(table_id)]).get(str(table_id))
    if entry is None or entry.object_type != ObjectType.TABLE or not entry.is_visible:
        raise not_found_row(snapshot, table_id, entry)
    return entry


def row_table(snapshot: Snapshot, table_id: TableId) -> Entry:
    """Return the row of a visible table that the row decides about.

    Raises:
        TableNotFoundError: there is none.
        ConcurrentModificationError: it came to be in the directory of its name since it was looked for.
    """
    entry = live_table(snapshot, table_id)
    if entry.has_own_directory:
        raise ConcurrentModificationError(f"table id '{table_id}' was moved to another directory; retry")
    return entry


def require_free(context: Context, snapshot: Snapshot, table_id: TableId) -> None:
    """Check that the table's namespace exists and nothing has its name.

    Raises:
        NamespaceNotFoundError: the namespace does not exist.
        TableAlreadyExistsError: the name is taken.
    """
    require_namespace(snapshot, table_id.namespace)
    entry = snapshot.get([str(table_id)]).get(str(table_id))
    if entry is not None:
        raise taken(table_id, entry)
    if not table_id.namespace and context.settings.dir_listing:
        facts = look_up(context.storage, table_id.name)
        if facts.is_visible:
            raise TableAlreadyExistsError(f"table id '{table_id}' exists at '{table_id.name}.lance'")


def taken(table_id: TableId, entry: Entry) -> RelanceError:
    """Return the error for a name that another object has, or is about to."""
    if entry.marker is not None:
        return busy(str(table_id), entry.marker)
    if entry.moved_to is not None or entry.announced is not None:
        return PendingChangeError(str(table_id))
    if entry.hold is not None:
        return ConcurrentModificationError(f"table id '{table_id}' is being created by another client; retry")
    if entry.object_type != ObjectType.TABLE:
        return TableAlreadyExistsError(f"table id '{table_id}': the name is taken by a {entry.object_type}")
    return TableAlreadyExistsError(f"table id '{table_id}' exists at '{entry.location}'")


def refuse_protected(entry: Entry) -> None:
    """Check that nobody asked for the object to be kept.

    Raises:
        InvalidTableStateError: it is protected.
    """
    if entry.is_protected:
        raise InvalidTableStateError(
            f"{entry.object_type} '{entry.object_id}' is protected: unprotect({list(entry.parts)}) first"
        )


def new_directory(table_id: TableId) -> str:
    """Return the name of a directory that no table ever had."""
    name = f"{secrets.token_hex(4)}_{table_id}"
    # A file name has its limit and an id of many parts has not; the row says where the table is.
    return name.encode()[:_MAX_DIRECTORY_BYTES].decode(errors="ignore")


def move_versions(snapshot: Snapshot, old_id: str, new_id: str | None) -> Change:
    """Return what takes a table's version rows to its new id, or removes them with it."""
    if not manages_versions(snapshot.metadata):
        return Change()
    rows = [each for each in snapshot.below(old_id + DELIMITER) if is_version_of(old_id, each)]
    moved = (
        () if new_id is None else tuple(each.renamed(new_id + each.object_id[len(old_id) :]) for each in rows)
    )
    return Change(removed=tuple(each.object_id for each in rows), added=moved)


def move(snapshot: Snapshot, old: Entry, new: Entry) -> Change:
    """Return what replaces a table's row by another one, with its version rows."""
    if old.object_id == new.object_id:
        return Change(removed=(old.object_id,), added=(new,))
    versions = move_versions(snapshot, old.object_id, new.object_id)
    return Change(removed=(old.object_id, *versions.removed), added=(new, *versions.added))


def dropped_entry(snapshot: Snapshot, deletion_id: str) -> Entry | None:
    """Return the row of a dropped generation, if it is still there."""
    object_id = DROPPED_PREFIX + deletion_id
    return snapshot.get([object_id]).get(object_id)
