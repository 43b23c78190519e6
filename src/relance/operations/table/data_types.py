"""From the JSON of a data type to the Arrow type: what arrow_json writes, read back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from relance.errors import InvalidInputError

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "utf8": pa.string(),
    "string": pa.string(),
    "large_utf8": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
}
_TIMES = frozenset({"time32", "time64", "timestamp", "duration"})
_UNITS = frozenset({"s", "ms", "us", "ns"})
_DECIMALS = {"decimal128": pa.decimal128, "decimal256": pa.decimal256}
_PRECISION_FACTOR = 1000


def parse_data_type(data: Mapping[str, Any]) -> pa.DataType:
    """Return the Arrow type that `{"type": …, "length": …, "fields": …}` describes.

    The JSON form has no place for units; types of time take `unit` and `timezone` besides.

    Raises:
        InvalidInputError: it describes none, or leaves out a part.
    """
    name = str(data.get("type", "")).lower()
    try:
        found = _PLAIN.get(name) or _parse(name, data)
    except KeyError as cause:
        raise InvalidInputError(f"data type {dict(data)!r}: {cause} is missing") from cause
    except (ValueError, TypeError, pa.ArrowException) as cause:
        raise InvalidInputError(f"data type {dict(data)!r}: {cause}") from cause
    if found is None:
        raise InvalidInputError(f"unknown data type {dict(data)!r}")
    return found


def _parse(name: str, data: Mapping[str, Any]) -> pa.DataType | None:
    if name in _TIMES:
        return _time(name, data)
    if name in _DECIMALS:
        precision, scale = divmod(_length(data), _PRECISION_FACTOR)
        return _DECIMALS[name](precision, scale)
    if name == "fixed_size_binary":
        return pa.binary(_length(data))
    if name == "fixed_size_list":
        return pa.list_(_child(data), _length(data))
    if name == "list":
        return pa.list_(_child(data))
    if name == "large_list":
        return pa.large_list(_child(data))
    if name == "struct":
        return pa.struct([_field(each) for each in data["fields"]])
    return None


def _time(name: str, data: Mapping[str, Any]) -> pa.DataType:
    unit = data.get("unit")
    if unit not in _UNITS:
        raise InvalidInputError(
            f"data type {name} requires a unit, one of {', '.join(sorted(_UNITS))}; got {unit!r}"
        )
    if name == "timestamp":
        return pa.timestamp(unit, data.get("timezone"))
    if name == "duration":
        return pa.duration(unit)
    return pa.time32(unit) if name == "time32" else pa.time64(unit)


def _length(data: Mapping[str, Any]) -> int:
    length = int(data["length"])
    if length < 0:
        raise InvalidInputError(f"data type {dict(data)!r}: length must not be negative")
    return length


def _child(data: Mapping[str, Any]) -> pa.Field:
    (only,) = data["fields"]
    return _field(only)


def _field(data: Mapping[str, Any]) -> pa.Field:
    return pa.field(str(data["name"]), parse_data_type(data["type"]), bool(data.get("nullable", True)))
