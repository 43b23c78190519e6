"""From the schema of a table to the schema Spark sees. The other way is in writing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema

from relance.errors import UnsupportedOperationError
from relance.spark.types.paths import below

BLOB_KEY = "lance-encoding:blob"
"""The field metadata that marks a blob column, in Lance and, kept, in Spark."""

BLOB_EXTENSION = "lance.blob.v2"

MAX_PRECISION = 38
"""Spark's decimals have no more digits."""

PLAIN: dict[pa.DataType, sql.DataType] = {
    pa.bool_(): sql.BooleanType(),
    pa.int8(): sql.ByteType(),
    pa.int16(): sql.ShortType(),
    pa.int32(): sql.IntegerType(),
    pa.int64(): sql.LongType(),
    # Spark has no unsigned numbers: each gets the smallest type that holds all of its values.
    pa.uint8(): sql.ShortType(),
    pa.uint16(): sql.IntegerType(),
    pa.uint32(): sql.LongType(),
    pa.uint64(): sql.DecimalType(20, 0),
    pa.float16(): sql.FloatType(),
    pa.float32(): sql.FloatType(),
    pa.float64(): sql.DoubleType(),
    pa.string(): sql.StringType(),
    pa.large_string(): sql.StringType(),
    pa.string_view(): sql.StringType(),
    pa.binary(): sql.BinaryType(),
    pa.large_binary(): sql.BinaryType(),
    pa.binary_view(): sql.BinaryType(),
    pa.date32(): sql.DateType(),
    pa.date64(): sql.DateType(),
    pa.null(): sql.NullType(),
}

EXTENSIONS: dict[str, sql.DataType] = {
    BLOB_EXTENSION: sql.BinaryType(),
    "arrow.json": sql.StringType(),
    "arrow.uuid": sql.BinaryType(),
}


def spark_schema(schema: pa.Schema) -> sql.StructType:
    """Return what Spark sees of a table with this schema: names, nullability and order are kept.

    Raises:
        UnsupportedOperationError: a column, named with its path, has a type that Spark cannot read.
    """
    return sql.StructType([_spark_field(field, below("", field.name)) for field in schema])


def reader_schema(struct: sql.StructType) -> pa.Schema:
    """Return the schema that Spark demands of the batches a reader gives for `struct`."""
    return to_arrow_schema(struct, timezone="UTC")


def spark_type(arrow: pa.DataType, path: str) -> sql.DataType:
    """Return what Spark sees of one Arrow type; `path` names the column in the refusal.

    Raises:
        UnsupportedOperationError: Spark cannot read it.
    """
    known = _plain(arrow) or _nested(arrow, path)
    if known is not None:
        return known
    raise UnsupportedOperationError(
        f"column '{path}' has type {arrow}, which Spark cannot read{_why(arrow)}; "
        "to leave it out, list the other columns in option 'columns'"
    )


def _spark_field(field: pa.Field, path: str) -> sql.StructField:
    metadata = {BLOB_KEY: "true"} if is_blob(field) else {}
    return sql.StructField(field.name, spark_type(field.type, path), field.nullable, metadata)


def is_blob(field: pa.Field) -> bool:
    """Tell whether the field is a blob column, of either of the two kinds that Lance has."""
    if isinstance(field.type, pa.BaseExtensionType):
        return bool(field.type.extension_name == BLOB_EXTENSION)
    marked: dict[bytes, bytes] = field.metadata or {}
    return marked.get(BLOB_KEY.encode()) == b"true"


def _plain(arrow: pa.DataType) -> sql.DataType | None:
    if isinstance(arrow, pa.BaseExtensionType):
        return EXTENSIONS.get(arrow.extension_name)
    if pa.types.is_timestamp(arrow):
        return sql.TimestampNTZType() if arrow.tz is None else sql.TimestampType()
    if pa.types.is_decimal(arrow):
        return _decimal(arrow)
    if pa.types.is_duration(arrow):
        return sql.DayTimeIntervalType()
    if pa.types.is_fixed_size_binary(arrow):
        return sql.BinaryType()
    if pa.types.is_dictionary(arrow):
        return _plain(arrow.value_type)
    return PLAIN.get(arrow)


def _decimal(arrow: Any) -> sql.DataType | None:
    fits = arrow.precision <= MAX_PRECISION and 0 <= arrow.scale <= arrow.precision
    return sql.DecimalType(arrow.precision, arrow.scale) if fits else None


def _nested(arrow: pa.DataType, path: str) -> sql.DataType | None:
    if pa.types.is_struct(arrow):
        return sql.StructType([_spark_field(field, below(path, field.name)) for field in arrow])
    if pa.types.is_map(arrow):
        key = spark_type(arrow.key_type, below(path, "key"))
        value = spark_type(arrow.item_type, below(path, "value"))
        return sql.MapType(key, value, arrow.item_field.nullable)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        element = spark_type(arrow.value_type, below(path, "element"))
        return sql.ArrayType(element, arrow.value_field.nullable)
    return None


def _why(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return f" (decimals have at most {MAX_PRECISION} digits and a scale from 0 to that)"
    if pa.types.is_time(arrow):
        return " (most operations do not support times of day)"
    return ""
