"""The `__manifest` table: its columns, and the flags that say who may touch it. Pure.

What a row means is in row.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from relance.errors import InvalidTableStateError, UnsupportedOperationError

MANIFEST_DIRECTORY = "__manifest"

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
        if schema.field(index).type != field.type:
            raise InvalidTableStateError(
                f"'{MANIFEST_DIRECTORY}' is not a catalog manifest: column '{field.name}' is "
                f"{schema.field(index).type}, not {field.type}. Move it elsewhere, or open the "
                "root with manifest_enabled=false"
            )


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


def manages_versions(metadata: Mapping[str, str]) -> bool:
    """Tell whether the versions of this catalog's tables are kept as rows."""
    return metadata.get(MANAGED_VERSIONS_KEY, "false").lower() == "true"
