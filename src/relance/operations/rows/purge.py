"""Remove the files of a dropped generation, under a claim on its row. Its directory is never used again."""

from __future__ import annotations

from datetime import datetime

from relance.errors import InvalidTableStateError, RelanceError
from relance.identifiers import TableId
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.retention import holder_is_gone, is_purgeable
from relance.lifecycle.states import State
from relance.manifest.entry import Entry, ObjectType
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.deletion import Progress, PurgeOptions, PurgeResult, delete_directory
from relance.operations.directory.claims import busy
from relance.operations.directory.purge import too_early
from relance.operations.rows.claims import RowClaim, same_drop
from relance.operations.rows.lookups import move, move_versions
from relance.operations.rows.registration import check_directory


def purge_row(context: Context, manifest: Manifest, dropped: Entry, options: PurgeOptions) -> PurgeResult:
    """Claim the generation, delete its files and then its row; a failure is part of the result."""
    done = Progress(dropped.original_parts, options)
    try:
        require_purgeable(context, dropped, force=options.force)
        claim = claim_row(context, manifest, dropped)
    except RelanceError as failure:
        return done.result(error=failure)
    return purge_claimed_row(context, dropped, claim, done)


def purge_claimed_row(context: Context, dropped: Entry, claim: RowClaim, done: Progress) -> PurgeResult:
    """Delete the files of a generation that was claimed, then its row; a failure is part of the result."""
    try:
        if dropped.object_type == ObjectType.TABLE:
            directory = check_directory(dropped.location or "")
            left = delete_directory(context.storage, directory, before_batch=claim.ensure, done=done)
            if left:
                failure = InvalidTableStateError(
                    f"purge of table id '{dropped.original_id}' is incomplete: {len(left)} files "
                    "remain. Run purge again"
                )
                return done.result(left=left, error=failure)
            claim.ensure()
        claim.settle(_remove)
    except RelanceError as failure:
        return done.result(error=failure)
    return done.result()


def require_purgeable(context: Context, dropped: Entry, *, force: bool) -> Marker:
    """Return the marker of a generation that may be purged now.

    Raises:
        InvalidTableStateError: its time has not passed.
        ConcurrentModificationError: another client holds it.
    """
    marker = dropped.marker
    if marker is None:
        raise InvalidTableStateError(f"'{dropped.object_id}' has no marker; run scrub() for repair options")
    now, table_id = context.clock.now(), TableId(dropped.original_parts[:-1], dropped.original_parts[-1])
    if marker.state is State.REVIVING:
        raise busy(str(table_id), marker)
    if marker.state is State.PURGING:
        if not holder_is_gone(marker, now=now, timing=context.timing):
            raise busy(str(table_id), marker)
    elif not force and not is_purgeable(marker, now=now, timing=context.timing):
        raise too_early(table_id, marker)
    return marker


def claim_row(context: Context, manifest: Manifest, dropped: Entry, token: str | None = None) -> RowClaim:
    """Take a generation for purging, under a token of its own or one that several know.

    Raises:
        ConcurrentModificationError: another client moved the row first.
        InvalidTableStateError: another row leads to the same files.
    """
    # The lease counts from before the request: its answer may come late.
    deadline = context.clock.monotonic() + context.timing.lease.total_seconds()
    until = context.clock.now() + context.timing.lease
    nonce = new_nonce()

    def plan(snapshot: Snapshot) -> tuple[Change, RowClaim]:
        found, marker = same_drop(snapshot, dropped)
        _refuse_shared(snapshot, found)
        claimed = moves.claim_purge(marker, nonce, token=token or nonce, until=until)
        entry = found.with_marker(claimed)
        claim = RowClaim(context, manifest, entry, claimed, deadline, _renewed)
        return move(snapshot, found, entry), claim

    return transact(manifest, plan)


def _refuse_shared(snapshot: Snapshot, entry: Entry) -> None:
    """Check that no other row leads to the same files.

    Raises:
        InvalidTableStateError: one does.
    """
    if entry.object_type != ObjectType.TABLE or not entry.location:
        return
    others = [each for each in snapshot.at_location([entry.location]) if each.object_id != entry.object_id]
    if others:
        raise InvalidTableStateError(
            f"nothing was purged: the files of table id '{entry.original_id}' at "
            f"'{entry.location}' also belong to '{others[0].original_id}'"
        )


def _renewed(marker: Marker, nonce: str, token: str, until: datetime) -> Marker:
    return moves.claim_purge(marker, nonce, token=token, until=until)


def _remove(snapshot: Snapshot, entry: Entry) -> Change:
    versions = move_versions(snapshot, entry.object_id, None)
    return Change(removed=(entry.object_id, *versions.removed))
