"""Create a table with data: exactly one of several racing creators succeeds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from lance_namespace import CreateTableRequest, CreateTableResponse

from relance.errors import ConcurrentModificationError, InvalidInputError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle.marker_store import read_marker
from relance.lifecycle.states import State
from relance.listing.lookup import TableFacts
from relance.locations import table_directory
from relance.manifest.entry import check_properties
from relance.manifest.store import Manifest
from relance.operations.announcing import announced_swap, finish, finishing
from relance.operations.arrow_stream import read_stream
from relance.operations.context import Context
from relance.operations.directory.create import create_in_mode
from relance.operations.directory.naming import Naming
from relance.operations.generations import NameState, state_of_name
from relance.operations.in_step import Followed, NameHold, follow_marker, give_way
from relance.operations.managed_versions import settle
from relance.operations.new_table import CreateMode, NewTable
from relance.operations.places import left_behind, table_id_of
from relance.operations.rename import make_way
from relance.operations.requests import parse_mode, refuse_properties, with_options
from relance.operations.rows.create import Created, row_to_write
from relance.operations.rows.create import create as create_row
from relance.resolution import locate


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
    created = create_settled(context, new, mode)
    response = CreateTableResponse(
        location=context.location_of(created.directory),
        version=created.version,
        properties=created.properties or None,
    )
    return with_options(response, context.vended_options())


def create_settled(context: Context, new: NewTable, mode: CreateMode) -> Created:
    """Create the table after versions of it that wait for their files."""
    if mode is not CreateMode.CREATE or context.settings.table_version_management:
        settle(context, new.table_id)
    return create(context, new, mode)


@finishing
def create(context: Context, new: NewTable, mode: CreateMode) -> Created:
    """Create the table where its name, its row or its newest dropped generation says."""
    finish(context, new.table_id)
    if context.manifest is None:
        return Created(new.directory, _create_at_home(context, new, mode, over_visible=False), new.properties)
    state = _state_at_home(context, context.manifest, new.table_id)
    if state is None or state.at_home is None:
        make_way(context, new.table_id)
        return create_row(context, context.manifest, new, mode)
    new = _with_own_properties(new, mode, state.at_home)
    entry = state.place.entry or state.left_behind
    properties = new.properties or (entry.properties if entry is not None else {})
    over_visible = state.at_home.has_versions and not state.at_home.hidden
    version = _create_at_home(context, new, mode, over_visible=over_visible)
    return Created(new.directory, version, properties)


@finishing
def place_to_write(context: Context, table_id: TableId) -> tuple[str | None, str | None]:
    """Return the directory in which a create or an overwrite puts the table, None for a new one.

    With it the nonce of the marker that hides what is there, None when nothing does.

    Raises:
        NamespaceNotFoundError: the namespace does not exist.
        TableAlreadyExistsError: something else has the name.
    """
    finish(context, table_id)
    if context.manifest is None or _state_at_home(context, context.manifest, table_id) is not None:
        stored = read_marker(context.storage, table_id.name)
        hides = stored is not None and stored.marker.hides
        return table_directory(table_id.name), stored.marker.nonce if stored is not None and hides else None
    entry = row_to_write(context.manifest, table_id)
    if entry is None:
        return None, None
    return entry.location, None if entry.marker is None else entry.marker.nonce


def _state_at_home(context: Context, manifest: Manifest, table_id: TableId) -> NameState | None:
    """Return the state of a name whose table is, or is to be, in the directory of its name."""
    if _is_elsewhere(context, manifest, table_id):
        return None
    state = state_of_name(context, table_id)
    if state.at_home is None or not _belongs_in_directory(state, state.at_home):
        return None
    return state


def _with_own_properties(new: NewTable, mode: CreateMode, facts: TableFacts) -> NewTable:
    """Return what a create wants without the properties that it cannot give to a table that is there.

    Raises:
        InvalidInputError: the table is declared, and has the properties of its declare.
    """
    if not new.properties or facts.hidden or not facts.holds_table:
        return new
    if facts.only_declared:
        raise InvalidInputError(
            f"create_table cannot set properties for already declared table '{new.table_id}'"
        )
    return replace(new, properties={}) if mode is CreateMode.EXIST_OK else new


def _create_at_home(context: Context, new: NewTable, mode: CreateMode, *, over_visible: bool) -> int:
    """Create the table in the directory of its name, which the manifest keeps for it meanwhile."""
    hold = NameHold(context, new.table_id, new.properties)
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
        raise ConcurrentModificationError(f"table id '{new.table_id}' was renamed while it was being written")
    return version


def _is_elsewhere(context: Context, manifest: Manifest, table_id: TableId) -> bool:
    """Tell from the manifest alone that the table is not, and is not to be, in the directory of its name."""
    if table_id.namespace or context.settings.dir_listing:
        return bool(table_id.namespace)
    snapshot = manifest.latest()
    place = locate(snapshot, table_id, dir_listing=False)
    return not place.in_directory and (place.entry is not None or left_behind(snapshot, table_id) is None)


def _belongs_in_directory(state: NameState, facts: TableFacts) -> bool:
    """Tell whether a root table is, or is to be, in the directory of its name."""
    if not state.place.in_directory and (state.place.entry is not None or state.left_behind is None):
        return False
    if state.visible:
        return True
    kept = {State.DEREGISTERED, State.MOVED}
    if facts.state in kept or (facts.deregistered_inside and facts.state is not State.DELETED):
        return False  # that directory keeps its data; the name gets a new one
    return not state.dropped or state.dropped[-1].entry is None
