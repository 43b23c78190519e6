"""Reserve a table's name and place without writing data."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress

from lance_namespace import DeclareTableRequest, DeclareTableResponse

from relance.errors import InvalidInputError, KeyExistsError, TableAlreadyExistsError
from relance.identifiers import TableId
from relance.listing.layout import flag_new_root
from relance.listing.lookup import TableFacts, look_up
from relance.locations import (
    DECLARED_SUFFIX,
    RESERVED_FILE,
    VERSIONS_DIRECTORY,
    directory_of_location,
    table_directory,
    table_file,
)
from relance.operations.context import Context
from relance.operations.requests import refuse_properties, with_options
from relance.resolution import root_table_id
from relance.storage.probe import require_create_only
from relance.storage.readback import create_once


def declare_table(context: Context, request: DeclareTableRequest) -> DeclareTableResponse:
    """Reserve the name: of several racing callers exactly one succeeds.

    Raises:
        TableAlreadyExistsError: the name is taken, by data or by another declare.
        InvalidInputError: `location` is not where a table of this name lies.
    """
    table_id = root_table_id(request.id)
    refuse_properties(request.properties, what="declare_table")
    _check_location(context, table_id, request.location)
    facts = look_up(context.storage, table_id.name)
    if facts.holds_table:
        raise already_exists(table_id, facts)
    _reserve(context, table_id)
    response = DeclareTableResponse(
        location=context.location(table_id.name),
        managed_versioning=True if context.settings.table_version_tracking else None,
    )
    return with_options(response, context.vended_options(asked=request.vend_credentials))


def already_exists(table_id: TableId, facts: TableFacts) -> TableAlreadyExistsError:
    """Return the error for a name that is taken, with the ways out."""
    if facts.hidden:
        return TableAlreadyExistsError(
            f"table id '{table_id}' is deregistered: bring it back with register_table "
            f"(location '{table_id}.lance') or remove it with drop_table"
        )
    if facts.only_declared:
        return TableAlreadyExistsError(
            f"table id '{table_id}' is declared: write to its location, create it with create_table "
            "or remove it with drop_table"
        )
    return TableAlreadyExistsError(f"table id '{table_id}'")


def refuse_occupied(context: Context, table_id: TableId) -> None:
    """Check that on disk nothing but a real directory has the table's place: Lance would follow a link.

    Raises:
        TableAlreadyExistsError: a file or a symbolic link is there.
    """
    location = context.location(table_id.name)
    real = os.path.isdir(location) and not os.path.islink(location)
    if "://" not in location and os.path.lexists(location) and not real:
        raise TableAlreadyExistsError(f"table id '{table_id}': a file or a symbolic link is at {location}")


def _reserve(context: Context, table_id: TableId) -> None:
    storage, name = context.storage, table_id.name
    refuse_occupied(context, table_id)
    require_create_only(storage, to_do="declaring a table")
    flag_new_root(storage)
    # First the sign that listings see, then the file that decides: after a crash in between there is
    # a sign without a table, which hides nothing.
    with suppress(KeyExistsError):
        storage.create(name + DECLARED_SUFFIX, b"")
    try:
        create_once(storage, table_file(name, RESERVED_FILE), f"reserved {uuid.uuid4().hex}".encode())
    except KeyExistsError:
        raise already_exists(table_id, look_up(storage, name)) from None
    if storage.which_exist([table_file(name, f"{VERSIONS_DIRECTORY}/")]):
        # A create that began before us has committed: the table is its, not ours.
        raise TableAlreadyExistsError(f"table id '{table_id}' was created meanwhile")


def _check_location(context: Context, table_id: TableId, location: str | None) -> None:
    if location is None:
        return
    directory = directory_of_location(location, root_uri=context.connection.lance_root)
    if directory != table_directory(table_id.name):
        raise InvalidInputError(
            f"cannot declare table {table_id} at location {location}, "
            f"must be at location {context.location(table_id.name)}"
        )
