"""The streaming source in Spark; what it reads in each case is tested in test_planning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import relance
import relance.spark
from relance.errors import InvalidTableStateError, TableNotFoundError
from relance.spark.errors import typed_errors

pytestmark = pytest.mark.deep

QUIET: dict[str, Any] = {"manifest_upkeep": "false"}


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": pa.array(numbers, pa.float64())})


class StreamedTable:
    """A catalog with one table that a query reads batch by batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.root = str(folder / "lake")
        self.checkpoints = folder
        self.catalog = relance.DirectoryNamespace(root=self.root, **QUIET)
        self.uri = f"{self.root}/events.lance"
        lance.write_dataset(rows(0, 10), self.uri, enable_stable_row_ids=True)

    def append(self, first: int, last: int) -> None:
        lance.write_dataset(rows(first, last), self.uri, mode="append")

    def stream(self, **options: object) -> DataFrame:
        given = {name: str(value) for name, value in options.items()}
        reader = self.spark.readStream.format("lance").options(root=self.root, **QUIET, **given)
        return reader.load("events")

    def run(self, stream: DataFrame, checkpoint: str) -> list[list[dict[str, Any]]]:
        """Run the query over all there is, and return the rows of each batch."""
        found: list[list[dict[str, Any]]] = []

        def keep(batch: DataFrame, _: int) -> None:
            found.append([row.asDict() for row in batch.collect()])

        writer = stream.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoints / checkpoint)).start()
        with typed_errors():
            query.awaitTermination()
        return found


def ids(batches: list[list[dict[str, Any]]]) -> list[list[int]]:
    return [sorted(row["id"] for row in batch) for batch in batches]


def test_stream_reads_the_table_then_its_versions_across_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    relance.spark.register(spark)
    lake = StreamedTable(spark, tmp_path)
    lake.append(10, 15)
    assert ids(lake.run(lake.stream(max_versions_per_batch=1), "all")) == [list(range(15))]
    lake.append(15, 17)
    lake.append(17, 18)
    lance.dataset(lake.uri).optimize.compact_files()
    batches = lake.run(lake.stream(max_versions_per_batch=1, filter="id != 16"), "all")
    assert [batch for batch in ids(batches) if batch] == [[15], [17]]

    changes = lake.stream(changes="rows", starting_version=3)
    assert changes.columns == ["id", "x", "_change_type", "_commit_version"]
    lance.dataset(lake.uri).update({"x": "x + 100"}, where="id = 3")
    lake.append(18, 19)
    found = [tuple(row.values()) for batch in lake.run(changes, "changes") for row in batch]
    updated = lance.dataset(lake.uri).version - 1
    assert sorted(row for row in found if row[3] >= updated) == [
        (3, 103.0, "update", updated),
        (18, 18.0, "insert", updated + 1),
    ]

    with pytest.raises(InvalidTableStateError, match=rf"version {updated} .*\(Update\).*skip_changes=true"):
        lake.run(lake.stream(), "all")
    assert ids(lake.run(lake.stream(skip_changes="true"), "all"))[-1] == [18]
    lake.catalog.drop_table({"id": ["events"]})
    with pytest.raises(TableNotFoundError, match="undrop"), typed_errors():
        lake.run(lake.stream(), "all")
