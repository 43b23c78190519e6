"""Overwrite a visible table with a new version, so that no purge can take its files meanwhile."""

from __future__ import annotations

from relance.errors import ConcurrentModificationError, RelanceError
from relance.lifecycle import moves
from relance.lifecycle.marker_store import StoredMarker, is_unchanged, new_nonce
from relance.lifecycle.states import LEASED
from relance.operations.context import Context
from relance.operations.directory.claims import busy, settle, swap
from relance.operations.lance_tables import StagedData, is_settled
from relance.operations.new_table import NewTable
from relance.storage.probe import capabilities


def overwrite(context: Context, new: NewTable, seen: StoredMarker | None) -> int:
    """Stage the data, announce the commit on the marker, commit, and withdraw the announcement.

    The announcement is a swap of the marker that was seen: it fails if the table was dropped in the
    meantime, and a drop that comes after it makes a purge wait for this commit.

    Raises:
        ConcurrentModificationError: the table was dropped, or another client overwrites it.
    """
    if seen is not None and seen.marker.state in LEASED:
        settle(context, new.name, seen)  # gives back what a holder that is gone left
        raise busy(new.name, seen.marker)
    staged = _stage(context, new, seen)
    if not capabilities(context.storage).replace:
        return _commit(context, new, staged)  # no purge works on such a store, so none can interfere
    deadline = context.clock.monotonic() + context.timing.lease.total_seconds() / 2
    announced = _announce(context, new, staged, seen)
    if context.clock.monotonic() >= deadline:
        context.tables.discard(staged)
        raise ConcurrentModificationError(f"table id '{new.table_id}': the store responded too slowly; retry")
    try:
        version = _commit(context, new, staged)
    except RelanceError as failure:
        if is_settled(failure):
            _withdraw(context, new, announced)
        raise  # unsettled, it may still land: the announcement stays until its lease is over
    _withdraw(context, new, announced)
    return version


def _stage(context: Context, new: NewTable, seen: StoredMarker | None) -> StagedData:
    try:
        return context.tables.stage(
            new.directory, new.data, token=new_nonce(), overwrite=True, options=new.options
        )
    except RelanceError as failure:
        if is_unchanged(context.storage, new.name, seen):
            raise
        raise ConcurrentModificationError(
            f"table id '{new.table_id}' was dropped while it was being overwritten"
        ) from failure


def _announce(context: Context, new: NewTable, staged: StagedData, seen: StoredMarker | None) -> StoredMarker:
    until = context.clock.now() + context.timing.lease
    marker = moves.claim_write(seen.marker if seen else None, new_nonce(), until=until)
    try:
        return swap(context, new.name, marker, over=seen)
    except ConcurrentModificationError:
        context.tables.discard(staged)
        raise


def _withdraw(context: Context, new: NewTable, announced: StoredMarker) -> None:
    swap(context, new.name, moves.finish_write(announced.marker, new_nonce()), over=announced)


def _commit(context: Context, new: NewTable, staged: StagedData) -> int:
    timeout = min(context.timing.commit_timeout, context.timing.lease / 2)
    try:
        return context.tables.commit(new.directory, staged, first=False, timeout=timeout, options=new.options)
    except RelanceError as failure:
        committed = context.tables.committed_version(new.directory, staged.token, after=0)
        if committed is not None:
            return committed
        if is_settled(failure):
            context.tables.discard(staged)
        raise
