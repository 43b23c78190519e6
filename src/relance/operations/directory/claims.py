"""A claim on a name: held by one purge or one revival, for as long as its lease is renewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from relance.errors import ConcurrentModificationError, KeyChangedError, KeyExistsError, RelanceError
from relance.lifecycle import moves
from relance.lifecycle.marker import Marker
from relance.lifecycle.marker_store import StoredMarker, new_nonce, put_marker, read_marker, swap_markers
from relance.lifecycle.retention import holder_is_gone
from relance.lifecycle.states import LEASED, State
from relance.locations import table_directory
from relance.operations.context import Context

_ATTEMPTS = 5
"""How often an operation looks again when another one moved the marker first."""


class Swap(Protocol):
    """How a marker is swapped: alone, or with the row that follows it."""

    def __call__(
        self, context: Context, name: str, marker: Marker, *, over: StoredMarker | None
    ) -> StoredMarker: ...


def swap(context: Context, name: str, marker: Marker, *, over: StoredMarker | None) -> StoredMarker:
    """Swap the marker.

    Raises:
        ConcurrentModificationError: another client moved it first.
    """
    try:
        stored = put_marker(context.storage, name, marker, over=over)
        context.seen.note(name, stored)
        return stored
    except (KeyExistsError, KeyChangedError) as cause:
        raise _changed(name) from cause


def swap_many(
    context: Context, swaps: Sequence[tuple[str, Marker, StoredMarker]]
) -> list[StoredMarker | RelanceError]:
    """Swap the markers of several tables; each has its own outcome, with the errors of `swap`."""
    outcomes = swap_markers(context.storage, swaps)
    for number, ((name, _, _), outcome) in enumerate(zip(swaps, outcomes, strict=True)):
        if isinstance(outcome, KeyChangedError):
            outcomes[number] = _changed(name)
        elif not isinstance(outcome, RelanceError):
            context.seen.note(name, outcome)
    return outcomes


def _changed(name: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(f"table id '{name}' was changed by another client")


@dataclass(slots=True)
class Claim:
    """The right to go on, checked against a clock that only this process sees."""

    context: Context
    name: str
    stored: StoredMarker
    deadline: float
    renew_as: Callable[[Marker, str, str, datetime], Marker]

    @property
    def token(self) -> str:
        return self.stored.marker.token

    def ensure(self) -> None:
        """Renew the lease once half of it is over.

        Raises:
            ConcurrentModificationError: the lease is over, or the claim was taken over: stop at once.
        """
        clock, lease = self.context.clock, self.context.timing.lease.total_seconds()
        if clock.monotonic() >= self.deadline:
            raise ConcurrentModificationError(f"the claim on table id '{self.name}' expired; retry")
        if clock.monotonic() >= self.deadline - lease / 2:
            deadline = clock.monotonic() + lease
            until = clock.now() + self.context.timing.lease
            renewed = self.renew_as(self.stored.marker, new_nonce(), self.token, until)
            self.stored = swap(self.context, self.name, renewed, over=self.stored)
            self.deadline = deadline

    def settle(self, marker: Marker) -> None:
        """Give up the claim for the state that `marker` says.

        Raises:
            ConcurrentModificationError: the claim was taken over.
        """
        self.stored = swap(self.context, self.name, marker, over=self.stored)


def claim_purge(context: Context, name: str, over: StoredMarker, token: str | None = None) -> Claim:
    """Take the table for purging, under a token of its own or one that several know.

    Raises:
        ConcurrentModificationError: another client moved the marker first.
    """
    return _claim(context, name, over, _purge_marker, swap, token)


def claim_purges(context: Context, names: Sequence[tuple[str, StoredMarker]]) -> list[Claim | RelanceError]:
    """Take several tables for purging, each under a token of its own; others' failures are theirs."""
    # The leases count from before the request: its answer may come late.
    deadline = context.clock.monotonic() + context.timing.lease.total_seconds()
    swaps = [(name, _first(context, over, _purge_marker), over) for name, over in names]
    return [
        outcome
        if isinstance(outcome, RelanceError)
        else Claim(context, name, outcome, deadline, _purge_marker)
        for (name, _), outcome in zip(names, swap_many(context, swaps), strict=True)
    ]


def settle_all(context: Context, settled: Sequence[tuple[Claim, Marker]]) -> list[RelanceError | None]:
    """Give up several claims, each for the state that its marker says; None where that was done."""
    swaps = [(claim.name, marker, claim.stored) for claim, marker in settled]
    failures: list[RelanceError | None] = []
    for (claim, _), outcome in zip(settled, swap_many(context, swaps), strict=True):
        if isinstance(outcome, RelanceError):
            failures.append(outcome)
        else:
            claim.stored = outcome
            failures.append(None)
    return failures


def claim_revival(context: Context, name: str, over: StoredMarker, swap: Swap = swap) -> Claim:
    """Take a dropped or purged name for a create.

    Raises:
        ConcurrentModificationError: another client moved the marker first.
    """
    return _claim(context, name, over, _revival_marker, swap)


def _purge_marker(marker: Marker, nonce: str, token: str, until: datetime) -> Marker:
    return moves.claim_purge(marker, nonce, token=token, until=until)


def _revival_marker(marker: Marker, nonce: str, token: str, until: datetime) -> Marker:
    return moves.claim_revival(marker, nonce, token=token, until=until)


def _claim(
    context: Context,
    name: str,
    over: StoredMarker,
    make: Callable[[Marker, str, str, datetime], Marker],
    swap: Swap,
    token: str | None = None,
) -> Claim:
    # The lease counts from before the request: its answer may come late.
    deadline = context.clock.monotonic() + context.timing.lease.total_seconds()
    stored = swap(context, name, _first(context, over, make, token), over=over)
    return Claim(context, name, stored, deadline, make)


def _first(
    context: Context,
    over: StoredMarker,
    make: Callable[[Marker, str, str, datetime], Marker],
    token: str | None = None,
) -> Marker:
    """Return the marker that a claim begins with."""
    nonce = new_nonce()
    return make(over.marker, nonce, token or nonce, context.clock.now() + context.timing.lease)


def settled_marker(context: Context, name: str) -> StoredMarker | None:
    """Return the marker, after giving back a revival, a write or a sweep whose holder is gone.

    Raises:
        ConcurrentModificationError: a revival or a sweep is under way.
        InvalidTableStateError: the marker cannot be understood.
    """
    return settle(context, name, read_marker(context.storage, name))


def settle(context: Context, name: str, stored: StoredMarker | None) -> StoredMarker | None:
    """Do the same with a marker that was just read."""
    for _ in range(_ATTEMPTS):
        if stored is None or stored.marker.state not in LEASED or stored.marker.state is State.PURGING:
            return stored
        if not holder_is_gone(stored.marker, now=context.clock.now(), timing=context.timing):
            if stored.marker.state is State.WRITING:
                return stored
            raise busy(name, stored.marker)
        with suppress(ConcurrentModificationError):
            recover(context, name, stored)
        stored = read_marker(context.storage, name)
    raise ConcurrentModificationError(f"too many concurrent changes to table id '{name}'; retry")


def recover(context: Context, name: str, stored: StoredMarker) -> None:
    """Finish or give back the claim of a holder that is gone.

    A revival that committed its data is finished: the create was done but for its last step.

    Raises:
        ConcurrentModificationError: another client was first.
    """
    marker = stored.marker
    if marker.state is State.REVIVING:
        done = context.tables.committed_version(table_directory(name), marker.token, after=marker.version)
        if done is not None:
            swap(context, name, moves.finish_revival(marker, new_nonce()), over=stored)
            return
    swap(context, name, moves.recover(marker, new_nonce()), over=stored)


def busy(name: str, marker: Marker) -> ConcurrentModificationError:
    """Return the error for a name that another client holds."""
    doing = {
        State.PURGING: "purging it",
        State.REVIVING: "creating it",
        State.SWEEPING: "sweeping its marker",
        State.WRITING: "overwriting it",
    }[marker.state]
    until = marker.lease_until.isoformat(timespec="seconds") if marker.lease_until else "an unknown time"
    return ConcurrentModificationError(
        f"table id '{name}' is locked by another client ({doing}) until {until}; retry after that"
    )
