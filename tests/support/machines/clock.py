"""The time that the clients of a state machine see, each with an error of its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from relance.testing.clock import ManualClock

TIME = ManualClock()
"""The time base of the machine that runs; outside the machine, so that pickled clocks still share it."""


@dataclass(frozen=True, slots=True)
class OffsetClock:
    """A client's clock: the time base, ahead or behind by a constant."""

    offset: timedelta

    def now(self) -> datetime:
        return TIME.now() + self.offset

    def monotonic(self) -> float:
        return TIME.monotonic()
