"""Values of single keys of a policy file: checked, and turned into what the model holds. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from relance.config import parse_duration
from relance.errors import InvalidInputError
from relance.policy.file.keys import Holds, Key
from relance.policy.file.problems import shown

Value = bool | int | float | str | timedelta

_MAX_DURATION = timedelta(days=36_500)
_MAX_TEXT = 10_000
_MAX_COUNT = 2**63 - 1
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgtp]?)(i?)b", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


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
            return _at_least(_bytes(value), key.minimum)
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
    """Return a span of time; unlike elsewhere, it must have a unit.

    Raises:
        InvalidInputError: it is none, or has none, or is absurdly long.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"must be {Holds.DURATION}, got {shown(text)}")
    # A bare number is milliseconds elsewhere; "7" in a policy is more likely to mean days.
    if text.strip().isdecimal():
        raise InvalidInputError(f"has no unit: {shown(text)}; use a value such as 7d, 12h, 30m or 90s")
    try:
        if len(text) > 100:
            raise InvalidInputError("")
        span = parse_duration(text, what="it", longest=timedelta.max)
    except InvalidInputError:
        raise InvalidInputError(
            f"is not a duration: {shown(text)}; use a value such as 7d, 12h, 30m or 90s"
        ) from None
    if span > _MAX_DURATION:
        raise InvalidInputError(f"is longer than 100 years: {shown(text)}")
    return span


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"is not a size: {shown(text)}; use a value such as 500GB or 128MiB")
    number, power, binary = found.groups()
    return int(Decimal(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])
