"""Create over a dropped or purged name: a new version on top of what was there, so its history stays."""

from __future__ import annotations

from relance.errors import ConcurrentModificationError, RelanceError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import StoredMarker, new_nonce
from relance.listing.signs import remove_signs
from relance.locations import DEREGISTERED_FILE, table_file
from relance.operations.context import Context
from relance.operations.directory.claims import Claim, Swap, claim_revival
from relance.operations.lance_tables import StagedData, is_settled
from relance.operations.new_table import NewTable
from relance.operations.written import require_same_drop
from relance.storage.probe import require_replace


def revive(context: Context, new: NewTable, stored: StoredMarker, swap: Swap) -> int:
    """Claim the name, write, commit, and show it. Returns the version.

    Raises:
        ConcurrentModificationError: another client moved the marker.
    """
    require_same_drop(new.table_id, new.data, stored.marker)
    require_replace(context.storage, to_do="replacing a dropped table")
    claim = claim_revival(context, new.name, stored, swap)
    # The new table is not deregistered, whatever the dropped one was; the marker remembers that.
    context.storage.delete(table_file(new.name, DEREGISTERED_FILE))
    version = _write(context, new, claim)
    claim.settle(moves.finish_revival(claim.stored.marker, new_nonce()))
    remove_signs(context.storage, new.name)
    return version


def _write(context: Context, new: NewTable, claim: Claim) -> int:
    try:
        # A version may be there even below a tombstone: of a create that committed after the purge.
        head = context.tables.head(new.directory)
        staged = context.tables.stage(
            new.directory, new.data, token=claim.token, overwrite=head is not None, options=new.options
        )
    except RelanceError:
        _give_back(claim)
        raise
    try:
        # Until here nothing was changed. What follows must not happen once the lease is over.
        claim.ensure()
        return context.tables.commit(
            new.directory,
            staged,
            first=head is None,
            timeout=min(context.timing.commit_timeout, context.timing.lease / 2),
            options=new.options,
        )
    except RelanceError as failure:
        return _after_failed_commit(context, new, claim, staged, failure)


def _after_failed_commit(
    context: Context, new: NewTable, claim: Claim, staged: StagedData, failure: RelanceError
) -> int:
    """Settle a failed commit: it may have landed all the same.

    Raises:
        RelanceError: it did not, or nobody can tell.
    """
    committed = context.tables.committed_version(
        new.directory, staged.token, after=claim.stored.marker.version
    )
    if committed is not None:
        return committed
    if is_settled(failure):
        context.tables.discard(staged)
        _give_back(claim)
    raise failure


def _give_back(claim: Claim) -> None:
    try:
        claim.settle(moves.recover(claim.stored.marker, new_nonce()))
    except ConcurrentModificationError:
        return  # taken over: it is no longer ours to give back
