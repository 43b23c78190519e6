"""Durations, sizes and instants: the only module that reads them from text or prints them. Pure.

A number needs a unit: `128MB` is 128,000,000 bytes and `128MiB` is 134,217,728, `7d` is a week. Everything
that prints or draws a figure takes its words from here; files for machines hold the plain numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from relance.errors import InvalidInputError

LONGEST = timedelta(days=365_000)
"""Longer than anything is kept, and short enough to be added to any time of our centuries."""

_DURATION = re.compile(r"0|(?:[0-9]+(?:\.[0-9]+)?\s*(?:ms|min|[wdhms])\s*)+", re.ASCII)
"""Zero is the same in every unit. The JSON schema of policy files has a narrower form."""

_DURATION_PART = re.compile(r"([0-9.]+)\s*(ms|min|[wdhms])", re.ASCII)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe]?)(i?)b", re.ASCII)
_BARE = re.compile(r"[+-]?[0-9][0-9_.,]*")

_SECONDS = {
    "w": Fraction(604_800),
    "d": Fraction(86_400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "min": Fraction(60),  # as durations are printed
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_MOST_BYTES = 2**63 - 1
_MICROSECOND = timedelta(microseconds=1)
_MOST_CHARACTERS = 100

_USE_DURATION = "use a value such as 7d, 12h, 30m or 90s"
_USE_SIZE = "use a value such as 500GB or 128MiB"
_USE_INSTANT = "use a time such as 2026-03-01 or 2026-03-01T12:00:00Z"

# The names and lengths of Lance's parser, which is the Rust crate humantime; letter case counts: m is a
# minute and M a month.
_LANCE_SECONDS: dict[str, Fraction] = {
    name: Fraction(seconds)
    for names, seconds in (
        ("nanos nsec ns", Fraction(1, 1_000_000_000)),
        ("usec us µs", Fraction(1, 1_000_000)),
        ("millis msec ms", Fraction(1, 1000)),
        ("seconds second secs sec s", 1),
        ("minutes minute mins min m", 60),
        ("hours hour hrs hr h", 3600),
        ("days day d", 86_400),
        ("weeks week wks wk w", 7 * 86_400),
        ("months month M", 2_630_016),
        ("years year yrs yr y", 31_557_600),
    )
    for name in names.split()
}
_LANCE_NUMBER = r"[0-9][0-9\s]*(?:\.[0-9][0-9\s]*)?"
_LANCE_NAMES = "|".join(sorted(_LANCE_SECONDS, key=len, reverse=True))
_LANCE_PART = re.compile(rf"({_LANCE_NUMBER})({_LANCE_NAMES})(?![A-Za-zµ])\s*")

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_COUNT_UNITS = ("", " k", " M", " bn", " tn")
_EXACT_BELOW = 10_000_000
_UNKNOWN = "–"


def parse_duration(text: str, *, what: str, longest: timedelta = LONGEST) -> timedelta:
    """Return the span that a text such as `7d`, `12h`, `1.5h` or `1d 6h` means, rounded down to microseconds.

    A message starts with `what`, the setting's name; callers that put the name in front themselves pass "".

    Raises:
        InvalidInputError: it means none, has no unit, or is more than `longest`.
    """
    plain = text.strip().lower()
    if len(plain) <= _MOST_CHARACTERS and _DURATION.fullmatch(plain):
        parts = _DURATION_PART.findall(plain)
        seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
        return _span(seconds, text, what=what, longest=longest)
    if _BARE.fullmatch(plain):
        raise _error(what, f"has no unit: {_shown(text)}; {_USE_DURATION} (units: w, d, h, m, s, ms)")
    raise _error(what, f"is not a duration: {_shown(text)}; {_USE_DURATION}")


def parse_ttl_ms(text: str, *, what: str) -> timedelta:
    """Return the span of a request's `ttl_ms`: a number of milliseconds, or a duration with a unit.

    Raises:
        InvalidInputError: it is neither, or out of range.
    """
    plain = text.strip()
    if len(plain) <= _MOST_CHARACTERS and plain.isascii() and plain.isdecimal():
        return _span(Fraction(int(plain), 1000), text, what=what, longest=LONGEST)
    return parse_duration(text, what=what)


def parse_lance_duration(text: str, *, what: str) -> timedelta:
    """Return the span that Lance reads in a text such as `14days` or `1day 2h`, to the microsecond.

    Raises:
        InvalidInputError: Lance reads none, or it is out of range.
    """
    parts, at = [], len(text) - len(text.lstrip())
    while part := _LANCE_PART.match(text, at):
        parts.append(("".join(part[1].split()), _LANCE_SECONDS[part[2]]))
        at = part.end()
    if text != "0" and (at < len(text) or not text.strip()):
        raise _error(
            what,
            f"is none of Lance's durations: {_shown(text)}. Lance cleans up nothing until set_auto_cleanup "
            "sets a duration such as 14days, or None",
        )
    try:
        seconds = sum((Fraction(number) * unit for number, unit in parts), Fraction(0))
    except ValueError:  # int() refuses thousands of digits
        raise _out_of_range(what, text) from None
    return _span(seconds, text, what=what, longest=LONGEST)


def require_duration(span: timedelta, *, what: str, longest: timedelta = LONGEST) -> timedelta:
    """Return a span that a caller gave.

    Raises:
        InvalidInputError: it is no timedelta, is negative, or is more than `longest`.
    """
    if not isinstance(span, timedelta):
        raise InvalidInputError(f"{what} must be a timedelta, got {span!r}")
    if span < timedelta(0):
        raise InvalidInputError(f"{what} must not be negative, got {span}")
    if span > longest:
        raise _out_of_range(what, str(span), longest)
    return span


def parse_size(text: str, *, what: str) -> int:
    """Return the bytes that a text such as `500GB` (of 1000) or `128MiB` (of 1024) means, rounded down.

    Raises:
        InvalidInputError: it means none, has no unit, or is more than 2**63 - 1.
    """
    plain = text.strip().lower()
    if len(plain) <= _MOST_CHARACTERS and (found := _SIZE.fullmatch(plain)):
        number, power, binary = found.groups()
        size = int(Fraction(number) * (1024 if binary else 1000) ** _POWERS[power])
        if size > _MOST_BYTES:
            raise _error(what, f"is out of range: {_shown(text)}; use at most {_MOST_BYTES}B")
        return size
    if _BARE.fullmatch(plain):
        raise _error(
            what, f"has no unit: {_shown(text)}; {_USE_SIZE} (units: B, kB, MB, GB, KiB, MiB, GiB, …)"
        )
    raise _error(what, f"is not a size: {_shown(text)}; {_USE_SIZE}")


def parse_instant(text: str, *, what: str) -> datetime:
    """Return the moment of an ISO 8601 text, or of one that was printed here; without a zone it is in UTC.

    Raises:
        InvalidInputError: it is none, or no clock shows it.
    """
    plain = text.strip().removesuffix(" UTC")
    try:
        if plain.isdecimal():
            raise ValueError("a number of seconds, or of milliseconds?")
        moment = datetime.fromisoformat(plain)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _error(what, f"is not a time: {_shown(text)}; {_USE_INSTANT}") from None


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
    """Return a duration in its two largest units, for reading: 0.25 s, 12 s, 3 min 20 s, 2 d 4 h."""
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


def exact_duration(span: timedelta) -> str:
    """Return a duration as a setting holds it, which parse_duration turns into an equal one: 1d6h, 1500ms.

    Less than a millisecond is a fraction of one.
    """
    text, rest = "", span // _MICROSECOND
    for unit, length in (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)):
        number, rest = divmod(rest, length)
        text += f"{number}{unit}" if number else ""
    if rest:
        text += f"{rest // 1000}" + (f".{rest % 1000:03}" if rest % 1000 else "") + "ms"
    return text or "0s"


def lance_duration(span: timedelta) -> str:
    """Return a duration as Lance's config holds it: 1209600s, or 1500000us."""
    micros = span // _MICROSECOND
    return f"{micros}us" if micros % 1_000_000 else f"{micros // 1_000_000}s"


def instant(moment: datetime | None) -> str:
    """Return a moment to the minute in UTC: 2026-03-01 14:05 UTC."""
    if moment is None:
        return _UNKNOWN
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def instant_to_second(moment: datetime) -> str:
    """Return a moment to the second in UTC: 2026-03-01 14:05:09 UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


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


def _span(seconds: Fraction, text: str, *, what: str, longest: timedelta) -> timedelta:
    try:
        span = seconds * 1_000_000 // 1 * _MICROSECOND
    except OverflowError:
        raise _out_of_range(what, text, longest) from None
    if span > longest:
        raise _out_of_range(what, text, longest)
    return span


def _out_of_range(what: str, text: str, longest: timedelta = LONGEST) -> InvalidInputError:
    return _error(what, f"is out of range: {_shown(text)}; use at most {longest.days}d")


def _error(what: str, complaint: str) -> InvalidInputError:
    return InvalidInputError(f"{what} {complaint}".lstrip())


def _shown(text: str) -> str:
    """Return a text in quotes; one of any length is shown briefly."""
    return repr(text if len(text) <= 40 else text[:40] + "…")
