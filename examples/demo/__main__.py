"""`python -m examples.demo`: the story from the first table to the report."""

from __future__ import annotations

from examples.demo.lake import LAKE, make_lake, show_tables
from examples.demo.lifecycle import drop_a_namespace, drop_under_a_reader
from examples.demo.nightly import REPORT, keep_healthy
from examples.demo.show import step
from examples.demo.spark_tables import ingest, merge, stream

import relance.spark


def main() -> None:
    catalog = make_lake()
    show_tables(catalog)
    drop_under_a_reader(catalog)
    drop_a_namespace(catalog)
    spark = relance.spark.session("relance demo", root=str(LAKE))
    ingest(spark)
    stream(spark)
    merge(spark)
    keep_healthy(spark, catalog)
    spark.stop()
    step(f"done. The report of the run: {REPORT.resolve()}")


if __name__ == "__main__":
    main()
