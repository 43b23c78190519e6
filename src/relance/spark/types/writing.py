"""From a Spark schema to the schema of a new table. The other way is in reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import types as sql

from relance.errors import InvalidInputError, TableSchemaValidationError, UnsupportedOperationError
from relance.spark.types.paths import below
from relance.spark.types.reading import BLOB_KEY

ITEM = "item"
"""What Lance and pyarrow call the child of a list; Spark calls it `element`."""

_PLAIN: dict[type[sql.DataType], pa.DataType] = {
    sql.BooleanType: pa.bool_(),
    sql.ByteType: pa.int8(),
    sql.ShortType: pa.int16(),
    sql.IntegerType: pa.int32(),
    sql.LongType: pa.int64(),
    sql.FloatType: pa.float32(),
    sql.DoubleType: pa.float64(),
    sql.BinaryType: pa.binary(),
    sql.DateType: pa.date32(),
    sql.TimestampType: pa.timestamp("us", tz="UTC"),
    sql.TimestampNTZType: pa.timestamp("us"),
    sql.DayTimeIntervalType: pa.duration("us"),
}

_REFUSED: dict[str, str] = {
    "YearMonthIntervalType": "Lance has no such type; cast it to int to store the number of months",
    "CalendarIntervalType": "Lance has no such type; store its parts as numbers",
    "TimeType": "Spark could not read it back; cast it to string",
    "VariantType": "it would be read back as a struct of bytes; convert it to text with to_json",
    "GeometryType": "it would be read back as a struct of bytes; convert it with st_asbinary",
    "GeographyType": "it would be read back as a struct of bytes; convert it with st_asbinary",
    "NullType": "a column of only nulls has no type; cast it to the intended type",
    "CharType": "Lance does not keep the length; cast it to string",
    "VarcharType": "Lance does not keep the length; cast it to string",
    "StringType": "Lance does not keep the collation; use UTF8_BINARY",
}

_RESERVED = frozenset({"_rowid", "_rowaddr", "_rowoffset"})


def lance_schema(struct: sql.StructType, *, vectors: Mapping[str, int]) -> pa.Schema:
    """Return the schema of a new table for rows of `struct`.

    `vectors` gives the size of the array columns, named by path, that become fixed-size lists. A binary
    column that carries the blob mark in its metadata becomes a blob column.

    Raises:
        UnsupportedOperationError: a column, named with its path, has a type that a table cannot keep.
        TableSchemaValidationError: a table cannot have columns of these names.
        InvalidInputError: `vectors` names what is not an array of float or double.
    """
    left = dict(vectors)
    _check_names(struct.fieldNames(), top=True, path="")
    schema = pa.schema([_lance_field(field, below("", field.name), left) for field in struct])
    if left:
        raise InvalidInputError(
            f"vector column '{next(iter(left))}' is not an array of float or double in this schema; "
            f"its columns are: {', '.join(struct.fieldNames())}"
        )
    return schema


def _lance_field(field: sql.StructField, path: str, vectors: dict[str, int]) -> pa.Field:
    if isinstance(field.dataType, sql.BinaryType) and field.metadata.get(BLOB_KEY) == "true":
        return pa.field(field.name, pa.large_binary(), field.nullable, metadata={BLOB_KEY: "true"})
    return pa.field(field.name, _lance_type(field.dataType, path, vectors), field.nullable)


def _lance_type(spark: sql.DataType, path: str, vectors: dict[str, int]) -> pa.DataType:
    if isinstance(spark, sql.StructType):
        _check_names(spark.fieldNames(), top=False, path=path)
        return pa.struct([_lance_field(field, below(path, field.name), vectors) for field in spark])
    if isinstance(spark, sql.ArrayType):
        return _list(spark, path, vectors)
    if isinstance(spark, sql.MapType):
        key = _lance_type(spark.keyType, below(path, "key"), vectors)
        value = _lance_type(spark.valueType, below(path, "value"), vectors)
        return pa.map_(key, pa.field("value", value, spark.valueContainsNull))
    if isinstance(spark, sql.DecimalType):
        return pa.decimal128(spark.precision, spark.scale)
    if isinstance(spark, sql.StringType) and spark == sql.StringType():
        return pa.string()
    known = _PLAIN.get(type(spark))
    if known is None:
        raise _refusal(spark, path)
    return known


def _list(spark: sql.ArrayType, path: str, vectors: dict[str, int]) -> pa.DataType:
    if path in vectors and isinstance(spark.elementType, sql.FloatType | sql.DoubleType):
        size = vectors.pop(path)
        if size < 1:
            raise InvalidInputError(f"vector column '{path}' must have a size of at least 1, got {size}")
        # Lance forgets that the values of a vector are never null, so the promise is not made.
        return pa.list_(pa.field(ITEM, _PLAIN[type(spark.elementType)]), size)
    item = _lance_type(spark.elementType, below(path, "element"), vectors)
    return pa.list_(pa.field(ITEM, item, spark.containsNull))


def _refusal(spark: sql.DataType, path: str) -> UnsupportedOperationError:
    if isinstance(spark, sql.UserDefinedType):
        what = f"user-defined type {type(spark).__name__}"
        why = "Lance keeps the data but not the class; convert it to plain columns (vectors: vector_to_array)"
    else:
        what = f"type {spark.simpleString()}"
        why = _REFUSED.get(type(spark).__name__, "Lance has no such type; cast it to a supported one")
    return UnsupportedOperationError(f"column '{path}' has {what}: {why}")


def _check_names(names: Sequence[str], *, top: bool, path: str) -> None:
    seen: set[str] = set()
    for name in names:
        where = below(path, name)
        if name in seen:
            raise TableSchemaValidationError(f"column '{where}' occurs twice; rename one of them")
        seen.add(name)
        if top and (not name or "`" in name or "." in name):
            raise TableSchemaValidationError(
                f"column '{where}': outside structs, Lance column names must not be empty or contain a dot "
                "or a backtick; rename it with withColumnRenamed"
            )
        if top and name in _RESERVED:
            raise TableSchemaValidationError(f"column '{name}': Lance reserves this name; rename it")
