"""A claim on a row: held by one purge or one revival, for as long as its lease is renewed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from relance.errors import ConcurrentModificationError
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import new_nonce
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import State
from relance.manifest.entry import Entry
from relance.manifest.store import Change, Manifest, Snapshot, transact
from relance.operations.context import Context
from relance.operations.directory.claims import busy
from relance.operations.rows.lookups import move

Renew = Callable[[Marker, str, str, datetime], Marker]


@dataclass(slots=True)
class RowClaim:
    """The right to go on, checked against a clock that only this process sees."""

    context: Context
    manifest: Manifest
    entry: Entry
    marker: Marker
    deadline: float
    renew_as: Renew

    def ensure(self) -> None:
        """Renew the lease once half of it is over.

        Raises:
            ConcurrentModificationError: the lease is over, or the claim was taken over: stop at once.
        """
        clock, lease = self.context.clock, self.context.timing.lease.total_seconds()
        if clock.monotonic() >= self.deadline:
            raise ConcurrentModificationError(f"the claim on '{self.entry.original_id}' expired; retry")
        if clock.monotonic() >= self.deadline - lease / 2:
            deadline = clock.monotonic() + lease
            until = clock.now() + self.context.timing.lease
            self.swap(self.renew_as(self.marker, new_nonce(), self.marker.token, until))
            self.deadline = deadline

    def swap(self, marker: Marker) -> None:
        """Put another marker on the row, which stays hidden.

        Raises:
            ConcurrentModificationError: the claim was taken over.
        """
        changed = self.entry.with_marker(marker)
        transact(self.manifest, lambda snapshot: (move(snapshot, self.held(snapshot), changed), None))
        self.entry, self.marker = changed, marker

    def held(self, snapshot: Snapshot) -> Entry:
        """Return the row as it is in the manifest, if the claim on it is still ours.

        Raises:
            ConcurrentModificationError: it is not.
        """
        found = snapshot.get([self.entry.object_id]).get(self.entry.object_id)
        if found is None or found.marker is None or found.marker.nonce != self.marker.nonce:
            raise ConcurrentModificationError(
                f"the claim on '{self.entry.original_id}' was taken over by another client"
            )
        return found

    def settle(self, plan: Callable[[Snapshot, Entry], Change]) -> None:
        """Give up the claim by the change that `plan` makes of the row.

        Raises:
            ConcurrentModificationError: the claim was taken over.
        """
        transact(self.manifest, lambda snapshot: (plan(snapshot, self.held(snapshot)), None))


def same_drop(snapshot: Snapshot, seen: Entry) -> tuple[Entry, Marker]:
    """Return a dropped row as it is now, if its marker is still the one that was seen.

    Raises:
        ConcurrentModificationError: another client moved it.
    """
    found = snapshot.get([seen.object_id]).get(seen.object_id)
    marker = found.marker if found is not None else None
    if found is None or marker is None or seen.marker is None or marker.nonce != seen.marker.nonce:
        raise ConcurrentModificationError(f"'{seen.original_id}' was changed by another client")
    return found, marker


def settle_revival(context: Context, manifest: Manifest, entry: Entry) -> None:
    """Finish or give back a revival whose holder is gone.

    Raises:
        ConcurrentModificationError: it is not gone.
    """
    marker = entry.marker
    if marker is None or marker.state is not State.REVIVING:
        return
    if not holder_is_gone(marker, now=context.clock.now(), timing=context.timing):
        raise busy(entry.original_id, marker)
    if entry.has_own_directory:
        return  # the marker beside the directory tells what became of it
    assert entry.location is not None  # a table that was dropped had one
    done = context.tables.committed_version(entry.location, marker.token, after=marker.version)
    if done is not None:
        after = entry.restored(entry.original_id)
    else:
        after = entry.dropped(moves.recover(marker, new_nonce()), cascade=entry.cascade)

    def plan(snapshot: Snapshot) -> tuple[Change, None]:
        found, _ = same_drop(snapshot, entry)
        return move(snapshot, found, after), None

    transact(manifest, plan)
