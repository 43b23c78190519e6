"""A purge that many share: tasks anywhere delete what is never named twice, one of them all the rest.

The claim is taken under a token that all tasks know, and no task sends a delete for a name that comes
again. Whoever does, `finish`, first swaps that token for one of its own, which only one can, and then
holds the claim like any other purge. The argument is in design/0006-maintenance.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from relance.errors import ConcurrentModificationError, InternalError
from relance.identifiers import TableId
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, read_marker
from relance.lifecycle.states import State
from relance.locations import table_directory
from relance.manifest.entry import Entry
from relance.manifest.store import Manifest
from relance.operations.context import Context
from relance.operations.deletion import Progress, PurgeOptions, PurgeResult
from relance.operations.directory.claims import claim_purge
from relance.operations.directory.purge import purgeable_marker
from relance.operations.directory.purge_group import purge_claimed
from relance.operations.generations import Generation
from relance.operations.in_step import follow_marker
from relance.operations.purge import bring_in_step
from relance.operations.rows.purge import claim_row, purge_claimed_row, require_purgeable
from relance.storage.probe import require_replace

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SharedPurge:
    """What all who take part know of it. It can be pickled."""

    table_id: TableId
    nonce: str
    """Of the marker as it was when the files were listed."""
    directory: str
    row: str | None
    """The id of the row that decides; None when the marker beside the directory does."""
    token: str
    force: bool


def share_purge(generation: Generation, *, token: str, force: bool) -> SharedPurge:
    """Return the purge of a generation, before anything is claimed."""
    entry = generation.entry
    directory = table_directory(generation.table_id.name) if entry is None else entry.location or ""
    row = None if entry is None else entry.object_id
    return SharedPurge(generation.table_id, generation.marker.nonce, directory, row, token, force)


def hold(context: Context, purge: SharedPurge) -> None:
    """Make sure that the table is claimed for this purge, so that nobody can bring it back.

    Raises:
        ConcurrentModificationError: it was undropped, or another purge has it: delete nothing.
        InvalidTableStateError: its time has not passed.
    """
    for _ in range(_ATTEMPTS):
        marker = _marker(context, purge)
        if marker is None or (not _is_ours(marker, purge) and marker.nonce != purge.nonce):
            raise _lost(purge)
        if _is_ours(marker, purge) and not _is_half_over(context, marker):
            return
        try:
            _claim(context, purge, marker)
        except ConcurrentModificationError:
            continue  # by another task of this purge, perhaps
        return
    raise _lost(purge)


def finish(context: Context, purge: SharedPurge, options: PurgeOptions) -> PurgeResult:
    """Take the claim for this process alone, delete all that is left, and end the purge."""
    done = Progress(tuple(purge.table_id.parts), options)
    if purge.row is not None:
        entry = _entry(context, purge)
        if entry is None or entry.marker is None or not _is_ours(entry.marker, purge):
            return done.result(error=_lost(purge))
        try:
            row_claim = claim_row(context, _manifest(context), entry)
        except ConcurrentModificationError as error:
            return done.result(error=error)
        return purge_claimed_row(context, entry, row_claim, done)
    stored = read_marker(context.storage, purge.table_id.name)
    if stored is None or not _is_ours(stored.marker, purge):
        return done.result(error=_lost(purge))
    try:
        claim = claim_purge(context, purge.table_id.name, stored)
    except ConcurrentModificationError as error:
        return done.result(error=error)
    result = purge_claimed(context, purge.table_id, claim, done)
    if result.purged:
        follow_marker(context, purge.table_id)
    return result


def _claim(context: Context, purge: SharedPurge, seen: Marker) -> None:
    """Claim the table under the token that all know, or lengthen the lease of that claim.

    The lease only keeps others from taking over: what tasks delete needs none.
    """
    if purge.row is not None:
        entry = _entry(context, purge)
        if entry is None or entry.marker is None or entry.marker.nonce != seen.nonce:
            raise _lost(purge)
        if not _is_ours(seen, purge):
            require_purgeable(context, entry, force=purge.force)
        claim_row(context, _manifest(context), entry, purge.token)
        return
    stored: StoredMarker | None
    if _is_ours(seen, purge):
        stored = read_marker(context.storage, purge.table_id.name)
    else:
        require_replace(context.storage, to_do="purging")
        bring_in_step(context, purge.table_id)
        stored = purgeable_marker(context, purge.table_id, force=purge.force)
    if stored is None or stored.marker.nonce != seen.nonce:
        raise _lost(purge)
    claim_purge(context, purge.table_id.name, stored, purge.token)


def _marker(context: Context, purge: SharedPurge) -> Marker | None:
    if purge.row is not None:
        entry = _entry(context, purge)
        return None if entry is None else entry.marker
    stored = read_marker(context.storage, purge.table_id.name)
    return None if stored is None else stored.marker


def _entry(context: Context, purge: SharedPurge) -> Entry | None:
    assert purge.row is not None  # asked only where a row decides
    return _manifest(context).latest().get([purge.row]).get(purge.row)


def _manifest(context: Context) -> Manifest:
    if context.manifest is None:
        raise InternalError("this purge was planned with a manifest, but the catalog has none")
    return context.manifest


def _is_ours(marker: Marker, purge: SharedPurge) -> bool:
    return marker.state is State.PURGING and marker.token == purge.token


def _is_half_over(context: Context, marker: Marker) -> bool:
    left = marker.lease_until - context.clock.now() if marker.lease_until is not None else None
    return left is None or left < context.timing.lease / 2


def _lost(purge: SharedPurge) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"table id '{purge.table_id}' was undropped or is being purged by another client; the "
        "purge was stopped"
    )
