"""Time windows: from when until when work may be done, on which days, by which clock on the wall. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from relance.errors import InvalidInputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_SPAN = re.compile(r"([0-9]{2}):([0-9]{2})\s*-\s*([0-9]{2}):([0-9]{2})", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", re.ASCII)
_WHOLE_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """A span of each day; one that ends before it begins goes on until the next day."""

    start: int = 0
    """In minutes after midnight."""
    end: int = _WHOLE_DAY
    days: tuple[str, ...] = DAYS
    """The days on which it opens."""
    timezone: str = "UTC"

    def is_open(self, now: datetime) -> bool:
        """Tell whether the moment is in the window; its end is not."""
        return any(opens <= now < closes for opens, closes in self._around(now))

    def opens_at(self, now: datetime) -> datetime:
        """Return when it opens next, in the window's own time zone."""
        return min(opens for opens, _ in self._around(now) if opens > now).astimezone(ZoneInfo(self.timezone))

    def _around(self, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the spans that can hold this moment, and at least one after it."""
        today = now.astimezone(ZoneInfo(self.timezone)).date()
        for offset in range(-1, 9):
            try:
                day = today + timedelta(days=offset)
                if DAYS[day.weekday()] in self.days:
                    yield self._moment(day, self.start), self._moment(day, self._length_end)
            except OverflowError:
                continue  # before the first or after the last day that a clock can show

    @property
    def _length_end(self) -> int:
        return self.end if self.end > self.start else self.end + _WHOLE_DAY

    def _moment(self, day: date, minutes: int) -> datetime:
        # By the clock on the wall: on the night when it is changed, the span is shorter or longer.
        days, rest = divmod(minutes, _WHOLE_DAY)
        wall = datetime.combine(day + timedelta(days=days), time(rest // 60, rest % 60))
        return wall.replace(tzinfo=ZoneInfo(self.timezone)).astimezone(UTC)

    def __str__(self) -> str:
        start, end = (f"{each // 60:02}:{each % 60:02}" for each in (self.start, self.end))
        days = "" if self.days == DAYS else f" {','.join(self.days)}"
        return f"{start}-{end}{days} {self.timezone}"


def parse_span(text: str) -> tuple[int, int]:
    """Return start and end, in minutes, of a text such as `22:00-06:00`.

    Raises:
        InvalidInputError: it is no span.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"is not a time window: {text!r}; use a form such as 22:00-06:00")
    hours, minutes, to_hours, to_minutes = map(int, found.groups())
    start, end = hours * 60 + minutes, to_hours * 60 + to_minutes
    if max(minutes, to_minutes) > 59 or start >= _WHOLE_DAY or end > _WHOLE_DAY:
        raise InvalidInputError(f"has an invalid time of day: {text!r}")
    if start == end:
        raise InvalidInputError(f"starts and ends at the same time: {text!r}; use 00:00-24:00 for all day")
    return start, end


def check_timezone(name: str) -> str:
    """Return the name of a time zone, if there is one.

    Raises:
        InvalidInputError: there is none.
    """
    try:
        if not _ZONE.fullmatch(name):
            raise ValueError
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a folder of zones has a name, too
        raise InvalidInputError(f"is not a time zone: {name!r}; use a name such as Europe/Berlin") from None
    return name
