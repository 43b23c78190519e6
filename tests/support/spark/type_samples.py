"""One sample of each type that Spark and Lance share: the Arrow type, what Spark sees, values with nulls."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import types as sql


@dataclass(frozen=True)
class Sample:
    arrow: pa.DataType
    spark: sql.DataType
    values: tuple[Any, ...]

    @property
    def array(self) -> pa.Array:
        return pa.array(self.values, self.arrow)


INSTANT = datetime(2026, 7, 1, 12, 30, 15, 123456, tzinfo=UTC)
NOON = INSTANT.replace(tzinfo=None)
DAY = date(1969, 12, 31)
PRICE = Decimal("-12345.67")
MONEY = pa.decimal128(10, 2)
ITEM = sql.StructType(
    [sql.StructField("name", sql.StringType()), sql.StructField("price", sql.DecimalType(10, 2))]
)

PLAIN = {
    "bool": Sample(pa.bool_(), sql.BooleanType(), (True, None, False)),
    "int8": Sample(pa.int8(), sql.ByteType(), (-128, None, 127)),
    "int16": Sample(pa.int16(), sql.ShortType(), (-(2**15), None, 2**15 - 1)),
    "int32": Sample(pa.int32(), sql.IntegerType(), (-(2**31), None, 2**31 - 1)),
    "int64": Sample(pa.int64(), sql.LongType(), (-(2**63), None, 2**63 - 1)),
    "float": Sample(pa.float32(), sql.FloatType(), (1.5, None, float("inf"))),
    "double": Sample(pa.float64(), sql.DoubleType(), (0.1, None, -1e300)),
    "string": Sample(pa.string(), sql.StringType(), ("日本", None, "")),
    "binary": Sample(pa.binary(), sql.BinaryType(), (b"\x00\xff", None, b"")),
    "date32": Sample(pa.date32(), sql.DateType(), (DAY, None, date(9999, 12, 31))),
    "decimal128": Sample(MONEY, sql.DecimalType(10, 2), (PRICE, None, Decimal("0.00"))),
    "decimal128_38": Sample(
        pa.decimal128(38, 0), sql.DecimalType(38, 0), (Decimal(10**38 - 1), None, Decimal(0))
    ),
    "timestamp_utc": Sample(pa.timestamp("us", "UTC"), sql.TimestampType(), (INSTANT, None, INSTANT)),
    "timestamp": Sample(pa.timestamp("us"), sql.TimestampNTZType(), (NOON, None, NOON)),
    "duration": Sample(
        pa.duration("us"), sql.DayTimeIntervalType(), (timedelta(1, 2, 3), None, timedelta(-1))
    ),
}
"""The types that both sides have."""

FOREIGN = {
    "uint8": Sample(pa.uint8(), sql.ShortType(), (255, None, 0)),
    "uint16": Sample(pa.uint16(), sql.IntegerType(), (2**16 - 1, None, 0)),
    "uint32": Sample(pa.uint32(), sql.LongType(), (2**32 - 1, None, 0)),
    "uint64": Sample(pa.uint64(), sql.DecimalType(20, 0), (2**64 - 1, None, 0)),
    "float16": Sample(pa.float16(), sql.FloatType(), (1.5, None, float("-inf"))),
    "large_string": Sample(pa.large_string(), sql.StringType(), ("ü", None, "")),
    "large_binary": Sample(pa.large_binary(), sql.BinaryType(), (b"x", None, b"")),
    "fixed_size_binary": Sample(pa.binary(3), sql.BinaryType(), (b"abc", None, b"\x00\x00\x00")),
    "dictionary": Sample(pa.dictionary(pa.int8(), pa.string()), sql.StringType(), ("a", None, "b")),
    "date64": Sample(pa.date64(), sql.DateType(), (DAY, None, date(2026, 7, 1))),
    "timestamp_s": Sample(
        pa.timestamp("s"),
        sql.TimestampNTZType(),
        (NOON.replace(microsecond=0), None, NOON.replace(microsecond=0)),
    ),
    "timestamp_ms_zone": Sample(
        pa.timestamp("ms", "Asia/Tokyo"),
        sql.TimestampType(),
        (INSTANT.replace(microsecond=5000), None, INSTANT.replace(microsecond=0)),
    ),
    "timestamp_ns": Sample(pa.timestamp("ns", "UTC"), sql.TimestampType(), (INSTANT, None, INSTANT)),
    "duration_s": Sample(pa.duration("s"), sql.DayTimeIntervalType(), (timedelta(3), None, timedelta(-4))),
    "json": Sample(pa.json_(pa.utf8()), sql.StringType(), ('{"a":1}', None, "[]")),
    "large_list": Sample(pa.large_list(pa.int32()), sql.ArrayType(sql.IntegerType()), ([1, None], None, [])),
    "vector": Sample(
        pa.list_(pa.float32(), 2), sql.ArrayType(sql.FloatType()), ([1.0, 2.5], None, [3.0, 4.0])
    ),
    "half_vector": Sample(
        pa.list_(pa.float16(), 2), sql.ArrayType(sql.FloatType()), ([1.0, 2.5], None, [3.0, 4.0])
    ),
    "unsigned_list": Sample(pa.list_(pa.uint8()), sql.ArrayType(sql.ShortType()), ([255, None], None, [])),
    "struct_of_foreign": Sample(
        pa.struct([pa.field("v", pa.list_(pa.float32(), 2)), pa.field("u", pa.uint32(), nullable=False)]),
        sql.StructType(
            [
                sql.StructField("v", sql.ArrayType(sql.FloatType())),
                sql.StructField("u", sql.LongType(), nullable=False),
            ]
        ),
        ({"v": [1.0, 2.0], "u": 7}, None, {"v": None, "u": 2**32 - 1}),
    ),
}
"""The types that only Lance has: cast on reading, and cast back on an append."""

NESTED = {
    "list": Sample(pa.list_(pa.int64()), sql.ArrayType(sql.LongType()), ([1, None, 3], None, [])),
    "list_not_null": Sample(
        pa.list_(pa.field("item", pa.int64(), nullable=False)),
        sql.ArrayType(sql.LongType(), False),
        ([1], None, []),
    ),
    "list_of_lists": Sample(
        pa.list_(pa.list_(pa.string())),
        sql.ArrayType(sql.ArrayType(sql.StringType())),
        ([["a"], None, []], None, []),
    ),
    "decimals": Sample(pa.list_(MONEY), sql.ArrayType(sql.DecimalType(10, 2)), ([PRICE, None], None, [])),
    "struct": Sample(
        pa.struct([("name", pa.string()), ("price", MONEY)]),
        ITEM,
        ({"name": "a", "price": PRICE}, None, {"name": None, "price": None}),
    ),
    "structs": Sample(
        pa.list_(pa.struct([("name", pa.string()), ("price", MONEY)])),
        sql.ArrayType(ITEM),
        ([{"name": "a", "price": PRICE}, None], None, []),
    ),
    "map": Sample(
        pa.map_(pa.string(), MONEY),
        sql.MapType(sql.StringType(), sql.DecimalType(10, 2)),
        ([("a", PRICE), ("b", None)], None, []),
    ),
    "map_of_structs": Sample(
        pa.map_(pa.int32(), pa.struct([("name", pa.string()), ("price", MONEY)])),
        sql.MapType(sql.IntegerType(), ITEM),
        ([(1, {"name": "x", "price": PRICE}), (2, None)], None, []),
    ),
    "times_in_list": Sample(
        pa.list_(pa.timestamp("us", "UTC")), sql.ArrayType(sql.TimestampType()), ([INSTANT, None], None, [])
    ),
}
"""Nested types that both sides have, but for the name of a list's child."""

SAMPLES = {**PLAIN, **FOREIGN, **NESTED}
