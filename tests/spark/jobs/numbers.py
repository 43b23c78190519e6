"""A driver that writes or reads numbers: `python -m tests.spark.jobs.numbers WHAT ROOT TABLE ROWS TASKS`.

WHAT is modes of `save`, `read` and `pause` with commas between them, done one after the other; a pause ends
when the test touches a file. `append-with-death` loses a worker process on the way, `append-with-stall` has a
task that does not end. Each task that begins touches a file in ROOT-tasks, so that a test knows when to
interfere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.spark.cluster import driver_session

import relance.spark

COLUMNS = "id long, payload string"


def signs(root: str) -> Path:
    """Return the folder in which tasks leave a file when they begin."""
    return Path(f"{root}-tasks")


def numbers(
    spark: SparkSession, root: str, rows: int, tasks: int, *, die: bool = False, stall: bool = False
) -> DataFrame:
    """Return rows that come slowly; the first attempt of one task may end its process, or come to no end."""
    folder = signs(root)
    folder.mkdir(exist_ok=True)

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (folder / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        for batch in batches:
            time.sleep(0.2)
            yield batch
        if stall and context.partitionId() == 1 and context.attemptNumber() == 0:
            time.sleep(120)  # after its rows: the attempt that is started beside it is the one that counts
        if die and context.partitionId() == 1 and context.attemptNumber() == 0:
            os._exit(1)

    plain = spark.range(0, rows, 1, tasks).select(
        "id", f.sha2(f.col("id").cast("string"), 256).alias("payload")
    )
    return plain.mapInArrow(slowly, COLUMNS)


def summary(df: DataFrame) -> dict[str, int]:
    """Return what tells whether all rows are there, each once."""
    row = df.agg(
        f.count("*").alias("rows"),
        f.countDistinct("id").alias("distinct"),
        f.sum("id").alias("sum"),
        f.expr("bit_xor(xxhash64(id, payload))").alias("checksum"),
    ).first()
    assert row is not None
    return {name: int(value or 0) for name, value in row.asDict().items()}


def main(what: str, root: str, table: str, rows: int, tasks: int) -> None:
    steps = what.split(",")
    # Drivers that do several things without a pause run beside each other, on one executor each.
    spark = driver_session(
        what,
        spark_cores_max="2" if len(steps) == 1 or "pause" in steps else "1",
        spark_task_maxFailures="8",
        spark_speculation=str("stall" in what).lower(),
        spark_speculation_quantile="0.5",
        spark_speculation_minTaskRuntime="1s",
    )
    versions, read = [], None
    for step in steps:
        mode, _, trouble = step.partition("-with-")
        if mode == "read":
            seen = relance.spark.table(spark, table, root=root, split_rows=max(1, rows // tasks))
            read = summary(_slow_read(seen, root))
        elif mode == "pause":
            (signs(root) / "paused").touch()
            while not (signs(root) / "go").exists():
                time.sleep(0.1)
        else:
            source = numbers(spark, root, rows, tasks, die=trouble == "death", stall=trouble == "stall")
            versions.append(relance.spark.save(source, table, root=root, mode=mode).version)
    print(json.dumps({"versions": versions, "read": read}))
    spark.stop()


def _slow_read(df: DataFrame, root: str) -> DataFrame:
    folder = signs(root)

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (folder / f"read-{context.partitionId()}-{context.attemptNumber()}").touch()
        time.sleep(0.5)
        yield from batches

    folder.mkdir(exist_ok=True)
    return df.mapInArrow(slowly, COLUMNS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
