"""Drop a table so that it can be undropped, and undrop it. Removing its files is in purge."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from relance.config import parse_duration
from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    KeyChangedError,
    KeyExistsError,
    TableAlreadyExistsError,
)
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.answers import drop_properties
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, is_unchanged, new_nonce, put_marker, stored_state
from relance.lifecycle.moves import state_of
from relance.lifecycle.states import Action, State, is_allowed
from relance.lifecycle.status import Exists, NotFound
from relance.listing.lookup import look_up
from relance.locations import table_directory
from relance.operations.context import Context
from relance.operations.directory.claims import Swap, settled_marker, swap
from relance.operations.lance_tables import TableHead
from relance.resolution import not_found
from relance.storage.probe import require_create_only, require_replace

TTL_PROPERTY = "relance.drop_ttl"
"""Key in a table's Lance config that says how long a drop of it can be undone."""

_ATTEMPTS = 5


def soft_drop(
    context: Context, table_id: TableId, ttl: timedelta | None, announced: Swap | None = None
) -> Marker:
    """Put the marker that hides the table, and return it; with its row in step, if it is `announced`.

    Raises:
        TableNotFoundError: there is nothing to hide.
        ConcurrentModificationError: the marker keeps changing.
    """
    storage, name = context.storage, table_id.name
    head = _head(context, table_id)
    if head is None and not look_up(storage, name).reserved:
        stored = settled_marker(context, name)
        raise not_found(table_id, stored.marker if stored else None)
    require_create_only(storage, to_do="dropping a table")
    marker = moves.drop(
        None,
        new_nonce(),
        at=context.clock.now(),
        ttl=ttl if ttl is not None else _ttl_of(head, context.timing.drop_ttl),
        version=head.version if head else 0,
    )
    drop_properties(marker)  # an expiry that no clock can show is refused before anything is written
    if announced is not None:
        return _drop_over_marker(context, table_id, marker, announced)
    # Most tables were never dropped, or by this client: without looking first, one request less.
    known = context.seen.take(name)
    try:
        return put_marker(storage, name, _again(marker, known) if known else marker, over=known).marker
    except (KeyExistsError, KeyChangedError):
        return _drop_over_marker(context, table_id, marker, swap)


def _head(context: Context, table_id: TableId) -> TableHead | None:
    """Return the latest version; when it vanishes under our hands, see what became of the table."""
    for _ in range(_ATTEMPTS):
        try:
            return context.tables.head(table_directory(table_id.name))
        except ConcurrentModificationError:
            stored = settled_marker(context, table_id.name)
            if stored is not None and stored.marker.hides:
                raise not_found(table_id, stored.marker) from None
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{table_id}'; retry")


def _drop_over_marker(context: Context, table_id: TableId, marker: Marker, swap: Swap) -> Marker:
    for _ in range(_ATTEMPTS):
        stored = settled_marker(context, table_id.name)
        if stored is not None and marker.nonce in {stored.marker.deletion_id, stored.marker.undid}:
            return marker  # our own drop: its answer was lost and others have gone on from it
        if not is_allowed(stored_state(stored), Action.DROP):
            raise not_found(table_id, stored.marker if stored else None)
        if stored is not None:
            require_replace(context.storage, to_do="dropping a table again")
        try:
            return swap(context, table_id.name, _again(marker, stored), over=stored).marker
        except ConcurrentModificationError:
            continue
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{table_id}'; retry")


def _again(marker: Marker, stored: StoredMarker | None) -> Marker:
    """Return the same drop, over what is there now."""
    over = stored.marker if stored else None
    return replace(
        marker,
        nonce=new_nonce(),
        undid=over.undid if over is not None else "",
        was_deregistered=state_of(over) is State.DEREGISTERED,
        writer_until=over.lease_until if over is not None and over.state is State.WRITING else None,
    )


def _ttl_of(head: TableHead | None, default: timedelta) -> timedelta:
    text = head.config.get(TTL_PROPERTY) if head else None
    return default if text is None else parse_duration(text, what=f"table config {TTL_PROPERTY!r}")


def undrop_table(context: Context, table_id: TableId, swap: Swap = swap) -> Exists | NotFound:
    """Show a dropped table again; one that was deregistered before is so again, and not found.

    Raises:
        TableNotFoundError: there is no dropped table of this name, or a purge has begun.
        TableAlreadyExistsError: the table is not dropped.
        InvalidTableStateError: its files are gone.
        ConcurrentModificationError: another client holds or moved the marker.
    """
    require_replace(context.storage, to_do="undropping")
    stored = settled_marker(context, table_id.name)
    if stored is None or not is_allowed(stored.marker.state, Action.UNDROP):
        raise _not_dropped(context, table_id, stored)
    directory = table_directory(table_id.name)
    if not context.storage.which_exist([f"{directory}/"]):
        if not is_unchanged(context.storage, table_id.name, stored):
            raise ConcurrentModificationError(f"table id '{table_id}' was changed by another client")
        raise InvalidTableStateError(
            f"cannot undrop table id '{table_id}': its files are missing from {directory!r}"
        )
    shown = swap(context, table_id.name, moves.undrop(stored.marker, new_nonce()), over=stored)
    parts = tuple(table_id.parts)
    return NotFound(parts) if shown.marker.hides else Exists(parts)


def _not_dropped(context: Context, table_id: TableId, stored: StoredMarker | None) -> Exception:
    if stored is not None and stored.marker.hides:
        return not_found(table_id, stored.marker)
    if look_up(context.storage, table_id.name).holds_table:
        return TableAlreadyExistsError(f"table id '{table_id}' is not dropped")
    return not_found(table_id, None)
