"""Hide a table without touching its data, and bring it back."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum

from lance_namespace import (
    DeregisterTableRequest,
    DeregisterTableResponse,
    RegisterTableRequest,
    RegisterTableResponse,
)

from relance.errors import InvalidInputError, KeyExistsError, TableAlreadyExistsError, TableNotFoundError
from relance.lifecycle.marker import cleared, deregistered
from relance.lifecycle.marker_store import put_marker
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.locations import DEREGISTERED_FILE, directory_of_location, table_directory, table_file
from relance.operations.context import Context
from relance.operations.requests import parse_mode, refuse_properties
from relance.resolution import find_table, root_table_id
from relance.storage.probe import require_create_only, require_replace


class RegisterMode(StrEnum):
    """What to do when the table is registered already."""

    CREATE = "create"
    OVERWRITE = "overwrite"


def deregister_table(context: Context, request: DeregisterTableRequest) -> DeregisterTableResponse:
    """Hide the table until it is registered again.

    Raises:
        TableNotFoundError: there is no such table, or it is hidden already.
        ConcurrentModificationError: its state changed meanwhile.
    """
    table_id = root_table_id(request.id)
    facts = find_table(context.storage, table_id)
    storage = context.storage
    require_create_only(storage, to_do="deregistering a table")
    if facts.marker is not None:
        require_replace(storage, to_do="deregistering a table a second time")
    put_marker(storage, table_id.name, deregistered(context.clock.now()), over=facts.marker)
    # The marker decides. This file is for clients that know only the spec's own one.
    with suppress(KeyExistsError):
        storage.create(table_file(table_id.name, DEREGISTERED_FILE), b"deregistered")
    return DeregisterTableResponse(id=table_id.parts, location=context.location(table_id.name))


def register_table(context: Context, request: RegisterTableRequest) -> RegisterTableResponse:
    """Show a deregistered table again; in a flat catalog a table can only be where its name says.

    Raises:
        InvalidInputError: the location is not the directory of this name.
        TableNotFoundError: there is no table data at the location.
        TableAlreadyExistsError: it is registered already, and the mode is create.
    """
    table_id = root_table_id(request.id)
    refuse_properties(request.properties, what="register_table")
    mode = parse_mode(request.mode, RegisterMode, default=RegisterMode.CREATE)
    _check_location(context, table_id.name, request.location)
    facts = look_up(context.storage, table_id.name)
    if not facts.holds_table:
        raise TableNotFoundError(f"table id '{table_id}': no table data at {context.location(table_id.name)}")
    if not facts.hidden:
        if mode is RegisterMode.CREATE:
            raise TableAlreadyExistsError(f"table id '{table_id}' is registered")
        return RegisterTableResponse(location=context.location(table_id.name))
    # The file inside goes first: with the marker still there the table stays hidden if we stop here.
    context.storage.delete(table_file(table_id.name, DEREGISTERED_FILE))
    if facts.marker is not None and facts.marker.marker.state is State.DEREGISTERED:
        require_replace(context.storage, to_do="registering a table")
        put_marker(context.storage, table_id.name, cleared(), over=facts.marker)
    return RegisterTableResponse(location=context.location(table_id.name))


def _check_location(context: Context, name: str, location: str) -> None:
    directory = directory_of_location(location, root_uri=context.connection.lance_root)
    if directory != table_directory(name):
        raise InvalidInputError(
            f"table '{name}' cannot be registered at {location!r}: in a flat catalog its directory is "
            f"'{table_directory(name)}'; other places need manifest mode"
        )
