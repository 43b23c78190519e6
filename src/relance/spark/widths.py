"""How wide rows are, about, and how many of them make a good batch. Pure."""

from __future__ import annotations

import pyarrow as pa

_GOOD_BATCH = 8 << 20
"""Bytes: 131,072 rows of four plain columns or 8,192 vectors of 128 floats were the fastest to hand over."""

_MOST_ROWS = 131_072
_TEXT = 32
"""What a text or binary value is taken for when nothing is known about it."""
_LIST = 4
"""How many elements a list is taken for."""


def row_width(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes in memory; never 0."""
    return max(1, sum(_width(field.type) for field in schema))


def _width(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    if pa.types.is_map(kind):
        return _LIST * (_width(kind.key_type) + _width(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _LIST * _width(kind.value_type)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT


def batch_rows(width: int) -> int:
    """Return how many rows of this width to hand over at once: a power of two."""
    fitting = max(1, _GOOD_BATCH // width)
    return int(min(_MOST_ROWS, 1 << (fitting.bit_length() - 1)))
