"""When a dropped table may be purged, and when a claim's holder counts as gone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from relance.lifecycle.marker import Marker
from relance.lifecycle.states import State


@dataclass(frozen=True, slots=True)
class Timing:
    """The spans of time that the lifecycle depends on."""

    drop_ttl: timedelta = timedelta(days=7)
    """How long a dropped table is kept when nothing says otherwise."""
    clock_skew: timedelta = timedelta(minutes=5)
    """By how much the clocks of two clients may differ."""
    lease: timedelta = timedelta(minutes=10)
    """How long a claim holds without being renewed."""
    request_age: timedelta = timedelta(minutes=15)
    """How long after it was signed the store may still carry out a request."""
    commit_timeout: timedelta = timedelta(minutes=2)
    """How long a Lance commit may take."""
    quarantine: timedelta = timedelta(days=7)
    """How long a cleared or purged marker is kept."""


def purge_after(marker: Marker) -> datetime | None:
    """Return the moment from which a dropped table may be purged; None is never."""
    if marker.deleted_at is None or marker.ttl is None:
        return None
    return marker.deleted_at + marker.ttl


def is_purgeable(marker: Marker, *, now: datetime, timing: Timing) -> bool:
    """Tell whether a dropped table's time has passed, whatever of the two clocks is ahead."""
    due = purge_after(marker)
    return marker.state is State.DELETED and due is not None and due <= now - timing.clock_skew


def holder_is_gone(marker: Marker, *, now: datetime, timing: Timing) -> bool:
    """Tell whether nothing that a claim's holder sent can still take effect.

    The holder stops by itself at the end of its lease, on a clock that may be behind ours; what it
    sent just before may be carried out until the store refuses the signature as too old.
    """
    if marker.lease_until is None:
        return False
    return now > marker.lease_until + timing.clock_skew + timing.request_age


def is_due(marker: Marker, *, now: datetime, timing: Timing) -> bool:
    """Tell whether a purge of all tables takes this one: its time has passed, or a purge of it was left."""
    if marker.state is State.PURGING:
        return holder_is_gone(marker, now=now, timing=timing)
    return is_purgeable(marker, now=now, timing=timing)


def creators_are_gone(marker: Marker, *, now: datetime, timing: Timing) -> bool:
    """Tell whether no create that began before the drop can still commit.

    Such a create looked for a marker just before its commit and saw none, so its commit was sent
    before the drop and has either taken effect or timed out since.
    """
    if marker.deleted_at is None:
        return False
    wait = timing.commit_timeout + timing.request_age + timing.clock_skew
    return now > marker.deleted_at + wait


def writers_are_gone(marker: Marker, *, now: datetime, timing: Timing) -> bool:
    """Tell whether no overwrite that was being committed at the drop can still take effect."""
    if marker.writer_until is None:
        return True
    return now > marker.writer_until + timing.clock_skew + timing.request_age
