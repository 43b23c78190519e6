"""What a session on the driver has and one of Spark Connect has not."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError
from pyspark.sql import SparkSession


def spark_context(spark: SparkSession) -> SparkContext | None:
    """Return the session's context; None of a session of Spark Connect."""
    try:
        return spark.sparkContext
    except (PySparkAttributeError, PySparkNotImplementedError):
        return None


def parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks run at once; a Connect session does not tell."""
    context = spark_context(spark)
    return None if context is None else max(1, context.defaultParallelism)
