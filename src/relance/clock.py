"""Time as a value that is passed in. The clock that tests move by hand is in testing.clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from relance.errors import InvalidInputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""A time after this was made up or damaged: before it, every period of the catalog can be added to it."""

_SINCE_BOOT: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux the monotonic clock stands still while the machine sleeps, and this one does not."""


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for measuring how long something took."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def at_store(self, moment: datetime) -> datetime:
        """Return a time that the store stated. Only a clock that tests move changes it."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return since_boot()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def at_store(self, moment: datetime) -> datetime:
        return moment


def since_boot() -> float:
    """Return seconds that never run backwards, those in which the machine slept among them.

    A client that is suspended must not think that its claims, or what it has read, are still fresh.
    """
    return time.clock_gettime(_SINCE_BOOT)


def to_millis(moment: datetime) -> int:
    """Return `moment` as whole milliseconds since the Unix epoch, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_millis(millis: int) -> datetime:
    """Return the UTC moment that is `millis` milliseconds after the Unix epoch.

    Raises:
        OverflowError: it is later than any that can be true.
    """
    moment = _EPOCH + timedelta(milliseconds=millis)
    if moment > LATEST:
        raise OverflowError(f"{moment} is out of range")
    return moment


def require_moment(moment: datetime, *, what: str) -> datetime:
    """Return a moment that a caller gave, in UTC.

    Raises:
        InvalidInputError: it is no datetime, has no time zone, or is none in UTC.
    """
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"{what} must be a datetime with a time zone, got {moment!r}")
    if moment.utcoffset() is None:
        raise InvalidInputError(
            f"{what} {moment} has no time zone: use datetime.now(UTC), or .astimezone() for local time"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInputError(
            f"{what} {moment} is out of range: use a time between the years 1 and 9999"
        ) from None
