"""The time that the clients of a state machine see, each with an error of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from relance.testing.clock import ManualClock

TIME = ManualClock()
"""The time base of the machine that runs; outside the machine, so that pickled clocks still share it."""


@contextmanager
def whole_seconds() -> Iterator[None]:
    """Let the time base wait for the next second when it advances: S3 tells times in whole seconds."""
    TIME.resolution = 1.0
    try:
        yield
    finally:
        TIME.resolution = 0.0


@dataclass(frozen=True, slots=True)
class OffsetClock:
    """A client's clock: the time base, ahead or behind by a constant."""

    offset: timedelta

    def now(self) -> datetime:
        return TIME.now() + self.offset

    def monotonic(self) -> float:
        return TIME.monotonic()

    def sleep(self, seconds: float) -> None:
        TIME.sleep(seconds)

    def at_store(self, moment: datetime) -> datetime:
        """Return a file's time on the time base, which is the store's clock, whatever this client's says."""
        return TIME.at_store(moment)
