"""A clock that stands still until a test moves it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(slots=True)
class ManualClock:
    """Both clocks advance together and only by `advance`."""

    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, step: timedelta) -> None:
        """Move the time forward by `step`."""
        self.moment += step
        self.seconds += step.total_seconds()
