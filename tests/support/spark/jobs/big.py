"""A table twice as big as an executor's memory, written and read."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import relance.spark

DIMENSION = 1024


def write_and_read(spark: SparkSession, root: str, rows: int) -> dict[str, Any]:
    """Write rows with wide vectors, and return what reading them back gives."""
    # Wide rows: with the default of 16,384 a batch of them would take 64 MiB.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4096")
    number = f.col("id").cast("float")
    vectors = spark.range(0, rows, 1, 8).select(
        "id", f.array_repeat(f.sin(number).cast("float"), DIMENSION).alias("v")
    )
    relance.spark.save(vectors, "big", root=root, vectors={"v": DIMENSION})
    back = relance.spark.table(spark, "big", root=root)
    row = back.agg(
        f.count("*"), f.sum("id"), f.min(f.size("v")), f.sum(f.abs(f.col("v")[7] - f.sin("id")))
    ).first()
    assert row is not None
    return {"rows": row[0], "sum": row[1], "size": row[2], "off": row[3]}
