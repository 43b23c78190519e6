"""Predicates that depend on the time of the run: it is written into them, so that a plan can wait. Pure.

Lance knows `now()` and no intervals: `now() - interval '90 days'` becomes one literal here.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from relance.errors import InvalidInputError

_TOKEN = re.compile(
    r"""(?P<string>'(?:[^']|'')*+')
      | (?P<name>`(?:[^`]|``)*+`)
      | (?P<other>"(?:[^"]|"")*+")
      | (?P<gap>(?:\s|--[^\n]*+|/\*.*?\*/)++)
      | (?P<word>[^\W\d]\w*+)
      | (?P<number>\d[\w.]*+)
      | (?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_MOMENTS = {"now": False, "current_timestamp": True, "current_date": True, "today": False}
"""What stands for the time of the run, and whether it can stand without brackets."""

_QUOTES = {"'", '"', "`"}
_DATES = {"current_date", "today"}
_UNSTEADY = {"random", "uuid"}
_AMOUNT = re.compile(r"\s*([0-9]{1,9})\s*([a-z]+)\s*", re.ASCII)
_AGE = re.compile(
    r"(?P<column>\w+|`[^`]+`)\s*<\s*now\(\)\s*-\s*interval\s+"
    r"'\s*(?P<number>[0-9]{1,9})\s*(?P<unit>second|minute|hour|day|week)s?\s*'",
    re.ASCII | re.IGNORECASE,
)
_UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_MONTHS = {"month": 1, "year": 12}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class _Span:
    """An interval, with its sign."""

    months: int
    rest: timedelta


@dataclass(frozen=True, slots=True)
class _Moment:
    """A part of a predicate that depends on the time of the run."""

    start: int
    end: int
    is_date: bool
    spans: tuple[_Span, ...]

    def literal(self, now: datetime) -> str:
        moment = now.astimezone(UTC)
        if self.is_date:
            moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        for span in self.spans:
            moment = _shifted(moment, span)
        if self.is_date and not any(span.rest % timedelta(days=1) for span in self.spans):
            return f"date '{moment.date().isoformat()}'"
        # A bare timestamp literal has no zone in Lance: compared with a column in a zone west of UTC, it
        # would select rows that are hours too young.
        return _instant(moment)


def depends_on_time(predicate: str) -> bool:
    """Tell whether a predicate selects other rows at another time.

    Raises:
        InvalidInputError: an interval in it cannot be worked out.
    """
    return next(_moments(_tokens(predicate)), None) is not None


@lru_cache(maxsize=256)  # a rule's predicate is the same for each of its tables
def pin_time(predicate: str, now: datetime) -> str:
    """Return the predicate with `now` written into it, in UTC, wherever it depends on the time of the run.

    Raises:
        InvalidInputError: an interval in it cannot be worked out, or leads to a time that no clock shows.
    """
    pieces, position = [], 0
    for moment in _moments(_tokens(predicate)):
        pieces += [predicate[position : moment.start], moment.literal(now)]
        position = moment.end
    return "".join([*pieces, predicate[position:]])


def older_rows(column: str, now: datetime, span: timedelta) -> str:
    """Return the predicate of rows that are older than a span by a timestamp or date column.

    Raises:
        InvalidInputError: the span leads to a time that no clock shows.
    """
    try:
        moment = now.astimezone(UTC) - span
    except OverflowError:
        raise InvalidInputError("older_than is out of range") from None
    return f"`{column.replace('`', '``')}` < {_instant(moment)}"


def age_of(predicate: str) -> tuple[str, str] | None:
    """Return the column and the duration of a predicate such as `ts < now() - interval '90 days'`."""
    found = _AGE.fullmatch(predicate.strip())
    if found is None:
        return None
    column = found["column"].removeprefix("`").removesuffix("`")
    return column, f"{found['number']}{found['unit'][0].lower()}"


def _instant(moment: datetime) -> str:
    """Return the literal of a moment in UTC."""
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"arrow_cast('{text}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def check_predicate(predicate: str, time_column: str | None) -> None:
    """See that a predicate can be pinned, and that its time column is named where it must be, and is in it.

    Raises:
        InvalidInputError: it cannot, or it is not.
    """
    tokens = _tokens(predicate)
    for token in tokens:
        if token.kind == "sign" and token.text in {"'", '"', "`"}:
            raise InvalidInputError(f"unclosed quote: {predicate!r}")
        if token.kind == "sign" and token.text == ";":
            raise InvalidInputError(f"must be a single expression without a semicolon: {predicate!r}")
    for position, token in enumerate(tokens):
        is_call = _text(tokens, position + 1) == "("
        if token.word == "current_time" or (token.word in _UNSTEADY and is_call):
            raise InvalidInputError(f"{token.text} gives a different result in each run; use now()")
    pin_time(predicate, datetime(2026, 1, 1, tzinfo=UTC))
    if time_column is None and depends_on_time(predicate):
        raise InvalidInputError("depends on the current time: set time_column to the column it compares")
    if time_column is not None and time_column not in _columns(tokens):
        raise InvalidInputError(f"does not use the time_column {time_column!r}")


def _columns(tokens: Sequence[_Token]) -> set[str]:
    return {
        token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text
        for token in tokens
        if token.kind in {"name", "word"}
    }


def _tokens(predicate: str) -> list[_Token]:
    found = [
        _Token(str(each.lastgroup), each[0], each.start(), each.end())
        for each in _TOKEN.finditer(predicate)
        if each.lastgroup != "gap"
    ]
    for token in found:
        # With a time written in after it, another quote would end it, and the predicate mean something else.
        if token.kind == "sign" and token.text in _QUOTES:
            raise InvalidInputError(f"unclosed {token.text} in the predicate: {predicate[token.start :]}")
    return found


def _moments(tokens: Sequence[_Token]) -> Iterator[_Moment]:
    position = 0
    while position < len(tokens):
        token = tokens[position]
        after = _after_moment(tokens, position)
        if after is None:
            if token.word == "interval" and _kind(tokens, position + 1) in {"string", "number"}:
                raise InvalidInputError(
                    "an interval can only be added to or subtracted from now() or current_date, "
                    "as in ts < now() - interval '90 days'"
                )
            position += 1
            continue
        spans: list[_Span] = []
        while (found := _span(tokens, after)) is not None:
            span, after = found
            spans.append(span)
        if spans and _text(tokens, after) in {"*", "/", "%", ":"}:
            raise InvalidInputError(f"an interval cannot be followed by {_text(tokens, after)!r}")
        yield _Moment(token.start, tokens[after - 1].end, token.word in _DATES, tuple(spans))
        position = after


def _after_moment(tokens: Sequence[_Token], position: int) -> int | None:
    """Return where the tokens go on after `now()` or its like; None when there is none here."""
    word = tokens[position].word
    if word not in _MOMENTS or (position and tokens[position - 1].text == "."):
        return None
    if _text(tokens, position + 1) == "(" and _text(tokens, position + 2) == ")":
        return position + 3
    if not _MOMENTS[word] or _text(tokens, position + 1) in {"(", "."}:
        return None
    return position + 1


def _span(tokens: Sequence[_Token], position: int) -> tuple[_Span, int] | None:
    """Return the interval that is added or taken here, and where the tokens go on."""
    sign = {"+": 1, "-": -1}.get(_text(tokens, position))
    if sign is None or _text(tokens, position + 1).lower() != "interval":
        return None
    kind, text = _kind(tokens, position + 2), _text(tokens, position + 2)
    if kind not in {"string", "number"}:
        return None
    amount = text[1:-1] if kind == "string" else text
    end = position + 3
    if amount.strip().isdecimal():  # as in interval '90' day
        amount, end = f"{amount} {_text(tokens, end)}", end + 1
    return _parsed_span(amount.lower(), sign), end


def _parsed_span(text: str, sign: int) -> _Span:
    months, rest, position = 0, timedelta(), 0
    while found := _AMOUNT.match(text, position):
        number, unit = int(found[1]) * sign, found[2].removesuffix("s")
        if unit in _MONTHS:
            months += number * _MONTHS[unit]
        elif unit in _UNITS:
            try:
                rest += number * _UNITS[unit]
            except OverflowError:
                raise InvalidInputError(f"interval {text!r} is too long") from None
        else:
            break
        position = found.end()
    if not text or position != len(text):
        raise InvalidInputError(f"invalid interval {text!r}: use a form such as interval '90 days'")
    return _Span(months, rest)


def _shifted(moment: datetime, span: _Span) -> datetime:
    try:
        year, month = divmod(moment.year * 12 + moment.month - 1 + span.months, 12)
        day = min(moment.day, monthrange(year, month + 1)[1])
        return moment.replace(year=year, month=month + 1, day=day) + span.rest
    except (OverflowError, ValueError):
        raise InvalidInputError("interval out of range") from None


def _text(tokens: Sequence[_Token], position: int) -> str:
    return tokens[position].text if position < len(tokens) else ""


def _kind(tokens: Sequence[_Token], position: int) -> str:
    return tokens[position].kind if position < len(tokens) else ""
