"""Create over a dropped generation: a new version in its directory, so its history stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from relance.errors import ConcurrentModificationError, RelanceError
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import new_nonce
from relance.manifest.entry import Entry
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.lance_tables import is_settled
from relance.operations.new_table import NewTable
from relance.operations.rows.claims import RowClaim, same_drop
from relance.operations.rows.lookups import move, require_free
from relance.operations.written import require_same_drop


def revive(context: Context, manifest: Manifest, new: NewTable, dropped: Entry) -> int:
    """Claim the generation, write, commit, and show it. Returns the version.

    Raises:
        ConcurrentModificationError: another client moved it.
        TableAlreadyExistsError: the name is taken.
    """
    assert dropped.location is not None  # a table that was dropped had one
    head = context.tables.head(dropped.location)
    claim = _claim(context, manifest, new, dropped, version=head.version if head is not None else 0)
    version = _write(context, new, claim, dropped.location, overwrite=head is not None)
    claim.settle(lambda snapshot, found: move(snapshot, found, _shown(found, new)))
    return version


def _shown(entry: Entry, new: NewTable) -> Entry:
    shown = entry.restored(entry.object_id)
    return shown.with_properties(new.properties) if new.properties else shown


def _claim(context: Context, manifest: Manifest, new: NewTable, dropped: Entry, *, version: int) -> RowClaim:
    """Bring the row to its name, still hidden, so that nobody else can take that."""
    deadline = context.clock.monotonic() + context.timing.lease.total_seconds()
    until = context.clock.now() + context.timing.lease
    nonce = new_nonce()

    def plan(snapshot: Snapshot) -> tuple[Change, RowClaim]:
        found, marker = same_drop(snapshot, dropped)
        require_same_drop(new.table_id, new.data, marker)
        require_free(context, snapshot, new.table_id)
        claimed = replace(moves.claim_revival(marker, nonce, token=nonce, until=until), version=version)
        entry = found.reviving(claimed)
        return move(snapshot, found, entry), RowClaim(context, manifest, entry, claimed, deadline, _renewed)

    return transact(manifest, plan)


def _renewed(marker: Marker, nonce: str, token: str, until: datetime) -> Marker:
    return moves.claim_revival(marker, nonce, token=token, until=until)


def _write(context: Context, new: NewTable, claim: RowClaim, directory: str, *, overwrite: bool) -> int:
    token = claim.marker.token
    try:
        staged = context.tables.stage(
            directory, new.data, token=token, overwrite=overwrite, options=new.options
        )
    except RelanceError:
        _give_back(claim)
        raise
    try:
        # Until here nothing was changed. What follows must not happen once the lease is over.
        claim.ensure()
        return context.tables.commit(
            directory,
            staged,
            first=not overwrite,
            timeout=min(context.timing.commit_timeout, context.timing.lease / 2),
            options=new.options,
        )
    except RelanceError as failure:
        committed = context.tables.committed_version(directory, token, after=claim.marker.version)
        if committed is not None:
            return committed
        if is_settled(failure):
            context.tables.discard(staged)
            _give_back(claim)
        raise


def _give_back(claim: RowClaim) -> None:
    back = moves.recover(claim.marker, new_nonce())
    try:
        claim.settle(
            lambda snapshot, found: move(snapshot, found, found.dropped(back, cascade=found.cascade))
        )
    except ConcurrentModificationError:
        return  # taken over: it is no longer ours to give back
