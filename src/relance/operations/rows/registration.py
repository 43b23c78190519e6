"""Put a directory under a name, and take a name off a directory, without touching any data."""

from __future__ import annotations

from relance.errors import InvalidInputError, InvalidTableStateError, TableNotFoundError
from relance.identifiers import TableId
from relance.listing.lookup import look_up
from relance.locations import (
    POLICY_DIRECTORY,
    RESERVED_FILE,
    TABLE_SUFFIX,
    VERSIONS_DIRECTORY,
    table_directory,
)
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.schema import MANIFEST_DIRECTORY
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.moving import leave_to_row
from relance.operations.pending import PendingChangeError
from relance.operations.rows.lookups import (
    move_versions,
    refuse_protected,
    require_free,
    require_namespace,
    row_table,
    taken,
)


def check_directory(directory: str) -> str:
    """Return a table's directory if it is one that a table may have.

    Raises:
        InvalidInputError: it is the root, the manifest, or outside the root.
    """
    parts = directory.split("/")
    if not directory or any(part in {"", ".", ".."} for part in parts) or "\0" in directory:
        raise InvalidInputError(f"location {directory!r} is not a directory below the root")
    if parts[0] in {MANIFEST_DIRECTORY, POLICY_DIRECTORY}:
        raise InvalidInputError(f"location {directory!r} is reserved for the catalog")
    return directory


def register(
    context: Context,
    manifest: Manifest,
    table_id: TableId,
    directory: str,
    properties: dict[str, str],
    *,
    overwrite: bool,
) -> None:
    """Give the directory a row; with `overwrite`, a row of this name that leads elsewhere is replaced.

    Raises:
        InvalidInputError: the directory cannot be a table's, or is another table's.
        TableNotFoundError: there is no table data in it.
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: the namespace does not exist.
    """
    check_location(context, manifest, table_id, directory)

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        _refuse_occupied(snapshot, table_id, directory)
        new = Entry(str(table_id), ObjectType.TABLE, directory, properties).by_row()
        old = snapshot.get([str(table_id)]).get(str(table_id))
        if old is None or not overwrite:
            require_free(context, snapshot, table_id)
            return Change(added=(new,)), None
        require_namespace(snapshot, table_id.namespace)
        if old.object_type != ObjectType.TABLE or not old.is_visible:
            raise taken(table_id, old)
        refuse_protected(old)
        versions = move_versions(snapshot, old.object_id, None)
        return Change(removed=(old.object_id, *versions.removed), added=(new,)), None

    name = directory.removesuffix(TABLE_SUFFIX)
    if table_directory(name) == directory and "/" not in directory:
        plan(manifest.latest())  # refuses before anything is changed
        # The directory of a root table that was deregistered: from now on its row decides about it.
        leave_to_row(context, name)
    transact(manifest, plan)


def check_location(context: Context, manifest: Manifest, table_id: TableId, directory: str) -> None:
    """Check that a table may be registered in a directory, as things are now.

    Raises:
        InvalidInputError: the directory cannot be a table's, or is another table's.
        TableNotFoundError: there is no table data in it.
    """
    check_directory(directory)
    if any(character in directory for character in "%#?"):
        raise InvalidInputError(
            f"location {directory!r} contains one of the characters % # ?, which Lance URIs do not allow"
        )
    inside = (f"{directory}/{VERSIONS_DIRECTORY}/", f"{directory}/{RESERVED_FILE}")
    if not context.storage.which_exist(inside):
        raise TableNotFoundError(f"table id '{table_id}': no table data at {context.location_of(directory)}")
    _refuse_directory_table(context, table_id, directory)
    _refuse_occupied(manifest.latest(), table_id, directory)


def _refuse_directory_table(context: Context, table_id: TableId, directory: str) -> None:
    """Check that the directory is not that of a root table which is not deregistered, nor in one."""
    top = directory.split("/")[0]
    if not top.endswith(TABLE_SUFFIX):
        return
    name = top.removesuffix(TABLE_SUFFIX)
    facts = look_up(context.storage, name)
    dropped = facts.marker is not None and facts.marker.marker.hides and facts.marker.marker.ttl is not None
    if facts.holds_table and (not facts.hidden or dropped or directory != top):
        raise InvalidInputError(
            f"cannot register table id '{table_id}' at '{directory}': it is the directory of "
            f"table '{name}'; deregister or rename that table first"
        )


def _refuse_occupied(snapshot: Snapshot, table_id: TableId, directory: str) -> None:
    parts = directory.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts))]
    for each in snapshot.at_location([directory, *above]):
        held = each.location or ""
        if each.announced is not None:
            raise PendingChangeError(each.original_id)
        if each.object_id == str(table_id) and held == directory:
            continue
        if held == directory or held.startswith(f"{directory}/") or directory.startswith(f"{held}/"):
            raise InvalidInputError(
                f"cannot register table id '{table_id}' at '{directory}': '{each.location}' "
                f"belongs to table '{each.original_id}'"
            )


def deregister(manifest: Manifest, table_id: TableId) -> Entry:
    """Take the table's row away, and return it; its files stay.

    Raises:
        TableNotFoundError: there is no such table.
        InvalidTableStateError: it is protected.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, Entry]:
        entry = row_table(snapshot, table_id)
        refuse_protected(entry)
        versions = move_versions(snapshot, entry.object_id, None)
        return Change(removed=(entry.object_id, *versions.removed)), entry

    return transact(manifest, plan)


def set_protection(manifest: Manifest, object_id: str, *, on: bool) -> None:
    """Mark an object so that no drop takes it, or take the mark off.

    Raises:
        InvalidTableStateError: there is no such object.
    """

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        entry = snapshot.get([object_id]).get(object_id)
        if entry is None or not entry.is_visible:
            raise InvalidTableStateError(f"there is no table or namespace '{object_id}'")
        if entry.announced is not None:
            raise PendingChangeError(object_id)
        if entry.is_protected == on:
            return Change(), None
        return Change(removed=(object_id,), added=(entry.protected(on=on),)), None

    transact(manifest, plan)
