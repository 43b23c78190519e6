"""Numbers, sizes, times and ids as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_STEP = 1000.0
_SHOWN = 20


def printable(text: str) -> str:
    """Return a text in which no character moves the cursor or colours the terminal."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def id_text(parts: Sequence[str]) -> str:
    """Return an id as commands take it."""
    from relance.identifiers import format_id

    return format_id(parts) if parts else "(root)"


def count(number: int | None) -> str:
    """Return a number with its thousands apart; a dash when it is not known."""
    return "-" if number is None else f"{number:,}"


def several(number: int, one: str, many: str | None = None) -> str:
    """Return a number and its noun: `1 table`, `2 tables`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: int | None) -> str:
    """Return so many bytes as people say it; a dash when it is not known."""
    if number is None:
        return "-"
    if number < _STEP:
        return f"{number} B"
    amount = float(number)
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        amount /= _STEP
        if amount < 999.5 or unit == "PB":
            return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"
    raise AssertionError("unreachable")


def moment(when: datetime | None) -> str:
    """Return a time in UTC, to the second; a dash when there is none."""
    return "-" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(length: timedelta) -> str:
    """Return a length of time as people say it."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def listed(names: Sequence[str], *, most: int = _SHOWN) -> list[str]:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    return [*names[:most], *([f"… and {rest} more"] if rest > 0 else [])]
