"""Every type through a real Spark: read from a table, sent back to it, and written to a new one.

The data source here is the smallest that can do it; the real one has its own tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.support.spark.type_samples import INSTANT, NOON, PRICE, SAMPLES

from relance.spark.types import check_append, lance_schema, spark_schema
from relance.spark.types.reading import BLOB_KEY

VECTORS = {"vector": 2, "struct_of_foreign.v": 2}
ZONE = "America/New_York"


@pytest.fixture
def in_new_york(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    _register(spark)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def _register(spark: SparkSession) -> None:
    # Classes of a function travel to the workers by value: these need not be able to import the tests.
    import pyarrow
    from pyspark.sql import datasource as api

    class Reader(api.DataSourceReader):
        def __init__(self, path: str, schema: StructType) -> None:
            self.path, self.asked = path, schema

        def read(self, partition: Any) -> Iterator[Any]:
            import lance

            from relance.spark.types import ToSpark, reader_schema

            scanner = lance.dataset(self.path).scanner(blob_handling="all_binary", batch_size=2)
            cast = ToSpark(scanner.projected_schema, reader_schema(self.asked))
            yield from map(cast, scanner.to_batches())

    class Message(api.WriterCommitMessage):
        def __init__(self, fragments: list[Any]) -> None:
            self.fragments = fragments

    class Writer(api.DataSourceArrowWriter):
        def __init__(self, path: str, target: Any) -> None:
            self.path, self.target = path, target

        def write(self, iterator: Iterator[Any]) -> Message:
            from lance.fragment import write_fragments

            from relance.spark.types import ToLance

            fragments = []
            for batch in iterator:
                cast = ToLance(batch.schema, self.target)
                table = pyarrow.Table.from_batches([cast(batch)], schema=cast.schema)
                fragments += write_fragments(table, self.path, mode="append")
            return Message(fragments)

        def commit(self, messages: list[Any]) -> None:
            import lance

            fragments = [each for message in messages for each in message.fragments]
            version = lance.dataset(self.path).version
            lance.LanceDataset.commit(self.path, lance.LanceOperation.Append(fragments), read_version=version)

    class Source(api.DataSource):
        @classmethod
        def name(cls) -> str:
            return "typed"

        def schema(self) -> StructType:
            import lance

            from relance.spark.types import spark_schema

            return spark_schema(lance.dataset(self.options["path"]).schema)

        def reader(self, schema: StructType) -> Reader:
            return Reader(self.options["path"], schema)

        def writer(self, schema: StructType, overwrite: bool) -> Writer:
            import lance

            from relance.spark.types import check_append

            target = lance.dataset(self.options["path"]).schema
            check_append(schema, target)
            return Writer(self.options["path"], target)

    spark.dataSource.register(Source)


def _load(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("typed").load(str(path))


def _append(frame: DataFrame, path: Path) -> list[dict[str, Any]]:
    frame.coalesce(1).write.format("typed").mode("append").save(str(path))
    rows: list[dict[str, Any]] = lance.dataset(path).to_table().to_pylist()
    return rows


def _only(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name in names} for row in rows]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a column of each type, and one more that takes no nulls."""
    columns = {name: pa.array([*sample.values] * 2, sample.arrow) for name, sample in SAMPLES.items()}
    fields = [pa.field(name, sample.arrow) for name, sample in SAMPLES.items()]
    schema = pa.schema([*fields, pa.field("größe", pa.int32(), nullable=False)])
    path = tmp_path / "samples.lance"
    lance.write_dataset(pa.table([*columns.values(), pa.array(range(6), pa.int32())], schema=schema), path)
    return path


def test_every_type_is_read_appended_and_written_to_a_new_table(
    in_new_york: SparkSession, table: Path, tmp_path: Path
) -> None:
    rows = lance.dataset(table).to_table().to_pylist()
    frame = _load(in_new_york, table)
    assert frame.schema == spark_schema(lance.dataset(table).schema)
    # Spark's own toArrow refuses a null struct whose parts take no nulls, so that column is collected.
    awkward = "struct_of_foreign"
    assert [row.asDict(recursive=True) for row in frame.select(awkward).collect()] == _only(rows, {awkward})
    assert frame.drop(awkward).toArrow().to_pylist() == _only(rows, set(frame.columns) - {awkward})

    new = tmp_path / "new.lance"
    lance.write_dataset(lance_schema(frame.schema, vectors=VECTORS).empty_table(), new)
    assert _append(frame, new) == rows
    assert _append(frame, table) == rows * 2

    none = frame.where("`größe` < 0")
    assert _append(none, new) == rows


@pytest.mark.deep
def test_spark_timestamps_are_the_same_instants_in_the_table(
    in_new_york: SparkSession, tmp_path: Path
) -> None:
    frame = in_new_york.sql(
        "SELECT timestamp'2026-07-01 08:30:15.123456' AS at, "
        "timestamp_ntz'2026-07-01 12:30:15.123456' AS wall"
    )
    path = tmp_path / "times.lance"
    lance.write_dataset(lance_schema(frame.schema, vectors={}).empty_table(), path)
    assert _append(frame, path) == [{"at": INSTANT, "wall": NOON}]
    assert lance.dataset(path).schema.field("at") == pa.field("at", pa.timestamp("us", "UTC"), nullable=False)


@pytest.mark.deep
def test_void_decimal256_and_blob_columns_are_read(in_new_york: SparkSession, tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={BLOB_KEY: "true"})
    schema = pa.schema([("void", pa.null()), ("wide", pa.decimal256(38, 2)), blob])
    rows = [{"void": None, "wide": PRICE, "blob": b"abc"}, {"void": None, "wide": None, "blob": None}]
    lance.write_dataset(pa.Table.from_pylist(rows, schema=schema), tmp_path / "t.lance")
    assert _load(in_new_york, tmp_path / "t.lance").toArrow().to_pylist() == rows


@pytest.mark.deep
def test_error_names_the_column_when_a_value_does_not_fit(in_new_york: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "vectors.lance"
    lance.write_dataset(pa.schema([("v", pa.list_(pa.float32(), 2))]).empty_table(), path)
    frame = in_new_york.sql("SELECT array(1.0F, 2.0F, 3.0F) AS v")
    check_append(frame.schema, lance.dataset(path).schema)
    with pytest.raises(Exception, match="column 'v' holds vectors of size 2, but one has 3 values"):
        _append(frame, path)
    assert lance.dataset(path).count_rows() == 0
