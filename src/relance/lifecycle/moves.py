"""The next marker for each action on the current one. Pure: time and nonce are arguments."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from relance.lifecycle.marker import Marker
from relance.lifecycle.states import Action, State, target


def state_of(marker: Marker | None) -> State:
    """Return the state that a marker, or none, stands for."""
    return State.ABSENT if marker is None else marker.state


def cleared(nonce: str, *, undid: str = "") -> Marker:
    """Return a marker that hides nothing, and remembers the deletion it ended."""
    return Marker(State.CLEARED, nonce, undid=undid)


def drop(marker: Marker | None, nonce: str, *, at: datetime, ttl: timedelta, version: int) -> Marker:
    """Hide the table; the expiry is fixed here. The nonce is also the deletion id."""
    return Marker(
        target(state_of(marker), Action.DROP, before=None),
        nonce,
        deleted_at=at,
        ttl=ttl,
        version=version,
        deletion_id=nonce,
        was_deregistered=state_of(marker) is State.DEREGISTERED,
        writer_until=marker.lease_until if marker is not None and marker.state is State.WRITING else None,
    )


def undrop(marker: Marker, nonce: str) -> Marker:
    """Show again what the drop hid; a table that was deregistered before is so again."""
    before = State.DEREGISTERED if marker.was_deregistered else State.CLEARED
    if target(marker.state, Action.UNDROP, before=before) is State.DEREGISTERED:
        return Marker(State.DEREGISTERED, nonce, deleted_at=marker.deleted_at, deletion_id=nonce)
    return cleared(nonce, undid=marker.deletion_id)


def deregister(marker: Marker | None, nonce: str, *, at: datetime) -> Marker:
    """Hide the table for as long as nobody registers it."""
    state = target(state_of(marker), Action.DEREGISTER, before=None)
    return Marker(state, nonce, deleted_at=at, deletion_id=nonce)


def register(marker: Marker, nonce: str) -> Marker:
    """Show a deregistered table."""
    target(marker.state, Action.REGISTER, before=None)
    return cleared(nonce, undid=marker.deletion_id)


def claim_purge(marker: Marker, nonce: str, *, token: str, until: datetime) -> Marker:
    """Take the table for purging, or lengthen the lease of such a claim, or take it over."""
    state = target(marker.state, Action.CLAIM_PURGE, before=None)
    before = marker.before if marker.state is State.PURGING else marker.state
    return replace(marker, state=state, nonce=nonce, token=token, lease_until=until, before=before)


def finish_purge(marker: Marker, nonce: str, *, at: datetime) -> Marker:
    """Leave the tombstone."""
    state = target(marker.state, Action.FINISH_PURGE, before=None)
    return replace(
        marker, state=state, nonce=nonce, token="", lease_until=None, before=None, purged_at=at, version=0
    )


def claim_revival(marker: Marker, nonce: str, *, token: str, until: datetime) -> Marker:
    """Take the name for a create, or lengthen the lease of such a claim."""
    state = target(marker.state, Action.CLAIM_REVIVAL, before=None)
    before = marker.before if marker.state is State.REVIVING else marker.state
    return replace(marker, state=state, nonce=nonce, token=token, lease_until=until, before=before)


def finish_revival(marker: Marker, nonce: str) -> Marker:
    """Show the table that the create wrote."""
    target(marker.state, Action.FINISH_REVIVAL, before=None)
    return cleared(nonce, undid=marker.deletion_id)


def recover(marker: Marker, nonce: str) -> Marker:
    """Give back a claim whose holder is gone: the state it was taken from."""
    state = target(marker.state, Action.RECOVER, before=marker.before)
    if state is State.CLEARED:
        return cleared(nonce)
    return replace(marker, state=state, nonce=nonce, token="", lease_until=None, before=None)


def claim_sweep(marker: Marker, nonce: str, *, until: datetime) -> Marker:
    """Take a marker that is no longer needed, to remove it."""
    state = target(marker.state, Action.CLAIM_SWEEP, before=None)
    return replace(marker, state=state, nonce=nonce, token=nonce, lease_until=until, before=marker.state)


def move(marker: Marker | None, nonce: str, *, at: datetime, undid: str = "") -> Marker:
    """Leave the directory to a row of the manifest; `undid` names the deletion that this ends, if any."""
    state = target(state_of(marker), Action.MOVE, before=None)
    return Marker(state, nonce, deleted_at=at, deletion_id=nonce, undid=undid)


def claim_write(marker: Marker | None, nonce: str, *, until: datetime) -> Marker:
    """Announce that an overwrite is being committed."""
    state = target(state_of(marker), Action.CLAIM_WRITE, before=None)
    return Marker(state, nonce, before=State.CLEARED, token=nonce, lease_until=until)


def finish_write(marker: Marker, nonce: str) -> Marker:
    """Withdraw the announcement."""
    target(marker.state, Action.FINISH_WRITE, before=None)
    return cleared(nonce)
