"""Act 3: Spark writes, queries, streams and merges tables of the catalog."""

from __future__ import annotations

import os
from pathlib import Path

from examples.demo.lake import LAKE
from examples.demo.show import call, expect_error, heading, say, show_table
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual alias

import relance.spark

_SETTINGS = Path(__file__).with_name("spark")
_TCP = {"spark.python.unix.domain.socket.enabled": "false"}
"""When Spark drops an idle Python worker, the worker reports that over the connection that Spark has just
closed. Over a Unix socket this fails, and the worker prints a BrokenPipeError that means nothing."""


def start_spark() -> SparkSession:
    """Start Spark on this machine."""
    heading("Act 3: Spark works on the same tables")
    call(f'spark = relance.spark.session(root="{LAKE}")')
    os.environ.setdefault("SPARK_CONF_DIR", str(_SETTINGS))
    return relance.spark.session("relance demo", root=str(LAKE), conf=_TCP)


def use_spark(spark: SparkSession) -> None:
    """Write, read, stream and merge."""
    _write(spark)
    _read(spark)
    _stream(spark)
    _merge(spark)


def _write(spark: SparkSession) -> None:
    call('relance.spark.save(readings, "prod.sensors.all")')
    readings = spark.range(0, 1_000_000, 1, 4).select(
        (F.col("id") % 500).alias("sensor"),
        F.expr("current_timestamp() - make_interval(0, 0, 0, 0, 0, 0, id / 10)").alias("ts"),
        (F.sin(F.col("id") / 1000) * 10 + 20).alias("value"),
    )
    saved = relance.spark.save(readings, "prod.sensors.all")
    say(f"4 tasks wrote a million rows, and one commit made them visible: version {saved.version}.")
    say("To change an existing table, pass mode='append' or mode='overwrite'. Without it, a save is refused:")
    expect_error(lambda: relance.spark.save(readings, "prod.sensors.all"))


def _read(spark: SparkSession) -> None:
    call('relance.spark.table(spark, "prod.sensors.all", where="value > 29.99 AND sensor < 5").count()')
    hot = relance.spark.table(spark, "prod.sensors.all", where="value > 29.99 AND sensor < 5")
    say(f"{hot.count():,} rows. Lance evaluates the filter, so Spark reads only the rows that match.")
    call('spark.sql("SELECT sensor, count(*), avg(value) FROM `prod.sensors.all` GROUP BY sensor ...")')
    with relance.spark.attach(spark):
        found = spark.sql(
            "SELECT sensor, count(*) AS readings, round(avg(value), 2) AS mean "
            "FROM `prod.sensors.all` GROUP BY sensor ORDER BY mean DESC, sensor LIMIT 3"
        ).collect()
    show_table(["sensor", "readings", "mean"], [[f"{cell:,}" for cell in row] for row in found])


def _stream(spark: SparkSession) -> None:
    call('spark.readStream.format("lance").load("prod.sensors.all").where("value > 29.9").writeStream...')
    counts = []
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
        counts.append(relance.spark.table(spark, "scratch.peaks").count())
        more = relance.spark.table(spark, "prod.sensors.all", where="sensor < 5")
        relance.spark.save(more, "prod.sensors.all", mode="append")
    say(
        f"The stream copied {counts[0]:,} peaks to scratch.peaks and stopped. Restarted after more rows "
        f"had arrived, it copied only the {counts[1] - counts[0]:,} new ones."
    )


def _merge(spark: SparkSession) -> None:
    names = spark.range(0, 600).select("id", F.concat(F.lit("sensor "), "id").alias("name"))
    relance.spark.save(names.where("id < 500"), "prod.sensors.names")
    call('relance.spark.merge(changes, "prod.sensors.names", "id")')
    merged = relance.spark.merge(names.where("id >= 450"), "prod.sensors.names", "id")
    say(f"An upsert by key: {merged.updated} rows updated, {merged.inserted} inserted, in one version.")
