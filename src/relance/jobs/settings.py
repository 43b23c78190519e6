"""The values that settings of jobs hold: what is accepted, JSON schema, and how they are written. Pure.

A setting is read in the same way from a policy file, a command line, a saved plan and Python, so `true` is
never taken for 1 and "7" never for a span of time.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic_core import CoreSchema, core_schema

from relance.clock import require_moment
from relance.errors import InvalidInputError
from relance.units import exact_duration, parse_duration, parse_instant, parse_size, require_duration

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic.fields import FieldInfo

_MAX_DURATION = timedelta(days=36_500)
_MAX_TEXT = 10_000
_MAX_COUNT = 2**63 - 1
_SHOWN = 80

T = TypeVar("T")


class SettingError(ValueError):
    """A value that cannot be used; the message goes on after the name of its setting, `key` if it has one."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.key = key


@dataclass(frozen=True, eq=False, repr=False)
class Value:
    """What a setting may hold, as a part of its type."""

    name: str
    """In complaints: must be …"""
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    """As JSON schema."""
    write: Callable[[Any], Any] | None = None
    """How JSON holds it, where it is not the value itself."""
    metavar: str = "TEXT"
    """On the command line."""

    def __repr__(self) -> str:
        return f"Value({self.name!r})"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = None
        if self.write is not None:
            written = core_schema.plain_serializer_function_ser_schema(
                self.write, when_used="json-unless-none"
            )
        return core_schema.no_info_plain_validator_function(self.read, serialization=written)

    def parse(self, text: str) -> Any:
        """Return the value that a text on a command line means.

        Raises:
            SettingError: it means none.
        """
        if (
            self in (COUNT, AMOUNT, RATE, SIZE, LARGE_SIZE)
            and text.strip().lstrip("+-").isdecimal()
            and len(text) < 40
        ):
            return self.read(int(text))
        if self in (RATE, SHARE):
            try:
                return self.read(float(text))
            except ValueError as error:
                raise error if isinstance(error, SettingError) else self.refusal(text) from None
        if self is MOMENT:
            return _of_text(parse_instant, text)  # a person who types a day means it in UTC
        return self.read(text)

    def refusal(self, value: object) -> SettingError:
        """Return the complaint about a value of another type."""
        return SettingError(f"must be {self.name}, got {shown(value)}")


def shown(value: object) -> str:
    """Return a value as it is shown in a complaint: in one line, and not too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number with more than 64 bits"
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value[: _SHOWN + 1]) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _of_text(parse: Callable[..., T], text: str) -> T:
    """Return what a text means.

    Raises:
        SettingError: it means nothing.
    """
    try:
        return parse(text, what="")
    except InvalidInputError as error:
        raise SettingError(error.detail) from None


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise FLAG.refusal(value)


def _whole(value: object, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise COUNT.refusal(value)
    if value < minimum:
        raise SettingError(f"must be at least {minimum}, got {shown(value)}")
    if value > _MAX_COUNT:
        raise SettingError(f"must be at most {_MAX_COUNT}, got {shown(value)}")
    return value


def _rate(value: object) -> float:
    if isinstance(value, float):
        if not 0 < value <= _MAX_COUNT:
            raise SettingError(f"must be above 0, got {shown(value)}")
        return value
    return _whole(value, 1)


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SHARE.refusal(value)
    if not 0 <= value <= 1:
        raise SettingError(f"must be between 0 and 1, got {shown(value)}")
    return float(value)


def _size(value: object, minimum: int) -> int:
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int):
            raise SIZE.refusal(value)
        return _whole(value, minimum)
    return _whole(_of_text(parse_size, value), minimum)


def read_text(value: object) -> str:
    """Return a text that holds something and that a person can read."""
    if not isinstance(value, str):
        raise TEXT.refusal(value)
    if not value.strip():
        raise SettingError("must not be empty")
    if len(value) > _MAX_TEXT:
        raise SettingError(f"has {len(value)} characters; at most {_MAX_TEXT} are allowed")
    if "\0" in value:
        raise SettingError("must not contain the character U+0000")
    return value


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        try:
            return require_duration(value, what="the duration")
        except InvalidInputError as error:
            raise SettingError(error.detail.removeprefix("the duration ")) from None
    if not isinstance(value, str):
        raise DURATION.refusal(value)
    return _of_text(partial(parse_duration, longest=_MAX_DURATION), value)


def _duration_text(value: object) -> str:
    _duration(value)
    if not isinstance(value, str):
        raise DURATION.refusal(value)
    return value.strip()


def _assignments(value: object) -> dict[str, str]:
    texts = isinstance(value, Mapping) and all(
        isinstance(each, str) for pair in value.items() for each in pair
    )
    if not texts:
        raise ASSIGNMENTS.refusal(value)
    if not value:
        raise SettingError("needs at least one column")
    return dict(value)  # type: ignore[call-overload, no-any-return]  # looked at above


def _moment(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise MOMENT.refusal(value) from None
    try:
        return require_moment(moment, what="it")  # type: ignore[arg-type]  # it says what it must be
    except InvalidInputError as error:
        raise SettingError(error.detail.removeprefix("it ")) from None


def moment_text(moment: datetime) -> str:
    """Return a moment as plans and reasons show it: ISO 8601 in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds" if not moment.microsecond else "microseconds")


_DURATION_SCHEMA = {"type": "string", "pattern": r"^\s*([0-9]+\s*(ms|[wdhmsWDHMS])\s*)+$"}
_SIZE_TEXT = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[kmgtpKMGTP]?[iI]?[bB]\s*$"}
_FROM_1 = {"type": "integer", "minimum": 1}
_FROM_0 = {"type": "integer", "minimum": 0}

FLAG = Value("true or false", _flag, {"type": "boolean"})
COUNT = Value("a whole number", lambda value: _whole(value, 1), _FROM_1, metavar="N")
AMOUNT = Value("a whole number", lambda value: _whole(value, 0), _FROM_0, metavar="N")
RATE = Value("a whole number", _rate, _FROM_1, metavar="N")
SHARE = Value("a number from 0 to 1", _share, {"type": "number", "minimum": 0, "maximum": 1}, metavar="N")
SIZE = Value(
    "a number of bytes, or a size like 500GB or 128MiB",
    lambda value: _size(value, 1),
    {"oneOf": [_FROM_1, _SIZE_TEXT]},
    metavar="SIZE",
)
LARGE_SIZE = Value(SIZE.name, lambda value: _size(value, 0), {"oneOf": [_FROM_0, _SIZE_TEXT]}, metavar="SIZE")
TEXT = Value("a string", read_text, {"type": "string", "minLength": 1})
DURATION = Value(
    "a duration like 7d, 12h or 1d 6h", _duration, _DURATION_SCHEMA, exact_duration, metavar="DURATION"
)
DURATION_TEXT = Value(DURATION.name, _duration_text, _DURATION_SCHEMA, metavar="DURATION")
MOMENT = Value(
    "a time with a time zone, such as 2026-03-01T12:00:00+00:00",
    _moment,
    {"type": "string", "format": "date-time"},
    moment_text,
    metavar="TIME",
)
ASSIGNMENTS = Value(
    "an expression for each column",
    _assignments,
    {"type": "object", "additionalProperties": {"type": "string"}},
    metavar="COLUMN=EXPRESSION",
)

Flag = Annotated[bool, FLAG]
Count = Annotated[int, COUNT]
Amount = Annotated[int, AMOUNT]
"""A count that may be 0."""
Rate = Annotated[float, RATE]
Share = Annotated[float, SHARE]
Size = Annotated[int, SIZE]
LargeSize = Annotated[int, LARGE_SIZE]
"""A size that may be 0."""
Text = Annotated[str, TEXT]
Duration = Annotated[timedelta, DURATION]
DurationText = Annotated[str, DURATION_TEXT]
"""A duration that is kept as it was written."""
Moment = Annotated[datetime, MOMENT]
Assignments = Annotated[Mapping[str, str], ASSIGNMENTS]


def in_hours(span: timedelta) -> str:
    """Return a default as the schema and the reference have it: minimum ages are said in hours."""
    return f"{span // timedelta(hours=1)}h"


def value_of(field: FieldInfo) -> Value | None:
    """Return what a field may hold; None for one that only Python can set."""
    return next(
        (each for each in (*field.metadata, *_inside(field.annotation)) if isinstance(each, Value)), None
    )


def _inside(annotation: Any) -> list[Any]:
    """Return what is noted on the type beside None of an optional one."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return []
    return [
        note for each in get_args(annotation) if get_origin(each) is Annotated for note in each.__metadata__
    ]
