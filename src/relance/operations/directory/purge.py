"""Which dropped tables may be purged now. How their files are removed is in purge_group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relance.errors import ConcurrentModificationError, InvalidTableStateError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, read_marker, stored_state
from relance.lifecycle.retention import holder_is_gone, is_purgeable, purge_after, writers_are_gone
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.locations import table_directory
from relance.operations.context import Context
from relance.operations.deletion import REMEMBERED, PurgeOptions, PurgeResult, look_inside
from relance.operations.directory.claims import busy, settle
from relance.operations.directory.purge_group import MOST_TABLES, Ready, purge_ready
from relance.resolution import not_found
from relance.storage.at_once import map_at_once
from relance.storage.probe import require_replace

LOOKED_AT = MOST_TABLES
"""Tables that are looked at before the first of them is purged."""


def purge_name(context: Context, table_id: TableId, options: PurgeOptions) -> PurgeResult:
    """Claim the table and delete its files; a failure is part of the result.

    The result's error is InvalidTableStateError when the table is not dropped or its time has not
    passed, TableNotFoundError when there is none, ConcurrentModificationError when another client
    holds or took the claim.
    """
    (result,) = purge_names(context, [table_id], options)
    return result


def purge_names(
    context: Context,
    table_ids: Sequence[TableId],
    options: PurgeOptions,
    *,
    before_look: Callable[[TableId], None] = lambda table_id: None,
) -> list[PurgeResult]:
    """Do the same with several tables, together where they are small; one failure does not stop the rest.

    `before_look` is called just before a table's marker is read, and keeps it from being purged by raising.
    """

    def look(table_id: TableId) -> Ready | PurgeResult:
        try:
            before_look(table_id)
            return make_ready(context, table_id, force=options.force)
        except RelanceError as failure:
            return PurgeResult(tuple(table_id.parts), error=failure)

    results: list[PurgeResult] = []
    for start in range(0, len(table_ids), LOOKED_AT):
        found = map_at_once(context.storage, look, table_ids[start : start + LOOKED_AT])
        purged = iter(purge_ready(context, [each for each in found if isinstance(each, Ready)], options))
        results += [next(purged) if isinstance(each, Ready) else each for each in found]
    return results


def make_ready(
    context: Context,
    table_id: TableId,
    *,
    force: bool,
    stored: StoredMarker | None = None,
    count_to: int = REMEMBERED,
) -> Ready:
    """Look whether a table may be purged now, and what it holds. `stored` is its marker, if just read.

    Raises:
        InvalidTableStateError: it is live, or its time has not passed.
        TableNotFoundError: there is nothing to purge.
        ConcurrentModificationError: another client holds it.
        UnsupportedOperationError: the store does not honour conditions.
    """
    require_replace(context.storage, to_do="purging")
    marker = purgeable_marker(context, table_id, force=force, stored=stored)
    return Ready(
        table_id, marker, look_inside(context.storage, table_directory(table_id.name), count_to=count_to)
    )


def purgeable_marker(
    context: Context, table_id: TableId, *, force: bool, stored: StoredMarker | None = None
) -> StoredMarker:
    """Return the marker of a table that may be purged now; `stored` saves reading it.

    Raises:
        InvalidTableStateError: it is live, or its time has not passed.
        TableNotFoundError: there is nothing to purge.
        ConcurrentModificationError: another client holds it.
    """
    if stored is None:
        stored = read_marker(context.storage, table_id.name)
    stored = settle(context, table_id.name, stored)
    now = context.clock.now()
    if stored is None or not stored.marker.hides:
        if look_up(context.storage, table_id.name).holds_table:
            raise InvalidTableStateError(f"table id '{table_id}' is live and cannot be purged: drop it first")
        raise not_found(table_id, None)
    marker = stored.marker
    match stored_state(stored):
        case State.DELETED if not force and not is_purgeable(marker, now=now, timing=context.timing):
            raise too_early(table_id, marker)
        case State.DELETED if not writers_are_gone(marker, now=now, timing=context.timing):
            raise ConcurrentModificationError(
                f"table id '{table_id}' is dropped, but an overwrite that started before the drop "
                "may still be in progress: purge it in half an hour"
            )
        case State.DEREGISTERED if not force:
            raise InvalidTableStateError(
                f"table id '{table_id}' is deregistered, not dropped: to purge it anyway, pass force=True"
            )
        case State.PURGING if not holder_is_gone(marker, now=now, timing=context.timing):
            raise busy(table_id.name, marker)
        case State.MOVED:
            raise not_found(table_id, marker)
        case State.PURGED if not context.storage.which_exist([f"{table_directory(table_id.name)}/"]):
            raise not_found(table_id, marker)
    return stored


def too_early(table_id: TableId, marker: Marker) -> InvalidTableStateError:
    """Return the error for a table whose time has not passed."""
    due = purge_after(marker)
    when = due.strftime("%Y-%m-%d %H:%M:%S UTC") if due else "never"
    return InvalidTableStateError(
        f"table id '{table_id}' can be undropped until {when}: purge it after that, or pass "
        "force=True to purge it now"
    )
