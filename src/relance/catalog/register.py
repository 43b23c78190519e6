"""Hide a table without touching its data and show it again, at its home or under another name; protect it.

The spec's own file inside a home directory decides; the sign beside it only tells listings to look.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from relance.catalog.arbiter import (
    HomeState,
    NameTakenError,
    after_effect,
    home_row,
    home_rows,
    home_state,
    other_owner,
    row_at,
    sync,
    without,
)
from relance.catalog.context import Context
from relance.catalog.layout import Bodies, inspect_name, put_sign
from relance.catalog.manifest.row import ObjectType, Row
from relance.catalog.manifest.store import Change, Snapshot, transact
from relance.catalog.resolve import (
    NameState,
    free_name,
    home_counts,
    lance_properties,
    not_found,
    refuse_protected,
    require_row,
    taken,
)
from relance.catalog.states import Situation, new_nonce
from relance.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    KeyExistsError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from relance.identifiers import DELIMITER, TableId, format_id, why_unusable
from relance.locations import (
    DEREGISTERED_FILE,
    DEREGISTERED_SUFFIX,
    RESERVED_FILE,
    TABLE_SUFFIX,
    VERSIONS_DIRECTORY,
    table_directory,
    table_file,
    table_location,
)
from relance.storage.ballast import emptying
from relance.storage.probe import require_create_only
from relance.storage.readback import create_once


@emptying()
def deregister(context: Context, table_id: TableId) -> tuple[str | None, dict[str, str]]:
    """Hide the table until it is registered again; return its directory and properties.

    A row whose location is never followed can be removed in this way: it has no directory.

    Raises:
        TableNotFoundError: there is no such table, or it is hidden already.
        InvalidTableStateError: it is protected.
    """
    snapshot = context.latest(writing=True)
    if snapshot is not None and not home_counts(context, snapshot, table_id):
        gone = _deregister_row(context, table_id)
        return gone.normalized_location, gone.properties
    name = table_id.name
    row = home_row(snapshot, name)
    refuse_protected(row)
    home = inspect_name(context, name)
    if not home.is_visible:
        raise not_found(context, NameState(table_id, snapshot, None, home, ()))
    require_create_only(context.storage, to_do="deregistering a table")
    try:
        _hide(context, name)
    except KeyExistsError as cause:
        raise ConcurrentModificationError(f"table id '{name}' was deregistered by another client") from cause
    properties = row.properties if row is not None else {}
    with after_effect(name, "was deregistered"):
        sync(context, name, snapshot, HomeState(visible=False, hidden=False))
    return home.directory, properties


def _hide(context: Context, name: str) -> None:
    """Write the sign, then the spec's file; its body is unlike any other: a lost response is looked up.

    Raises:
        KeyExistsError: another client's is there.
    """
    put_sign(context.storage, name, DEREGISTERED_SUFFIX)
    body = f"deregistered {new_nonce()}".encode()
    create_once(context.storage, table_file(name, DEREGISTERED_FILE), body)


def _deregister_row(context: Context, table_id: TableId) -> Row:
    manifest = context.require_manifest(to_do="deregistering a table")

    def plan(snapshot: Snapshot) -> tuple[Change, Row]:
        row = require_row(context, snapshot, table_id)
        refuse_protected(row)
        return without(snapshot, [row]), row

    return transact(manifest, plan)


def register(
    context: Context, table_id: TableId, directory: str, properties: dict[str, str], *, overwrite: bool
) -> None:
    """Show the table in a directory under a name; without a manifest it must be its home directory.

    Raises:
        InvalidInputError: the directory cannot be a table's, or is another table's.
        TableNotFoundError: there is no table data in it.
        TableAlreadyExistsError: the name is taken, and it is not to be overwritten.
        InvalidTableStateError: the table that has the name is protected.
        NamespaceNotFoundError: the namespace does not exist.
    """
    at_home = not table_id.namespace and directory == table_directory(table_id.name)
    if at_home:
        _register_home(context, table_id, properties, overwrite=overwrite)
    elif context.manifest is None:
        raise InvalidInputError(
            f"cannot register table id '{table_id}' at {directory!r}: without a manifest its directory is "
            f"'{table_directory(table_id.name)}'; other locations require manifest_enabled=true"
        )
    else:
        _register_elsewhere(context, table_id, directory, properties, overwrite=overwrite)


def _register_home(
    context: Context, table_id: TableId, properties: dict[str, str], *, overwrite: bool
) -> None:
    name, snapshot = table_id.name, context.latest(writing=True)
    home = inspect_name(context, name, bodies=Bodies.HIDDEN)
    if home.situation is not Situation.VISIBLE:
        raise not_found(context, NameState(table_id, snapshot, None, home, ()))
    if not home.holds_table:
        raise TableNotFoundError(f"table id '{table_id}': no table data at {context.location(name)}")
    row = home_row(snapshot, name)
    if snapshot is not None:
        _refuse_overlap(snapshot, table_id, home.directory)
        if (owner := other_owner(snapshot, name)) is not None:
            raise taken(table_id, owner)
    if home.is_visible and not overwrite and (row is not None or snapshot is None):
        # A directory that is visible but has no row yet is new to the manifest.
        raise TableAlreadyExistsError(f"table id '{table_id}' is already registered")
    if home.is_visible and overwrite:
        refuse_protected(row)
    own = properties if properties or row or snapshot is None else lance_properties(context, home)
    with after_effect(name, "may have been registered"):
        if home.deregistered or DEREGISTERED_SUFFIX in home.signs:
            # The file that decides first: its sign alone only costs listings a look.
            context.storage.delete_many([table_file(name, DEREGISTERED_FILE), name + DEREGISTERED_SUFFIX])
        try:
            state = HomeState(visible=True, hidden=False)
            sync(context, name, snapshot, state, properties=own or None)
        except NameTakenError:
            _hide(context, name)
            raise


def _register_elsewhere(
    context: Context, table_id: TableId, directory: str, properties: dict[str, str], *, overwrite: bool
) -> None:
    manifest = context.require_manifest(to_do="registering a table")
    _check_location(context, manifest.latest(), table_id, directory)
    new = Row(table_id.object_id, ObjectType.TABLE, directory, dict(properties))
    hides_home = False
    if overwrite and not table_id.namespace and context.dir_listing:
        home = inspect_name(context, table_id.name)
        hides_home = home.is_visible and home_counts(context, manifest.latest(), table_id)
    if hides_home:
        deregister(context, table_id)  # else it would be seen again as soon as the new row is gone

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        _refuse_overlap(snapshot, table_id, directory)
        old = row_at(snapshot, table_id.object_id)
        # The rows of a home directory that was deregistered by a client without the manifest.
        homes = (row for row in snapshot.sharing([directory]) if row.is_home)
        stale = without(snapshot, list(homes))
        if old is None or old.is_home or not overwrite:
            return free_name(context, snapshot, new).plus(stale), None
        if old.object_type != ObjectType.TABLE or not old.is_visible:
            raise taken(table_id, old)
        refuse_protected(old)
        return Change(added=(new,)).plus(without(snapshot, [old]), stale), None

    with after_effect(table_id.object_id, "was deregistered") if hides_home else nullcontext():
        transact(manifest, plan)


def _check_location(context: Context, snapshot: Snapshot, table_id: TableId, directory: str) -> None:
    """Check that a table may be registered in a directory, as things are now.

    Raises:
        InvalidInputError: the directory cannot be a table's, or is another table's.
        TableNotFoundError: there is no table data in it.
    """
    if table_location(directory) != directory:
        raise InvalidInputError(f"location {directory!r} is not a directory below the root")
    if "%" in directory:
        raise InvalidInputError(
            f"location {directory!r} contains the character %, which Lance URIs do not allow"
        )
    inside = (f"{directory}/{VERSIONS_DIRECTORY}/", f"{directory}/{RESERVED_FILE}")
    if not context.storage.which_exist(inside):
        raise TableNotFoundError(
            f"table id '{table_id}': no table data at {context.connection.lance_root}/{directory}"
        )
    _refuse_home(context, table_id, directory)
    _refuse_overlap(snapshot, table_id, directory)


def _refuse_home(context: Context, table_id: TableId, directory: str) -> None:
    """Check that the directory is not the home of a table that is not deregistered, nor in one."""
    top = directory.split("/")[0]
    name = top.removesuffix(TABLE_SUFFIX)
    if not top.endswith(TABLE_SUFFIX) or why_unusable(name) is not None:
        return
    home = inspect_name(context, name, bodies=Bodies.HIDDEN)
    hidden = home.situation is not Situation.VISIBLE and (home.has_versions or home.reserved)
    if hidden or home.is_visible or (home.is_live and directory != top):
        raise InvalidInputError(
            f"cannot register table id '{table_id}' at '{directory}': it is the directory of "
            f"table '{name}'; deregister or rename that table first"
        )


def _refuse_overlap(snapshot: Snapshot, table_id: TableId, directory: str) -> None:
    for row in snapshot.sharing([directory]):
        # Whether a home directory may get another name is decided there, not by its row.
        same_name = row.object_id == table_id.object_id or row.is_home
        if not (same_name and row.normalized_location == directory):
            raise InvalidInputError(
                f"cannot register table id '{table_id}' at '{directory}': '{row.location}' "
                f"belongs to table '{row.original_id}'"
            )


@emptying()
def set_protection(context: Context, parts: Sequence[str], *, on: bool) -> None:
    """Protect a table or a namespace from being dropped, or stop doing so.

    Raises:
        InvalidTableStateError: there is no such table or namespace.
        UnsupportedOperationError: the catalog has no manifest.
    """
    manifest = context.require_manifest(to_do="protection")
    if not parts:
        raise InvalidInputError("the root cannot be protected: name a table or a namespace")
    object_id = DELIMITER.join(parts)
    require_home_row(context, parts)

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        row = row_at(snapshot, object_id)
        if row is None or not row.is_visible:
            raise InvalidTableStateError(f"there is no table or namespace '{format_id(parts)}'")
        if row.is_protected == on:
            return Change(), None
        return Change(removed=(object_id,), added=(row.protected(on=on),)), None

    transact(manifest, plan)


def require_home_row(context: Context, parts: Sequence[str]) -> None:
    """Give a visible table in its home directory the row that it may not have yet, or hide a dropped one."""
    if len(parts) > 1 or not context.dir_listing:
        return
    snapshot, name = context.latest(), parts[0]
    if snapshot is None or not home_counts(context, snapshot, TableId((), name)):
        return
    home = inspect_name(context, name)
    rows = home_rows(snapshot, name)
    if home.is_visible and not (len(rows) == 1 and not rows[0].is_dropped):
        own = None if rows else lance_properties(context, home)
        sync(context, name, snapshot, home_state(home), properties=own)
    elif home.is_dropped and any(not row.is_dropped for row in rows):
        # Another client's marker dropped it, and knew nothing of the row.
        sync(context, name, snapshot, home_state(inspect_name(context, name, bodies=Bodies.ALL)))


def is_protected(context: Context, parts: Sequence[str]) -> bool:
    """Tell whether drops of this table or namespace are refused; what is not there is not protected."""
    snapshot = context.latest()
    if snapshot is None or not parts:
        return False
    row = row_at(snapshot, DELIMITER.join(parts))
    return row is not None and row.is_visible and row.is_protected
