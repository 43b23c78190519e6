"""A driver that writes and reads numbers as it is asked: `python -m tests.support.spark.jobs.numbers`.

Each task that begins touches a file in ROOT-tasks, so that a test knows when to interfere. A request is a
line of JSON: `what` is one of REQUESTS, the rest its arguments. The answer is a line too.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.support.spark.cluster import driver_session
from tests.support.spark.jobs.big import write_and_read

import relance.spark

COLUMNS = "id long, payload string"
TABLE = "t"
STALL_SECONDS = 3600
"""Longer than any test may take: only the speculative copy of a stalled task can finish."""


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
            time.sleep(
                STALL_SECONDS
            )  # after its rows: the attempt that is started beside it is the one that counts
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


def write(
    spark: SparkSession, root: str, modes: list[str], rows: int, tasks: int, trouble: str = ""
) -> dict[str, Any]:
    """Save numbers once for each mode; in trouble, one task loses its process (`death`) or ends never."""
    source = numbers(spark, root, rows, tasks, die=trouble == "death", stall=trouble == "stall")
    return {"versions": [relance.spark.save(source, TABLE, root=root, mode=mode).version for mode in modes]}


def read(spark: SparkSession, root: str, rows: int, tasks: int) -> dict[str, Any]:
    """Return what tells whether all rows are there, each once."""
    seen = relance.spark.table(spark, TABLE, root=root, split_rows=max(1, rows // tasks))
    return summary(_slow_read(seen, root))


REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {"write": write, "read": read, "big": write_and_read}


def main() -> None:
    spark = driver_session(
        "on request",
        spark_task_maxFailures="8",
        spark_speculation="true",
        spark_speculation_quantile="0.5",
        spark_speculation_minTaskRuntime="1s",
    )
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = REQUESTS[request.pop("what")](spark, **request)
        except Exception:  # noqa: BLE001  # the test shows it
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
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
    main()
