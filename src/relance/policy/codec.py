"""The values of a run as JSON, and back: for saved plans, the history and reports. Pure.

The form follows the fields of the values, so that none can be forgotten. A reader skips fields that it does
not know, and takes the default of those that are not there. Moments are ISO 8601 in UTC, durations whole
microseconds.
"""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from relance.errors import InvalidInputError
from relance.policy.actions import Unknown, known_or_text

_MICROSECOND = timedelta(microseconds=1)
_Value = TypeVar("_Value")


def encode(value: Any) -> Any:
    """Return a value as JSON holds it; `decode` gives an equal one back."""
    if is_dataclass(value):
        recorded = [each.name for each in fields(value) if each.metadata.get("recorded", True)]
        return {name: encode(getattr(value, name)) for name in recorded}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if isinstance(value, Mapping):
        return {key: encode(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [encode(each) for each in value]
    return value


def decode(kind: type[_Value], value: Any, path: str) -> _Value:
    """Return the value of a type that JSON holds; `path` is what messages call it.

    Raises:
        InvalidInputError: it is not one of these.
    """
    found = _decode(kind, value, path)
    assert isinstance(found, kind)  # by now it is one
    return found


def _decode(wanted: Any, value: Any, path: str) -> Any:
    """Return the value as the type that a field wants; `path` is where in the document it is."""
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(wanted), value, path)
    if origin is tuple:
        return _decode_tuple(get_args(wanted), value, path)
    if origin is not None:
        given = _expect(dict, value, path)
        inner = get_args(wanted)[1]
        return {key: _decode(inner, each, f"{path}.{key}") for key, each in given.items()}
    if is_dataclass(wanted):
        return _decode_fields(wanted, _expect(dict, value, path), path)
    if wanted is timedelta:
        return _converted(lambda: timedelta(microseconds=_expect(int, value, path)), value, path)
    if wanted is datetime:
        return _converted(lambda: _moment(_expect(str, value, path)), value, path)
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        return _converted(lambda: wanted(_expect(str, value, path)), value, path)
    return _expect(wanted, value, path)


def _decode_union(choices: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and types.NoneType in choices:
        return None
    others = [each for each in choices if each is not types.NoneType]
    if Unknown in others:
        return known_or_text(others[0], _expect(str, value, path))
    if len(others) == 1:
        return _decode(others[0], value, path)
    if type(value) not in others:
        raise _unusable(value, path)
    return value


def _decode_tuple(inner: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    given = _expect(list, value, path)
    kinds = [inner[0]] * len(given) if inner[-1] is ... else list(inner)
    if len(kinds) != len(given):
        raise _unusable(value, path)
    return tuple(
        _decode(kind, each, f"{path}[{at}]") for at, (kind, each) in enumerate(zip(kinds, given, strict=True))
    )


def _decode_fields(wanted: Any, given: Mapping[str, Any], path: str) -> Any:
    known = {}
    for each, hint in _shape(wanted):
        if each.name in given:
            known[each.name] = _decode(hint, given[each.name], f"{path}.{each.name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise InvalidInputError(f"{path}.{each.name} is missing: not a file that relance saved")
    return wanted(**known)


@cache
def _shape(wanted: Any) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(wanted)
    return tuple((each, hints[each.name]) for each in fields(wanted))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment.astimezone(UTC)


def _converted(convert: Callable[[], _Value], value: Any, path: str) -> _Value:
    try:
        return convert()
    except (ValueError, OverflowError) as error:
        raise _unusable(value, path) from error


def _expect(kind: type[_Value], value: Any, path: str) -> _Value:
    # JSON keeps 1 and true apart; Python's isinstance does not.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _unusable(value, path)
    return value


def _unusable(value: Any, path: str) -> InvalidInputError:
    return InvalidInputError(f"invalid {path}: {str(value)[:80]!r}; not a file that relance saved")


def dumps(value: Any) -> str:
    """Return JSON text that is the same for the same value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """Return what tells a text from any other."""
    return hashlib.sha256(text.encode()).hexdigest()
