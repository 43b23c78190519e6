"""Amounts as people read them: bytes, counts, shares, durations, instants. Pure.

Everything that prints or draws a figure takes its words from here; files for machines hold the plain numbers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_COUNT_UNITS = ("", " k", " M", " bn", " tn")
_EXACT_BELOW = 10_000_000
_UNKNOWN = "–"


def in_bytes(size: int | None) -> str:
    """Return a size in the unit that suits it, of a thousand each: 0 B, 1.5 kB, 12 GB."""
    return _UNKNOWN if size is None else _scaled(size, _BYTE_UNITS)


def count(number: int | None) -> str:
    """Return a whole number with commas: 12,345."""
    return _UNKNOWN if number is None else f"{number:,}"


def short_count(number: int | None) -> str:
    """Return a whole number that fits a narrow column: exact below ten million, 12 M above."""
    if number is None or abs(number) < _EXACT_BELOW:
        return count(number)
    return _scaled(number, _COUNT_UNITS)


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: 1 table, 2,000 tables."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def share(ratio: float) -> str:
    """Return a ratio in percent; one that is not 0 or 1 never reads as if it were."""
    if 0 < ratio < 0.001:
        return "< 0.1 %"
    if 0.999 < ratio < 1:
        return "> 99.9 %"
    return f"{ratio * 100:.1f}".removesuffix(".0") + " %"


def duration(taken: timedelta) -> str:
    """Return a duration in its two largest units: 0.25 s, 12 s, 3 min 20 s, 2 d 4 h."""
    seconds = taken.total_seconds()
    if seconds < 0:
        return f"-{duration(-taken)}"
    if seconds < 9.95:
        return (
            f"{seconds:.2f}".rstrip("0").rstrip(".") + " s" if seconds >= 0.005 or not seconds else "< 0.01 s"
        )
    whole = round(seconds)
    for size, name, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def instant(moment: datetime | None) -> str:
    """Return a moment to the minute in UTC: 2026-03-01 14:05 UTC."""
    if moment is None:
        return _UNKNOWN
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def day(moment: datetime) -> str:
    """Return the day of a moment in UTC: 2026-03-01."""
    return f"{moment.astimezone(UTC):%Y-%m-%d}"


def difference(before: int, after: int, *, is_bytes: bool = False) -> str:
    """Return what changed with its sign: +3, -1.2 GB, or ±0."""
    if before == after:
        return "±0"
    change = after - before
    text = in_bytes(abs(change)) if is_bytes else short_count(abs(change))
    return f"{'+' if change > 0 else '−'}{text}"


def _scaled(number: int, units: tuple[str, ...]) -> str:
    """Return three digits at most, and never 1000 of a unit while there is a larger one."""
    sign, size, unit = "-" if number < 0 else "", float(abs(number)), 0
    while unit + 1 < len(units) and size >= (999.5 if unit else 1000):
        size, unit = size / 1000, unit + 1
    gap = " " if units[0] else ""
    if not unit:
        return f"{sign}{int(size)}{gap}{units[0]}"
    if size >= 1000:
        return f"{sign}{size:.1e}{units[unit] if not gap else gap + units[unit]}"
    digits = f"{size:.2f}" if size < 9.995 else f"{size:.1f}" if size < 99.95 else f"{size:.0f}"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{sign}{digits}{gap}{units[unit]}"
