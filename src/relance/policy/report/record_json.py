"""A run's record as JSON and back. Pure.

The form follows the record's own fields, so a field cannot be forgotten; a document in the tests holds it
still. Within one format fields are only added: a reader skips those it does not know, and takes the default
of those that an older writer did not have. Moments are ISO 8601 in UTC, durations whole microseconds.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from relance.errors import InvalidInputError
from relance.policy.records import RunRecord

FORMAT = 1
"""Raised when a reader of the last format could misread the new one."""

_MICROSECOND = timedelta(microseconds=1)
_Value = TypeVar("_Value")


def to_json(record: RunRecord) -> dict[str, Any]:
    """Return the record as values that `json.dumps` takes; `from_json` gives an equal record back."""
    return {"format": FORMAT, **_encode(record)}


def from_json(document: Any) -> RunRecord:
    """Return the record that `to_json` made this document of.

    Raises:
        InvalidInputError: it is not a run's record, or of a newer format.
    """
    if not isinstance(document, dict) or "format" not in document:
        raise InvalidInputError("this is not the record of a run: give one that relance saved")
    if document["format"] != FORMAT:
        raise InvalidInputError(
            f"the run's record has format {document['format']!r} and this release reads {FORMAT}: "
            "read it with the release that wrote it, or a newer one"
        )
    record = _decode(RunRecord, document, "record")
    assert isinstance(record, RunRecord)
    return record


def _encode(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _encode(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if isinstance(value, Mapping):
        return {key: _encode(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [_encode(each) for each in value]
    return value


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
            raise InvalidInputError(f"the run's record lacks {path}.{each.name}: give one that relance saved")
    return wanted(**known)


@cache
def _shape(wanted: Any) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(wanted)
    return tuple((each, hints[each.name]) for each in fields(wanted))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("without a time zone")
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
    return InvalidInputError(
        f"the run's record cannot be read: {path} is {str(value)[:80]!r}; give one that relance saved"
    )
