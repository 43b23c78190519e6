"""Reserve a table's name and place without writing data."""

from __future__ import annotations

from contextlib import suppress

from lance_namespace import DeclareTableRequest, DeclareTableResponse

from relance.errors import InvalidInputError, RelanceError
from relance.identifiers import TableId
from relance.listing.lookup import TableFacts, look_up
from relance.locations import directory_of_location, table_directory
from relance.manifest.entry import check_properties
from relance.operations.announcing import announced_swap, finish, finishing
from relance.operations.context import Context
from relance.operations.directory.claims import settle
from relance.operations.directory.declare import already_exists
from relance.operations.directory.declare import declare as declare_directory
from relance.operations.directory.naming import Naming
from relance.operations.in_step import Followed, NameHold, follow_marker, give_way
from relance.operations.places import place_of, table_id_of
from relance.operations.requests import refuse_properties, with_options
from relance.operations.rows.declare import declare as declare_row
from relance.operations.versions import is_managed


def declare_table(context: Context, request: DeclareTableRequest) -> DeclareTableResponse:
    """Reserve the name: of several racing callers exactly one succeeds.

    Over a dropped name the new table gets a directory of its own, where there is a manifest to say so.

    Raises:
        TableAlreadyExistsError: the name is taken, by data or by another declare.
        NamespaceNotFoundError: its namespace does not exist.
        InvalidInputError: `location` is not where a table of this name lies.
    """
    table_id = table_id_of(context, request.id)
    if context.manifest is None:
        refuse_properties(request.properties, what="declare_table")
    properties = check_properties(request.properties)
    directory = declare(context, table_id, properties, request.location)
    response = DeclareTableResponse(
        location=context.location_of(directory),
        properties=properties or None,
        managed_versioning=True if is_managed(context) else None,
    )
    return with_options(response, context.vended_options(asked=request.vend_credentials))


@finishing
def declare(context: Context, table_id: TableId, properties: dict[str, str], location: str | None) -> str:
    """Declare the table where its name says, or in a fresh directory, and return that."""
    finish(context, table_id)
    place = place_of(context, table_id)
    facts = _facts(context, table_id) if place.in_directory and context.manifest is not None else None
    in_directory = place.in_directory and (facts is None or not facts.hidden)
    _check_location(context, table_id, location, in_directory=in_directory)
    if not in_directory:
        assert context.manifest is not None  # without it every table is in its directory
        if place.in_directory:
            follow_marker(context, table_id)  # the row of the dropped generation makes way
        return declare_row(context, context.manifest, table_id, properties)
    if facts is not None and facts.holds_table:
        raise already_exists(table_id, facts)  # before its row gets properties that are not its own
    hold = NameHold(context, table_id, properties)
    try:
        declare_directory(context, table_id, Naming(hold, announced_swap))
    except RelanceError:
        with suppress(RelanceError):  # the next operation that meets it brings the row in step
            follow_marker(context, table_id, hold=hold)
        raise
    if follow_marker(context, table_id, properties or None, hold=hold) is Followed.TAKEN:
        raise give_way(context, table_id)
    return table_directory(table_id.name)


def _facts(context: Context, table_id: TableId) -> TableFacts:
    """Return what lies in the directory of the table's name, where no other client is at work."""
    facts = look_up(context.storage, table_id.name)
    if facts.marker is not None:
        settle(context, table_id.name, facts.marker)
    return facts


def _check_location(context: Context, table_id: TableId, location: str | None, *, in_directory: bool) -> None:
    if location is None:
        return
    directory = directory_of_location(location, root_uri=context.connection.lance_root)
    if not in_directory:
        raise InvalidInputError(
            f"cannot declare table {table_id} at location {location}: the catalog chooses its "
            "directory. Omit the location, or use register_table for an existing table"
        )
    if directory != table_directory(table_id.name):
        raise InvalidInputError(
            f"cannot declare table {table_id} at location {location}, "
            f"must be at location {context.location(table_id.name)}"
        )
