"""Spark Connect: the same calls, in a process of its own: one kind of session excludes the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

pytestmark = pytest.mark.deep

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from relance.errors import InvalidInputError, TableAlreadyExistsError, TableNotFoundError
from relance.spark import attach, register, save, table

root = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register(spark)
assert spark.read.format("lance").option("root", root).load("t").count() == 100
assert table(spark, "t", root=root, where="id < 5", columns=["id"], source="other").count() == 5
for call, error in (
    (lambda: table(spark, "nothing", root=root), TableNotFoundError),
    (lambda: register(spark, "parquet"), InvalidInputError),
    (lambda: save(spark.range(3), "t", root=root), TableAlreadyExistsError),
):
    try:
        call()
    except error:
        continue
    raise AssertionError(error)
attached = attach(spark, root)
assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == 100
attached.refresh()
attached.detach()
assert table(spark, "t").count() == 100
assert save(spark.range(100, 110), "t", mode="append").version == 2
assert save(spark.range(7), "new").version == 1
assert (table(spark, "t").count(), table(spark, "new").count()) == (110, 7)
spark.stop()
"""


def test_reads_views_and_writes_work_through_spark_connect(tmp_path: Path) -> None:
    for needed in ("grpc", "grpc_status", "pandas", "zstandard"):
        pytest.importorskip(needed)
    lance.write_dataset(pa.table({"id": range(100)}), tmp_path / "t.lance")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
