"""Values of single keys of a policy file: checked, and turned into what the model holds. Pure."""

from __future__ import annotations

from datetime import timedelta

from relance.errors import InvalidInputError
from relance.policy.file.keys import Holds, Key
from relance.policy.file.problems import shown
from relance.units import parse_duration, parse_size

Value = bool | int | float | str | timedelta

_MAX_DURATION = timedelta(days=36_500)
_MAX_TEXT = 10_000
_MAX_COUNT = 2**63 - 1


def read_value(key: Key, value: object) -> Value:
    """Return what a key holds.

    Raises:
        InvalidInputError: it must not hold this; the message goes on after the key's name.
    """
    if isinstance(value, bool):
        if key.holds is Holds.FLAG:
            return value
    elif isinstance(value, str):
        if key.holds is Holds.TEXT:
            return read_text(value)
        if key.holds is Holds.DURATION:
            return read_duration(value)
        if key.holds is Holds.SIZE:
            return _at_least(parse_size(value, what=""), key.minimum)
    elif isinstance(value, int) and key.holds in {Holds.COUNT, Holds.SIZE}:
        return _at_least(value, key.minimum)
    elif isinstance(value, int | float) and key.holds is Holds.SHARE:
        if not 0 <= value <= 1:
            raise InvalidInputError(f"must be between 0 and 1, got {shown(value)}")
        return float(value)
    raise InvalidInputError(f"must be {key.holds}, got {shown(value)}")


def read_text(value: str) -> str:
    """Return a text that holds something and that a person can read.

    Raises:
        InvalidInputError: it does not.
    """
    if not value.strip():
        raise InvalidInputError("must not be empty")
    if len(value) > _MAX_TEXT:
        raise InvalidInputError(f"has {len(value)} characters; at most {_MAX_TEXT} are allowed")
    if "\0" in value:
        raise InvalidInputError("must not contain the character U+0000")
    return value


def _at_least(value: int, minimum: int) -> int:
    if value < minimum:
        raise InvalidInputError(f"must be at least {minimum}, got {shown(value)}")
    if value > _MAX_COUNT:
        raise InvalidInputError(f"must be at most {_MAX_COUNT}, got {shown(value)}")
    return value


def read_count(value: object) -> int:
    """Return a whole number from 1 on.

    Raises:
        InvalidInputError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"must be {Holds.COUNT}, got {shown(value)}")
    return _at_least(value, 1)


def read_duration(text: object) -> timedelta:
    """Return a span of time.

    Raises:
        InvalidInputError: it is none, or has none, or is absurdly long.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"must be {Holds.DURATION}, got {shown(text)}")
    return parse_duration(text, what="", longest=_MAX_DURATION)
