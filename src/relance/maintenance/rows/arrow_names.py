"""What Arrow types are called in SQL, for `arrow_cast`. Pure."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

_PLAIN = {
    pa.bool_(): "Boolean",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.float16(): "Float16",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "Utf8",
    pa.large_string(): "LargeUtf8",
    pa.binary(): "Binary",
    pa.large_binary(): "LargeBinary",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def arrow_name(kind: pa.DataType) -> str | None:
    """Return the name of a type; None when it has none that is known here."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if types.is_timestamp(kind):
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return f"Timestamp({_UNITS[kind.unit]}, {zone})"
    if types.is_duration(kind):
        return f"Duration({_UNITS[kind.unit]})"
    if types.is_time(kind):
        return f"Time{kind.bit_width}({_UNITS[kind.unit]})"
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if types.is_fixed_size_list(kind):
        item = arrow_name(kind.value_type)
        return item and f"FixedSizeList({kind.list_size}, {item})"
    return None
