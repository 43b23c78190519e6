"""The schema of the files that a write makes: that of a new table, or as the existing one has it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from relance.errors import InvalidInputError, TableSchemaValidationError, UnsupportedOperationError
from relance.spark.options import WriteOptions
from relance.spark.types import check_append, lance_schema
from relance.spark.types.paths import below

_WITHOUT_MAPS = frozenset({"legacy", "0.1", "2.0", "2.1", "stable"})


def schema_for(struct: StructType, existing: pa.Schema | None, options: WriteOptions) -> pa.Schema:
    """Return the schema of the files for rows of `struct`, written to a new or to an existing table.

    Raises:
        TableSchemaValidationError: the rows do not fit the existing table.
        UnsupportedOperationError: a column cannot be kept without loss.
        InvalidInputError: a vector's size is declared for what is no vector.
    """
    vectors = _vectors(struct, options)
    if existing is None:
        schema = lance_schema(struct, vectors=vectors)
        _check_storage_version(schema, options.data_storage_version)
        return schema
    check_append(struct, existing)
    names = set(struct.fieldNames())
    schema = pa.schema([field for field in existing if field.name in names])
    for column, size in vectors.items():
        _check_size(schema, column, size)
    return schema


def _vectors(struct: StructType, options: WriteOptions) -> dict[str, int]:
    """Return the declared sizes by the columns' real names."""
    found = {path: size for path in _arrays(struct, "") if (size := options.vector_size(path)) is not None}
    known = {path.lower() for path in found}
    for column in (*options.vectors, *options.vectors_by_lower_name):
        if column.lower() not in known:
            raise InvalidInputError(f"a vector size is set for '{column}', which is not an array column")
    return found


def _arrays(data_type: DataType, path: str) -> Iterator[str]:
    if isinstance(data_type, StructType):
        for field in data_type:
            yield from _arrays(field.dataType, below(path, field.name))
    elif isinstance(data_type, ArrayType):
        yield path
        yield from _arrays(data_type.elementType, below(path, "element"))


def _check_size(schema: pa.Schema, column: str, size: int) -> None:
    index = schema.get_field_index(column)
    kind = schema.field(index).type if index >= 0 else None
    if kind is not None and pa.types.is_fixed_size_list(kind) and kind.list_size != size:
        raise TableSchemaValidationError(
            f"column '{column}' has vectors of size {kind.list_size} in the table, not {size}"
        )


def _check_storage_version(schema: pa.Schema, version: str | None) -> None:
    if version is None or version.lower() not in _WITHOUT_MAPS:
        return
    for field in schema:
        if _holds_map(field.type):
            raise UnsupportedOperationError(
                f"column '{field.name}' holds a map, which needs data_storage_version 2.2, not {version}"
            )


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_holds_map(kind.field(index).type) for index in range(kind.num_fields))
