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
from relance.lifecycle import moves
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.states import Action, State, is_allowed
from relance.listing.lookup import look_up
from relance.locations import DEREGISTERED_FILE, directory_of_location, table_directory, table_file
from relance.operations.context import Context
from relance.operations.directory.claims import busy, swap
from relance.operations.requests import parse_mode, refuse_properties
from relance.resolution import find_table, not_found, root_table_id
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
    marker = facts.marker.marker if facts.marker is not None else None
    if marker is not None and not is_allowed(marker.state, Action.DEREGISTER):
        raise busy(table_id.name, marker)
    swap(
        context,
        table_id.name,
        moves.deregister(marker, new_nonce(), at=context.clock.now()),
        over=facts.marker,
    )
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
    if facts.state not in {State.ABSENT, State.CLEARED, State.DEREGISTERED} and facts.marker is not None:
        raise not_found(table_id, facts.marker.marker)
    if not facts.holds_table:
        raise TableNotFoundError(f"table id '{table_id}': no table data at {context.location(table_id.name)}")
    if not facts.hidden:
        if mode is RegisterMode.CREATE:
            raise TableAlreadyExistsError(f"table id '{table_id}' is registered")
        return RegisterTableResponse(location=context.location(table_id.name))
    if facts.state is State.DEREGISTERED:
        require_replace(context.storage, to_do="registering a table")
    # The file inside goes first: with the marker still there the table stays hidden if we stop here.
    context.storage.delete(table_file(table_id.name, DEREGISTERED_FILE))
    if facts.marker is not None and facts.state is State.DEREGISTERED:
        swap(context, table_id.name, moves.register(facts.marker.marker, new_nonce()), over=facts.marker)
    return RegisterTableResponse(location=context.location(table_id.name))


def _check_location(context: Context, name: str, location: str) -> None:
    directory = directory_of_location(location, root_uri=context.connection.lance_root)
    if directory != table_directory(name):
        raise InvalidInputError(
            f"table '{name}' cannot be registered at {location!r}: in a flat catalog its directory is "
            f"'{table_directory(name)}'; other places need manifest mode"
        )
