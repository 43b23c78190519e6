"""Hide a table without touching its data, and bring it back; protect what must not be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

from lance_namespace import (
    DeregisterTableRequest,
    DeregisterTableResponse,
    RegisterTableRequest,
    RegisterTableResponse,
)

from relance.errors import InvalidInputError, RelanceError
from relance.identifiers import DELIMITER, TableId, parse_namespace_id, why_unusable
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.locations import TABLE_SUFFIX, directory_of_location, table_directory
from relance.manifest.entry import check_properties
from relance.manifest.store import Manifest, rereading
from relance.operations.announcing import announced_swap, finish, finishing
from relance.operations.context import Context
from relance.operations.directory import registration as in_directory
from relance.operations.in_step import NameHold, follow_marker, place_in_step
from relance.operations.managed_versions import settle
from relance.operations.places import place_of, table_id_of, visible_table
from relance.operations.rename import make_way, making_way
from relance.operations.requests import parse_mode, refuse_properties
from relance.operations.rows import registration as rows
from relance.operations.rows.lookups import refuse_protected, require_manifest


class RegisterMode(StrEnum):
    """What to do when the table is registered already."""

    CREATE = "create"
    OVERWRITE = "overwrite"


def deregister_table(context: Context, request: DeregisterTableRequest) -> DeregisterTableResponse:
    """Hide the table until it is registered again.

    Raises:
        TableNotFoundError: there is no such table, or it is hidden already.
        InvalidTableStateError: it is protected.
        ConcurrentModificationError: its state changed meanwhile.
    """
    table_id = table_id_of(context, request.id)
    directory, properties = deregister(context, table_id)
    return DeregisterTableResponse(
        id=table_id.parts, location=context.location_of(directory), properties=properties or None
    )


@finishing
def deregister(context: Context, table_id: TableId) -> tuple[str, dict[str, str]]:
    """Deregister the table, and return its directory and properties."""
    finish(context, table_id)
    settle(context, table_id)  # a version that waits for its file would go with its row
    found = visible_table(context, table_id)
    if found.facts is None:
        manifest = require_manifest(context, to_do="deregistering a table")
        entry = rows.deregister(manifest, table_id)
        return entry.location or "", entry.properties
    place = place_in_step(context, table_id)
    if place.entry is not None:
        refuse_protected(place.entry)
    in_directory.deregister(context, table_id, found.facts, announced_swap)
    return found.directory, found.properties


@finishing
def register_table(context: Context, request: RegisterTableRequest) -> RegisterTableResponse:
    """Show the table in a directory under a name; without a manifest it must be the directory's own.

    Raises:
        InvalidInputError: the location cannot be a table's, or is another table's.
        TableNotFoundError: there is no table data at the location.
        TableAlreadyExistsError: the name is taken, and the mode is create.
        InvalidTableStateError: the table that has the name is protected.
        NamespaceNotFoundError: the namespace does not exist.
    """
    table_id = table_id_of(context, request.id)
    if context.manifest is None:
        refuse_properties(request.properties, what="register_table")
    properties = check_properties(request.properties)
    overwrite = parse_mode(request.mode, RegisterMode, default=RegisterMode.CREATE) is RegisterMode.OVERWRITE
    directory = directory_of_location(request.location, root_uri=context.connection.lance_root)
    finish(context, table_id)
    if not table_id.namespace and directory == table_directory(table_id.name):
        _register_at_home(context, table_id, properties, overwrite=overwrite)
    elif context.manifest is None:
        raise InvalidInputError(
            f"cannot register table id '{table_id}' at {request.location!r}: without a manifest "
            f"its directory is '{table_directory(table_id.name)}'; other locations require "
            "manifest_enabled=true"
        )
    else:
        _settle_directory(context, directory)
        if overwrite and not table_id.namespace:
            _leave_home(context, context.manifest, table_id, directory)
        manifest = context.manifest
        making_way(
            context,
            table_id,
            lambda: rows.register(context, manifest, table_id, directory, properties, overwrite=overwrite),
        )
    return RegisterTableResponse(location=context.location_of(directory), properties=properties or None)


def _register_at_home(
    context: Context, table_id: TableId, properties: dict[str, str], *, overwrite: bool
) -> None:
    manifest = context.manifest
    if manifest is None:
        in_directory.register(context, table_id, known_ok=overwrite)
        return
    place, facts = place_of(context, table_id), look_up(context.storage, table_id.name)
    if facts.state is State.MOVED or (place.entry is not None and not place.in_directory):
        # A row has the name or the directory: it goes on by rows.
        directory = table_directory(table_id.name)
        rows.register(context, manifest, table_id, directory, properties, overwrite=overwrite)
        return
    if overwrite and facts.is_visible and place.entry is not None:
        refuse_protected(place.entry)
    hold = NameHold(context, table_id, properties)
    try:
        if facts.hidden and facts.state in {State.ABSENT, State.CLEARED}:
            hold()  # nothing but a file inside hides it: no marker is moved, and no row tells of that
        # A directory that is visible but has no row yet is new to the manifest.
        known = overwrite or place.entry is None
        in_directory.register(context, table_id, known_ok=known, swap=announced_swap)
    except RelanceError:
        with suppress(RelanceError):  # the next operation that meets it brings the row in step
            follow_marker(context, table_id, hold=hold)
        raise
    follow_marker(context, table_id, properties or None, hold=hold)


def _settle_directory(context: Context, directory: str) -> None:
    """Let the row of the name that a directory has say what became of the table, if it does not yet."""
    name = directory.removesuffix(TABLE_SUFFIX)
    if directory == table_directory(name) and why_unusable(name) is None:
        make_way(context, TableId((), name))


def _leave_home(context: Context, manifest: Manifest, table_id: TableId, directory: str) -> None:
    """Hide the table in the directory of a name that is to lead elsewhere.

    Otherwise it would be seen again as soon as the row of this name is gone.
    """
    place, facts = place_of(context, table_id), look_up(context.storage, table_id.name)
    if place.in_directory and facts.is_visible:
        rows.check_location(context, manifest, table_id, directory)  # refuses before anything is changed
        deregister(context, table_id)


@finishing
def set_protection(context: Context, parts: Sequence[str], *, on: bool) -> None:
    """Protect a table or a namespace from being dropped, or stop doing so.

    Raises:
        InvalidTableStateError: there is no such table or namespace.
        UnsupportedOperationError: the catalog has no manifest.
    """
    manifest = require_manifest(context, to_do="protection")
    checked = parse_namespace_id(parts)
    if not checked:
        raise InvalidInputError("the root cannot be protected: name a table or a namespace")
    if len(checked) == 1 and context.settings.dir_listing:
        follow_marker(context, TableId((), checked[0]))  # a table without a row gets one
    rows.set_protection(manifest, DELIMITER.join(checked), on=on)


@rereading
def is_protected(context: Context, parts: Sequence[str]) -> bool:
    """Tell whether drops of this table or namespace are refused; what is not there is not protected."""
    checked = parse_namespace_id(parts)
    if context.manifest is None or not checked:
        return False
    key = DELIMITER.join(checked)
    entry = context.manifest.latest().get([key]).get(key)
    return entry is not None and entry.is_visible and entry.is_protected
