"""The values of a run as JSON, and back: for saved plans, the journal and the history. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from relance.errors import InvalidInputError

_T = TypeVar("_T")

_hints: dict[type, dict[str, Any]] = {}


def to_json(value: Any) -> Any:
    """Return a value as JSON holds it; fields that have their default are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: to_json(found)
            for each in fields(value)
            if each.default != (found := getattr(value, each.name))
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1)
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return value


def from_json(kind: type[_T], value: Any) -> _T:
    """Return the value of a type that JSON holds.

    Raises:
        InvalidInputError: it is not one of these.
    """
    try:
        found: _T = _from(kind, value)
    except (TypeError, ValueError, KeyError, AttributeError) as cause:
        raise InvalidInputError(f"this is no {kind.__name__}: {cause}") from cause
    return found


def _from(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _from_union(get_args(kind), value)
    if origin is tuple:
        return _from_tuple(get_args(kind), value)
    if origin is not None:  # a mapping of settings
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is no mapping")
        return dict(value)
    if is_dataclass(kind):
        hints = _hints_of(kind)  # type: ignore[arg-type]  # a class: values were asked for by type
        return kind(**{name: _from(hints[name], each) for name, each in value.items()})  # type: ignore[operator]
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is timedelta:
        return timedelta(microseconds=value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _from_union(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    (kind,) = (each for each in kinds if each is not type(None))
    return _from(kind, value)


def _from_tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_from(kinds[0], each) for each in value)
    return tuple(_from(kind, each) for kind, each in zip(kinds, value, strict=True))


def _hints_of(kind: type) -> dict[str, Any]:
    if kind not in _hints:
        _hints[kind] = get_type_hints(kind)
    return _hints[kind]


def dumps(value: Any) -> str:
    """Return JSON text that is the same for the same value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """Return what tells a text from any other."""
    return hashlib.sha256(text.encode()).hexdigest()
