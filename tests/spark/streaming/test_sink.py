"""The streaming sink in Spark: modes, several queries on one table, and queries that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.paths import REPOSITORY

import relance
import relance.spark
from relance.errors import TableNotFoundError, TableSchemaValidationError
from relance.spark.errors import typed_errors

pytestmark = pytest.mark.deep

QUIET: dict[str, Any] = {"manifest_upkeep": "false"}


class Files:
    """Files with numbers, of which each becomes a micro-batch."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.numbers: list[int] = []

    def add(self, first: int, last: int) -> None:
        lines = "".join(json.dumps({"id": n}) + "\n" for n in range(first, last))
        hidden = self.folder / f".{first}.json"
        hidden.write_text(lines)
        os.utime(hidden, (1_700_000_000 + first,) * 2)  # Spark takes the oldest first
        hidden.rename(self.folder / f"{first:06}.json")
        self.numbers += range(first, last)

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(self.folder))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def write(
    rows: DataFrame, root: Path, table: str, checkpoint: Path, *, mode: str = "append", **options: str
) -> StreamingQuery:
    writer = rows.writeStream.format("lance").outputMode(mode).trigger(availableNow=True)
    given = {"root": str(root), "checkpointLocation": str(checkpoint), **QUIET, **options}
    return writer.options(**given).start(table)


def dataset(root: Path, *parts: str) -> lance.LanceDataset:
    catalog = relance.DirectoryNamespace(root=str(root), **QUIET)
    return lance.dataset(str(catalog.describe_table({"id": list(parts)}).location))


def ids(root: Path, *parts: str) -> list[int]:
    return sorted(dataset(root, *parts).to_table()["id"].to_pylist())


def test_sink_writes_appends_complete_results_and_concurrent_queries(
    spark: SparkSession, files: Files, root: Path, tmp_path: Path
) -> None:
    relance.spark.register(spark)
    files.add(0, 100)
    files.add(100, 150)
    stream = files.stream(spark)
    options = {"create_namespaces": "true", "stable_row_ids": "true"}
    queries = [
        write(stream, root, "prod.events", tmp_path / "one", **options),
        write(stream.groupBy("id").count(), root, "counts", tmp_path / "counts", mode="complete"),
    ]
    for query in queries:
        query.awaitTermination()
    assert ids(root, "prod", "events") == files.numbers
    assert dataset(root, "prod", "events").version == 2
    assert dataset(root, "prod", "events").has_stable_row_ids
    assert ids(root, "counts") == files.numbers

    files.add(150, 170)
    stream = files.stream(spark)
    queries = [
        write(stream, root, "prod.events", tmp_path / "one"),
        write(stream, root, "prod.events", tmp_path / "two"),
        write(stream.groupBy("id").count(), root, "counts", tmp_path / "counts", mode="complete"),
    ]
    for query in queries:
        query.awaitTermination()
    assert ids(root, "prod", "events") == sorted([*files.numbers, *files.numbers])
    assert ids(root, "counts") == files.numbers

    # The checkpoint forgets that the last batch was done, as after a crash between two commits.
    before = dataset(root, "prod", "events").version
    for name in ("2", ".2.crc"):
        (tmp_path / "one" / "commits" / name).unlink()
    write(files.stream(spark), root, "prod.events", tmp_path / "one").awaitTermination()
    assert dataset(root, "prod", "events").version == before
    assert len(ids(root, "prod", "events")) == 2 * len(files.numbers)


def test_invalid_streaming_writes_raise_typed_errors(
    spark: SparkSession, files: Files, root: Path, tmp_path: Path
) -> None:
    relance.spark.register(spark)
    files.add(0, 3)
    write(files.stream(spark), root, "events", tmp_path / "one").awaitTermination()
    text = files.stream(spark).selectExpr("cast(id as string) as id")
    with pytest.raises(TableSchemaValidationError, match="id"), typed_errors():
        write(text, root, "events", tmp_path / "two").awaitTermination()
    relance.DirectoryNamespace(root=str(root), **QUIET).drop_table({"id": ["events"]})
    files.add(3, 4)
    with pytest.raises(TableNotFoundError, match="undrop"), typed_errors():
        write(files.stream(spark), root, "events", tmp_path / "one").awaitTermination()


def run_query(root: Path, files: Files, checkpoint: Path, *, killed_in: int = -1) -> int:
    """Run the query in its own process, which may kill it, and return how that ended."""
    command = [sys.executable, "-m", "tests.support.spark.killed_query"]
    arguments = [str(root), str(files.folder), str(checkpoint), str(killed_in)]
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=600,
        check=False,
    )
    if killed_in < 0:
        assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.returncode


@pytest.mark.timeout(1800)
def test_query_killed_before_its_checkpoint_writes_every_row_once(
    java: None, files: Files, root: Path, tmp_path: Path
) -> None:
    files.add(0, 10)
    files.add(10, 20)
    files.add(20, 30)
    checkpoint = tmp_path / "checkpoint"
    # Here between commit and checkpoint; test_stream_progress has it die everywhere else too.
    assert run_query(root, files, checkpoint, killed_in=1) != 0
    assert not (checkpoint / "commits" / "1").exists()
    assert ids(root, "prod", "events") == list(range(20))
    run_query(root, files, checkpoint)
    assert Path(f"{checkpoint}.killed").exists()
    assert ids(root, "prod", "events") == files.numbers
    assert dataset(root, "prod", "events").version == 3
