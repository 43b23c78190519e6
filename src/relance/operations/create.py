"""Create a table with data: exactly one of several racing creators succeeds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from lance_namespace import CreateTableRequest, CreateTableResponse

from relance.errors import ConcurrentModificationError, InvalidInputError, RelanceError
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.manifest.entry import check_properties
from relance.manifest.store import Manifest
from relance.operations.announcing import announced_swap, finish, finishing
from relance.operations.arrow_stream import read_stream
from relance.operations.context import Context
from relance.operations.directory.create import create_in_mode
from relance.operations.directory.naming import Naming
from relance.operations.generations import state_of_name
from relance.operations.in_step import Followed, NameHold, follow_marker, give_way
from relance.operations.managed_versions import settle
from relance.operations.new_table import CreateMode, NewTable
from relance.operations.places import left_behind, place_of, table_id_of
from relance.operations.rename import make_way
from relance.operations.requests import parse_mode, refuse_properties, with_options
from relance.operations.rows.create import Created
from relance.operations.rows.create import create as create_row
from relance.resolution import Place


def create_table(context: Context, request: CreateTableRequest, data: bytes) -> CreateTableResponse:
    """Create the table from an Arrow stream; a stream of a schema alone gives an empty table.

    Over a dropped name, the newest generation is revived: a new version on top of its history.

    Raises:
        TableAlreadyExistsError: it exists and the mode is create.
        NamespaceNotFoundError: its namespace does not exist.
        ConcurrentModificationError: another creator came first.
        InvalidInputError: the body is not a whole Arrow stream, or the mode is unknown.
    """
    table_id = table_id_of(context, request.id)
    mode = parse_mode(request.mode, CreateMode, default=CreateMode.CREATE)
    if context.manifest is None:
        refuse_properties(request.properties, what="create_table")
    properties = check_properties(request.properties)
    options = context.lance_options(request.storage_options)
    new = NewTable(table_id, read_stream(data), options, properties)
    if mode is not CreateMode.CREATE or context.settings.table_version_management:
        settle(context, table_id)
    created = create(context, new, mode)
    response = CreateTableResponse(
        location=context.location_of(created.directory),
        version=created.version,
        properties=created.properties or None,
    )
    return with_options(response, context.vended_options())


@finishing
def create(context: Context, new: NewTable, mode: CreateMode) -> Created:
    """Create the table where its name, its row or its newest dropped generation says."""
    finish(context, new.table_id)
    place = place_of(context, new.table_id)
    if context.manifest is not None and not _belongs_in_directory(context, place):
        make_way(context, new.table_id)
        return create_row(context, context.manifest, new, mode)
    if context.manifest is not None and new.properties:
        new = _with_own_properties(context, new, mode)
    properties = new.properties or _properties(context, place)
    return Created(new.directory, _create_at_home(context, new, mode), properties)


def _properties(context: Context, place: Place) -> dict[str, str]:
    """Return what a table at home was given before, also if it was dropped since."""
    entry = place.entry
    if entry is None and context.manifest is not None:
        entry = left_behind(context.manifest.latest(), place.table_id)
    return {} if entry is None else entry.properties


def _with_own_properties(context: Context, new: NewTable, mode: CreateMode) -> NewTable:
    """Return what a create wants without the properties that it cannot give to a table that is there.

    Raises:
        InvalidInputError: the table is declared, and has the properties of its declare.
    """
    facts = look_up(context.storage, new.name)
    if facts.hidden or not facts.holds_table:
        return new
    if facts.only_declared:
        raise InvalidInputError(
            f"create_table cannot set properties for already declared table '{new.table_id}'"
        )
    return replace(new, properties={}) if mode is CreateMode.EXIST_OK else new


def _create_at_home(context: Context, new: NewTable, mode: CreateMode) -> int:
    """Create the table in the directory of its name, which the manifest keeps for it meanwhile."""
    hold = NameHold(context, new.table_id, new.properties)
    over_visible = False
    if context.manifest is not None:
        facts = look_up(context.storage, new.name)
        over_visible = facts.has_versions and not facts.hidden
    try:
        version = create_in_mode(context, new, mode, Naming(hold, announced_swap))
    except RelanceError:
        with suppress(RelanceError):  # the next operation that meets it brings the row in step
            follow_marker(context, new.table_id, hold=hold)
        raise
    followed = follow_marker(context, new.table_id, new.properties or None, hold=hold)
    if followed is Followed.TAKEN:
        raise give_way(context, new.table_id)
    if followed is Followed.MOVED and over_visible:
        # A table that this call created can only have been renamed after that; of another one nobody knows.
        raise ConcurrentModificationError(f"table id '{new.table_id}' was renamed while it was written")
    return version


def _was_dropped_at_home(manifest: Manifest, place: Place) -> bool:
    """Tell whether the manifest knows a table of this name that was dropped in the directory of its name."""
    if place.entry is not None or place.table_id.namespace:
        return False
    return left_behind(manifest.latest(), place.table_id) is not None


def _belongs_in_directory(context: Context, place: Place) -> bool:
    """Tell whether the table is, or is to be, in the directory of its name."""
    if context.manifest is None:
        return True
    if not place.in_directory and not _was_dropped_at_home(context.manifest, place):
        return False
    state = state_of_name(context, place.table_id)
    facts = state.at_home
    if state.visible or facts is None:
        return state.visible
    kept = {State.DEREGISTERED, State.MOVED}
    if facts.state in kept or (facts.deregistered_inside and facts.state is not State.DELETED):
        return False  # that directory keeps its data; the name gets a new one
    return not state.dropped or state.dropped[-1].entry is None
