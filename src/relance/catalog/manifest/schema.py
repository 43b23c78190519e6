"""The `__manifest` table: its columns, and the flags that say who may touch it. Pure.

What a row means is in row.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from relance.clock import to_millis
from relance.errors import InvalidTableStateError, UnsupportedOperationError
from relance.locations import MANIFEST_DIRECTORY

READER_FLAGS_KEY = "lance.namespace.manifest.reader_feature_flags"
WRITER_FLAGS_KEY = "lance.namespace.manifest.writer_feature_flags"
"""In the table's metadata: bit sets, as decimal numbers, of what a client must understand."""

MANAGED_VERSIONS_KEY = "table_version_management"
"""In the table's metadata: `true` when the versions of all tables are kept as rows."""

MANAGED_VERSIONS_FLAG = 1 << 32
"""Writer bit: the manifest holds rows of table versions, which other clients stumble over."""

_KNOWN_READER_FLAGS = 0
_KNOWN_WRITER_FLAGS = MANAGED_VERSIONS_FLAG

SCHEMA = pa.schema(
    [
        pa.field(
            "object_id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key:position": "0"},
        ),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)
"""Exactly as the native namespace writes it: any difference makes its writes fail."""

_CREATED_AT = "created_at"
"""A column of the namespace spec that native clients drop: filled where another client's manifest has it."""


def check_schema(schema: pa.Schema) -> None:
    """Check that the table under the manifest's name is one.

    Raises:
        InvalidTableStateError: a column is missing or of another type.
    """
    for field in SCHEMA:
        index = schema.get_field_index(field.name)
        if index < 0:
            raise InvalidTableStateError(
                f"'{MANIFEST_DIRECTORY}' is not a catalog manifest: it has no column "
                f"'{field.name}'. Move it elsewhere, or open the root with manifest_enabled=false"
            )
        if not _is_like(schema.field(index).type, field.type):
            raise InvalidTableStateError(
                f"'{MANIFEST_DIRECTORY}' is not a catalog manifest: column '{field.name}' is "
                f"{schema.field(index).type}, not {field.type}. Move it elsewhere, or open the "
                "root with manifest_enabled=false"
            )


def _is_like(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a column can hold the same values: other clients may count with 64 bits."""
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and _is_like(found.value_type, wanted.value_type)
    return bool(found == wanted or pa.types.is_large_string(found))


def new_values(schema: pa.Schema, now: datetime) -> dict[str, Any]:
    """Return what a new row has in the columns that only other clients' manifests have.

    Raises:
        InvalidTableStateError: a column that this release does not know must not be null.
    """
    values: dict[str, Any] = {}
    for field in schema:
        if field.name in SCHEMA.names:
            continue
        value = _moment(field.type, now) if field.name == _CREATED_AT else None
        if value is None and not field.nullable:
            raise InvalidTableStateError(
                f"column '{field.name}' ({field.type}) of '{MANIFEST_DIRECTORY}' must not be null, and this "
                "release does not know it. Nothing was changed; make the column nullable, or use the client "
                "that added it"
            )
        values[field.name] = value
    return values


def _moment(kind: pa.DataType, now: datetime) -> Any:
    """Return the time as a value of a column's type; None if that holds no times."""
    if pa.types.is_timestamp(kind):
        return now.replace(microsecond=0)  # which every unit can hold
    if pa.types.is_date(kind):
        return now.date()
    if pa.types.is_int64(kind):
        return to_millis(now)
    return now.isoformat() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def check_flags(metadata: Mapping[str, str], *, writing: bool) -> None:
    """Check that this release understands all that a reader or a writer must.

    Raises:
        UnsupportedOperationError: a newer client uses features that this release does not know.
        InvalidTableStateError: the flags are not numbers.
    """
    _check(metadata, READER_FLAGS_KEY, _KNOWN_READER_FLAGS, to_do="read")
    if writing:
        _check(metadata, WRITER_FLAGS_KEY, _KNOWN_WRITER_FLAGS, to_do="change")


def _check(metadata: Mapping[str, str], key: str, known: int, *, to_do: str) -> None:
    text = metadata.get(key, "0")
    if not (text.isascii() and text.isdecimal()):
        raise InvalidTableStateError(f"'{MANIFEST_DIRECTORY}' has invalid feature flags {text!r} in {key!r}")
    unknown = int(text) & ~known
    if unknown:
        raise UnsupportedOperationError(
            f"'{MANIFEST_DIRECTORY}' uses features (bits {unknown:#x}) that this release does not "
            f"support. Nothing was changed; use a newer release to {to_do} this catalog"
        )


def refuses_native_changes(metadata: Mapping[str, str]) -> bool:
    """Tell whether native clients leave the manifest alone, which unknown types of rows make them fail at."""
    flags = metadata.get(WRITER_FLAGS_KEY, "0")
    return flags.isascii() and flags.isdecimal() and bool(int(flags) & MANAGED_VERSIONS_FLAG)


def manages_versions(metadata: Mapping[str, str]) -> bool:
    """Tell whether the versions of this catalog's tables are kept as rows."""
    return metadata.get(MANAGED_VERSIONS_KEY, "false").lower() == "true"
