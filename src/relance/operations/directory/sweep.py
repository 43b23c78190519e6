"""Remove markers that are no longer needed, long after they could matter to anybody."""

from __future__ import annotations

from datetime import datetime

from relance.errors import ConcurrentModificationError, InvalidTableStateError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import StoredMarker, new_nonce, read_marker
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import State
from relance.listing.root_view import view_root
from relance.locations import MARKER_SUFFIX, table_directory
from relance.operations.context import Context
from relance.operations.directory.claims import recover, swap
from relance.storage.probe import require_replace


def sweep_markers(context: Context, *, dry_run: bool) -> list[str]:
    """Remove cleared, purged and moved markers older than the quarantine, and return their names.

    A store has no conditional delete, so each marker is claimed by a swap first: whoever wants to
    move it meanwhile is told to wait, and a delete that comes late finds the claim or nothing.
    """
    require_replace(context.storage, to_do="sweeping markers")
    oldest = context.clock.now() - context.timing.quarantine
    markers = view_root(context.storage.list_level("")).markers
    # An unknown age is never old enough.
    names = sorted(name for name, info in markers.items() if info.modified and info.modified < oldest)
    return [name for name in names if _sweep(context, name, oldest, dry_run=dry_run)]


def _sweep(context: Context, name: str, oldest: datetime, *, dry_run: bool) -> bool:
    try:
        stored = read_marker(context.storage, name)
        if stored is None or not _is_due(context, name, stored, oldest):
            return False
        if not dry_run:
            _remove(context, name, stored)
    except (ConcurrentModificationError, InvalidTableStateError):
        return False  # in use, or not ours to judge: it stays
    return True


def _is_due(context: Context, name: str, stored: StoredMarker, oldest: datetime) -> bool:
    marker = stored.marker
    if marker.state is State.SWEEPING:
        return holder_is_gone(marker, now=context.clock.now(), timing=context.timing)
    if marker.state is State.PURGED:
        emptied = marker.purged_at is not None and marker.purged_at < oldest
        # Files below a tombstone would become visible without it.
        return emptied and not context.storage.which_exist([f"{table_directory(name)}/"])
    if marker.state is State.MOVED:
        return not context.storage.which_exist([f"{table_directory(name)}/"])
    return marker.state is State.CLEARED


def _remove(context: Context, name: str, stored: StoredMarker) -> None:
    if stored.marker.state is State.SWEEPING:
        recover(context, name, stored)  # then the next sweep takes it, when it is due again
        return
    deadline = context.clock.monotonic() + context.timing.lease.total_seconds()
    until = context.clock.now() + context.timing.lease
    swap(context, name, moves.claim_sweep(stored.marker, new_nonce(), until=until), over=stored)
    if context.clock.monotonic() >= deadline:
        return  # the answer came too late: others may go on from here
    context.storage.delete(name + MARKER_SUFFIX)
