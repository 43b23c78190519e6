"""A clock that stands still until a test moves it."""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_FILE_CLOCK = 5 if sys.platform == "linux" else time.CLOCK_REALTIME
"""No file is stamped with an earlier time than this clock shows, nor with a later one than CLOCK_REALTIME.

On Linux it is CLOCK_REALTIME_COARSE, which `time` does not name.
"""


@dataclass(slots=True)
class ManualClock:
    """Both clocks advance together and only by `advance`.

    Files on a real store carry real times: one that was written between two moves of this clock counts
    as written at the moment that the clock showed then.
    """

    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0
    resolution: float = 0.0
    """Seconds between times that the store can tell apart: `advance` waits for the next one."""
    _moved: list[float] = field(default_factory=list)
    _moments: list[datetime] = field(default_factory=list)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self._move(timedelta(seconds=seconds), _next_tick())

    def at_store(self, moment: datetime) -> datetime:
        before = bisect_right(self._moved, moment.timestamp())
        return self._moments[before] if before < len(self._moments) else self.moment

    def advance(self, step: timedelta) -> None:
        """Move the time forward by `step`."""
        self._move(step, _next_tick(self.resolution))

    def _move(self, step: timedelta, moved: float) -> None:
        self._moments.append(self.moment)
        self._moved.append(moved)
        self.moment += step
        self.seconds += step.total_seconds()


def _next_tick(resolution: float = 0.0) -> float:
    """Return a time that is after that of every file written so far, and before that of every later one."""
    before = time.clock_gettime(time.CLOCK_REALTIME)
    if resolution:
        before = (before // resolution + 1) * resolution
    while (now := time.clock_gettime(_FILE_CLOCK)) <= before:
        time.sleep(0.0005)
    return (before if resolution else now) - 2e-6  # times of files are rounded to microseconds


@dataclass(slots=True)
class SteppedClock:
    """The clock of one client in an exploration: it stands still within a step, and may show a wrong time."""

    true: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """By the store's clock."""
    skew: timedelta = timedelta()
    """By how much this client's clock is wrong."""
    origin: datetime = datetime(2025, 12, 31, tzinfo=UTC)
    """Where its monotonic clock began."""

    def now(self) -> datetime:
        return self.true + self.skew

    def monotonic(self) -> float:
        return (self.true - self.origin).total_seconds()

    def sleep(self, seconds: float) -> None:
        """Nobody waits in an exploration."""

    def at_store(self, moment: datetime) -> datetime:
        return moment
