"""Batches cast both ways: exact names, types and nullability, every value kept or refused by name."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema
from tests.support.spark.type_samples import MONEY, PRICE, SAMPLES, Sample

from relance.errors import TableColumnNotFoundError, TableSchemaValidationError
from relance.spark.types import ToLance, ToSpark, lance_schema, reader_schema, spark_schema
from relance.spark.types.reading import BLOB_KEY


def _batch(array: pa.Array, *, nullable: bool = True) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("c", array.type, nullable)]))


def _from_spark(schema: pa.Schema, zone: str = "America/New_York") -> pa.Schema:
    """Return the schema that batches have when Spark sends them to a writer."""
    return to_arrow_schema(spark_schema(schema), timezone=zone)


def _to_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    cast = ToSpark(batch.schema, reader_schema(spark_schema(batch.schema)))
    return _exact(cast(batch), cast.schema)


def _to_lance(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    cast = ToLance(batch.schema, schema)
    return _exact(cast(batch), cast.schema)


def _exact(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Check that names and nullability agree all the way down, which Arrow's == does not look at."""
    batch.validate(full=True)
    assert batch.schema.equals(schema, check_metadata=True)
    for column, field in zip(batch.columns, schema, strict=True):
        assert column.type.equals(field.type, check_metadata=True)
    return batch


def _values(batch: pa.RecordBatch) -> list[Any]:
    values: list[Any] = batch.column(0).to_pylist()
    return values


def _unaligned(array: pa.Array) -> pa.Array:
    """Return the decimals in memory that is aligned to 8 bytes only, as Spark sends them."""
    data = array.buffers()[1].to_pybytes()
    room = pa.allocate_buffer(len(data) + 8)
    memory = memoryview(room).cast("B")
    memory[8:] = data
    return pa.Array.from_buffers(array.type, len(array), [array.buffers()[0], room.slice(8)])


def _addresses(array: pa.Array) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_every_type_round_trips_through_spark(sample: Sample) -> None:
    batch = _batch(pa.array([*sample.values] * 3, sample.arrow))
    wanted = _from_spark(batch.schema)
    for part in (batch, batch.slice(1, 4), batch.slice(2, 1), batch.slice(4), batch.slice(0, 0)):
        seen = _to_spark(part)
        assert _values(seen) == _values(part)
        sent = pa.RecordBatch.from_arrays([ToSpark(seen.schema, wanted)(seen).column(0)], schema=wanted)
        back = _to_lance(sent, batch.schema)
        assert back.column(0).type.equals(sample.arrow, check_metadata=True)
        assert back.column(0).to_pylist() == part.column(0).to_pylist()
        sliced = sent.slice(1)
        assert _values(_to_lance(sliced, batch.schema)) == _values(part)[1:]


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_every_type_may_be_non_nullable(sample: Sample) -> None:
    kept = pa.array([value for value in sample.values if value is not None], sample.arrow)
    seen = _to_spark(_batch(kept, nullable=False))
    assert not seen.schema.field(0).nullable
    assert (
        _values(_to_lance(seen, pa.schema([pa.field("c", sample.arrow, nullable=False)]))) == kept.to_pylist()
    )
    with pytest.raises(TableSchemaValidationError, match="column 'c' is not nullable, but 1 values are null"):
        _to_lance(_to_spark(_batch(sample.array)), pa.schema([pa.field("c", sample.arrow, nullable=False)]))


@pytest.mark.parametrize("name", ["int64", "double", "string", "timestamp_utc", "decimal128", "vector"])
def test_column_that_needs_no_cast_is_not_copied(name: str) -> None:
    batch = _batch(SAMPLES[name].array.drop_null())
    values = batch.column(0).flatten() if name == "vector" else batch.column(0)
    seen = _to_spark(batch).column(0)
    assert _addresses(seen)[-1] == _addresses(values)[-1]
    back = _to_lance(_to_spark(batch), batch.schema).column(0)
    assert _addresses(back)[-1] == _addresses(values)[-1]


LOSSES = {
    "nanoseconds": pa.array([1], pa.timestamp("ns", "UTC")),
    "nanoseconds of a duration": pa.array([1], pa.duration("ns")),
    "seconds beyond microseconds": pa.array([2**61], pa.timestamp("s")),
    "part of a day": pa.array([1], pa.int64()).view(pa.date64()),
}


@pytest.mark.parametrize("array", LOSSES.values(), ids=LOSSES)
def test_value_that_spark_would_lose_is_refused_with_its_column(array: pa.Array) -> None:
    with pytest.raises(TableSchemaValidationError, match="column 'c' holds a value"):
        _to_spark(_batch(array))
    with pytest.raises(TableSchemaValidationError, match=r"column 'c\.element' holds a value"):
        _to_spark(_batch(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)))
    inside = pa.StructArray.from_arrays([array], names=["x"])
    with pytest.raises(TableSchemaValidationError, match=r"column 'c\.x' holds a value"):
        _to_spark(_batch(inside))
    hidden = pa.StructArray.from_arrays([array], names=["x"], mask=pa.array([True]))
    assert _values(_to_spark(_batch(hidden))) == [None]


TOO_MUCH: dict[str, tuple[pa.Array, pa.DataType]] = {
    "uint8": (pa.array([256], pa.int16()), pa.uint8()),
    "uint32": (pa.array([-1], pa.int64()), pa.uint32()),
    "uint64": (pa.array([Decimal(2**64)], pa.decimal128(20, 0)), pa.uint64()),
    "float16": (pa.array([1.5, 0.1], pa.float32()), pa.float16()),
    "float16 range": (pa.array([1e6], pa.float32()), pa.float16()),
    "seconds": (pa.array([1], pa.timestamp("us")), pa.timestamp("s")),
    "nanoseconds": (pa.array([2**62], pa.timestamp("us")), pa.timestamp("ns")),
    "bytes": (pa.array([b"ab", b"abc"]), pa.binary(2)),
}


@pytest.mark.parametrize(("array", "arrow"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_value_that_the_table_would_lose_is_refused_with_its_column(
    array: pa.Array, arrow: pa.DataType
) -> None:
    with pytest.raises(TableSchemaValidationError, match="column 'c' holds a value"):
        _to_lance(_batch(array), pa.schema([("c", arrow)]))


def test_half_floats_keep_nan_infinity_and_null() -> None:
    array = pa.array([float("nan"), float("inf"), None, -0.0], pa.float32())
    half = _to_lance(_batch(array), pa.schema([("c", pa.float16())])).column(0)
    assert str(half.to_pylist()) == "[nan, inf, None, -0.0]"


@pytest.mark.parametrize(
    "rows", [[[1.0, 2.0], [3.0]], [None, [1.0, 2.0, 3.0]], [[]], [[1.0], None, [1.0, 2.0, 3.0]]]
)
def test_ragged_vectors_are_refused_with_both_sizes(rows: list[Any]) -> None:
    batch = _batch(pa.array(rows, pa.list_(pa.float32())))
    with pytest.raises(
        TableSchemaValidationError, match=r"column 'c' holds vectors of size 2, but one has [013] "
    ):
        _to_lance(batch, pa.schema([("c", pa.list_(pa.float32(), 2))]))


def test_vectors_keep_null_rows_and_null_values() -> None:
    rows = [[1.0, None], None, [3.0, 4.0]]
    batch = _batch(pa.array(rows, pa.list_(pa.float32())))
    wanted = pa.schema([("c", pa.list_(pa.float32(), 2))])
    assert _values(_to_lance(batch, wanted)) == rows
    assert _values(_to_lance(_batch(pa.nulls(3, batch.schema.field(0).type)), wanted)) == [None] * 3


def test_nested_nulls_are_refused_only_where_visible() -> None:
    part = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    loose = pa.struct([("x", pa.int64())])
    fine = pa.StructArray.from_arrays([pa.array([1, None])], names=["x"], mask=pa.array([False, True]))
    assert _values(_to_lance(_batch(fine), pa.schema([("c", part)]))) == [{"x": 1}, None]
    with pytest.raises(TableSchemaValidationError, match=r"column 'c\.x' is not nullable, but 1 values"):
        _to_lance(_batch(pa.array([{"x": None}, None], loose)), pa.schema([("c", part)]))
    never = pa.field("item", pa.int64(), nullable=False)
    with pytest.raises(TableSchemaValidationError, match=r"column 'c\.element' is not nullable"):
        _to_lance(_batch(pa.array([[1, None]])), pa.schema([("c", pa.list_(never))]))
    values = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    with pytest.raises(TableSchemaValidationError, match=r"column 'c\.value' is not nullable"):
        _to_lance(
            _batch(pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64()))), pa.schema([("c", values)])
        )


def test_entries_hidden_below_a_null_list_or_map_stay_hidden() -> None:
    offsets, mask = pa.array([0, 1, 3], pa.int32()), pa.array([True, False])
    lists = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3], pa.uint8()), mask=mask)
    assert _values(_to_spark(_batch(lists))) == [None, [2, 3]]
    maps = pa.MapArray.from_arrays(
        offsets, pa.array(["a", "b", "c"]), pa.array([1, 2, 3], pa.uint8()), mask=mask
    )
    assert _values(_to_spark(_batch(maps))) == [None, [("b", 2), ("c", 3)]]


def test_decimals_are_aligned_for_lance_at_any_depth(tmp_path: Any) -> None:
    money = _unaligned(pa.array([PRICE, None, Decimal("0.01")], MONEY))
    assert money.buffers()[1].address % 16
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    given = {
        "plain": money,
        "struct": pa.StructArray.from_arrays([money], names=["x"]),
        "list": pa.ListArray.from_arrays(offsets, money),
        "map": pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c"]), money),
        "deep": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([money], names=["x"])),
    }
    batch = pa.RecordBatch.from_pydict(given)
    ready = _to_lance(batch, lance_schema(spark_schema(batch.schema), vectors={}))
    dataset = lance.write_dataset(pa.Table.from_batches([ready]), tmp_path / "t.lance")
    assert dataset.to_table().to_pylist() == batch.to_pylist()


def test_only_the_given_columns_are_written_in_table_order() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    sent = pa.RecordBatch.from_pydict({"c": [1.0], "a": pa.array([7], pa.int32())})
    ready = _to_lance(sent, table)
    assert ready.to_pydict() == {"a": [7], "c": [1.0]}
    assert ready.schema == pa.schema([("a", pa.int64()), ("c", pa.float64())])


def test_struct_fields_may_be_missing_and_in_any_order() -> None:
    wanted = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int8())), ("c", pa.string())])
    sent = pa.array([{"c": "x", "a": 1}, None], pa.struct([("c", pa.string()), ("a", pa.int32())]))
    assert _values(_to_lance(_batch(sent), pa.schema([("c", wanted)]))) == [
        {"a": 1, "b": None, "c": "x"},
        None,
    ]


def test_spark_gets_the_columns_and_struct_fields_it_asks_for() -> None:
    part = sql.StructType().add("y", sql.LongType())
    asked = sql.StructType().add("s", part).add("n", sql.DoubleType())
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int32()), "o": [1], "s": [{"x": "a", "y": 2}]})
    seen = ToSpark(batch.schema, reader_schema(asked))(batch)
    assert seen.to_pydict() == {"s": [{"y": 2}], "n": [1.0]}


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            ("m", sql.LongType()),
            TableColumnNotFoundError,
            "column 'm' is not in the table; its columns are: n, s",
        ),
        (("N", sql.LongType()), TableSchemaValidationError, "column 'N' is called 'n'"),
        (
            ("n", sql.IntegerType()),
            TableSchemaValidationError,
            "column 'n' is bigint, which does not fit into int",
        ),
        (("n", sql.StringType()), TableSchemaValidationError, "column 'n' is bigint"),
        (
            ("s", sql.StructType().add("z", sql.LongType())),
            TableSchemaValidationError,
            r"column 's\.z' is missing",
        ),
    ],
)
def test_impossible_projection_is_refused_before_any_work(
    asked: tuple[str, sql.DataType], error: type[Exception], message: str
) -> None:
    table = pa.schema([("n", pa.int64()), ("s", pa.struct([("y", pa.int64())]))])
    with pytest.raises(error, match=message):
        ToSpark(table, reader_schema(sql.StructType().add(*asked)))


def test_empty_projection_keeps_the_number_of_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
    assert ToSpark(batch.schema, pa.schema([]))(batch).num_rows == 3


def test_thousand_columns_are_cast_and_the_cast_is_picklable() -> None:
    names = [f"größe {index}" for index in range(1000)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([index % 256], pa.uint8()) for index in range(1000)], names=names
    )
    cast = pickle.loads(pickle.dumps(ToSpark(batch.schema, reader_schema(spark_schema(batch.schema)))))
    assert cast(batch).to_pydict() == batch.to_pydict()
    back = pickle.loads(pickle.dumps(ToLance(cast.schema, batch.schema)))
    assert back(cast(batch)) == batch


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_read_as_binary_and_appended(tmp_path: Any, version: str, nested: bool) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={BLOB_KEY: "true"})
    field = pa.field("s", pa.struct([blob])) if nested else blob
    rows: list[Any] = [{"b": b"abc"}, {"b": None}, {"b": b""}]
    rows = [{"s": row} for row in rows] if nested else rows
    table = pa.Table.from_pylist(rows, schema=pa.schema([field]))
    dataset = lance.write_dataset(table, tmp_path / "t.lance", data_storage_version=version)
    seen_schema = spark_schema(dataset.schema)
    cast = ToSpark(dataset.schema, reader_schema(seen_schema))
    [batch] = dataset.scanner(blob_handling="all_binary").to_batches()
    seen = cast(batch)
    assert seen.to_pylist() == rows
    ready = ToLance(seen.schema, dataset.schema)
    fragments = lance.fragment.write_fragments(
        pa.Table.from_batches([ready(seen)], schema=ready.schema), dataset.uri, mode="append"
    )
    grown = lance.LanceDataset.commit(dataset.uri, lance.LanceOperation.Append(fragments), read_version=1)
    assert grown.scanner(blob_handling="all_binary").to_table().to_pylist() == rows * 2


_nested_rows = st.lists(
    st.none()
    | st.lists(
        st.none()
        | st.fixed_dictionaries(
            {
                "n": st.none() | st.integers(0, 2**64 - 1),
                "v": st.none() | st.lists(st.none() | st.integers(-8, 8).map(float), min_size=2, max_size=2),
                "m": st.none()
                | st.lists(st.tuples(st.text(max_size=3), st.none() | st.integers(0, 255)), max_size=2),
            }
        ),
        max_size=3,
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(rows=_nested_rows, start=st.integers(0, 3), data=st.data())
def test_nested_values_round_trip_from_any_slice(rows: list[Any], start: int, data: st.DataObject) -> None:
    inner = pa.struct(
        [("n", pa.uint64()), ("v", pa.list_(pa.float16(), 2)), ("m", pa.map_(pa.string(), pa.uint8()))]
    )
    whole = _batch(pa.array(rows, pa.large_list(inner)))
    batch = whole.slice(start, data.draw(st.integers(0, len(rows))))
    seen = _to_spark(batch)
    assert _values(seen) == _values(batch)
    assert _values(_to_lance(seen, batch.schema)) == _values(batch)
    cut = data.draw(st.integers(0, max(0, seen.num_rows)))
    assert _values(_to_lance(seen.slice(cut), batch.schema)) == _values(batch)[cut:]
