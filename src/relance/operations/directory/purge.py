"""Remove the files of dropped tables, under a claim that nobody else can hold."""

from __future__ import annotations

from relance.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    RelanceError,
)
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, new_nonce, stored_state
from relance.lifecycle.retention import holder_is_gone, is_purgeable, purge_after, writers_are_gone
from relance.lifecycle.states import State
from relance.listing.lookup import look_up
from relance.listing.signs import remove_signs
from relance.locations import table_directory
from relance.operations.context import Context
from relance.operations.deletion import Progress, PurgeOptions, PurgeResult, delete_directory
from relance.operations.directory.claims import Claim, busy, claim_purge, settled_marker
from relance.resolution import not_found
from relance.storage.probe import require_replace


def purge_name(context: Context, table_id: TableId, options: PurgeOptions) -> PurgeResult:
    """Claim the table and delete its files; a failure is part of the result.

    The result's error is InvalidTableStateError when the table is not dropped or its time has not
    passed, TableNotFoundError when there is none, ConcurrentModificationError when another client
    holds or took the claim.
    """
    done = Progress(tuple(table_id.parts), options)
    try:
        require_replace(context.storage, to_do="purging")
        stored = purgeable_marker(context, table_id, force=options.force)
        claim = claim_purge(context, table_id.name, stored)
    except RelanceError as failure:
        return done.result(error=failure)
    return purge_claimed(context, table_id, claim, done)


def purge_claimed(context: Context, table_id: TableId, claim: Claim, done: Progress) -> PurgeResult:
    """Delete the files of a table that was claimed; a failure is part of the result."""
    try:
        directory = table_directory(table_id.name)
        left = delete_directory(context.storage, directory, before_batch=claim.ensure, done=done)
        if left:
            failure = InvalidTableStateError(
                f"table id '{table_id}' is not gone: {len(left)} files are still there; purge it again"
            )
            return done.result(left=left, error=failure)
        remove_signs(context.storage, table_id.name)
        claim.ensure()
        claim.settle(moves.finish_purge(claim.stored.marker, new_nonce(), at=context.clock.now()))
    except RelanceError as failure:
        return done.result(error=failure)
    return done.result()


def purgeable_marker(context: Context, table_id: TableId, *, force: bool) -> StoredMarker:
    """Return the marker of a table that may be purged now.

    Raises:
        InvalidTableStateError: it is live, or its time has not passed.
        TableNotFoundError: there is nothing to purge.
        ConcurrentModificationError: another client holds it.
    """
    stored = settled_marker(context, table_id.name)
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
                f"table id '{table_id}' is dropped, but an overwrite that was under way may still be: "
                "purge it in half an hour"
            )
        case State.DEREGISTERED if not force:
            raise InvalidTableStateError(
                f"table id '{table_id}' is deregistered, not dropped: purge it with force=True"
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
        f"table id '{table_id}' can be undropped until {when}: purge it then, or now with force=True"
    )
