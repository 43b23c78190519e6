"""Drop a table by moving its row out of sight, and bring it back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from relance.config import parse_duration
from relance.errors import InvalidTableStateError
from relance.identifiers import DELIMITER, TableId
from relance.lifecycle import moves
from relance.lifecycle.answers import drop_properties
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.states import Action, State, is_allowed
from relance.manifest.entry import DROPPED_PREFIX, Entry
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.claims import busy
from relance.operations.rows.claims import same_drop
from relance.operations.rows.lookups import move, refuse_protected, require_free, row_table
from relance.resolution import not_found

TTL_PROPERTY = "drop_ttl"
"""Of a table or of a namespace: how long a drop can be undone. The nearest one counts."""


def drop(
    context: Context, manifest: Manifest, table_id: TableId, ttl: timedelta | None
) -> tuple[Entry, Marker]:
    """Hide the table, and return its row as it was and the marker it got.

    Raises:
        TableNotFoundError: there is no such table, or it is dropped already.
        InvalidTableStateError: it is protected.
        InvalidInputError: a TTL is not a duration.
    """
    nonce = new_nonce()

    def plan(snapshot: Snapshot) -> tuple[Change, tuple[Entry, Marker]]:
        # All that is asked for below, in one query: a snapshot keeps what it found.
        snapshot.get([str(table_id), *_ids_above(table_id.parts), DROPPED_PREFIX + nonce])
        entry = row_table(snapshot, table_id)
        refuse_protected(entry)
        span = ttl if ttl is not None else ttl_of(context, snapshot, entry)
        marker = moves.drop(None, nonce, at=context.clock.now(), ttl=span, version=0)
        drop_properties(marker)  # an expiry that no clock can show is refused before anything is written
        return move(snapshot, entry, entry.dropped(marker)), (entry, marker)

    return transact(manifest, plan)


def ttl_of(context: Context, snapshot: Snapshot, entry: Entry) -> timedelta:
    """Return the TTL that the table, or the nearest of its namespaces, or the catalog asks for.

    Raises:
        InvalidInputError: it is not a duration.
    """
    ids = _ids_above(entry.parts)
    above = snapshot.get(ids) if ids else {}
    for each in (entry, *(above[object_id] for object_id in ids if object_id in above)):
        text = each.properties.get(TTL_PROPERTY)
        if text is not None:
            return parse_duration(text, what=f"property {TTL_PROPERTY!r} of '{each.object_id}'")
    return context.timing.drop_ttl


def _ids_above(parts: Sequence[str]) -> list[str]:
    """Return the ids of the namespaces that something is in, the nearest first."""
    return [DELIMITER.join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def undrop(context: Context, manifest: Manifest, dropped: Entry, target: TableId) -> None:
    """Show a dropped generation again, under its old id or another one.

    Raises:
        TableNotFoundError: a purge has begun.
        TableAlreadyExistsError: the name is taken.
        NamespaceNotFoundError: its namespace does not exist any more.
        ConcurrentModificationError: another client holds or moved it.
    """
    _require_dropped(dropped)
    if not dropped.location or not context.storage.which_exist([f"{dropped.location}/"]):
        same_drop(manifest.latest(), dropped)  # gone by a purge that has begun since?
        raise InvalidTableStateError(
            f"cannot undrop table id '{dropped.original_id}': its files are missing from '{dropped.location}'"
        )

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        found, _ = same_drop(snapshot, dropped)
        require_free(context, snapshot, target)
        return move(snapshot, found, found.restored(str(target)).by_row()), None

    transact(manifest, plan)


def _require_dropped(entry: Entry) -> None:
    """Check that nobody holds a dropped generation: it is gone if a purge does, busy if a create does."""
    if entry.marker is not None and entry.marker.state is State.REVIVING:
        raise busy(entry.original_id, entry.marker)
    if entry.marker is None or not is_allowed(entry.marker.state, Action.UNDROP):
        raise not_found(TableId(entry.original_parts[:-1], entry.original_parts[-1]), entry.marker)
