"""The types page is true: each of its rows is tried, and no type is left out."""

from __future__ import annotations

import re

import lance
import pyarrow as pa
import pytest
from pyspark.sql import types as sql
from tests.support.paths import REPOSITORY

from relance.errors import UnsupportedOperationError
from relance.spark.types import lance_schema, spark_schema
from relance.spark.types.reading import EXTENSIONS, PLAIN

PAGE = REPOSITORY / "docs/reference/spark-types.md"

ARROW = [
    *PLAIN,
    pa.dictionary(pa.int8(), pa.string()),
    pa.json_(pa.utf8()),
    pa.uuid(),
    lance.blob_field("c").type,
    pa.binary(3),
    pa.decimal128(10, 2),
    pa.decimal256(38, 2),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("ms", "Asia/Tokyo"),
    pa.timestamp("ns"),
    pa.timestamp("s"),
    pa.duration("us"),
    pa.list_(pa.int32()),
    pa.large_list(pa.int32()),
    pa.list_(pa.float32(), 2),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.map_(pa.string(), pa.int32()),
]
REFUSED = [
    sql.YearMonthIntervalType(),
    sql.CalendarIntervalType(),
    sql.TimeType(6),
    sql.VariantType(),
    sql.NullType(),
    sql.CharType(3),
    sql.VarcharType(3),
    sql.StringType("UNICODE_CI"),
]


def _section(title: str) -> str:
    return PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def _rows(title: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", _section(title), re.MULTILINE))


def _seen(arrow: pa.DataType) -> sql.DataType:
    return spark_schema(pa.schema([("c", arrow)]))["c"].dataType


def test_documented_spark_types_for_reading_are_right() -> None:
    seen = {str(arrow): _seen(arrow).simpleString() for arrow in ARROW}
    rows = _rows("Reading")
    assert rows == {name: seen.get(name) for name in rows}


def test_every_readable_type_is_documented() -> None:
    rows = _rows("Reading")
    assert [str(arrow) for arrow in PLAIN if str(arrow) not in rows] == []
    assert [name for name in EXTENSIONS if not any(row.startswith(f"extension<{name}") for row in rows)] == []


def test_documented_lance_types_for_writing_are_right() -> None:
    known = {_seen(arrow).simpleString(): _seen(arrow) for arrow in ARROW}
    rows = _rows("Writing a new table")
    written = {
        name: str(lance_schema(sql.StructType().add("c", known[name]), vectors={}).field("c").type)
        for name in rows
    }
    assert rows == written


@pytest.mark.parametrize("spark", REFUSED, ids=str)
def test_documented_refusals_match_the_error_messages(spark: sql.DataType) -> None:
    with pytest.raises(UnsupportedOperationError) as caught:
        lance_schema(sql.StructType().add("c", spark), vectors={})
    advice = str(caught.value).split(": ", 2)[2]
    assert f"| `{spark.simpleString()}` | {advice} |" in _section("Writing a new table")
