"""Spark writes, reads and streams tables of the catalog."""

from __future__ import annotations

from examples.demo.lake import LAKE
from examples.demo.show import console, expect_error, step
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everyone who uses Spark calls them

import relance.spark


def ingest(spark: SparkSession) -> None:
    """Write a million rows, and ask for few of them."""
    step("Spark writes a million readings: tasks write files, one commit shows them all")
    readings = spark.range(0, 1_000_000, 1, 4).select(
        (F.col("id") % 500).alias("sensor"),
        F.expr("current_timestamp() - make_interval(0, 0, 0, 0, 0, 0, id / 10)").alias("ts"),
        (F.sin(F.col("id") / 1000) * 10 + 20).alias("value"),
    )
    saved = relance.spark.save(readings, "prod.sensors.all")
    console.print(f"prod.sensors.all: version {saved.version}")
    expect_error(lambda: relance.spark.save(readings, "prod.sensors.all"))

    step("columns and a filter reach Lance, so that little is read; SQL sees every table")
    hot = relance.spark.table(
        spark, "prod.sensors.all", columns=["sensor", "value"], where="value > 29.99 AND sensor < 5"
    )
    console.print(f"{hot.count():,} readings above 29.99 of sensors 0 to 4")
    with relance.spark.attach(spark):
        spark.sql(
            "SELECT sensor, count(*) AS readings, round(avg(value), 2) AS mean "
            "FROM `prod.sensors.all` GROUP BY sensor ORDER BY mean DESC, sensor LIMIT 3"
        ).show()


def stream(spark: SparkSession) -> None:
    """Copy what is new, in two goes."""
    step("a stream copies what is new, each row once, and can be stopped and started at any time")
    for _ in range(2):
        source = spark.readStream.format("lance").option("root", str(LAKE)).load("prod.sensors.all")
        query = (
            source.where("value > 29.9")
            .writeStream.format("lance")
            .option("root", str(LAKE))
            .option("checkpointLocation", str(LAKE / ".demo-checkpoint"))
            .trigger(availableNow=True)
            .start("scratch.peaks")
        )
        query.awaitTermination()
        console.print(f"scratch.peaks: {relance.spark.table(spark, 'scratch.peaks').count():,} rows")
        more = relance.spark.table(spark, "prod.sensors.all", where="sensor < 5")
        relance.spark.save(more, "prod.sensors.all", mode="append")


def merge(spark: SparkSession) -> None:
    """Correct some rows and add others by key, in one version."""
    step("an upsert: rows with a known key are updated, the others added, in one version")
    names = spark.range(0, 600).select("id", F.concat(F.lit("sensor "), "id").alias("name"))
    relance.spark.save(names.where("id < 500"), "prod.sensors.names")
    done = relance.spark.merge(names.where("id >= 450"), "prod.sensors.names", "id")
    console.print(f"version {done.version}: {done.updated} updated, {done.inserted} added ({done.engine})")
