"""Drop a table so that it can be undropped, and undrop it. Removing its files is in purge."""

from __future__ import annotations

from datetime import timedelta

from lance_namespace import DropTableRequest, DropTableResponse

from relance.config import parse_duration, parse_flag
from relance.errors import (
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from relance.identifiers import TableId
from relance.lifecycle.answers import drop_properties
from relance.lifecycle.marker import Marker
from relance.lifecycle.status import Exists, NotFound
from relance.locations import table_directory
from relance.operations.announcing import announced_swap, finish, finishing
from relance.operations.context import Context
from relance.operations.deletion import PurgeOptions
from relance.operations.directory import drop as directory_drop
from relance.operations.generations import Generation, state_of_name
from relance.operations.in_step import place_in_step
from relance.operations.places import place_of, table_id_of
from relance.operations.purge import purge_table
from relance.operations.rename import making_way, undrop_elsewhere
from relance.operations.rows import drop as rows_drop
from relance.operations.rows.declare import settle_name
from relance.operations.rows.lookups import refuse_protected, taken
from relance.resolution import not_found
from relance.storage.probe import require_replace


def drop_table(context: Context, request: DropTableRequest) -> DropTableResponse:
    """Hide the table; its files stay until a purge. `context["purge"]="true"` purges at once.

    Raises:
        TableNotFoundError: there is no such table, or it is dropped already.
        InvalidTableStateError: it is protected.
        InvalidInputError: a TTL is not a duration.
    """
    table_id = table_id_of(context, request.id)
    wishes = request.context or {}
    ttl = asked_ttl(wishes.get("ttl_ms"))
    purge = parse_flag(wishes.get("purge", "false"), what="context['purge']")
    if purge:
        require_replace(context.storage, to_do="purging")
    directory, own, marker = drop(context, table_id, ttl)
    properties = {**own, **drop_properties(marker)}
    if purge:
        (result,) = purge_table(context, table_id, PurgeOptions(force=True), marker.deletion_id)
        if result.error is not None:
            raise result.error
        properties |= {"purged": "true", "files": str(result.files), "bytes": str(result.bytes)}
    return DropTableResponse(
        id=table_id.parts, location=context.location_of(directory), properties=properties
    )


def asked_ttl(text: str | None) -> timedelta | None:
    """Return the TTL that a request asks for, if it does.

    Raises:
        InvalidInputError: it is not a duration.
    """
    return None if text is None else parse_duration(text, what="context['ttl_ms']")


@finishing
def drop(context: Context, table_id: TableId, ttl: timedelta | None) -> tuple[str, dict[str, str], Marker]:
    """Drop the table, and return its directory, its properties and the marker it got."""
    finish(context, table_id)
    place = place_in_step(context, table_id)
    if not place.in_directory:
        assert context.manifest is not None  # without it every table is in its directory
        entry, marker = rows_drop.drop(context, context.manifest, table_id, ttl)
        return entry.location or "", entry.properties, marker
    if place.entry is not None:
        refuse_protected(place.entry)
        if ttl is None and context.manifest is not None and rows_drop.TTL_PROPERTY in place.entry.properties:
            ttl = rows_drop.ttl_of(context, context.manifest.latest(), place.entry)
    announced = announced_swap if context.manifest is not None else None
    marker = directory_drop.soft_drop(context, table_id, ttl, announced)
    return table_directory(table_id.name), place.entry.properties if place.entry is not None else {}, marker


@finishing
def undrop_table(
    context: Context, table_id: TableId, *, deletion_id: str | None = None, target: TableId | None = None
) -> Exists | NotFound:
    """Show the newest dropped generation again, or the one that is named, under its old id or another.

    Raises:
        TableNotFoundError: there is no dropped table of this name, or a purge has begun.
        TableAlreadyExistsError: the name is taken, or the table is not dropped.
        InvalidTableStateError: its files are gone.
        ConcurrentModificationError: another client holds or moved it.
    """
    new_id = target or table_id
    if context.manifest is None:
        if new_id != table_id:
            raise UnsupportedOperationError("undropping under another name requires manifest_enabled=true")
        if deletion_id is not None:
            _chosen(context, table_id, deletion_id)
        return directory_drop.undrop_table(context, table_id)
    finish(context, table_id)
    settle_name(context, context.manifest, table_id)
    generation = _chosen(context, table_id, deletion_id)
    if generation.entry is not None:
        assert context.manifest is not None  # the row came from it
        manifest, entry = context.manifest, generation.entry
        making_way(context, new_id, lambda: rows_drop.undrop(context, manifest, entry, new_id))
        return Exists(tuple(new_id.parts))
    if new_id != table_id:
        undrop_elsewhere(context, table_id, new_id)
        return Exists(tuple(new_id.parts))
    place = place_of(context, table_id)
    if place.entry is not None and not place.in_directory:
        raise taken(table_id, place.entry)
    return directory_drop.undrop_table(context, table_id, announced_swap)


def _chosen(context: Context, table_id: TableId, deletion_id: str | None) -> Generation:
    state = state_of_name(context, table_id)
    chosen = [each for each in state.dropped if deletion_id in {None, each.marker.deletion_id}]
    if chosen:
        return chosen[-1]
    if state.dropped:
        raise TableNotFoundError(f"table id '{table_id}' has no drop with deletion id '{deletion_id}'")
    if state.visible:
        raise TableAlreadyExistsError(f"table id '{table_id}' is not dropped")
    marker = state.at_home.marker if state.at_home is not None else None
    raise not_found(table_id, marker.marker if marker is not None else None)
