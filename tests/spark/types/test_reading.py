"""Schemas between Lance and Spark: what each type becomes, and what is refused by name."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import types as sql
from tests.support.spark.type_samples import FOREIGN, NESTED, PLAIN, SAMPLES, Sample

from relance.errors import InvalidInputError, TableSchemaValidationError, UnsupportedOperationError
from relance.spark.types import check_append, lance_schema, reader_schema, spark_schema
from relance.spark.types.reading import BLOB_KEY


class Celsius(sql.UserDefinedType):
    @classmethod
    def sqlType(cls) -> sql.DataType:  # noqa: N802 (Spark's name)
        return sql.DoubleType()


def _one(spark: sql.DataType, name: str = "c", *, nullable: bool = True) -> sql.StructType:
    return sql.StructType([sql.StructField(name, spark, nullable)])


def _arrow(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(list(fields.items()))


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_type_and_its_nullability_map_to_spark(sample: Sample, nullable: bool) -> None:
    assert spark_schema(pa.schema([pa.field("c", sample.arrow, nullable)])) == _one(
        sample.spark, nullable=nullable
    )


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_reader_schema_maps_back_to_the_same_spark_type(sample: Sample) -> None:
    assert spark_schema(reader_schema(_one(sample.spark))) == _one(sample.spark)


UNREADABLE = {
    "wide decimal": pa.decimal256(50, 2),
    "negative scale": pa.decimal128(10, -2),
    "time32": pa.time32("s"),
    "time64": pa.time64("us"),
    "months": pa.month_day_nano_interval(),
    "union": pa.sparse_union([pa.field("a", pa.int8())]),
    "view": pa.list_view(pa.int8()),
    "extension": pa.bool8(),
}


@pytest.mark.parametrize("arrow", UNREADABLE.values(), ids=UNREADABLE)
def test_type_that_spark_cannot_read_is_refused_with_its_path(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"column 'c' .* Spark cannot read"):
        spark_schema(_arrow(ok=pa.int8(), c=arrow))
    with pytest.raises(UnsupportedOperationError, match=r"column 'a\.element\.`x\.y`' "):
        spark_schema(_arrow(a=pa.list_(pa.struct([("x.y", arrow)]))))
    with pytest.raises(UnsupportedOperationError, match=r"column 'm\.value' "):
        spark_schema(_arrow(m=pa.map_(pa.string(), arrow)))


def test_column_of_nulls_is_read_as_void() -> None:
    assert spark_schema(_arrow(c=pa.null())) == _one(sql.NullType())


def test_narrow_decimal256_is_read_as_decimal() -> None:
    assert spark_schema(_arrow(c=pa.decimal256(38, 2))) == _one(sql.DecimalType(38, 2))


@pytest.mark.parametrize(
    "field",
    [lance.blob_field("c"), pa.field("c", pa.large_binary(), metadata={BLOB_KEY: "true"})],
    ids=["second kind", "first kind"],
)
def test_blob_column_is_binary_and_stays_a_blob_when_written(field: pa.Field) -> None:
    seen = spark_schema(pa.schema([field]))
    assert seen["c"].dataType == sql.BinaryType()
    written = lance_schema(seen, vectors={}).field("c")
    assert written.type == pa.large_binary()
    assert written.metadata == {BLOB_KEY.encode(): b"true"}


@pytest.mark.parametrize("name", [*PLAIN, *NESTED])
def test_shared_types_round_trip_through_a_spark_schema(name: str) -> None:
    schema = pa.schema([pa.field("c", SAMPLES[name].arrow, nullable=False)])
    assert lance_schema(spark_schema(schema), vectors={}).equals(schema, check_metadata=True)


def test_declared_vectors_become_fixed_size_lists_at_any_depth() -> None:
    floats, doubles = sql.ArrayType(sql.FloatType(), False), sql.ArrayType(sql.DoubleType())
    struct = sql.StructType(
        [
            sql.StructField("v", floats),
            sql.StructField("s", _one(doubles, "w")),
            sql.StructField("m", sql.MapType(sql.StringType(), floats)),
            sql.StructField("plain", floats),
        ]
    )
    schema = lance_schema(struct, vectors={"v": 3, "s.w": 2, "m.value": 4})
    assert schema.field("v").type == pa.list_(pa.float32(), 3)
    assert schema.field("s").type == pa.struct([("w", pa.list_(pa.float64(), 2))])
    assert schema.field("m").type == pa.map_(pa.string(), pa.list_(pa.float32(), 4))
    assert schema.field("plain").type == pa.list_(pa.field("item", pa.float32(), nullable=False))


@pytest.mark.parametrize("vectors", [{"x": 2}, {"n": 2}, {"v": 0}, {"v.element": 2}])
def test_invalid_vector_declaration_is_refused(vectors: dict[str, int]) -> None:
    struct = (
        sql.StructType().add("v", sql.ArrayType(sql.FloatType())).add("n", sql.ArrayType(sql.StringType()))
    )
    with pytest.raises(InvalidInputError, match=f"vector column '{next(iter(vectors))}'"):
        lance_schema(struct, vectors=vectors)


UNWRITABLE: dict[str, tuple[sql.DataType, str]] = {
    "year-month interval": (sql.YearMonthIntervalType(), "number of months"),
    "calendar interval": (sql.CalendarIntervalType(), "parts as numbers"),
    "time": (sql.TimeType(6), "cast it to string"),
    "variant": (sql.VariantType(), "to_json"),
    "void": (sql.NullType(), "cast it"),
    "char": (sql.CharType(3), "cast it to string"),
    "varchar": (sql.VarcharType(3), "cast it to string"),
    "collated": (sql.StringType("UNICODE_CI"), "UTF8_BINARY"),
    "geometry": (sql.GeometryType(4326), "st_asbinary"),
    "user-defined": (Celsius(), "Celsius"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_type_that_lance_cannot_store_is_refused_with_path_and_advice(case: str) -> None:
    spark, hint = UNWRITABLE[case]
    with pytest.raises(UnsupportedOperationError, match=f"column 'c' .*{hint}"):
        lance_schema(_one(spark), vectors={})
    with pytest.raises(UnsupportedOperationError, match=f"column 's.c.element' .*{hint}"):
        lance_schema(_one(_one(sql.ArrayType(spark)), "s"), vectors={})
    with pytest.raises(UnsupportedOperationError, match="column 'c'"):
        check_append(_one(spark), _arrow(c=pa.string()))


@pytest.mark.parametrize("name", ["a.b", "", "a`b", "_rowid"])
def test_column_name_that_lance_refuses_is_refused(name: str) -> None:
    with pytest.raises(TableSchemaValidationError, match="column"):
        lance_schema(_one(sql.LongType(), name), vectors={})


def test_struct_fields_may_have_any_name() -> None:
    part = sql.StructType([sql.StructField(name, sql.LongType()) for name in ("a.b", "", "a`b", "_rowid")])
    assert spark_schema(lance_schema(_one(part), vectors={})) == _one(part)


def test_duplicate_column_name_is_refused() -> None:
    with pytest.raises(TableSchemaValidationError, match=r"column 'id' occurs twice"):
        lance_schema(sql.StructType().add("id", "long").add("id", "string"), vectors={})


def test_column_names_in_any_script_are_kept() -> None:
    names = ["größe", "名前", "🙂", "with space", "a/b"]
    struct = sql.StructType([sql.StructField(name, sql.LongType()) for name in names])
    assert lance_schema(struct, vectors={}).names == names
    assert spark_schema(lance_schema(struct, vectors={})) == struct


@pytest.mark.parametrize("name", SAMPLES)
def test_every_read_type_can_be_appended_again(name: str) -> None:
    check_append(_one(SAMPLES[name].spark), _arrow(c=SAMPLES[name].arrow))


Pair = tuple[sql.DataType, pa.DataType]
WIDENING: list[Pair] = [
    (sql.IntegerType(), pa.int64()),
    (sql.ByteType(), pa.int16()),
    (sql.FloatType(), pa.float64()),
    (sql.IntegerType(), pa.float64()),
    (sql.ShortType(), pa.float32()),
    (sql.LongType(), pa.decimal128(21, 2)),
    (sql.DecimalType(10, 2), pa.decimal128(12, 3)),
    (sql.LongType(), pa.uint64()),
    (sql.DayTimeIntervalType(0, 0), pa.duration("us")),
    (sql.ArrayType(sql.IntegerType()), pa.list_(pa.int64())),
    (sql.ArrayType(sql.FloatType()), pa.list_(pa.float64(), 4)),
    (sql.MapType(sql.IntegerType(), sql.FloatType()), pa.map_(pa.int64(), pa.float64())),
    (sql.StructType().add("b", "integer"), pa.struct([("a", pa.string()), ("b", pa.int64())])),
]


@pytest.mark.parametrize(("given", "there"), WIDENING, ids=str)
def test_lossless_type_conversion_is_accepted_for_appends(given: sql.DataType, there: pa.DataType) -> None:
    check_append(_one(given), _arrow(c=there))


MISFITS: list[Pair] = [
    (sql.LongType(), pa.int32()),
    (sql.IntegerType(), pa.uint8()),
    (sql.DoubleType(), pa.float32()),
    (sql.LongType(), pa.float64()),
    (sql.StringType(), pa.binary()),
    (sql.BinaryType(), pa.string()),
    (sql.LongType(), pa.string()),
    (sql.DateType(), pa.timestamp("us")),
    (sql.TimestampType(), pa.timestamp("us")),
    (sql.TimestampNTZType(), pa.timestamp("us", "UTC")),
    (sql.DecimalType(12, 2), pa.decimal128(10, 2)),
    (sql.DecimalType(10, 3), pa.decimal128(10, 2)),
    (sql.ArrayType(sql.LongType()), pa.int64()),
    (sql.LongType(), pa.list_(pa.int64())),
    (sql.StructType().add("a", "long"), pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.parametrize(("given", "there"), MISFITS, ids=str)
def test_lossy_type_conversion_is_refused_before_any_work(given: sql.DataType, there: pa.DataType) -> None:
    with pytest.raises(TableSchemaValidationError, match=r"column 'c' is .* without loss"):
        check_append(_one(given), _arrow(c=there))
    with pytest.raises(TableSchemaValidationError, match=r"column 'c\.element' is .* without loss"):
        check_append(_one(sql.ArrayType(given)), _arrow(c=pa.list_(there)))


APPENDS: list[tuple[str, dict[str, Any], str]] = [
    (
        "an unknown column",
        {"id": "long", "more": "long"},
        "column 'more' is not in the table; its columns are: id, s",
    ),
    ("a missing column", {"s": "struct"}, "column 'id' is missing"),
    ("another case", {"ID": "long"}, "column 'ID' is called 'id'"),
    ("another case inside", {"id": "long", "s": ["A"]}, r"column 's\.A' is called 'a'"),
    ("an unknown part", {"id": "long", "s": ["a", "z"]}, r"column 's\.z' is not in the table"),
    ("a missing part", {"id": "long", "s": ["b"]}, r"column 's\.a' is missing"),
]


@pytest.mark.parametrize(
    ("fields", "message"), [case[1:] for case in APPENDS], ids=[case[0] for case in APPENDS]
)
def test_append_with_unknown_missing_or_miscased_fields_is_refused_by_name(
    fields: dict[str, Any], message: str
) -> None:
    part = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    table = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", part)])
    struct = sql.StructType()
    for name, kind in fields.items():
        names = kind if isinstance(kind, list) else ["a"]
        inner = sql.StructType([sql.StructField(each, sql.LongType()) for each in names])
        struct.add(name, sql.LongType() if kind == "long" else inner)
    with pytest.raises(TableSchemaValidationError, match=message):
        check_append(struct, table)


def test_nullable_columns_may_be_missing_and_in_any_order() -> None:
    table = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("a", pa.string()), pa.field("b", pa.int8())]
    )
    check_append(sql.StructType().add("b", "byte").add("id", "integer"), table)


def test_foreign_type_samples_are_distinct_from_the_others() -> None:
    assert not set(FOREIGN) & (set(PLAIN) | set(NESTED))
